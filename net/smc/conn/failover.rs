// SPDX-License-Identifier: GPL-2.0

//! Moves a connection to another link: because its own failed (RFC 7609 section 4.6; C function `smc_switch_conns`), or
//! because another one has fewer connections.
//!
//! Both are started by the single link work of the group, so they do not run concurrently.

use core::mem;

use kernel::{
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
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
        LinkMap,
        RtokenIdx, //
    },
    time::Instant, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::{
    clock::now,
    lgr::{
        LgrConn,
        LinkRef, //
    },
    link::Link,
    rmb::SendBuf, //
};

/// Pause before all links are tried again if none could have the send buffer mapped.
const MAP_RETRY: Delta = Delta::from_millis(10);

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
    /// sent again on another link. The connection is aborted if no link reaches the peer's RMB, or if until `deadline`
    /// the send buffer cannot be mapped for any that does.
    /// Context: may sleep.
    pub(super) fn fail_over(self: &Arc<Self>, idx: LinkIdx, deadline: Instant) {
        if self.with(|inner| inner.at.idx == idx && inner.stream.may_miss_data_after_close()) {
            self.kill(ECONNABORTED);
        }
        // Links whose devices did not map the send buffer.
        let mut refused = LinkMap::<bool>::default();
        let mut is_counted = false;
        loop {
            let then = self.with(|inner| {
                let then = self.view_from(inner, idx);
                if then.is_none() && is_counted {
                    // It has moved meanwhile, and not to the link that was chosen here.
                    self.group.account_conn(self.token, inner.at.idx);
                }
                then
            });
            let Some(then) = then else {
                return;
            };
            let (token, row) = (self.token, then.row);
            let Some(at) = self.group.choose_link(token, row, |idx| !refused[idx]) else {
                if refused.iter().any(|refused| *refused) && now() < deadline {
                    // Room for mappings (swiotlb, IOMMU) is short for a moment only, as a rule.
                    fsleep(MAP_RETRY);
                    refused = LinkMap::default();
                    continue;
                }
                // The group ends, the peer sent no RToken of its RMB for another link, or the buffer cannot be mapped.
                return self.abort_on_failover(&then);
            };
            is_counted = true;
            let Ok(source) = then.map(&at.link) else {
                // A link that is gone, too, is not chosen again.
                refused[at.idx] = true;
                continue;
            };
            let mut inner = self.inner.lock();
            if !inner.is_as(&then) {
                continue;
            }
            // Not before: it may have moved, and wait for the other link.
            self.group.stop_waiting(self.token);
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
        let mut has_moved = false;
        let is_reachable = at.is_some_and(|at| {
            self.with(|inner| {
                let stream = &inner.stream;
                let is_up = stream.state() != ConnState::Init && !stream.is_killed();
                has_moved = inner.at.idx != then.idx;
                let is_meant = is_up && !has_moved;
                if is_meant {
                    self.group.stop_waiting(self.token);
                    self.group.account_conn(self.token, at.idx);
                    inner.move_to(at, None);
                }
                is_meant
            })
        });
        if has_moved {
            // To a link that works, or that fails later.
            return self.with(|inner| self.group.account_conn(self.token, inner.at.idx));
        }
        // Without a buffer no data are sent before this.
        self.kill(ECONNABORTED);
        if !is_reachable {
            self.clone().release_all();
        }
    }

    /// Moves from the working link `idx` to the one with the fewest connections among those that `can_carry` it, as
    /// soon as nothing is in flight.
    /// Context: may sleep.
    pub(super) fn rebalance(self: &Arc<Self>, idx: LinkIdx, can_carry: &dyn Fn(LinkIdx) -> bool) {
        let then = self.with(|inner| {
            let is_meant =
                inner.at.idx == idx && inner.pending_switch.is_none() && inner.remote.is_some();
            is_meant.then(|| inner.view())
        });
        let Some(then) = then else {
            return;
        };
        let (token, row) = (self.token, then.row);
        let is_begun = match self.group.choose_link(token, row, can_carry) {
            Some(to) if to.idx != idx => self.begin_change(&then, to),
            Some(_) | None => return,
        };
        match is_begun {
            true => self.transmit(),
            // The choice was counted already. The change that interfered makes its own choice.
            false => self.with(|inner| self.group.account_conn(token, inner.at.idx)),
        }
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
