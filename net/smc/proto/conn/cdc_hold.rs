// SPDX-License-Identifier: GPL-2.0
//! Holds CDC messages of a new link back until those of the old link have been processed.
//!
//! A peer that fails a connection over sends a validation with the number of its last message that arrived, and
//! continues on another link (RFC 7609 section 4.6). Each link has a completion queue (CQ) of its own, so that message
//! may have arrived and wait there. It is lost only if it is still missing after all CQs were flushed.
//!
//! One message is held: its cursors and state flags include those of all earlier ones. Only the position of the last
//! urgent byte may be in an earlier message, which is held as well.

use crate::conn::{
    is_before,
    Cdc,
    Fault,
    ProducerFlags,
    Stream, //
};
use crate::error::PeerMisbehaved;
use crate::lgr::MAX_LINKS;

/// The CDC messages of one connection that wait for a flush of the CQs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CdcHold(Option<HeldCdc>);

/// The messages held.
#[derive(Clone, Copy, Debug)]
struct HeldCdc {
    /// The first message held, usually a validation.
    first: Cdc,
    /// The newest message after it with an urgent byte that more data follow.
    urgent: Option<Cdc>,
    /// The newest message after it.
    newest: Option<Cdc>,
    /// A later validation: the peer failed over again.
    last: Option<Cdc>,
    /// The number of later validations.
    later: u8,
    /// The CQs are being flushed.
    is_flushing: bool,
}

/// Decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxVerdict {
    /// Pass it to [`Stream::on_cdc`] now.
    Deliver,
    /// It was held.
    Hold,
    /// It was held, and the CQs of all links are to be flushed: [`CdcHold::begin_flush`] before, [`CdcHold::release`]
    /// after that.
    HoldAndFlush,
    /// The connection has to be aborted.
    Abort(Fault),
}

/// Messages for [`Stream::on_cdc`], in order.
pub type HeldCdcs = [Option<Cdc>; 4];

impl CdcHold {
    /// Decides about a message of the peer. With `needs_flush` it is held even if no earlier one is missing: a
    /// validation because the old link may still deliver messages, which it cannot after a flush; any other because the
    /// data of earlier messages have to be synchronised first.
    pub fn filter(&mut self, cdc: &Cdc, stream: &mut Stream, needs_flush: bool) -> RxVerdict {
        let is_stale = stream.is_stale(cdc);
        let is_validation = cdc.is_validation() && !is_stale;
        if is_validation {
            stream.on_peer_switch();
        }
        match &mut self.0 {
            None if (needs_flush && !is_stale) || (is_validation && stream.is_missing(cdc.seq)) => {
                self.0 = Some(HeldCdc {
                    first: *cdc,
                    urgent: None,
                    newest: None,
                    last: None,
                    later: 0,
                    is_flushing: false,
                });
                RxVerdict::HoldAndFlush
            }
            None => RxVerdict::Deliver,
            // Each asks for another flush, which all connections of the group wait for.
            Some(held) if is_validation && usize::from(held.later) >= MAX_LINKS => {
                RxVerdict::Abort(PeerMisbehaved::TooManyFailovers.into())
            }
            Some(held) if is_validation => {
                held.later = held.later.saturating_add(1);
                held.last = Some(*cdc);
                held.is_flushing = false;
                RxVerdict::HoldAndFlush
            }
            Some(held) if is_before(held.first.seq, cdc.seq) => {
                held.keep(*cdc);
                RxVerdict::Hold
            }
            // A missing message, or one that comes too late.
            Some(_) => RxVerdict::Deliver,
        }
    }

    /// The newest message with cursors.
    pub(super) fn last(&self) -> Option<&Cdc> {
        let held = self.0.as_ref()?;
        let first = Some(&held.first).filter(|first| !first.is_validation());
        held.newest.as_ref().or(first)
    }

    /// To be called before the CQs are flushed.
    pub fn begin_flush(&mut self) {
        if let Some(held) = &mut self.0 {
            held.is_flushing = true;
        }
    }

    /// To be called after the flush. The messages returned are to be delivered at once, before any other.
    pub fn release(&mut self) -> HeldCdcs {
        match self.0.take_if(|held| held.is_flushing) {
            Some(held) => [Some(held.first), held.urgent, held.newest, held.last],
            None => [None; 4],
        }
    }
}

impl HeldCdc {
    fn keep(&mut self, mut cdc: Cdc) {
        if let Some(older) = self.newest {
            if is_before(cdc.seq, older.seq) {
                return;
            }
            let has_asked = older.flags.contains(ProducerFlags::UPDATE_REQUESTED);
            let was_urgent = older.flags.contains(ProducerFlags::URGENT_PRESENT);
            let is_urgent =
                was_urgent && older.prod == cdc.prod && older.rmbes.prod == cdc.rmbes.prod;
            if was_urgent && !is_urgent {
                self.urgent = Some(older);
            }
            cdc.flags = cdc
                .flags
                .with(
                    ProducerFlags::UPDATE_REQUESTED,
                    has_asked || cdc.flags.contains(ProducerFlags::UPDATE_REQUESTED),
                )
                .with(
                    ProducerFlags::URGENT_PRESENT,
                    is_urgent || cdc.flags.contains(ProducerFlags::URGENT_PRESENT),
                );
            cdc.state.insert(older.state);
        }
        self.newest = Some(cdc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::SizeClass;
    use crate::conn::{
        EpollMask,
        StateFlags,
        UrgentState, //
    };
    use crate::cursor::Cursor;

    /// A connection that has received message 1.
    struct Rig {
        cdc_hold: CdcHold,
        stream: Stream,
    }

    fn data(seq: u16, offset: u32) -> Cdc {
        Cdc {
            seq,
            prod: Cursor { wrap: 0, offset },
            ..Cdc::default()
        }
    }

    fn validation(seq: u16) -> Cdc {
        Cdc {
            seq,
            prod: Cursor {
                wrap: u16::MAX / 2,
                offset: 0,
            },
            flags: ProducerFlags::FAILOVER,
            ..Cdc::default()
        }
    }

    impl Rig {
        fn new() -> Self {
            let mut stream = Stream::new(SizeClass::SMALLEST);
            stream.establish(SizeClass::SMALLEST);
            stream.on_cdc(&data(1, 10)).unwrap();
            let cdc_hold = CdcHold::default();
            Self { cdc_hold, stream }
        }

        fn arrive(&mut self, cdc: &Cdc) -> RxVerdict {
            let verdict = self.cdc_hold.filter(cdc, &mut self.stream, false);
            if verdict == RxVerdict::Deliver {
                self.stream.on_cdc(cdc).unwrap();
            }
            verdict
        }

        fn open(&mut self) -> Result<(), Fault> {
            for cdc in self.cdc_hold.release().iter().flatten() {
                self.stream.on_cdc(cdc)?;
            }
            Ok(())
        }
    }

    #[test]
    fn a_validation_of_what_was_taken_passes() {
        let mut rig = Rig::new();
        assert_eq!(rig.arrive(&validation(1)), RxVerdict::Deliver);
        assert_eq!(rig.arrive(&data(2, 20)), RxVerdict::Deliver);
    }

    #[test]
    fn a_peer_does_not_fail_over_without_end() {
        let mut rig = Rig::new();
        // A link after the other was lost, and may have been there again.
        for _ in 0..=MAX_LINKS {
            assert_eq!(rig.arrive(&validation(3)), RxVerdict::HoldAndFlush);
        }
        let fault = PeerMisbehaved::TooManyFailovers.into();
        assert_eq!(rig.arrive(&validation(3)), RxVerdict::Abort(fault));
        let mut rig = Rig::new();
        for _ in 0..2 * MAX_LINKS {
            assert_eq!(rig.arrive(&validation(2)), RxVerdict::HoldAndFlush);
            rig.cdc_hold.begin_flush();
            rig.cdc_hold.release();
        }
    }

    #[test]
    fn a_link_that_may_bring_more_needs_a_flush() {
        let mut rig = Rig::new();
        let verdict = rig.cdc_hold.filter(&validation(1), &mut rig.stream, true);
        assert_eq!(verdict, RxVerdict::HoldAndFlush);
        assert_eq!(rig.arrive(&data(2, 20)), RxVerdict::Hold);
        rig.cdc_hold.begin_flush();
        rig.open().unwrap();
        assert_eq!(rig.stream.readable(), 20);
    }

    #[test]
    fn what_came_by_the_old_link_is_taken_before_what_comes_by_the_new_one() {
        let mut rig = Rig::new();
        assert_eq!(rig.arrive(&validation(3)), RxVerdict::HoldAndFlush);
        assert_eq!(rig.arrive(&data(5, 50)), RxVerdict::Hold);
        assert_eq!(rig.arrive(&data(2, 20)), RxVerdict::Deliver);
        assert_eq!(rig.stream.readable(), 20);
        rig.cdc_hold.begin_flush();
        assert_eq!(rig.arrive(&data(3, 30)), RxVerdict::Deliver);
        assert_eq!(rig.arrive(&data(6, 60)), RxVerdict::Hold);
        rig.open().unwrap();
        assert_eq!(rig.stream.readable(), 60);
        assert_eq!(rig.arrive(&data(7, 70)), RxVerdict::Deliver);
    }

    #[test]
    fn a_peer_that_moved_is_not_told_what_is_read_while_its_messages_are_looked_for() {
        let mut rig = Rig::new();
        let asking = |seq, offset| Cdc {
            flags: ProducerFlags::UPDATE_REQUESTED,
            ..data(seq, offset)
        };
        let told = |rig: &mut Rig| rig.stream.plan().map(|plan| plan.cdc.cons.offset);
        rig.arrive(&validation(2));
        rig.arrive(&asking(2, 20));
        rig.arrive(&data(3, 30));
        assert_eq!(rig.stream.readable(), 20);
        rig.stream.consume(0, 20);
        assert_eq!(told(&mut rig), Some(0));
        // The peer knew that message 2 had arrived, and continues with message 3.
        rig.cdc_hold.begin_flush();
        rig.open().unwrap();
        assert_eq!(told(&mut rig), Some(20));
    }

    #[test]
    fn a_message_that_is_nowhere_was_lost() {
        let mut rig = Rig::new();
        rig.arrive(&validation(3));
        rig.arrive(&data(2, 20));
        rig.arrive(&data(4, 40));
        rig.cdc_hold.begin_flush();
        assert_eq!(rig.open(), Err(Fault::LostMessages));
        assert_eq!(rig.stream.readable(), 20);
    }

    #[test]
    fn the_end_of_an_earlier_look_opens_nothing() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        rig.open().unwrap();
        assert_eq!(rig.arrive(&data(3, 30)), RxVerdict::Hold);
        rig.cdc_hold.begin_flush();
        rig.arrive(&data(2, 20));
        // The peer moves again, to a third link: message 4 may be in the queue of the second.
        assert_eq!(rig.arrive(&validation(4)), RxVerdict::HoldAndFlush);
        rig.open().unwrap();
        assert_eq!(rig.arrive(&data(4, 40)), RxVerdict::Hold);
        rig.cdc_hold.begin_flush();
        rig.open().unwrap();
        assert_eq!(rig.stream.readable(), 40);
    }

    #[test]
    fn a_second_move_says_what_the_first_one_lost() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        rig.arrive(&data(2, 20));
        rig.arrive(&data(3, 30));
        rig.arrive(&validation(4));
        rig.cdc_hold.begin_flush();
        assert_eq!(rig.open(), Err(Fault::LostMessages));
    }

    #[test]
    fn a_validation_that_what_followed_overtook_holds_nothing_back() {
        let mut rig = Rig::new();
        let told = |rig: &mut Rig| rig.stream.plan().map(|plan| plan.cdc.cons.offset);
        // An early message of a new link, whose link fails at the peer before the queues are flushed.
        let verdict = rig.cdc_hold.filter(&data(3, 30), &mut rig.stream, true);
        assert_eq!(verdict, RxVerdict::HoldAndFlush);
        let mut back = validation(1);
        back.prod.wrap = 3;
        assert_eq!(rig.arrive(&back), RxVerdict::HoldAndFlush);
        assert_eq!(
            rig.arrive(&data(4, SizeClass::SMALLEST.bytes() - 1)),
            RxVerdict::Hold
        );
        rig.cdc_hold.begin_flush();
        rig.open().unwrap();
        let all = rig.stream.readable();
        rig.stream.consume(0, all);
        assert_eq!(told(&mut rig), Some(SizeClass::SMALLEST.bytes() - 1));
    }

    #[test]
    fn what_one_message_alone_says_is_kept() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        let urgent = Cdc {
            flags: ProducerFlags::URGENT_PRESENT.with(ProducerFlags::UPDATE_REQUESTED, true),
            ..data(3, 30)
        };
        rig.arrive(&urgent);
        let mut done = data(4, 30);
        done.state.insert(StateFlags::DONE_WRITING);
        rig.arrive(&done);
        rig.arrive(&data(2, 20));
        rig.cdc_hold.begin_flush();
        rig.open().unwrap();
        assert_eq!(rig.stream.urgent_state(), UrgentState::Valid);
        assert!(rig.stream.has_work(), "the update that was asked for");
        assert!(ready(&rig).contains(EpollMask::PRI));
    }

    fn ready(rig: &Rig) -> EpollMask {
        rig.stream.readiness(1, true)
    }

    #[test]
    fn an_urgent_byte_with_others_behind_stays_where_it_was() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        let urgent = |seq, offset| Cdc {
            flags: ProducerFlags::URGENT_PRESENT,
            ..data(seq, offset)
        };
        rig.arrive(&urgent(3, 25));
        rig.arrive(&urgent(4, 30));
        rig.arrive(&data(5, 40));
        rig.arrive(&data(6, 50));
        rig.arrive(&data(2, 20));
        rig.cdc_hold.begin_flush();
        rig.open().unwrap();
        assert!(ready(&rig).contains(EpollMask::PRI));
        // The earlier one is part of the stream again.
        assert_eq!(rig.stream.readable(), 49);
        assert_eq!(rig.stream.queues().map(|queues| queues.inq), Some(29));
    }
}
