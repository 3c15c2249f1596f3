// SPDX-License-Identifier: GPL-2.0

//! A C peer may send after its close (see `smc_proto::conn`): it is asked whether it does.

use kernel::sync::Arc;
use smc_proto::{
    lgr::LINK_SLOTS,
    time::{
        Duration,
        Instant, //
    }, //
};

use super::{
    Conn,
    Inner, //
};
use crate::clock::now;

/// How long after the peer's answer nothing may come of it until its close is the end. The peer answers from a work
/// after what arrived before was looked at, and while its application is in close(2) it sends only when that
/// is through.
const SILENCE: Duration = Duration::from_millis(10);

impl Inner {
    /// Begins to ask the peer, if that is to be done: says on the link in which slot.
    pub(super) fn begin_echo(&mut self) -> Option<usize> {
        if !self.stream.begin_echo() {
            return None;
        }
        self.silent_at = None;
        Some(self.at.slot)
    }
}

impl Conn {
    /// Asks the peer on the link in `slot`, if there is one. Does not sleep.
    pub(super) fn ask_echo(&self, slot: Option<usize>) {
        if let Some(slot) = slot {
            self.group.want_echo(self.token, slot);
        }
    }

    /// The peer answered.
    pub(super) fn note_echo(&self) {
        self.inner.lock().silent_at = Some(now().saturating_add(SILENCE));
        self.group.arm_closing_timer(SILENCE);
    }

    /// Takes note if the peer has been silent for long enough after its answer, or says when it will have been.
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

    /// The peer deleted keys: if those of the buffer that it had for this connection are among them it has freed the
    /// connection, if it is a C peer.
    pub(super) fn look_at_row(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let Some(remote) = inner.remote else {
            return;
        };
        let has_row = self.group.with_rtokens(|rtokens| {
            (0..LINK_SLOTS).any(|slot| rtokens.get(remote.row, slot).is_some())
        });
        if has_row {
            return;
        }
        let fx = inner.stream.on_peer_freed();
        let after = inner.after(fx);
        drop(inner);
        self.follow_up(&after);
    }
}
