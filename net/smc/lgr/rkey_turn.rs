// SPDX-License-Identifier: GPL-2.0

//! Exchanges of RKeys with the peer of a group, one at a time.
//!
//! A peer may be slow to answer, or never do so, while hundreds of connections join. Each waits for its turn until a
//! time of its own, and those that wait when the peer did not answer one of them give up with it.

use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        CondVar,
        CondVarTimeoutResult,
        Mutex, //
    },
    time::Jiffies, //
};
use kernel_ext::{
    prelude::*,
    time, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};

use crate::clock::{
    self,
    now, //
};

/// Interval at which waiters ask whether they are still to wait, jiffies, unless they are woken.
const LOOK_EVERY: Jiffies = time::HZ;

/// How long a thread waits for its turn, and for the flows of others.
pub(crate) struct TurnWait<'a> {
    pub(crate) end: Instant,
    /// Called without a lock; may sleep.
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
}

impl TurnWait<'static> {
    /// For a thread that no connection waits for.
    pub(crate) fn at_most(limit: Duration) -> Self {
        Self {
            end: now().saturating_add(limit),
            is_cancelled: &|| false,
        }
    }
}

impl TurnWait<'_> {
    /// Returns whether the time is over.
    /// Context: may sleep.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_due(now()) || (self.is_cancelled)()
    }
}

struct State {
    is_taken: bool,
    /// How many requests the peer did not answer.
    unanswered: u32,
}

/// The turns of a group.
#[pin_data]
pub(crate) struct RkeyTurns {
    #[pin]
    state: Mutex<State>,
    #[pin]
    freed: CondVar,
}

/// The right to exchange RKeys, until dropped.
pub(crate) struct RkeyTurn<'a>(&'a RkeyTurns);

impl RkeyTurns {
    /// Creates them, none taken.
    pub(super) fn new() -> impl PinInit<Self> {
        let state = State {
            is_taken: false,
            unanswered: 0,
        };
        pin_init!(Self {
            state <- new_mutex!(state, "smc::RkeyTurns::state"),
            freed <- new_condvar!("smc::RkeyTurns::freed"),
        })
    }

    /// Waits for the turn. `None` if the wait is over before, by a signal too, if the peer did not answer another
    /// thread meanwhile, or if `is_done`, which does not sleep, returns true.
    /// Context: may sleep.
    pub(crate) fn enter(
        &self,
        wait: &TurnWait<'_>,
        is_done: impl Fn() -> bool,
    ) -> Option<RkeyTurn<'_>> {
        let before = self.state.lock().unanswered;
        loop {
            let mut state = self.state.lock();
            if is_done() || state.unanswered != before {
                return None;
            }
            if !core::mem::replace(&mut state.is_taken, true) {
                return Some(RkeyTurn(self));
            }
            drop(state);
            if wait.is_over() {
                return None;
            }
            let mut state = self.state.lock();
            if state.is_taken && state.unanswered == before {
                let left = clock::jiffies(wait.end.saturating_since(now()));
                let tick = left.clamp(1, LOOK_EVERY);
                let slept = self.freed.wait_interruptible_timeout(&mut state, tick);
                if let CondVarTimeoutResult::Signal { .. } = slept {
                    return None;
                }
            }
        }
    }
}

impl RkeyTurn<'_> {
    /// The peer did not answer in time: those that wait now give up.
    /// Context: may sleep.
    pub(crate) fn note_unanswered(&self) {
        let mut state = self.0.state.lock();
        state.unanswered = state.unanswered.wrapping_add(1);
    }
}

impl Drop for RkeyTurn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        // Wakes all waiters: what was announced is of use to several.
        self.0.freed.notify_all();
    }
}
