// SPDX-License-Identifier: GPL-2.0
//! A list of operations on one stream, decoded from bytes, with a peer that says anything.
//!
//! Fuzzing and the seeded test share it. After each operation the promises hold that keep memory safe:
//! every write lies in both rings and in the window, nothing is readable beyond the RMBE, nothing is written
//! after the close.

use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    Fault,
    ProducerFlags,
    RmbeNum,
    RmbeOffer,
    RmbeRefs,
    SendFlags,
    SentRecord,
    StateFlags,
    Stream,
    WritePlan, //
};
use smc_proto::cursor::{
    Chunks,
    Cursor,
    Ring, //
};
use smc_proto::id::{
    Rkey,
    RmbeIndex, //
};

/// Reads numbers from the bytes; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }
}

/// The stream and what the module and an honest observer remember.
struct Model {
    stream: Stream,
    /// The RMBEs in use, and their numbers.
    own: Ring,
    own_num: u8,
    peer: Ring,
    peer_num: u8,
    /// Our RMBE that was offered, and the one before; the peer's one before.
    offered: Option<Ring>,
    replaced: Option<Ring>,
    peer_replaced: Option<Ring>,
    sndbuf: Option<Ring>,
    /// What was posted, and what of that has left since.
    records: Vec<SentRecord>,
    left: Vec<SentRecord>,
    /// How many were told of before they left.
    told: u32,
    /// Last positions that the stream accepted from the peer, and the last sequence number.
    cons: u64,
    prod: u64,
    seq: u16,
    close_posted: bool,
    /// A failover validation failed: messages are ignored from then on.
    lost: bool,
}

/// Runs the operations that `bytes` encode.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let class = |byte: u8| SizeClass::from_code(byte % 4).expect("a small class");
    let (own, peer) = (class(input.byte()), class(input.byte()));
    let mut stream = Stream::new(own);
    if input.flag() {
        stream.set_replaceable();
    }
    stream.establish(peer);
    let mut model = Model {
        stream,
        own: Ring::new(own),
        own_num: 0,
        peer: Ring::new(peer),
        peer_num: 0,
        offered: None,
        replaced: None,
        peer_replaced: None,
        sndbuf: None,
        records: Vec::new(),
        left: Vec::new(),
        told: 0,
        cons: 0,
        prod: 0,
        seq: 0,
        close_posted: false,
        lost: false,
    };
    while !input.0.is_empty() {
        model.operate(&mut input);
        model.check();
    }
}

impl Model {
    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 => self.attach(input.byte()),
            1 | 2 => self.write(input),
            3 | 4 => self.plan(input),
            5 => self.complete(input),
            6..=8 => self.message_nearby(input),
            9 => self.message_of_any_kind(input),
            10 | 11 => self.read(input),
            12 => {
                self.stream.on_link_switch();
            }
            13 => {
                if self.stream.detach_sndbuf(false) {
                    self.sndbuf = None;
                }
            }
            14 => self.stream.set_oob_inline(input.flag()),
            _ => self.end(input),
        }
    }

    fn attach(&mut self, byte: u8) {
        let class = SizeClass::from_code(byte % 4).expect("a small class");
        if self.stream.attach_sndbuf(class) {
            self.sndbuf = Some(Ring::new(class));
        }
    }

    fn write(&mut self, input: &mut Input<'_>) {
        if self.stream.can_send().is_err() {
            return;
        }
        let writable = self.stream.writable();
        let chunks = self.stream.reserve(input.word() % 70_000);
        let len = chunks[0].len + chunks[1].len;
        assert!(len <= writable);
        check_inside(self.sndbuf, &chunks);
        let how = SendFlags {
            oob: input.byte() % 8 == 0,
            last: input.flag(),
            corked: input.flag(),
            autocork_bytes: input.word() % 100_000,
        };
        self.stream
            .commit(if input.byte() == 0 { 0 } else { len }, how);
    }

    fn plan(&mut self, input: &mut Input<'_>) {
        let before = self.stream;
        let Some(plan) = self.stream.plan() else {
            assert!(!before.has_work());
            return;
        };
        assert!(before.has_work());
        self.check_plan(&plan);
        if input.byte() % 8 == 0 {
            self.stream.plan_failed(&plan.record);
            assert_eq!(self.stream.queues(), before.queues());
            assert!(self.stream.has_work());
        } else {
            self.close_posted |= plan.cdc.state.any_close();
            self.records.push(plan.record);
        }
    }

    fn check_plan(&self, plan: &WritePlan) {
        for write in plan.writes() {
            check_inside(self.sndbuf, &write.src);
            assert_eq!(write.src[0].len + write.src[1].len, write.len);
            assert!(write.dst_offset + write.len <= self.peer.size());
            assert!(!self.close_posted, "a write after the close");
        }
        if !plan.cdc.is_validation() {
            // What the peer has not read must still be in its ring: never more than that much ahead.
            let ahead = self
                .peer
                .distance(self.cons, plan.cdc.prod)
                .expect("inside the ring");
            assert!(
                (0..=i64::from(self.peer.size())).contains(&ahead),
                "window: {ahead}"
            );
        }
    }

    /// A completion says all, or, over iWARP, one half of it; the peer's word may come before or after.
    fn complete(&mut self, input: &mut Input<'_>) {
        if self.told > 0 && input.flag() {
            self.told -= 1;
            self.stream.on_local_completion();
        }
        if !self.left.is_empty() && input.flag() {
            if let Some(record) = self.left.pop() {
                self.stream.on_acked(&record, input.flag());
            }
        }
        if self.records.is_empty() {
            return;
        }
        let index = if input.flag() {
            0
        } else {
            input.byte() as usize % self.records.len()
        };
        let record = self.records.remove(index);
        let is_good = input.byte() % 4 != 0;
        match input.byte() % 4 {
            0 => {
                self.stream.on_local_completion();
                self.left.push(record);
            }
            1 => {
                self.stream.on_acked(&record, is_good);
                self.told += 1;
            }
            _ => _ = self.stream.on_sent(&record, is_good),
        }
    }

    /// A message near what an honest peer might say.
    fn message_nearby(&mut self, input: &mut Input<'_>) {
        let rmbes = self.refs_nearby(input);
        let (own, peer) = (self.own_of(&rmbes), self.peer_of(&rmbes));
        let step = |ring: Ring, position: u64, by: u32| ring.cursor(position + u64::from(by));
        let failover = if input.byte() % 64 == 0 { 0 } else { 0x08 };
        let cdc = Cdc {
            seq: self.seq.wrapping_add(u16::from(input.byte() % 4)),
            prod: step(own, self.prod, input.word() % (own.size() + 2)),
            cons: step(peer, self.cons, input.word() % 4_000),
            flags: ProducerFlags::from_bits(input.byte() & input.byte() & !failover),
            state: StateFlags::from_bits(if input.byte() % 64 == 0 {
                input.byte()
            } else {
                0
            }),
            rmbes,
        };
        self.message(&cdc, input.flag());
    }

    /// What an honest peer might say of RMBEs, but for a lie now and then.
    fn refs_nearby(&self, input: &mut Input<'_>) -> RmbeRefs {
        let adopts = self.offered.is_some() && input.byte() % 4 == 0;
        let is_late = self.peer_replaced.is_some() && input.byte() % 4 == 0;
        let lie = |input: &mut Input<'_>| match input.byte() {
            0 => input.byte(),
            _ => 0,
        };
        let offers = input.byte() % 8 == 0;
        let offer = offers.then(|| RmbeOffer {
            size: SizeClass::from_code(input.byte() % 4).expect("a small class"),
            index: RmbeIndex::FIRST,
            rkey: Rkey(1),
        });
        RmbeRefs {
            prod: RmbeNum(
                self.own_num
                    .wrapping_add(adopts.into())
                    .wrapping_add(lie(input)),
            ),
            cons: RmbeNum(
                self.peer_num
                    .wrapping_sub(is_late.into())
                    .wrapping_add(lie(input)),
            ),
            since: (self.prod as u32).wrapping_add(input.word() % 2_000),
            offer,
        }
    }

    /// The rings that a message names, or, if there are none, those in use.
    fn own_of(&self, refs: &RmbeRefs) -> Ring {
        let is_next = refs.prod.0 == self.own_num.wrapping_add(1);
        self.offered.filter(|_| is_next).unwrap_or(self.own)
    }

    fn peer_of(&self, refs: &RmbeRefs) -> Ring {
        let is_last = refs.cons.0 == self.peer_num.wrapping_sub(1);
        self.peer_replaced.filter(|_| is_last).unwrap_or(self.peer)
    }

    fn message_of_any_kind(&mut self, input: &mut Input<'_>) {
        let mut cursor = || Cursor {
            wrap: input.word() as u16,
            offset: input.word(),
        };
        let (prod, cons) = (cursor(), cursor());
        let cdc = Cdc {
            seq: input.word() as u16,
            prod,
            cons,
            flags: ProducerFlags::from_bits(input.byte()),
            state: StateFlags::from_bits(input.byte()),
            rmbes: self.refs_nearby(input),
        };
        self.message(&cdc, input.flag());
    }

    /// The peer's message arrives; what it offers is adopted, or not.
    fn message(&mut self, cdc: &Cdc, adopts: bool) {
        let readable = self.stream.readable();
        match self.stream.on_cdc(cdc) {
            Ok(fx) => {
                let newer = (cdc.seq.wrapping_sub(self.seq) as i16) >= 0;
                // An aborted connection takes note of nothing but the peer's end.
                let heard = newer && !self.stream.is_killed();
                if heard && !self.lost && !cdc.is_validation() {
                    self.seq = cdc.seq;
                    // Backwards is tolerated and ignored, so only the forward moves count here.
                    let (own, peer) = (self.own_of(&cdc.rmbes), self.peer_of(&cdc.rmbes));
                    forward(own, &mut self.prod, cdc.prod);
                    forward(peer, &mut self.cons, cdc.cons);
                }
                if fx.replaced {
                    let new = self.offered.take().expect("one was offered");
                    self.replaced = Some(std::mem::replace(&mut self.own, new));
                    self.own_num = self.own_num.wrapping_add(1);
                }
                assert!(fx.urgent_at.is_none_or(|offset| offset < self.own.size()));
                if let Some(offer) = fx.offer.filter(|_| adopts) {
                    self.stream.adopt_rmbe(offer.size);
                    let new = Ring::new(offer.size);
                    self.peer_replaced = Some(std::mem::replace(&mut self.peer, new));
                    self.peer_num = self.peer_num.wrapping_add(1);
                }
            }
            Err(fault) => {
                assert_eq!(self.stream.readable(), readable);
                self.lost |= fault == Fault::LostMessages;
            }
        }
    }

    fn read(&mut self, input: &mut Input<'_>) {
        self.stream.skip_urgent();
        if self.stream.urgent().is_some() && input.flag() {
            self.stream.take_urgent(self.stream.urgent_end());
        }
        let readable = self.stream.readable();
        let offset = if input.byte() % 4 == 0 {
            input.word() % 5_000
        } else {
            0
        };
        let chunks = self.stream.peek_chunks(offset, input.word() % 70_000);
        let is_in_replaced = self.stream.is_in_replaced(offset);
        assert!(!is_in_replaced || self.stream.needs_replaced());
        check_inside(
            if is_in_replaced {
                self.replaced
            } else {
                Some(self.own)
            },
            &chunks,
        );
        let len = chunks[0].len + chunks[1].len;
        assert!(offset.saturating_add(len) <= readable.max(offset));
        if offset == 0 {
            let at = self.stream.read_position();
            self.stream.consume(at, len);
            assert!(self.stream.readable() <= readable - len);
        }
    }

    fn end(&mut self, input: &mut Input<'_>) {
        match input.byte() % 64 {
            0 => _ = self.stream.shutdown_write(),
            1 => _ = self.stream.shutdown_read(),
            2 => _ = self.stream.close(false),
            3 => _ = self.stream.close(true),
            4 => _ = self.stream.abort(),
            5 => _ = self.stream.aborted(),
            6 => self.stream.expect_data_after_close(),
            7 | 8 => _ = self.stream.begin_echo(),
            9 => self.silence(),
            10 => _ = self.stream.on_peer_freed(),
            11..=20 => self.offer(input),
            _ => {}
        }
    }

    fn offer(&mut self, input: &mut Input<'_>) {
        let size = SizeClass::from_code(input.byte() % 4).expect("a small class");
        if self.stream.may_offer_rmbe() {
            assert!(self.offered.is_none() && !self.stream.needs_replaced());
            self.stream.offer_rmbe(size, RmbeIndex::FIRST);
            self.offered = Some(Ring::new(size));
        }
    }

    /// The peer answered that nothing follows.
    fn silence(&mut self) {
        let was_asked = !self.stream.begin_echo();
        let fx = self.stream.on_silence();
        assert!(!fx.transmit && (fx.wake_readers || was_asked));
    }

    fn check(&self) {
        assert!(self.stream.readable() <= self.own.size());
        assert!(self.stream.writable() <= self.sndbuf.map_or(0, Ring::size));
        let _ = self.stream.readiness(1, true);
        if let Some(queues) = self.stream.queues() {
            assert!(queues.outq_unsent <= queues.outq);
            assert!(queues.outq <= self.sndbuf.map_or(0, Ring::size));
        }
    }
}

/// Moves `cursor` to `to` if that is not backwards.
fn forward(ring: Ring, position: &mut u64, to: Cursor) {
    let ahead = ring.distance(*position, to).unwrap_or(0);
    *position += u64::try_from(ahead).unwrap_or(0);
}

/// Both chunks lie inside the ring.
fn check_inside(ring: Option<Ring>, chunks: &Chunks) {
    let size = u64::from(ring.map_or(0, Ring::size));
    for chunk in chunks {
        assert!(u64::from(chunk.offset) + u64::from(chunk.len) <= size);
    }
}
