// SPDX-License-Identifier: GPL-2.0

//! One connection of a group at a time announces the keys of an RMB to replace its RMBE. The peer may take long to
//! answer: others would wait behind it, each in a worker of its own.

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};

/// For how long none is announced after the peer did not take one.
const BACK_OFF: Duration = Duration::from_secs(10);

/// While one is being announced.
const BUSY: u64 = u64::MAX;

/// The turn to announce keys.
pub(crate) struct Announcing {
    /// When the next ones may be announced, ns, or [`BUSY`].
    free_at: Atomic<u64>,
}

impl Announcing {
    /// Creates one that is free.
    pub(crate) fn new() -> Self {
        Self {
            free_at: Atomic::new(0),
        }
    }

    /// Returns whether it is free.
    /// Context: any.
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        self.free_at.load(Relaxed) <= now.as_nanos()
    }

    /// Takes the turn if it is free; [`Announcing::end`] has to follow.
    /// Context: any.
    pub(crate) fn try_begin(&self, now: Instant) -> bool {
        let free_at = self.free_at.load(Relaxed);
        free_at <= now.as_nanos() && self.free_at.cmpxchg(free_at, BUSY, Full).is_ok()
    }

    /// Gives the turn back after the peer has taken the keys, or not.
    /// Context: any.
    pub(crate) fn end(&self, is_taken: bool, now: Instant) {
        let free_at = match is_taken {
            true => 0,
            false => now.saturating_add(BACK_OFF).as_nanos(),
        };
        self.free_at.store(free_at, Relaxed);
    }
}
