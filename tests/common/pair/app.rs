// SPDX-License-Identifier: GPL-2.0
//! What the application of an end does.

use std::collections::BTreeSet;

use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    CdcHold,
    Stream, //
};

use super::{
    rmbes::Rmbes,
    Action,
    Host,
    Plan, //
};
use crate::common::{
    rng::Rng,
    Side, //
};

impl Plan {
    /// Sizes, chunks and urgency that differ from seed to seed.
    pub fn mixed(pair_seed: u64, salt: u64) -> Self {
        let mut rng = Rng::new(pair_seed * 2 + salt);
        let class = |code| SizeClass::from_code(code as u8).expect("a small class");
        let largest = if rng.one_in(8) { 5 } else { 1 };
        Self {
            send: u64::from(rng.below(300_000)),
            oob_one_in: *rng.pick(&[0, 0, 3, 20]),
            inline: rng.one_in(2),
            cork_one_in: *rng.pick(&[0, 2, 10]),
            chunk: *rng.pick(&[3_000, 20_000, 100_000]),
            close_early: false,
            rmbe: class(rng.between(0, largest)),
            sndbuf: class(rng.between(0, largest)),
        }
    }
}

impl Host {
    pub(super) fn new(stream: Stream, plan: Plan) -> Self {
        Self {
            stream,
            cdc_hold: CdcHold::default(),
            drain: false,
            plan,
            link: 0,
            next: None,
            buffer: None,
            rmbes: Rmbes::new(&plan),
            written: 0,
            read: 0,
            urgents: BTreeSet::new(),
            writer_awake: true,
            reader_awake: true,
            transmit: false,
            shut: false,
            ended: false,
            released: false,
            signals: 0,
            urgent: None,
            reset: false,
            fault: None,
            send_error: None,
        }
    }

    /// The urgent bytes that were sent: how many, and where the last one is.
    pub fn urgents_sent(&self) -> (usize, Option<u64>) {
        (self.urgents.len(), self.urgents.last().copied())
    }

    /// Whether the reader leaves out the byte at `pos`: the last urgent one that came.
    pub fn leaves_out(&self, pos: u64) -> bool {
        !self.plan.inline && self.urgent == Some(pos)
    }

    /// Where the reader has come to.
    pub fn place(&self) -> u64 {
        self.read + u64::from(self.leaves_out(self.read))
    }

    fn has_written_all(&self) -> bool {
        self.written == self.plan.send || self.send_error.is_some()
    }

    pub(super) fn app_actions(&self, side: Side) -> impl Iterator<Item = Action> {
        let write = self.writer_awake && !self.has_written_all() && !self.released;
        let read = self.reader_awake && !self.ended && !self.released;
        let shut = self.has_written_all() && !self.shut;
        let close = self.shut && self.ended && !self.released;
        let finish = shut || close;
        [
            write.then_some(Action::Write(side)),
            read.then_some(Action::Read(side)),
            finish.then_some(Action::Finish(side)),
        ]
        .into_iter()
        .flatten()
    }

    /// Shuts down or closes, whatever is still to be posted.
    pub(super) fn finish(&mut self) {
        if !self.shut && !self.plan.close_early {
            self.shut = true;
            if let Ok(fx) = self.stream.shutdown_write() {
                self.transmit |= fx.transmit;
            }
            return;
        }
        self.shut = true;
        self.released = true;
        self.transmit |= self.stream.close(true).transmit;
    }
}
