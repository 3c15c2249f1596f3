// SPDX-License-Identifier: GPL-2.0

//! The LLC state of a group: its flows (RFC 7609 section 3.3), and their results for the threads that wait for them.

use kernel::{
    sync::Arc,
    time::Jiffies, //
};
use kernel_ext::prelude::*;
use smc_proto::{
    lgr::Rtokens,
    llc::{
        self,
        link_work::LinkWork,
        Finished,
        FirstContactError,
        Llc, //
    },
    wire::llc::{
        NewLinkRkey,
        PeerOrder, //
    }, //
};

use super::{
    LgrParams,
    LinkGroup,
    PeerSystem, //
};

/// The LLC state of a group.
pub(crate) struct LlcState {
    pub(crate) core: Llc,
    /// The core requested to bring the first link up, and the handshake has not done so yet.
    pub(crate) prepare: bool,
    /// Result of the first contact, until the handshake that waits for it takes it: another connection may have begun a
    /// flow by then.
    pub(crate) first_contact: Option<Result<(), FirstContactError>>,
    /// Result of the last other flow, until the thread that waits for it takes it.
    pub(crate) finished: Option<Finished>,
    /// The RMBs on the link that is being added, in version 1: they are sent two at a time.
    pub(crate) new_rkeys: Option<Arc<KVec<NewLinkRkey>>>,
    /// The peer ended the group, too.
    pub(crate) is_over: bool,
}

impl LlcState {
    /// Creates the initial state.
    pub(super) fn new(params: &LgrParams) -> Self {
        Self {
            core: Llc::new(llc::Params {
                role: params.role,
                version: params.version,
                max_links: params.limits.max_links,
                test_after: params.times.test_after,
            }),
            prepare: false,
            first_contact: None,
            finished: None,
            new_rkeys: None,
            is_over: false,
        }
    }
}

impl LinkGroup {
    // --- Link work.

    /// Queues an item of work on the links, and schedules the work.
    /// Context: does not sleep.
    pub(crate) fn queue_link_work(self: &Arc<Self>, work: LinkWork) {
        self.inner.lock().llc.core.queue_link_work(work);
        self.schedule_link_work();
    }

    /// Called after a port became active, which another link may use.
    /// Context: does not sleep.
    pub(crate) fn on_port(self: &Arc<Self>) {
        self.inner.lock().llc.core.on_port();
        self.schedule_link_work();
    }

    /// Schedules the work on the links.
    /// Context: does not sleep.
    pub(crate) fn schedule_link_work(self: &Arc<Self>) {
        self.scheduler.schedule_link_work(self.clone());
    }

    /// Returns the next item of work on the links; `None` once the group is terminated.
    pub(crate) fn next_link_work(&self) -> Option<LinkWork> {
        let mut inner = self.inner.lock();
        match inner.end {
            None => inner.llc.core.next_link_work(),
            Some(_) => None,
        }
    }

    // --- The LLC state.

    /// Runs `f` on the LLC state and the table of RTokens with the lock held.
    pub(crate) fn with_llc<R>(&self, f: impl FnOnce(&mut LlcState, &mut Rtokens<'_>) -> R) -> R {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        f(&mut inner.llc, &mut Rtokens::new(&mut inner.rtokens))
    }

    /// Wakes threads in [`LinkGroup::wait_llc_event`].
    pub(crate) fn wake_llc_waiters(&self) {
        self.llc_waiters.notify_all();
    }

    /// Sleeps until woken, at most `timeout` jiffies, unless `is_due` already.
    pub(crate) fn wait_llc_event(&self, timeout: Jiffies, is_due: impl FnOnce(&LlcState) -> bool) {
        let mut inner = self.inner.lock();
        if !is_due(&inner.llc) {
            // A signal does not end a flow with the peer: its own timeout does.
            let _ = self
                .llc_waiters
                .wait_interruptible_timeout(&mut inner, timeout);
        }
    }

    /// Returns the byte order in which the peer reads the fields that C peers write in their own.
    pub(crate) fn peer_order(&self) -> PeerOrder {
        PeerOrder::of(self.inner.lock().peer.os)
    }

    /// Sets what the peer sent about itself.
    pub(crate) fn set_peer(&self, peer: PeerSystem) {
        self.inner.lock().peer = peer;
    }
}
