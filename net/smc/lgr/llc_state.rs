// SPDX-License-Identifier: GPL-2.0

//! The LLC state of a group: its flows (RFC 7609 section 3.3), timers of links, and the link work that they ask of the
//! group's worker.

use kernel::{
    sync::Arc,
    time::Jiffies, //
};
use smc_proto::{
    lgr::{
        redundancy::Occasion,
        Role,
        Rtokens,
        LINK_SLOTS, //
    },
    llc::{
        first,
        keepalive::KeepAlive,
        Finished,
        Llc, //
    },
    time::{
        Duration,
        Instant, //
    },
    wire::{
        llc::PeerOrder,
        Version, //
    }, //
};

use super::{
    link_work_queue::{
        LinkWork,
        LinkWorkQueue, //
    },
    LinkGroup,
    System,
    ADD_AGAIN, //
};

/// The LLC state of a group.
pub(crate) struct LlcState {
    pub(crate) core: Llc,
    /// The core asked to bring the first link up, and its handshake has not done so yet.
    pub(crate) prepare: bool,
    /// How the first contact ended, until the handshake that waits for it takes it: by then another connection may
    /// have begun a flow.
    pub(crate) first_contact: Option<Result<(), first::Error>>,
    /// How the last other flow ended, until the thread that waits for it takes it.
    pub(crate) finished: Option<Finished>,
    /// Work on the links that is to be done.
    pub(crate) link_work: LinkWorkQueue,
    /// When to look for another link again.
    pub(crate) add_at: Option<Instant>,
    /// How long to wait before that, the next time.
    pub(crate) add_wait: Duration,
    /// Why there may be another link then.
    pub(crate) add_why: Occasion,
    /// The client knows whether there will be a second link.
    pub(crate) is_second_link_known: bool,
    /// The first contact is not over.
    pub(crate) is_first: bool,
    /// The peer ended the group, too.
    pub(crate) is_over: bool,
    /// Watch the links from when they are active.
    pub(crate) watches: [Option<KeepAlive>; LINK_SLOTS],
    /// When a connection that was about to join tested a link.
    probed: [Instant; LINK_SLOTS],
}

impl LlcState {
    /// Nothing was said yet.
    pub(super) fn new(role: Role, version: Version) -> Self {
        Self {
            core: Llc::new(role, version),
            prepare: false,
            first_contact: None,
            finished: None,
            link_work: LinkWorkQueue::default(),
            add_at: None,
            add_wait: ADD_AGAIN,
            add_why: Occasion::OwnPort,
            is_second_link_known: false,
            is_first: true,
            is_over: false,
            watches: [None; LINK_SLOTS],
            probed: [Instant::ZERO; LINK_SLOTS],
        }
    }

    /// A connection is about to test the link in a slot at `now`, which counts as silent since `silent_since`.
    /// Says no if another one has done so a moment ago: one test does for all.
    pub(crate) fn begin_probe(&mut self, slot: usize, silent_since: Instant, now: Instant) -> bool {
        const ONE_DOES: Duration = Duration::from_secs(1);
        let Some(last) = self.probed.get_mut(slot) else {
            return false;
        };
        let is_answered = *last < silent_since;
        let is_due = is_answered || last.saturating_add(ONE_DOES).is_due(now);
        if is_due {
            *last = now;
        }
        is_due
    }
}

impl LinkGroup {
    // --- Link work.

    /// Queues an item of work on the links, and schedules the work. Does not sleep.
    pub(crate) fn queue_link_work(self: &Arc<Self>, work: LinkWork) {
        self.table.lock().llc.link_work.push(work);
        self.schedule_link_work();
    }

    /// A port became active: another link may be of use now. Does not sleep.
    pub(crate) fn on_port(self: &Arc<Self>) {
        self.table.lock().llc.add_wait = ADD_AGAIN;
        self.queue_link_work(LinkWork::AddLink(Occasion::OwnPort));
    }

    /// Schedules the work on the links. Does not sleep.
    pub(crate) fn schedule_link_work(self: &Arc<Self>) {
        self.scheduler.schedule_link_work(self.clone());
    }

    /// Queues an item without scheduling the work: for the work itself.
    pub(crate) fn push_link_work(&self, work: LinkWork) {
        self.table.lock().llc.link_work.push(work);
    }

    /// Reserves the LLC flow for ADD LINK. Returns false, and queues the attempt again, if a flow is under way or a link
    /// is to be deleted, which comes first. Does not sleep.
    pub(crate) fn hold_to_add(&self, why: Occasion) -> bool {
        let llc = &mut self.table.lock().llc;
        let is_held = !llc.link_work.has_deletes() && llc.core.hold().is_ok();
        if !is_held {
            // Under the lock of the look, so that the end of the flow finds it.
            llc.link_work.push(LinkWork::AddLink(why));
        }
        is_held
    }

    /// Returns true if the client already knows whether a second link follows, and has it count as known from now on.
    pub(crate) fn mark_second_link_known(&self) -> bool {
        let is_kept = core::mem::replace(&mut self.table.lock().llc.is_second_link_known, true);
        is_kept || self.terms.limits.max_links <= 1
    }

    /// Stops the TEST LINK timer of a link. Returns whether it ran, as it does from when the link is active.
    pub(crate) fn stop_watching(&self, slot: usize) -> bool {
        let watches = &mut self.table.lock().llc.watches;
        watches.get_mut(slot).and_then(Option::take).is_some()
    }

    /// The next item of work on the links; `None` once the group is terminated.
    pub(crate) fn next_link_work(&self) -> Option<LinkWork> {
        let mut table = self.table.lock();
        match table.end {
            None => {
                let LlcState {
                    core, link_work, ..
                } = &mut table.llc;
                link_work.pop(core.is_idle())
            }
            Some(_) => None,
        }
    }

    // --- The LLC state.

    /// Runs `f` on the LLC state and the table of remote keys.
    pub(crate) fn with_llc<R>(&self, f: impl FnOnce(&mut LlcState, &mut Rtokens<'_>) -> R) -> R {
        let mut table = self.table.lock();
        let table = &mut *table;
        f(&mut table.llc, &mut Rtokens::new(&mut table.rtokens))
    }

    /// Wakes threads in [`LinkGroup::wait_llc_event`].
    pub(crate) fn wake_llc_waiters(&self) {
        self.llc_waiters.notify_all();
    }

    /// Sleeps until woken, at most `timeout` jiffies, unless `is_due` already.
    pub(crate) fn wait_llc_event(&self, timeout: Jiffies, is_due: impl FnOnce(&LlcState) -> bool) {
        let mut table = self.table.lock();
        if !is_due(&table.llc) {
            // A signal does not end a flow that the peer takes part in: its own timeout does.
            let _ = self
                .llc_waiters
                .wait_interruptible_timeout(&mut table, timeout);
        }
    }

    /// How the peer reads the fields that C peers write in their own byte order.
    pub(crate) fn peer_order(&self) -> PeerOrder {
        PeerOrder::of(self.table.lock().peer.os)
    }

    /// The peer said what it is.
    pub(crate) fn set_peer(&self, peer: System) {
        self.table.lock().peer = peer;
    }
}
