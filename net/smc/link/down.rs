// SPDX-License-Identifier: GPL-2.0

//! Failure of a link: causes and handling.

use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};
use kernel_ext::{
    ib::Device,
    prelude::*,
    ratelimit,
    trace::{
        self,
        LinkDown, //
    }, //
};
use smc_proto::link::{
    LinkEvent,
    LinkState, //
};

use super::{
    transport::TransportOps,
    Link,
    LinkError,
    LinkHandler, //
};

/// A link that has just gone down.
struct LinkDownInfo {
    handler: Option<Arc<dyn LinkHandler>>,
    device: Option<Arc<Device>>,
    state: LinkState,
}

impl LinkDownInfo {
    /// Returns the data for the tracepoint.
    #[cold]
    fn traced(&self) -> LinkDown {
        let group = self.handler.as_ref().map(|handler| handler.group());
        let group = group.unwrap_or_default();
        LinkDown {
            group: group.address,
            net_cookie: group.net_cookie,
            state: self.state.code(),
            device: self.device.as_ref().map(|device| device.name()),
        }
    }
}

impl Link {
    /// Handles a failure of the link; the group is notified once.
    /// Context: does not sleep.
    // Inline, as the tracepoint records the caller's address.
    #[inline(always)]
    pub(crate) fn fail(&self, why: LinkError) {
        let Some(down) = self.mark_down(why) else {
            return;
        };
        trace::link_down(self, || down.traced());
        if let Some(handler) = down.handler {
            handler.on_failure();
        }
    }

    /// Marks the link as down; `None` if it was down already.
    fn mark_down(&self, why: LinkError) -> Option<LinkDownInfo> {
        let mut inner = self.inner.lock();
        let next = inner.state.on(LinkEvent::WentDown)?;
        inner.state = next;
        let down = LinkDownInfo {
            handler: inner.handler.clone(),
            device: inner.device.clone(),
            state: next,
        };
        let number = inner.number;
        drop(inner);
        if !self.is_teardown_expected() && ratelimit::peer() {
            pr_warn!(
                "link {} of queue pair {} failed: {why}\n",
                number.0,
                self.qp_num.get()
            );
        }
        self.state_wait.notify_all();
        Some(down)
    }

    /// The group is ending: the link going down because the peer takes it down is not a failure from now on.
    pub(crate) fn expect_peer_teardown(&self) {
        self.is_ending.store(true, Relaxed);
    }

    fn is_teardown_expected(&self) -> bool {
        self.transport.caps().sees_peer_teardown && self.is_ending.load(Relaxed)
    }
}
