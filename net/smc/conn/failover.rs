// SPDX-License-Identifier: GPL-2.0

//! A connection moves to another link: because its own is lost (RFC 7609 section 4.6; C function
//! `smc_switch_conns`), or because another one has less to do.
//!
//! Both are begun by the one worker of the group, so that they do not meet.

use core::mem;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::ib::Mapping;
use smc_proto::{
    conn::{
        Effects,
        Handover, //
    },
    lgr::RowId, //
};

use super::{
    Conn,
    Inner, //
};
use crate::{
    lgr::{
        LgrConn,
        LinkRef, //
    },
    link::Link,
    rmb::SendBuf, //
};

/// Another link that is to carry what a connection sends.
pub(super) struct PendingSwitch {
    at: LinkRef,
    /// The send buffer as that link's device sees it.
    source: Option<Arc<Mapping>>,
}

impl PendingSwitch {
    /// It will not be used: the buffer lets go of the link's device.
    fn forget(&self, buf: Option<&Arc<SendBuf>>) {
        if let (Some(buf), Some(source)) = (buf, &self.source) {
            buf.forget(source);
        }
    }
}

/// What the choice of a link depends on, as it was once.
struct Snapshot {
    slot: usize,
    row: Option<RowId>,
    buf: Option<Arc<SendBuf>>,
}

impl Snapshot {
    /// The send buffer as the device of `link` sees it. May sleep.
    fn map(&self, link: &Link) -> Result<Option<Arc<Mapping>>> {
        self.buf.as_ref().map(|buf| buf.map(link)).transpose()
    }
}

impl Inner {
    fn view(&self) -> Snapshot {
        Snapshot {
            slot: self.at.slot,
            row: self.remote.map(|remote| remote.row),
            buf: self.sndbuf.as_deref().cloned(),
        }
    }

    /// Whether everything is still as it was then.
    fn is_as(&self, then: &Snapshot) -> bool {
        let now = self.view();
        let has_same_buf = match (&now.buf, &then.buf) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        now.slot == then.slot && now.row == then.row && has_same_buf
    }
}

impl Conn {
    /// Leaves the link in `slot`, whose queue pair is in the error state by now, if that is what carries
    /// the connection: what is not known to have arrived is sent again on another link. Without one that
    /// reaches the peer's buffer the connection is aborted. May sleep.
    pub(super) fn fail_over(self: &Arc<Self>, slot: usize) {
        if self.with(|inner| inner.at.slot == slot && inner.stream.may_miss_data_after_close()) {
            self.kill(ECONNABORTED);
        }
        loop {
            let Some(then) = self.with(|inner| self.view_from(inner, slot)) else {
                return;
            };
            let Some((slot, link)) = self.group.choose_link(self.token, then.row, |_| true) else {
                // The group ends, or the peer did not tell where its buffer is.
                return self.abort_without_link();
            };
            let source = match then.map(&link) {
                Ok(source) => source,
                // That link went, too.
                Err(_) if link.resources().is_none() => continue,
                Err(_) => return self.abort_without_link(),
            };
            self.group.stop_waiting(self.token);
            let mut inner = self.inner.lock();
            if !inner.is_as(&then) {
                continue;
            }
            inner.pending_switch = None;
            inner.sndbuf_dma = source;
            inner.at = LinkRef { slot, link };
            inner.queued = false;
            // Whoever wanted to send waits since the link went down.
            let fx = Effects {
                wake_writers: true,
                ..inner.stream.on_link_switch()
            };
            let after = inner.after(fx);
            drop(inner);
            return self.follow_up(&after);
        }
    }

    /// How things are if the link in `slot` carries the connection. If it only was to, it is not.
    fn view_from(&self, inner: &mut Inner, slot: usize) -> Option<Snapshot> {
        if inner.at.slot == slot {
            return Some(inner.view());
        }
        if inner
            .pending_switch
            .as_ref()
            .is_some_and(|next| next.at.slot == slot)
        {
            self.cancel_switch(inner);
        }
        None
    }

    /// There is no link any more by which the peer could be told.
    fn abort_without_link(self: &Arc<Self>) {
        self.kill(ECONNABORTED);
        self.clone().on_link_gone();
    }

    /// Goes over from the link in `slot`, which works, to the one of those that `can_carry` it which has
    /// the fewest connections: as soon as nothing of it is in flight. Says whether it will. May sleep.
    pub(super) fn rebalance(
        self: &Arc<Self>,
        slot: usize,
        can_carry: &dyn Fn(usize) -> bool,
    ) -> bool {
        let then = self.with(|inner| {
            let is_meant =
                inner.at.slot == slot && inner.pending_switch.is_none() && inner.remote.is_some();
            is_meant.then(|| inner.view())
        });
        let Some(then) = then else {
            return false;
        };
        let (token, row) = (self.token, then.row);
        let is_begun = match self.group.choose_link(token, row, can_carry) {
            Some((to, link)) if to != slot => self.begin_change(&then, LinkRef { slot: to, link }),
            Some(_) | None => return false,
        };
        match is_begun {
            true => self.transmit(),
            // The choice counted already. Whoever changed something meanwhile looks again.
            false => self.with(|inner| self.group.count_on(token, inner.at.slot)),
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

    /// Does not go over to another link after all.
    pub(super) fn cancel_switch(&self, inner: &mut Inner) {
        if let Some(next) = inner.pending_switch.take() {
            next.forget(inner.sndbuf.as_deref());
            self.group.count_on(self.token, inner.at.slot);
        }
    }

    /// Goes over to the next link, if there is one and this is the moment. Says whether anything may be
    /// posted now.
    pub(super) fn try_switch(&self, inner: &mut Inner) -> bool {
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
                }
                true
            }
        }
    }
}
