// SPDX-License-Identifier: GPL-2.0

//! Corked data (MSG_MORE, TCP_CORK), held back for a limited time, as with TCP.

use kernel::sync::Arc;
use smc_proto::time::{
    Duration,
    Instant, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::clock::now;

/// Longest time that corked data are held back, as with TCP.
const CORK_MAX: Duration = Duration::from_millis(200);

impl ConnInner {
    /// Notes whether data are held back from now on. Returns whether the caller has to call [`Conn::watch_cork`].
    pub(crate) fn note_cork(&mut self, is_held: bool) -> bool {
        let was_held = self.corked_until.is_some();
        if is_held != was_held {
            self.corked_until = is_held.then(|| now().saturating_add(CORK_MAX));
        }
        is_held && !was_held
    }
}

impl Conn {
    /// Sends what was held back for MSG_MORE or TCP_CORK.
    pub(crate) fn uncork(self: &Arc<Self>) {
        if self.with(|inner| inner.stream.uncork()) {
            self.transmit();
        }
    }

    /// Arms the timer for data that are held back from now on.
    /// Context: does not sleep.
    pub(crate) fn watch_cork(&self) {
        self.group.arm_conn_timer(CORK_MAX);
    }

    /// Timer for corked data: sends them if due, else returns the deadline.
    pub(super) fn look_at_cork(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let until = inner.corked_until?;
        if !until.is_due(now) {
            return Some(until);
        }
        inner.corked_until = None;
        drop(inner);
        self.uncork();
        None
    }
}
