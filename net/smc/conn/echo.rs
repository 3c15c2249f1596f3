// SPDX-License-Identifier: GPL-2.0

//! A C peer may send data after its close flag, and may have to repeat data after it moved to another link (see
//! `smc_proto::conn`): a TEST_LINK finds out whether it does.

use kernel::sync::Arc;
use smc_proto::{
    lgr::LinkIdx,
    time::Instant, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::clock::now;

impl ConnInner {
    /// Begins an echo request if one is due. Returns the index of the link to send it on.
    pub(super) fn begin_echo(&mut self) -> Option<LinkIdx> {
        if !self.stream.begin_echo() {
            return None;
        }
        self.silent_at = None;
        Some(self.at.idx)
    }
}

impl Conn {
    /// Sends the echo request on link `idx`, if any.
    /// Context: does not sleep.
    pub(super) fn ask_echo(&self, idx: Option<LinkIdx>) {
        if let Some(idx) = idx {
            self.group.want_echo(self.token, idx);
        }
    }

    /// Notes the peer's echo and starts the timer.
    pub(super) fn note_echo(&self) {
        let mut inner = self.inner.lock();
        let silence = inner.stream.silence();
        inner.silent_at = Some(now().saturating_add(silence));
        drop(inner);
        self.group.arm_conn_timer(silence);
    }

    /// Timer after the peer's echo: nothing follows, if due; else returns the deadline.
    pub(super) fn look_at_silence(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let at = inner.silent_at?;
        if !at.is_due(now) {
            return Some(at);
        }
        inner.silent_at = None;
        let fx = inner.stream.on_silence();
        let after = inner.after(fx);
        drop(inner);
        self.follow_up(&after);
        None
    }
}
