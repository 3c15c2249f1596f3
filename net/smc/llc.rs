// SPDX-License-Identifier: GPL-2.0

//! Carries out the actions of the LLC core (RFC 7609 section 3.3): messages on links, waits, and the ends of flows.
//!
//! Messages are answered in completion context. What may sleep (bringing the queue pair up, registering memory) is left
//! to the thread that runs the handshake and waits here. Timeouts of flows that no thread waits for are handled by the
//! timer of the group.

mod flows;
mod rx;

pub(crate) use rx::LinkRx;

use kernel::sync::Arc;
use kernel_ext::prelude::*;
use smc_proto::{
    lgr::{
        LinkIdx,
        Rtokens,
        TerminateReason, //
    },
    llc::{
        add,
        link_work::LostLink,
        Action,
        Actions,
        Arrival,
        Finished,
        Ignored,
        Llc,
        ANSWER_WAIT, //
    },
    time::{
        Duration,
        Instant, //
    },
    wire::{
        llc::{
            Body,
            LlcMessage,
            PeerOrder, //
        },
        List, //
    }, //
};

use crate::{
    clock::{
        self,
        now, //
    },
    lgr::{
        LinkGroup,
        LinkRef,
        LlcState, //
    },
    link::LinkError, //
};

/// What to do after the lock was released.
#[derive(Default)]
struct AfterUnlock {
    wake: bool,
    end: Option<TerminateReason>,
    /// The index of a link that failed, and why.
    broken: Option<(LinkIdx, LinkError)>,
    /// The core ignored the event.
    is_ignored: bool,
}

impl LinkGroup {
    /// Processes an LLC message received on link `idx`.
    /// Context: does not sleep.
    fn on_llc(self: &Arc<Self>, idx: LinkIdx, message: &LlcMessage<'_>) {
        if let Some(number) = message.echoed() {
            self.on_echo(idx, number);
        }
        let (links, spare) = (self.link_numbers(), self.spare_idx());
        self.run_llc(|llc, rtokens, now| {
            let mut arrival = Arrival {
                idx,
                spare,
                links: &links,
                rtokens,
            };
            llc.on_message(message, &mut arrival, now)
        });
        if message.deletes_rkeys() {
            self.notify_rkeys_deleted();
        }
    }

    /// Sends a TEST_LINK with a number, which the response repeats.
    /// Context: does not sleep.
    pub(crate) fn ask_echo(self: &Arc<Self>, idx: LinkIdx, number: u64) {
        self.run_llc(|llc, _, _| llc.echo(idx, number));
    }

    /// Called after a link went down: ends waits for messages on it.
    pub(crate) fn on_llc_link_down(self: &Arc<Self>, idx: LinkIdx) {
        self.forget_echo(idx);
        self.run_llc(|llc, _, now| llc.on_link_down(idx, now));
    }

    /// Runs a step of the core and carries out its actions. Returns false if the core ignored the event. Arms the timer
    /// for the deadline of the flow under way: not every flow has a thread that waits for it.
    pub(crate) fn run_llc<'a>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Llc, &mut Rtokens<'_>, Instant) -> Actions<'a>,
    ) -> bool {
        let now = now();
        let mut after = AfterUnlock::default();
        let order = self.peer_order();
        let (deadline, has_link_work) = self.with_llc(|state, rtokens| {
            let before = state.core.deadline();
            let actions = step(&mut state.core, rtokens, now);
            for action in actions.iter() {
                self.execute(state, action, order, &mut after);
            }
            let deadline = state.core.deadline();
            let changed = deadline.filter(|_| deadline != before);
            (changed, state.core.has_link_work())
        });
        if after.wake {
            self.wake_llc_waiters();
        }
        if let Some((idx, why)) = after.broken {
            self.link(idx).inspect(|link| link.fail(why));
        }
        if has_link_work {
            self.schedule_link_work();
        }
        if let Some(at) = deadline {
            self.arm_timer_at(at);
        }
        if let Some(why) = after.end {
            self.terminate_soon(why);
        }
        !after.is_ignored
    }

    fn execute(
        &self,
        state: &mut LlcState,
        action: &Action<'_>,
        order: PeerOrder,
        after: &mut AfterUnlock,
    ) {
        match action {
            Action::Send { idx, message } => {
                let idx = self.link_to_send(*idx, message);
                if self.send_llc(idx, message, order).is_err() {
                    after.broken = Some((idx, LinkError::Post));
                }
            }
            Action::PrepareLink { idx, link_num } => {
                if let Some(link) = self.link(*idx) {
                    link.set_number(*link_num);
                }
                state.prepare = true;
                after.wake = true;
            }
            Action::ActivateLink { idx, peer_uid } => {
                if let Some(link) = self.link(*idx) {
                    link.activate(*peer_uid);
                }
                self.log_type();
            }
            Action::LinkDead { idx } => after.broken = Some((*idx, LinkError::TestLinkTimeout)),
            Action::TerminateGroup(reason) => {
                state.is_over = true;
                after.wake = true;
                after.end = Some(TerminateReason::ByPeer(*reason));
            }
            Action::Finished(how) => {
                after.wake = true;
                match how {
                    Finished::FirstContact(result) => state.first_contact = Some(*result),
                    Finished::ConfirmRkey(_) | Finished::DeleteRkey(_) => {
                        state.finished = Some(*how);
                    }
                    Finished::AddLink { .. } => state.new_rkeys = None,
                    Finished::DeleteLink => {}
                }
            }
            // It is in the core's queue.
            Action::LinkWork(_) => {}
            Action::SendKeys {
                on,
                kind,
                link_num,
                from,
            } => {
                let rkeys = state.new_rkeys.as_deref().map_or(&[][..], KVec::as_slice);
                let rkeys = List::new(rkeys).unwrap_or_default();
                let message = add::keys_from(*kind, *link_num, rkeys, *from);
                if self.send_llc(*on, &message, order).is_err() {
                    after.broken = Some((*on, LinkError::Post));
                }
            }
            Action::Ignored(why) => {
                after.is_ignored = true;
                // A thread may have tested the link.
                after.wake |= *why == Ignored::Noted;
            }
        }
    }

    /// Handles a failed link: queues its deletion if another one is active, waits if one is about to be, else ends the
    /// group.
    /// Context: does not sleep.
    pub(crate) fn delete_lost_link(self: &Arc<Self>, idx: LinkIdx) {
        // Links become active under the same lock.
        let what = self.with_llc(|state, _| {
            let has_active = self.active_link().is_some();
            state
                .core
                .on_lost_link(idx, has_active, |new| self.is_link_up(new))
        });
        self.log_type();
        match what {
            LostLink::Deleted => self.schedule_link_work(),
            LostLink::Kept => {}
            LostLink::Last => self.terminate_soon(TerminateReason::LinkLost),
        }
    }

    fn is_link_up(&self, idx: LinkIdx) -> bool {
        self.link(idx).is_some_and(|link| link.is_up())
    }

    // --- Timers.

    /// Runs the timers of the group that are due; returns the next deadline.
    /// Context: does not sleep.
    pub(crate) fn on_timer(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        if self.terminating().is_some() {
            return None;
        }
        let idle_end = self.idle_end();
        if idle_end.is_some_and(|end| end.is_due(now)) {
            self.terminate_soon(TerminateReason::Idle);
            return None;
        }
        self.run_llc(|llc, _, now| llc.on_timeout(now));
        let ask = self.test_links(now);
        let trim = self.free_unused_rmbs_if_due(now);
        let closing = self.run_conn_timers(now);
        let llc = self.with_llc(|state, _| state.core.deadline());
        let all = [idle_end, trim, closing, ask, llc];
        all.into_iter().flatten().min()
    }

    /// Tests links on which no message arrived for long. Returns when to request acknowledgements.
    fn test_links(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let links = self.links();
        self.with_llc(|state, _| {
            let all = links.present();
            all.for_each(|(idx, link)| state.core.on_heard(idx, link.last_rx()));
        });
        let mut ask = None;
        for (idx, link) in links.present() {
            self.run_llc(|llc, _, _| llc.on_link_timeout(idx, now));
            ask = [ask, link.request_ack_if_due(now)]
                .into_iter()
                .flatten()
                .min();
        }
        ask
    }

    /// Ends the group: aborts its connections, notifies the peer, takes the links down, and releases all resources of
    /// the device except those in use by a task at the moment. To be called once, after
    /// [`LinkGroup::mark_terminating`].
    /// Context: may sleep, for as long as a reachable peer takes to end the group as well.
    pub(crate) fn terminate(self: &Arc<Self>) {
        self.for_each(|member| member.on_group_end());
        // Nothing of a connection was sent on a link that never was active, and its peer may be unreachable.
        if self.active_link().is_some() && self.drain() {
            self.send_delete_all();
        }
        for (idx, link) in self.close_links().present() {
            self.on_llc_link_down(idx);
            link.shut_down();
        }
        self.for_each(|member| member.release_all());
        self.rmbs.clear();
        self.sndbufs.close();
        self.wake_llc_waiters();
    }

    /// Sends DELETE LINK for all links, and continues to answer the peer until it has ended its connections.
    /// Context: may sleep.
    ///
    /// A C peer waits until all that it sent was received before it takes its link down, and where the device
    /// retransmits without end, as soft RoCE does, it waits forever. So the link stays until the peer has deleted it.
    /// For the same reason nothing is sent to a peer from which nothing arrives any more: soft RoCE receives nothing
    /// while its device is removed. The peer detects that by its tests of the link.
    fn send_delete_all(self: &Arc<Self>) {
        let (Some(why), Some(LinkRef { idx, link })) = (self.terminating(), self.active_link())
        else {
            return;
        };
        self.run_llc(|llc, _, _| llc.delete_all(why, idx));
        self.drain();
        let end = now().saturating_add(ANSWER_WAIT);
        loop {
            let left = end.saturating_since(now());
            let is_over = self.with_llc(|state, _| state.is_over);
            if is_over || left == Duration::ZERO || !link.is_up() {
                return;
            }
            self.wait_llc_event(clock::jiffies(left), |llc| llc.is_over);
        }
    }

    /// Returns the link for a message that is meant for link `idx`. The link that a flow began on may be lost; a DELETE
    /// LINK may take any (RFC 7609 section 4.5.4).
    fn link_to_send(&self, idx: LinkIdx, message: &LlcMessage<'_>) -> LinkIdx {
        match message.body {
            Body::DeleteLink(_) if !self.is_link_up(idx) => {
                self.active_link().map_or(idx, |other| other.idx)
            }
            _ => idx,
        }
    }

    /// Encodes a message and posts it.
    /// Context: does not sleep.
    fn send_llc(&self, idx: LinkIdx, message: &LlcMessage<'_>, order: PeerOrder) -> Result {
        let link = self.link(idx).ok_or(ENOLINK)?;
        link.send_llc(message.wire_len(), |buf| {
            message.emit(order, buf).map_err(|_| EMSGSIZE)?;
            Ok(())
        })
    }
}
