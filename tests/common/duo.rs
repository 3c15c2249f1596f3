// SPDX-License-Identifier: GPL-2.0
//! Two streams on a wire without delay, moved by hand: for tests of single steps.

use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    CdcHold,
    Effects,
    RxVerdict,
    SendFlags,
    Stream,
    WritePlan, //
};

use super::{
    ReadNext as _,
    Side, //
};

/// Two established connections' ends, both rings of the smallest class unless said otherwise.
pub struct Duo {
    streams: [Stream; 2],
    cdc_holds: [CdcHold; 2],
    /// What was posted and neither arrived nor completed.
    wire: [Vec<WritePlan>; 2],
    /// The effects of all messages that an end took.
    pub effects: [Effects; 2],
}

impl Duo {
    pub fn new() -> Self {
        Self::with_class(SizeClass::SMALLEST)
    }

    pub fn with_class(class: SizeClass) -> Self {
        let stream = || {
            let mut stream = Stream::new(class);
            stream.establish(class);
            stream
        };
        Self {
            streams: [stream(), stream()],
            cdc_holds: [CdcHold::default(); 2],
            wire: [Vec::new(), Vec::new()],
            effects: [Effects::default(); 2],
        }
    }

    pub fn at(&mut self, side: Side) -> &mut Stream {
        &mut self.streams[side.index()]
    }

    pub fn client(&mut self) -> &mut Stream {
        self.at(Side::Client)
    }

    pub fn server(&mut self) -> &mut Stream {
        self.at(Side::Server)
    }

    /// Gives `len` bytes to a stream; they go out with the next [`Duo::post`].
    pub fn write(&mut self, side: Side, len: u32) -> bool {
        self.write_as(side, len, SendFlags::default())
    }

    pub fn write_as(&mut self, side: Side, len: u32, how: SendFlags) -> bool {
        let stream = self.at(side);
        if stream.needs_sndbuf() {
            stream.attach_sndbuf(SizeClass::SMALLEST);
        }
        let chunks = stream.reserve(len);
        assert_eq!(chunks[0].len + chunks[1].len, len, "send space");
        stream.commit(len, how)
    }

    /// Takes everything that an end wants to send, and returns it too.
    pub fn post(&mut self, side: Side) -> Vec<WritePlan> {
        let mut posted = Vec::new();
        while let Some(plan) = self.at(side).plan() {
            posted.push(plan);
        }
        self.wire[side.index()].extend(&posted);
        posted
    }

    /// What `side` posted arrives and is completed.
    pub fn arrive(&mut self, side: Side) {
        for plan in std::mem::take(&mut self.wire[side.index()]) {
            self.receive(side.peer(), &plan);
            self.at(side).on_sent(&plan.record, true);
        }
    }

    /// What `side` posted is lost with its link.
    pub fn lose(&mut self, side: Side) {
        for plan in std::mem::take(&mut self.wire[side.index()]) {
            self.at(side).on_sent(&plan.record, false);
        }
    }

    /// What `side` posted arrives, but its completions do not come back.
    pub fn arrive_unconfirmed(&mut self, side: Side) {
        for plan in std::mem::take(&mut self.wire[side.index()]) {
            self.receive(side.peer(), &plan);
            self.at(side).on_sent(&plan.record, false);
        }
    }

    /// Both ends send until neither has anything to say.
    pub fn settle(&mut self) {
        while Side::BOTH.iter().any(|side| !self.post(*side).is_empty()) {
            Side::BOTH.iter().for_each(|side| self.arrive(*side));
        }
    }

    /// Reads everything readable; returns how much.
    pub fn read(&mut self, side: Side) -> u32 {
        let stream = self.at(side);
        let mut read = 0;
        loop {
            stream.skip_urgent();
            let chunks = stream.peek_chunks(0, u32::MAX);
            let len = chunks[0].len + chunks[1].len;
            if len == 0 {
                return read;
            }
            read += len;
            stream.consume_next(len);
        }
    }

    /// One read, which ends at an urgent mark; returns how much it gave.
    pub fn read_once(&mut self, side: Side) -> u32 {
        let stream = self.at(side);
        stream.skip_urgent();
        let chunks = stream.peek_chunks(0, u32::MAX);
        let len = chunks[0].len + chunks[1].len;
        stream.consume_next(len);
        len
    }

    fn receive(&mut self, side: Side, plan: &WritePlan) {
        let Some(seq) = plan.immediate() else {
            return self.take(side, &plan.cdc);
        };
        let stream = self.streams[side.index()];
        let expanded = self.cdc_holds[side.index()].expand(seq, plan.len(), &stream);
        if let Some(cdc) = expanded.expect("no fault") {
            self.take(side, &cdc);
        }
    }

    /// Nothing lies in a queue: a validation goes on at once.
    fn take(&mut self, side: Side, cdc: &Cdc) {
        let cdc_hold = &mut self.cdc_holds[side.index()];
        if cdc_hold.filter(cdc, &mut self.streams[side.index()], false) == RxVerdict::Deliver {
            return self.tell(side, cdc);
        }
        cdc_hold.begin_flush();
        let held = cdc_hold.release();
        held.iter().flatten().for_each(|cdc| self.tell(side, cdc));
    }

    fn tell(&mut self, side: Side, cdc: &Cdc) {
        let fx = self.at(side).on_cdc(cdc).expect("no fault");
        let sum = &mut self.effects[side.index()];
        sum.wake_readers |= fx.wake_readers;
        sum.wake_writers |= fx.wake_writers;
        sum.peer_done |= fx.peer_done;
        sum.reset |= fx.reset;
        sum.state_changed |= fx.state_changed;
        sum.transmit |= fx.transmit;
        sum.urgent_at = fx.urgent_at.or(sum.urgent_at);
        sum.broken_pipe |= fx.broken_pipe;
        sum.replaced |= fx.replaced;
        sum.offer = fx.offer.or(sum.offer);
    }
}
