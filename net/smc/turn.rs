// SPDX-License-Identifier: GPL-2.0

//! Turns: one thread at a time does what may take as long as a peer does to answer. The others wait until a time of
//! their own, which a mutex could not do.

use core::mem;

use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        CondVar,
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

/// How long a thread waits.
pub(crate) struct TurnWait<'a> {
    pub(crate) end: Instant,
    /// Whether it is to end earlier. Called without a lock; may sleep.
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

/// Whose turn it is.
#[pin_data]
pub(crate) struct Turns {
    #[pin]
    is_taken: Mutex<bool>,
    #[pin]
    freed: CondVar,
}

/// It is the caller's turn, until this is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// It is nobody's turn.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_taken <- new_mutex!(false, "smc::Turns::is_taken"),
            freed <- new_condvar!("smc::Turns::freed"),
        })
    }

    /// Waits for the turn. `None` if the wait is over before, or if `is_served` returns true: what others have done is
    /// enough. That is called without a lock, and may sleep.
    /// Context: may sleep, for as long as `wait` says.
    pub(crate) fn enter(
        &self,
        wait: &TurnWait<'_>,
        mut is_served: impl FnMut() -> bool,
    ) -> Option<Turn<'_>> {
        while !(wait.is_cancelled)() {
            // A thousand tasks may wait here for one: each sees by itself that it is served.
            if is_served() {
                return None;
            }
            let mut is_taken = self.is_taken.lock();
            if !mem::replace(&mut *is_taken, true) {
                drop(is_taken);
                let turn = Turn(self);
                // Another one may have ended since the look above.
                return (!is_served()).then_some(turn);
            }
            let left = wait.end.saturating_since(now());
            if left == Duration::ZERO {
                return None;
            }
            // Handshakes run in workers, which get no signals, so this is only the task state.
            let tick = clock::jiffies(left).clamp(1, LOOK_EVERY);
            let _ = self.freed.wait_interruptible_timeout(&mut is_taken, tick);
        }
        None
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock() = false;
        // Wakes all waiters: what was done may serve each.
        self.0.freed.notify_all();
    }
}
