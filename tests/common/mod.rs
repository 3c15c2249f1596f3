// SPDX-License-Identifier: GPL-2.0
//! What the scenario tests share: two hosts joined by a simulated network that loses what a rule tells it
//! to lose, on a clock that jumps, from a seed that is printed when a test fails.
//!
//! - [`rng`]: the seeded numbers, and [`rng::for_seeds`], which runs a test once for each seed;
//! - [`net`]: messages on channels that keep their order, timers, rules; for handshakes and flows;
//! - [`rdma`]: queue pairs with late reads of the send buffer, flushes and lost completions;
//! - [`pair`]: two hosts with one `Stream` each on top of it.
//! - [`duo`]: two `Stream`s moved by hand, for single steps.
//! - [`c_peer`]: one `Stream` and a C peer that sends to it and goes.
//! - [`end`]: one side of a link group, whose peer is the test.
//! - [`host`]: two machines that set up connections and keep link groups.
//! - [`links`]: two machines with one group whose links come and go.
//! - [`handshake_ops`], [`llc_ops`]: one side of a handshake or link group whose peer says anything.
//! - [`stream_ops`]: operation lists on one `Stream` whose peer says anything.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary includes the harness whole and uses its part of it"
)]

pub mod c_peer;
pub mod duo;
pub mod end;
pub mod handshake_ops;
pub mod host;
pub mod links;
pub mod llc_ops;
pub mod net;
pub mod pair;
mod params;
pub mod rdma;
pub mod rng;
pub mod stream_ops;

pub use params::params;

use smc_proto::conn::{
    ConsumeEffects,
    Stream, //
};

/// A read of one step, between which and what it found nothing happens.
pub trait ReadNext {
    /// Reads `len` bytes at most, an urgent byte that comes next left out; up to the next one.
    fn consume_next(&mut self, len: u32) -> ConsumeEffects;
}

impl ReadNext for Stream {
    fn consume_next(&mut self, len: u32) -> ConsumeEffects {
        let skipped = self.skip_urgent();
        let at = self.read_position();
        let [first, second] = self.peek_chunks(0, len);
        let read = self.consume(at, first.len + second.len);
        ConsumeEffects {
            transmit: skipped.transmit || read.transmit,
            ..read
        }
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The other end.
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// 0 or 1.
    pub fn index(self) -> usize {
        self as usize
    }
}
