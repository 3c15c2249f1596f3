// SPDX-License-Identifier: GPL-2.0
//! Tracks which links delivered the data that a peer's messages announce.
//!
//! Where DMA has to be synchronised, each link has its own mapping of the RMBE, and the CPU sees what a link wrote only
//! once that link's mapping was synchronised. Bytes are announced on the link that wrote them: the message with the
//! next sequence number announces what its own link wrote since the message before it. So messages have to be processed
//! in order, also across links, whose completion queues are independent.
//!
//! Only connections whose RMBE needs it keep an [`Arrivals`].

use crate::conn::{
    is_before,
    Cdc,
    RmbeNum,
    Stream, //
};
use crate::cursor::{
    Chunks,
    Cursor, //
};
use crate::lgr::LinkIdx;

/// The peer's write position at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProdPosition(u64);

/// Bytes that the peer wrote, by RMBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivedBytes {
    /// In the one that was in use before.
    pub replaced: Chunks,
    /// In the one in use.
    pub present: Chunks,
    /// In the one that was offered: the message that says so is held.
    pub offered: Chunks,
}

/// The index of a link, and the bytes that it delivered.
type Part = (LinkIdx, ArrivedBytes);

/// Limit of link changes by the peer while a missing message is awaited.
const PARTS: usize = 4;

/// The links that the messages of one connection arrived on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    /// The link of the newest message accepted.
    newest: Option<LinkIdx>,
    /// The links of held messages, in order, and the end of the data that were announced on each.
    held: [Option<HeldPart>; PARTS],
}

/// The last message held that arrived on a link: its producer cursor, and what it says of RMBEs.
#[derive(Clone, Copy, Debug)]
struct HeldPart {
    prod: Cursor,
    since: u32,
    num: RmbeNum,
    link: LinkIdx,
}

impl HeldPart {
    fn new(link: LinkIdx, cdc: &Cdc, stream: &Stream) -> Self {
        let refs = stream.refs_of_peer(cdc.rmbes);
        Self {
            prod: cdc.prod,
            since: refs.since,
            num: refs.prod,
            link,
        }
    }
}

impl Arrivals {
    /// Whether messages before this one, which arrived on link `idx`, may be in the completion queue of another link,
    /// so that [`CdcHold::filter`](crate::conn::CdcHold::filter) has to hold it back.
    pub fn is_early(&self, idx: LinkIdx, cdc: &Cdc, stream: &Stream) -> bool {
        !cdc.is_validation() && self.newest != Some(idx) && stream.skips(cdc.seq)
    }

    /// Records that a message was accepted.
    pub fn took(&mut self, idx: LinkIdx, cdc: &Cdc, stream: &Stream) {
        if !cdc.is_validation() && cdc.seq == stream.seq_peer {
            self.newest = Some(idx);
        }
    }

    /// Records that a message is held. Returns false if there is no room: the link of its bytes is then unknown.
    #[must_use]
    pub fn hold(&mut self, idx: LinkIdx, cdc: &Cdc, stream: &Stream) -> bool {
        if cdc.is_validation() {
            return true;
        }
        let last = self.held.iter().flatten().count().checked_sub(1);
        let place = match last.and_then(|last| self.held.get_mut(last)) {
            Some(Some(part)) if part.link == idx => {
                *part = HeldPart::new(idx, cdc, stream);
                return true;
            }
            _ => self.held.iter_mut().find(|place| place.is_none()),
        };
        match place {
            Some(place) => {
                *place = Some(HeldPart::new(idx, cdc, stream));
                true
            }
            None => false,
        }
    }

    /// Returns, in order, the bytes announced by the held messages, which are about to be processed.
    pub fn release(&mut self, stream: &Stream) -> [Option<Part>; PARTS] {
        let mut from = stream.arrived();
        // In the RMBE that was offered: there data may begin before what arrived in the present one.
        let mut from_offered = None;
        core::mem::take(&mut self.held).map(|held| {
            let held = held?;
            self.newest = Some(held.link);
            let to = stream.recv.check_prod(held.num, held.prod).ok()??;
            let end = stream.recv.check_refs(held.num, held.since, held.prod);
            let rmbes = stream.recv.rmbes();
            let arrived = match end.ok()? {
                None => rmbes.arrived(from.0, to),
                Some(end) => {
                    let begin = from_offered.unwrap_or(end);
                    from_offered = Some(begin.max(to));
                    ArrivedBytes {
                        offered: rmbes.arrived_in_offered(begin, to),
                        ..rmbes.arrived(from.0, to.min(end))
                    }
                }
            };
            from = ProdPosition(from.0.max(to));
            Some((held.link, arrived))
        })
    }
}

impl Stream {
    /// The peer's write position, as announced by its messages.
    pub const fn arrived(&self) -> ProdPosition {
        ProdPosition(self.recv.received())
    }

    /// Returns where in our RMBEs the bytes written since `before` are.
    pub fn arrived_since(&self, before: ProdPosition) -> ArrivedBytes {
        self.recv.rmbes().arrived(before.0, self.recv.received())
    }

    /// Whether messages of the peer before `seq` are missing.
    const fn skips(&self, seq: u16) -> bool {
        is_before(self.seq_peer.wrapping_add(1), seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::SizeClass;
    use crate::conn::{
        CdcHold,
        ProducerFlags,
        RxVerdict, //
    };
    use crate::cursor::Chunk;

    fn data(seq: u16, offset: u32) -> Cdc {
        Cdc {
            seq,
            prod: Cursor { wrap: 0, offset },
            ..Cdc::default()
        }
    }

    fn chunk(offset: u32, len: u32) -> Chunks {
        [Chunk { offset, len }, Chunk::default()]
    }

    /// A connection as the module keeps it; `synced` records what is synchronised, in order.
    struct Rig {
        stream: Stream,
        cdc_hold: CdcHold,
        arrivals: Arrivals,
        synced: std::vec::Vec<(usize, Chunks)>,
    }

    impl Rig {
        fn new() -> Self {
            let mut stream = Stream::new(SizeClass::SMALLEST);
            stream.establish(SizeClass::SMALLEST);
            Self {
                stream,
                cdc_hold: CdcHold::default(),
                arrivals: Arrivals::default(),
                synced: std::vec::Vec::new(),
            }
        }

        fn arrive(&mut self, link: usize, cdc: &Cdc) -> RxVerdict {
            let idx = LinkIdx::ALL[link];
            let is_early = self.arrivals.is_early(idx, cdc, &self.stream);
            let verdict = self.cdc_hold.filter(cdc, &mut self.stream, is_early);
            match verdict {
                RxVerdict::Deliver => {
                    let before = self.stream.arrived();
                    self.stream.on_cdc(cdc).unwrap();
                    self.arrivals.took(idx, cdc, &self.stream);
                    let chunks = self.stream.arrived_since(before).present;
                    self.synced
                        .extend((chunks[0].len > 0).then_some((link, chunks)));
                }
                RxVerdict::Hold | RxVerdict::HoldAndFlush => {
                    assert!(self.arrivals.hold(idx, cdc, &self.stream));
                }
                RxVerdict::Abort(fault) => assert_eq!(Err(fault), Ok(())),
            }
            verdict
        }

        fn open(&mut self) {
            self.cdc_hold.begin_flush();
            let parts = self.arrivals.release(&self.stream);
            let parts = parts.into_iter().flatten();
            self.synced
                .extend(parts.map(|(idx, written)| (idx.get(), written.present)));
            for cdc in self.cdc_hold.release().iter().flatten() {
                self.stream.on_cdc(cdc).unwrap();
            }
        }
    }

    #[test]
    fn what_one_link_brings_is_its_own() {
        let mut rig = Rig::new();
        for (seq, to) in [(1, 10), (2, 30), (4, 40)] {
            assert_eq!(rig.arrive(0, &data(seq, to)), RxVerdict::Deliver);
        }
        assert_eq!(
            rig.synced,
            [(0, chunk(0, 10)), (0, chunk(10, 20)), (0, chunk(30, 10))]
        );
    }

    #[test]
    fn a_message_by_another_link_waits_for_those_before_it() {
        let mut rig = Rig::new();
        rig.arrive(0, &data(1, 10));
        assert_eq!(rig.arrive(1, &data(3, 30)), RxVerdict::HoldAndFlush);
        assert_eq!(rig.arrive(1, &data(4, 40)), RxVerdict::Hold);
        assert_eq!(rig.arrive(0, &data(2, 20)), RxVerdict::Deliver);
        rig.open();
        assert_eq!(
            rig.synced,
            [(0, chunk(0, 10)), (0, chunk(10, 10)), (1, chunk(20, 20))]
        );
        assert_eq!(rig.arrive(1, &data(6, 60)), RxVerdict::Deliver);
    }

    #[test]
    fn a_message_by_another_link_in_its_turn_waits_for_nothing() {
        let mut rig = Rig::new();
        rig.arrive(0, &data(1, 10));
        assert_eq!(rig.arrive(1, &data(2, 30)), RxVerdict::Deliver);
        assert_eq!(rig.synced, [(0, chunk(0, 10)), (1, chunk(10, 20))]);
    }

    #[test]
    fn a_second_change_of_the_link_is_remembered_while_messages_are_held() {
        let mut rig = Rig::new();
        rig.arrive(0, &data(1, 10));
        rig.arrive(1, &data(3, 30));
        rig.arrive(2, &data(4, 40));
        rig.arrive(2, &data(5, 50));
        rig.arrive(0, &data(2, 20));
        rig.open();
        assert_eq!(
            rig.synced,
            [
                (0, chunk(0, 10)),
                (0, chunk(10, 10)),
                (1, chunk(20, 10)),
                (2, chunk(30, 20))
            ]
        );
    }

    #[test]
    fn too_many_changes_are_not_remembered() {
        let (mut arrivals, stream) = (Arrivals::default(), Rig::new().stream);
        for idx in &LinkIdx::ALL[..PARTS] {
            assert!(arrivals.hold(*idx, &data(1, 10), &stream));
        }
        assert!(!arrivals.hold(LinkIdx::ALL[PARTS], &data(1, 10), &stream));
    }

    #[test]
    fn a_validation_announces_nothing() {
        let mut rig = Rig::new();
        rig.arrive(0, &data(1, 10));
        let validation = Cdc {
            flags: ProducerFlags::FAILOVER,
            ..data(1, 99)
        };
        assert_eq!(rig.arrive(1, &validation), RxVerdict::Deliver);
        assert_eq!(rig.arrive(1, &data(2, 20)), RxVerdict::Deliver);
        assert_eq!(rig.synced, [(0, chunk(0, 10)), (1, chunk(10, 10))]);
    }

    #[test]
    fn what_is_repeated_by_another_link_is_not_looked_at_again() {
        let mut rig = Rig::new();
        rig.arrive(0, &data(1, 10));
        rig.arrive(0, &data(2, 20));
        assert_eq!(rig.arrive(1, &data(3, 15)), RxVerdict::Deliver);
        assert_eq!(rig.arrive(1, &data(4, 40)), RxVerdict::Deliver);
        assert_eq!(
            rig.synced,
            [(0, chunk(0, 10)), (0, chunk(10, 10)), (1, chunk(20, 20))]
        );
    }
}
