// SPDX-License-Identifier: GPL-2.0

//! Why and how a link goes down.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};
use kernel_ext::{
    ib::Device,
    trace::{
        self,
        LinkDown, //
    }, //
};
use smc_proto::link::{
    Event,
    State, //
};

use super::{
    transport::TransportOps,
    Handler,
    Link,
    LinkError, //
};

/// A link that has just gone down.
struct LinkDownInfo {
    handler: Option<Arc<dyn Handler>>,
    device: Option<Arc<Device>>,
    state: State,
}

impl LinkDownInfo {
    /// What the tracepoint shows of it.
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
    /// The link is broken: its group gets to know, once. Does not sleep.
    // Inline, as the tracepoint tells the place from which this was called.
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

    /// Takes note that the link is broken; `None` if that was known.
    fn mark_down(&self, why: LinkError) -> Option<LinkDownInfo> {
        let mut inner = self.inner.lock();
        let next = inner.state.on(Event::WentDown)?;
        inner.state = next;
        let down = LinkDownInfo {
            handler: inner.handler.clone(),
            device: inner.device.clone(),
            state: next,
        };
        let number = inner.number;
        drop(inner);
        if !self.is_teardown_expected() {
            pr_warn!(
                "link {} of queue pair {} failed: {why}\n",
                number.0,
                self.qp_num.get()
            );
        }
        self.state_wait.notify_all();
        Some(down)
    }

    /// The group ends: that the link goes down as the peer takes it down is no failure.
    pub(crate) fn expect_peer_teardown(&self) {
        self.is_ending.store(true, Relaxed);
    }

    fn is_teardown_expected(&self) -> bool {
        self.transport.caps().sees_peer_teardown && self.is_ending.load(Relaxed)
    }
}
