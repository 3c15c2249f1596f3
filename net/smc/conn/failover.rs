// SPDX-License-Identifier: GPL-2.0

//! Moves a connection to another link: because its own failed (RFC 7609 section 4.6; C function `smc_switch_conns`), or
//! because another one has fewer connections.
//!
//! Both are started by the single link work of the group, so they do not run concurrently.

use core::mem;

use kernel::sync::Arc;
use kernel_ext::{
    ib::WriteSource,
    prelude::*, //
};
use smc_proto::{
    conn::{
        ConnState,
        Effects,
        Handover, //
    },
    lgr::{
        LinkIdx,
        RtokenIdx, //
    }, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::{
    lgr::{
        LgrConn,
        LinkRef, //
    },
    link::Link,
    rmb::SendBuf, //
};

/// A pending switch of a connection to another link.
pub(super) struct PendingSwitch {
    at: LinkRef,
    /// The send buffer as mapped for that link.
    source: Option<WriteSource>,
}

impl PendingSwitch {
    /// Drops the mapping for the link's device, which will not be used.
    fn forget(&self, buf: Option<&Arc<SendBuf>>) {
        if let (Some(buf), Some(source)) = (buf, &self.source) {
            buf.forget(source);
        }
    }
}

/// Snapshot of the state that the choice of a link depends on.
struct Snapshot {
    idx: LinkIdx,
    row: Option<RtokenIdx>,
    buf: Option<Arc<SendBuf>>,
}

impl Snapshot {
    /// Maps the send buffer for the device of `link`.
    /// Context: may sleep.
    fn map(&self, link: &Arc<Link>) -> Result<Option<WriteSource>> {
        self.buf.as_ref().map(|buf| buf.map(link)).transpose()
    }
}

impl ConnInner {
    fn view(&self) -> Snapshot {
        Snapshot {
            idx: self.at.idx,
            row: self.remote.map(|remote| remote.row),
            buf: self.sndbuf.as_deref().cloned(),
        }
    }

    /// Returns whether the state still equals the snapshot.
    fn is_as(&self, then: &Snapshot) -> bool {
        let now = self.view();
        let has_same_buf = match (&now.buf, &then.buf) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        now.idx == then.idx && now.row == then.row && has_same_buf
    }

    /// Uses link `at` from now on, whose device has the send buffer mapped as `source`, as the own link failed.
    fn move_to(&mut self, at: LinkRef, source: Option<WriteSource>) -> Effects {
        self.pending_switch = None;
        self.sndbuf_dma = source;
        self.at = at;
        self.queued = false;
        let fx = self.stream.on_link_switch();
        self.allow_immediate();
        fx
    }
}

impl Conn {
    /// Leaves link `idx`, whose QP is in the error state, if the connection uses it: data not known to have arrived are
    /// sent again on another link. If no link reaches the peer's RMB the connection is aborted.
    /// Context: may sleep.
    pub(super) fn fail_over(self: &Arc<Self>, idx: LinkIdx) {
        if self.with(|inner| inner.at.idx == idx && inner.stream.may_miss_data_after_close()) {
            self.kill(ECONNABORTED);
        }
        loop {
            let Some(then) = self.with(|inner| self.view_from(inner, idx)) else {
                return;
            };
            let Some(at) = self.group.choose_link(self.token, then.row, |_| true) else {
                // The group ends, or the peer sent no RToken of its RMB for another link.
                return self.abort_on_failover(&then);
            };
            let source = match then.map(&at.link) {
                Ok(source) => source,
                // That link is gone, too.
                Err(_) if at.link.resources().is_none() => continue,
                Err(_) => return self.abort_on_failover(&then),
            };
            self.group.stop_waiting(self.token);
            let mut inner = self.inner.lock();
            if !inner.is_as(&then) {
                continue;
            }
            // Writers have been waiting since the link went down.
            let fx = Effects {
                wake_writers: true,
                ..inner.move_to(at, source)
            };
            let after = inner.after(fx);
            drop(inner);
            return self.follow_up(&after);
        }
    }

    /// Returns a snapshot if the connection uses link `idx`. A pending switch to that link is cancelled.
    fn view_from(&self, inner: &mut ConnInner, idx: LinkIdx) -> Option<Snapshot> {
        if inner.at.idx == idx {
            return Some(inner.view());
        }
        if inner
            .pending_switch
            .as_ref()
            .is_some_and(|next| next.at.idx == idx)
        {
            self.cancel_switch(inner);
        }
        None
    }

    /// Aborts the connection, whose link failed and whose data no other link can carry. The peer is notified on any
    /// link that works: the message needs neither the peer's RMB nor a buffer.
    fn abort_on_failover(self: &Arc<Self>, then: &Snapshot) {
        let at = self
            .group
            .active_link()
            .filter(|_| self.group.terminating().is_none());
        let is_reachable = at.is_some_and(|at| {
            self.group.stop_waiting(self.token);
            self.group.account_conn(self.token, at.idx);
            self.with(|inner| {
                let stream = &inner.stream;
                let is_up = stream.state() != ConnState::Init && !stream.is_killed();
                let is_meant = is_up && inner.at.idx == then.idx;
                if is_meant {
                    inner.move_to(at, None);
                }
                is_meant
            })
        });
        // Without a buffer no data are sent before this.
        self.kill(ECONNABORTED);
        if !is_reachable {
            self.clone().on_link_gone();
        }
    }

    /// Moves from the working link `idx` to the one with the fewest connections among those that `can_carry` it, as
    /// soon as nothing is in flight. Returns whether it will.
    /// Context: may sleep.
    pub(super) fn rebalance(
        self: &Arc<Self>,
        idx: LinkIdx,
        can_carry: &dyn Fn(LinkIdx) -> bool,
    ) -> bool {
        let then = self.with(|inner| {
            let is_meant =
                inner.at.idx == idx && inner.pending_switch.is_none() && inner.remote.is_some();
            is_meant.then(|| inner.view())
        });
        let Some(then) = then else {
            return false;
        };
        let (token, row) = (self.token, then.row);
        let is_begun = match self.group.choose_link(token, row, can_carry) {
            Some(to) if to.idx != idx => self.begin_change(&then, to),
            Some(_) | None => return false,
        };
        match is_begun {
            true => self.transmit(),
            // The choice was counted already. The change that interfered makes its own choice.
            false => self.with(|inner| self.group.account_conn(token, inner.at.idx)),
        }
        is_begun
    }

    fn begin_change(&self, then: &Snapshot, at: LinkRef) -> bool {
        let Ok(source) = then.map(&at.link) else {
            return false;
        };
        let next = PendingSwitch { at, source };
        self.with(|inner| {
            let is_begun = inner.is_as(then);
            match is_begun {
                true => inner.pending_switch = Some(next),
                false => next.forget(then.buf.as_ref()),
            }
            is_begun
        })
    }

    /// Cancels a pending switch to another link.
    pub(super) fn cancel_switch(&self, inner: &mut ConnInner) {
        if let Some(next) = inner.pending_switch.take() {
            next.forget(inner.sndbuf.as_deref());
            self.group.account_conn(self.token, inner.at.idx);
        }
    }

    /// Completes a pending switch if that is possible now. Returns whether anything may be posted now.
    pub(super) fn try_switch(&self, inner: &mut ConnInner) -> bool {
        if inner.pending_switch.is_none() {
            return true;
        }
        match inner.stream.handover() {
            Handover::Later => true,
            Handover::Pause => false,
            Handover::Now => {
                if let Some(PendingSwitch { at, source }) = inner.pending_switch.take() {
                    if mem::take(&mut inner.queued) {
                        self.group.stop_waiting(self.token);
                    }
                    inner.at = at;
                    inner.sndbuf_dma = source.filter(|_| inner.sndbuf.is_some());
                    inner.allow_immediate();
                }
                true
            }
        }
    }
}
