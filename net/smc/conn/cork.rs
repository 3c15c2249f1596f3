// SPDX-License-Identifier: GPL-2.0

//! Data that are held back for more to come (MSG_MORE, TCP_CORK): not for ever, as with TCP.

use kernel::sync::Arc;
use smc_proto::time::{
    Duration,
    Instant, //
};

use super::{
    Conn,
    Inner, //
};
use crate::clock::now;

/// How long they wait at most, as with TCP.
const MOST: Duration = Duration::from_millis(200);

impl Inner {
    /// Data are held back from now on, or are not. Says whether [`Conn::watch_cork`] is to be called.
    pub(crate) fn note_cork(&mut self, is_held: bool) -> bool {
        let was_held = self.corked_until.is_some();
        if is_held != was_held {
            self.corked_until = is_held.then(|| now().saturating_add(MOST));
        }
        is_held && !was_held
    }
}

impl Conn {
    /// TCP_NODELAY or TCP_CORK was set; unless `corked` now, what was held back goes out.
    pub(crate) fn uncork(self: &Arc<Self>, corked: bool) {
        if !corked && self.with(|inner| inner.stream.uncork()) {
            self.transmit();
        }
    }

    /// Has data looked at that are held back from now on. Does not sleep.
    pub(crate) fn watch_cork(&self) {
        self.group.arm_closing_timer(MOST);
    }

    /// Has such data leave if they were held back for long enough, or says when they will have been.
    pub(super) fn look_at_cork(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let until = inner.corked_until?;
        if !until.is_due(now) {
            return Some(until);
        }
        inner.corked_until = None;
        drop(inner);
        self.uncork(false);
        None
    }
}
