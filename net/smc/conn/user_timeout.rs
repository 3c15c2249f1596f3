// SPDX-License-Identifier: GPL-2.0

//! TCP_USER_TIMEOUT: a connection whose peer takes no data for so long ends with ETIMEDOUT.

use kernel::sync::Arc;
use kernel_ext::prelude::*;
use smc_proto::{
    conn::Look,
    time::{
        Duration,
        Instant, //
    }, //
};

use super::Conn;
use crate::clock::now;

impl Conn {
    /// Sets the limit; zero is none.
    /// Context: does not sleep.
    pub(crate) fn set_user_timeout(&self, limit: Duration) {
        self.inner.lock().user_timeout.set(limit);
        // Data may be waiting already.
        self.watch_user_timeout();
    }

    /// Watches data that were sent or may be waiting, if there is a limit.
    /// Context: does not sleep.
    #[cold]
    pub(super) fn watch_user_timeout(&self) {
        let mut inner = self.inner.lock();
        let progress = inner.stream.progress();
        let delay = inner.user_timeout.begin(progress, now());
        drop(inner);
        if let Some(delay) = delay {
            self.group.arm_conn_timer(delay);
        }
    }

    /// Timer of data that wait: ends the connection if that is due, else returns when to look again.
    /// Context: does not sleep.
    pub(super) fn look_at_user_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let confirmed_later = inner.at.link.needs_acks();
        let progress = inner.stream.progress_if_waiting(confirmed_later);
        let look = inner.user_timeout.look(progress, now);
        drop(inner);
        match look {
            Look::Done => None,
            Look::Again(at) => Some(at),
            Look::Expired => {
                self.kill(ETIMEDOUT);
                None
            }
        }
    }
}
