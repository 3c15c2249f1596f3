// SPDX-License-Identifier: GPL-2.0

//! When adding a link is retried.

use crate::lgr::redundancy::AddLinkTrigger;
use crate::time::{
    Duration,
    Instant, //
};

/// Time after which adding a link is retried; doubled after each further failure.
pub const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The maximum of that time.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The next attempt to add a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    at: Option<Instant>,
    /// Time until the attempt after that.
    wait: Duration,
    /// What triggered the attempt.
    trigger: AddLinkTrigger,
}

impl Retry {
    /// No attempt is due.
    pub(super) const fn new() -> Self {
        Self {
            at: None,
            wait: FIRST_WAIT,
            trigger: AddLinkTrigger::OwnPort,
        }
    }

    /// A link was added: later failures are unrelated to earlier ones.
    pub(super) fn reset(&mut self) {
        self.restart();
        self.trigger = AddLinkTrigger::OwnPort;
    }

    /// Resets the wait to [`FIRST_WAIT`].
    pub(super) fn restart(&mut self) {
        self.wait = FIRST_WAIT;
    }

    /// Sets the trigger of later attempts.
    pub(super) fn set_trigger(&mut self, trigger: AddLinkTrigger) {
        self.trigger = trigger;
    }

    pub(super) const fn trigger(&self) -> AddLinkTrigger {
        self.trigger
    }

    /// Schedules another attempt.
    pub(super) fn later(&mut self, now: Instant) {
        self.at = Some(now.saturating_add(self.wait));
        self.wait = self.wait.saturating_add(self.wait).min(LONGEST_WAIT);
    }

    /// When the next attempt is due.
    pub(super) const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Takes the attempt if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<AddLinkTrigger> {
        self.at.take_if(|at| at.is_due(now)).map(|_| self.trigger)
    }
}
