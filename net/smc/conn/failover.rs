// SPDX-License-Identifier: GPL-2.0

//! A connection moves to another link (RFC 7609 section 4.6; C function `smc_switch_conns`).

use kernel::{
    prelude::*,
    sync::Arc, //
};

use smc_proto::stream::Effects;

use super::Conn;
use crate::lgr::{
    At,
    Member, //
};

impl Conn {
    /// Leaves the link in `slot`, whose queue pair is in the error state by now, if that is what carries
    /// the connection: what is not known to have arrived is sent again on another link. Without one that
    /// reaches the peer's buffer the connection is aborted. May sleep.
    pub(super) fn leave_link(self: &Arc<Self>, slot: usize) {
        loop {
            let (at, row, buf) = self.with(|inner| {
                let row = inner.remote.map(|remote| remote.row);
                (inner.at.slot, row, inner.sndbuf.clone())
            });
            if at != slot {
                return;
            }
            let Some((slot, link)) = self.group.choose_link(self.token, row) else {
                // The group ends, or the peer did not tell where its buffer is.
                return self.give_up();
            };
            let source = match buf.as_ref().map(|buf| buf.map(&link)).transpose() {
                Ok(source) => source,
                // That link went, too.
                Err(_) if link.hardware().is_none() => continue,
                Err(_) => return self.give_up(),
            };
            self.group.stop_waiting(self.token);
            let mut inner = self.inner.lock();
            let is_same = match (&inner.sndbuf, &buf) {
                (Some(now), Some(then)) => Arc::ptr_eq(now, then),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !is_same {
                continue;
            }
            inner.source = source;
            inner.at = At { slot, link };
            inner.queued = false;
            // Whoever wanted to send waits since the link went down.
            let fx = Effects {
                wake_writers: true,
                ..inner.stream.on_link_switch()
            };
            let after = inner.after(fx);
            drop(inner);
            return self.act(&after);
        }
    }

    /// There is no link any more by which the peer could be told.
    fn give_up(self: &Arc<Self>) {
        self.kill(ECONNABORTED);
        self.clone().on_link_gone();
    }
}
