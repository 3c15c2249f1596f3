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
    own: Ring,
    peer: Ring,
    sndbuf: Option<Ring>,
    /// What was posted, and what of that has left since.
    records: Vec<SentRecord>,
    left: Vec<SentRecord>,
    /// How many were told of before they left.
    told: u32,
    /// Last cursors that the stream accepted from the peer, and the last sequence number.
    cons: Cursor,
    prod: Cursor,
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
    stream.establish(peer);
    let mut model = Model {
        stream,
        own: Ring::new(own),
        peer: Ring::new(peer),
        sndbuf: None,
        records: Vec::new(),
        left: Vec::new(),
        told: 0,
        cons: Cursor::default(),
        prod: Cursor::default(),
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
            let read = u64::from(self.cons.offset)
                + u64::from(self.cons.wrap) * u64::from(self.peer.size());
            let ahead = self
                .peer
                .distance(read, plan.cdc.prod)
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
        let step = |ring: Ring, cursor: Cursor, by: u32| {
            let size = u64::from(ring.size());
            ring.cursor(u64::from(cursor.wrap) * size + u64::from(cursor.offset) + u64::from(by))
        };
        let failover = if input.byte() % 64 == 0 { 0 } else { 0x08 };
        let cdc = Cdc {
            seq: self.seq.wrapping_add(u16::from(input.byte() % 4)),
            prod: step(self.own, self.prod, input.word() % (self.own.size() + 2)),
            cons: step(self.peer, self.cons, input.word() % 4_000),
            flags: ProducerFlags::from_bits(input.byte() & input.byte() & !failover),
            state: StateFlags::from_bits(if input.byte() % 64 == 0 {
                input.byte()
            } else {
                0
            }),
        };
        self.message(&cdc);
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
        };
        self.message(&cdc);
    }

    fn message(&mut self, cdc: &Cdc) {
        let readable = self.stream.readable();
        match self.stream.on_cdc(cdc) {
            Ok(fx) => {
                assert!(fx.urgent_at.is_none_or(|offset| offset < self.own.size()));
                let newer = (cdc.seq.wrapping_sub(self.seq) as i16) >= 0;
                // An aborted connection takes note of nothing but the peer's end.
                let heard = newer && !self.stream.is_killed();
                if heard && !self.lost && !cdc.is_validation() {
                    self.seq = cdc.seq;
                    // Backwards is tolerated and ignored, so only the forward moves count here.
                    forward(self.own, &mut self.prod, cdc.prod);
                    forward(self.peer, &mut self.cons, cdc.cons);
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
            self.stream.take_urgent();
        }
        let readable = self.stream.readable();
        let offset = if input.byte() % 4 == 0 {
            input.word() % 5_000
        } else {
            0
        };
        let chunks = self.stream.peek_chunks(offset, input.word() % 70_000);
        check_inside(Some(self.own), &chunks);
        let len = chunks[0].len + chunks[1].len;
        assert!(offset.saturating_add(len) <= readable.max(offset));
        if offset == 0 {
            self.stream.consume(len);
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
            _ => {}
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
fn forward(ring: Ring, cursor: &mut Cursor, to: Cursor) {
    let from = u64::from(cursor.wrap) * u64::from(ring.size()) + u64::from(cursor.offset);
    if ring.distance(from, to).is_some_and(|ahead| ahead > 0) {
        *cursor = to;
    }
}

/// Both chunks lie inside the ring.
fn check_inside(ring: Option<Ring>, chunks: &Chunks) {
    let size = u64::from(ring.map_or(0, Ring::size));
    for chunk in chunks {
        assert!(u64::from(chunk.offset) + u64::from(chunk.len) <= size);
    }
}
