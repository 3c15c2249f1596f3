// SPDX-License-Identifier: GPL-2.0

//! When a link that could not be added is tried again.

use crate::lgr::redundancy::Occasion;
use crate::time::{
    Duration,
    Instant, //
};

/// Time after which a link that could not be added is tried again; twice as long each time that fails, too.
pub const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The longest such time.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The next attempt to add a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    at: Option<Instant>,
    /// How long to wait the next time.
    wait: Duration,
    /// Why there may be another link then.
    why: Occasion,
}

impl Retry {
    /// No attempt is due.
    pub(super) const fn new() -> Self {
        Self {
            at: None,
            wait: FIRST_WAIT,
            why: Occasion::OwnPort,
        }
    }

    /// A link was added: what fails from now on has nothing to do with what failed before.
    pub(super) fn reset(&mut self) {
        self.restart();
        self.why = Occasion::OwnPort;
    }

    /// Waits are short again.
    pub(super) fn restart(&mut self) {
        self.wait = FIRST_WAIT;
    }

    /// Notes why there may be another link from now on.
    pub(super) fn set_occasion(&mut self, why: Occasion) {
        self.why = why;
    }

    pub(super) const fn occasion(&self) -> Occasion {
        self.why
    }

    /// Tries again after a while.
    pub(super) fn later(&mut self, now: Instant) {
        self.at = Some(now.saturating_add(self.wait));
        self.wait = self.wait.saturating_add(self.wait).min(LONGEST_WAIT);
    }

    /// When the next attempt is due.
    pub(super) const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Takes the attempt that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Occasion> {
        self.at.take_if(|at| at.is_due(now)).map(|_| self.why)
    }
}
