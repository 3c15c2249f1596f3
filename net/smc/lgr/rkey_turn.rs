// SPDX-License-Identifier: GPL-2.0

//! Exchanges of RKeys with the peer of a group, one at a time.
//!
//! A peer may be slow to answer, or never do so, while hundreds of connections join. Those that wait when the peer did
//! not answer one of them give up with it.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use kernel_ext::prelude::*;

use crate::turn::{
    Turn,
    TurnWait,
    Turns, //
};

/// The turns of a group.
#[pin_data]
pub(crate) struct RkeyTurns {
    #[pin]
    turns: Turns,
    /// How many requests the peer did not answer. Changed by who has the turn.
    unanswered: Atomic<u32>,
}

impl RkeyTurns {
    /// Creates them, none taken.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            turns <- Turns::new(),
            unanswered: Atomic::new(0),
        })
    }

    /// Waits for the turn. `None` if the wait is over before, if the peer did not answer another thread meanwhile, or
    /// if `is_done` returns true.
    /// Context: may sleep.
    pub(crate) fn enter(
        &self,
        wait: &TurnWait<'_>,
        is_done: impl Fn() -> bool,
    ) -> Option<Turn<'_>> {
        let unanswered = || self.unanswered.load(Relaxed);
        let before = unanswered();
        self.turns
            .enter(wait, || is_done() || unanswered() != before)
    }

    /// The peer did not answer in time: those that wait now give up. To be called by who has the turn.
    /// Context: any.
    pub(crate) fn note_unanswered(&self) {
        self.unanswered.fetch_add(1, Relaxed);
    }
}
