// SPDX-License-Identifier: GPL-2.0

//! Carries out what the LLC core decides (RFC 7609 section 3.3): messages on the link, waits,
//! and the ends of flows.
//!
//! Messages are answered where they arrive. What may sleep (bringing the queue pair up, registering
//! memory) is left to the thread that runs the handshake and waits here. What time demands of a group
//! that nobody waits for is done when its scheduler looks at it.

mod flows;
mod rx;

pub(crate) use rx::LinkRx;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::time;
use smc_proto::{
    lgr::{
        redundancy::Occasion,
        End,
        Role,
        Rtokens, //
    },
    llc::{
        add,
        keepalive::{
            Due,
            KeepAlive, //
        },
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
            Message,
            PeerOrder, //
        }, //
    }, //
};

use crate::{
    clock::now,
    lgr::{
        link_work_queue::{
            DeleteCause,
            LinkWork, //
        },
        LinkGroup,
        LlcState,
        ADD_AGAIN, //
    },
    link::{
        Link,
        LinkError, //
    }, //
};

/// What is to be done without the lock.
#[derive(Default)]
struct Todo {
    wake: bool,
    end: Option<End>,
    /// A link on which nothing can be sent.
    broken: Option<usize>,
    /// When time demands something again.
    arm_timer_at: Option<Instant>,
    /// There is new link work.
    link_work: bool,
    /// Nothing was to be done.
    is_ignored: bool,
}

impl Todo {
    fn queue(&mut self, state: &mut LlcState, work: LinkWork) {
        state.link_work.push(work);
        self.link_work = true;
    }
}

/// The longest time after which a link that could not be added is tried again.
const ADD_AGAIN_MAX: Duration = Duration::from_secs(600);

impl LinkGroup {
    /// Takes a message of the peer. Does not sleep.
    fn on_llc(self: &Arc<Self>, slot: usize, message: &Message<'_>) {
        if let Some(number) = message.echoed() {
            self.on_echo(slot, number);
        }
        let (links, spare) = (self.link_numbers(), self.spare_slot());
        self.run_llc(|llc, rtokens, now| {
            let mut arrival = Arrival {
                slot,
                spare,
                links: &links,
                rtokens,
            };
            llc.on_message(message, &mut arrival, now)
        });
        if message.deletes_rkeys() {
            self.look_at_rows();
        }
    }

    /// Sends a TEST_LINK with a number, which the answer has as well. Does not sleep.
    pub(crate) fn ask_echo(self: &Arc<Self>, slot: usize, number: u64) {
        self.run_llc(|llc, _, _| llc.echo(slot, number));
    }

    /// A link is gone: whoever waits for a message on it stops.
    pub(crate) fn on_llc_link_down(self: &Arc<Self>, slot: usize) {
        self.forget_echo(slot);
        self.run_llc(|llc, _, now| llc.on_link_down(slot, now));
    }

    /// Runs a step of the core and carries out what it asks for. Says no if it ignored the event. The
    /// scheduler looks when the flow under way runs out of time: not every flow has somebody who waits for it.
    pub(crate) fn run_llc<'a>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Llc, &mut Rtokens<'_>, Instant) -> Actions<'a>,
    ) -> bool {
        let now = now();
        let mut todo = Todo::default();
        let order = self.peer_order();
        let deadline = self.with_llc(|state, rtokens| {
            let actions = step(&mut state.core, rtokens, now);
            for action in actions.iter() {
                self.execute(state, action, order, &mut todo);
            }
            state.core.deadline()
        });
        if todo.wake {
            self.wake_llc_waiters();
        }
        if let Some(link) = todo.broken.and_then(|slot| self.link(slot)) {
            link.fail(LinkError::Post);
        }
        if todo.link_work {
            self.schedule_link_work();
        }
        if let Some(at) = [todo.arm_timer_at, deadline].into_iter().flatten().min() {
            self.arm_timer_at(at);
        }
        if let Some(why) = todo.end {
            self.terminate_soon(why);
        }
        !todo.is_ignored
    }

    fn execute(
        &self,
        state: &mut LlcState,
        action: &Action<'_>,
        order: PeerOrder,
        todo: &mut Todo,
    ) {
        match action {
            Action::Send { slot, message } => {
                if self.send_llc(*slot, message, order).is_err() {
                    todo.broken = Some(*slot);
                }
            }
            Action::PrepareLink { slot, link_num } => {
                if let Some(link) = self.link(*slot) {
                    link.set_number(*link_num);
                }
                if state.is_first {
                    state.prepare = true;
                    todo.wake = true;
                } else {
                    todo.queue(state, LinkWork::PrepareLink(*slot));
                }
            }
            Action::LinkOffered { on, slot, link } => {
                let (on, slot, link) = (*on, *slot, *link);
                todo.queue(state, LinkWork::AcceptAddLink { on, slot, link });
            }
            Action::ConnectLink { slot, peer } => {
                todo.queue(state, LinkWork::ConnectLink(*slot, *peer));
            }
            Action::Invited { .. } => {
                state.add_why = Occasion::Invitation;
                todo.queue(state, LinkWork::AddLink(Occasion::Invitation));
            }
            Action::TakeDownLink { slot } => {
                todo.queue(state, LinkWork::DeleteLink(*slot, DeleteCause::Agreed));
            }
            Action::ActivateLink { slot, peer_uid } => {
                let (Some(link), Some(place)) = (self.link(*slot), state.watches.get_mut(*slot))
                else {
                    return;
                };
                link.activate(*peer_uid);
                let now = now();
                let watch = KeepAlive::new(self.terms.times.test_after, now);
                todo.arm_timer_at = watch.deadline();
                *place = Some(watch);
                if !state.is_first {
                    todo.queue(state, LinkWork::Rebalance);
                }
            }
            Action::TerminateGroup(reason) => {
                state.is_over = true;
                todo.wake = true;
                todo.end = Some(End::ByPeer(*reason));
            }
            Action::Finished(how) => self.on_finished(state, *how, todo),
            // Only groups of version 1 ask for keys, of which there are none: see `handshake`.
            Action::SendKeys { .. } => {}
            Action::Ignored(why) => {
                todo.is_ignored = true;
                // Somebody may have tested the link.
                todo.wake |= *why == Ignored::Noted;
            }
        }
    }

    fn on_finished(&self, state: &mut LlcState, how: Finished, todo: &mut Todo) {
        todo.wake = true;
        // Who waits to begin a flow can do so now.
        todo.link_work |= state.link_work.wants_flow();
        match how {
            Finished::FirstContact(result) => {
                state.is_first = false;
                state.first_contact = Some(result);
                if result.is_ok() && self.terms.role == Role::Server {
                    todo.queue(state, LinkWork::AddLink(Occasion::OwnPort));
                }
            }
            Finished::ConfirmRkey(_) | Finished::DeleteRkey(_) => {
                state.finished = Some(how);
            }
            Finished::DeleteLink => {}
            Finished::AddLink { slot, result } => match result {
                Ok(()) => {
                    state.add_wait = ADD_AGAIN;
                    state.add_why = Occasion::OwnPort;
                    if self.terms.role == Role::Server {
                        todo.queue(state, LinkWork::AddLink(Occasion::OwnPort));
                    }
                }
                Err(error) => {
                    todo.queue(state, LinkWork::DeleteLink(slot, DeleteCause::Agreed));
                    // Who has no path now says so when it has. The C module does when the port is up, which
                    // may be before it knows the port's address.
                    let is_final = state.add_why == Occasion::OwnPort
                        && matches!(error, add::Error::Rejected(_));
                    if !is_final {
                        todo.arm_timer_at = Some(state.add_later());
                    }
                }
            },
        }
    }

    // --- What time demands.

    /// Does what is due, and says when there is something next. Does not sleep.
    pub(crate) fn on_timer(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        if self.terminating().is_some() {
            return None;
        }
        let idle_end = self.idle_end();
        if idle_end.is_some_and(|end| end.is_due(now)) {
            self.terminate_soon(End::Idle);
            return None;
        }
        self.run_llc(|llc, _, now| llc.on_timeout(now));
        let mut ask = None;
        for (slot, link) in self.links().iter().enumerate() {
            if let Some(link) = link {
                self.test_link(slot, link, now);
                ask = [ask, link.request_ack_if_due(now)]
                    .into_iter()
                    .flatten()
                    .min();
            }
        }
        let trim = self.trim_if_due(now);
        let closing = self.on_closing_timer(now);
        let is_due = |at: &mut Instant| at.is_due(now);
        let again = self.with_llc(|state, _| {
            let is_now = state.add_at.take_if(is_due).is_some();
            is_now.then_some(state.add_why)
        });
        if let Some(why) = again {
            self.queue_link_work(LinkWork::AddLink(why));
        }
        self.with_llc(|state, _| {
            let watches = state.watches.iter().flatten();
            let test = watches.filter_map(KeepAlive::deadline).min();
            let flow = state.core.deadline();
            let add = state.add_at;
            [idle_end, trim, closing, ask, test, flow, add]
                .into_iter()
                .flatten()
                .min()
        })
    }

    /// Has another link looked for after a while. Does not sleep.
    pub(crate) fn add_later(self: &Arc<Self>) {
        let at = self.with_llc(|state, _| state.add_later());
        self.arm_timer_at(at);
    }

    /// Tests a link if nothing was heard on it for long, and takes it down if that did not help.
    fn test_link(self: &Arc<Self>, slot: usize, link: &Arc<Link>, now: Instant) {
        let heard = link.last_rx();
        let due = self.with_llc(|state, _| {
            let watch = state.watches.get_mut(slot)?.as_mut()?;
            watch.on_received(heard);
            Some(watch.on_timeout(now))
        });
        match due {
            Some(Due::SendTest) => {
                self.run_llc(|llc, _, _| llc.test_link(slot));
            }
            Some(Due::LinkDead) => link.fail(LinkError::TestLinkTimeout),
            Some(Due::Nothing) | None => {}
        }
    }

    /// Ends the group: its connections are aborted, the peer is told, the link is taken down, and
    /// nothing of the device is held any more but by who uses it at the moment. May sleep, for as long
    /// as a peer that is there takes to end the group as well. To be called once, after
    /// [`LinkGroup::mark_terminating`].
    pub(crate) fn terminate(self: &Arc<Self>) {
        self.for_each(|member| member.on_group_end());
        // Nothing of a connection was sent on a link that never was in use, and its peer may be out of reach.
        if self.active_link().is_some() && self.drain() {
            self.send_delete_all();
        }
        for (slot, link) in self.close_links().iter().enumerate() {
            if let Some(link) = link {
                self.on_llc_link_down(slot);
                link.shut_down();
            }
        }
        self.for_each(|member| member.on_link_gone());
        self.rmbs.clear();
        self.sndbufs.clear();
        self.wake_llc_waiters();
    }

    /// Tells the peer, and goes on answering it until it has ended its connections.
    ///
    /// A C peer waits until all that it sent was received before it takes its link down, and where the
    /// device sends again without end, as soft RoCE does, it waits for good. So the link stays until the
    /// peer has deleted it. For the same reason a peer from which nothing comes any more is told nothing:
    /// soft RoCE hears nothing while its device is removed. Tests of the link show that to the peer.
    fn send_delete_all(self: &Arc<Self>) {
        let (Some(why), Some((slot, link))) = (self.terminating(), self.active_link()) else {
            return;
        };
        self.run_llc(|llc, _, _| llc.delete_all(why, slot));
        self.drain();
        let end = now().saturating_add(ANSWER_WAIT);
        loop {
            let left = end.saturating_since(now());
            let is_over = self.with_llc(|state, _| state.is_over);
            if is_over || left == Duration::ZERO || !link.is_up() {
                return;
            }
            self.wait_llc_event(time::jiffies(left.as_nanos()), |llc| llc.is_over);
        }
    }

    /// Writes a message and posts it. Does not sleep.
    fn send_llc(&self, slot: usize, message: &Message<'_>, order: PeerOrder) -> Result {
        let link = self.link(slot).ok_or(ENOLINK)?;
        link.send_llc(message.wire_len(), |buf| {
            message.emit(order, buf).map_err(|_| EMSGSIZE)?;
            Ok(())
        })
    }
}

impl LlcState {
    /// Has another link looked for after a while; says when.
    fn add_later(&mut self) -> Instant {
        let wait = self.add_wait;
        self.add_wait = wait.saturating_add(wait).min(ADD_AGAIN_MAX);
        let at = now().saturating_add(wait);
        self.add_at = Some(at);
        at
    }
}
