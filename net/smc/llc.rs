// SPDX-License-Identifier: GPL-2.0

//! Carries out what the LLC core decides (RFC 7609 section 3.3): messages on the link, waits,
//! and the ends of flows.
//!
//! Messages are answered where they arrive. What may sleep (bringing the queue pair up, registering
//! memory) is left to the thread that runs the handshake and waits here. What time demands of a group
//! that nobody waits for is done when its keeper looks at it.

use kernel::{
    pr_warn_once,
    prelude::*,
    sync::Arc,
    time::Jiffies, //
};
use kernel_ext::time;
use smc_proto::{
    id::Rkey,
    lgr::{
        End,
        Rtokens, //
    },
    llc::{
        first,
        keepalive::{
            Due,
            KeepAlive, //
        },
        rkey::{
            self,
            Announcement,
            Deletion, //
        },
        Action,
        Actions,
        Arrival,
        Finished,
        Llc,
        LocalEnd,
        ANSWER_WAIT, //
    },
    reason::Reason,
    time::{
        Duration,
        Instant, //
    },
    wire::{
        cdc,
        llc::{
            DeleteReason,
            Message,
            PeerOrder,
            WireRkey, //
        }, //
    }, //
};

use crate::{
    lgr::{
        Conversation,
        LinkGroup,
        FIRST, //
    },
    link::{
        Failure,
        Handler,
        Link, //
    },
    rmb::Rmb, //
};

/// What is to be done without the lock.
#[derive(Default)]
struct Todo {
    wake: bool,
    end: Option<End>,
    /// A link on which nothing can be sent.
    broken: Option<usize>,
    /// When time demands something again.
    look_by: Option<Instant>,
}

impl LinkGroup {
    /// Takes a message of the peer. Does not sleep.
    fn on_llc(self: &Arc<Self>, slot: usize, bytes: &[u8]) {
        let message = match Message::parse(bytes) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(e) => {
                pr_warn_once!("dropped an LLC message that is none: {e:?}\n");
                return;
            }
        };
        let links = self.link_numbers();
        self.converse(|llc, rtokens, now| {
            let mut arrival = Arrival {
                slot,
                spare: None,
                links: &links,
                rtokens,
            };
            llc.on_message(&message, &mut arrival, now)
        });
        // A flow that the message began has nobody who waits for it.
        if let Some(at) = self.with_llc(|conversation, _| conversation.core.deadline()) {
            self.look_by(at);
        }
    }

    /// A link is gone: whoever waits for a message on it stops.
    fn on_llc_link_down(self: &Arc<Self>, slot: usize) {
        self.converse(|llc, _, now| llc.on_link_down(slot, now));
    }

    /// Runs a step of the core and carries out what it asks for.
    fn converse<'a>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Llc, &mut Rtokens<'_>, Instant) -> Actions<'a>,
    ) {
        let now = Instant::from_nanos(time::now_ns());
        let mut todo = Todo::default();
        let order = self.peer_order();
        self.with_llc(|conversation, rtokens| {
            let actions = step(&mut conversation.core, rtokens, now);
            for action in actions.iter() {
                self.carry_out(conversation, action, order, &mut todo);
            }
        });
        if todo.wake {
            self.wake_llc();
        }
        if let Some(link) = todo.broken.and_then(|slot| self.link(slot)) {
            link.fail(Failure::Post);
        }
        if let Some(at) = todo.look_by {
            self.look_by(at);
        }
        if let Some(why) = todo.end {
            self.end_soon(why);
        }
    }

    fn carry_out(
        &self,
        conversation: &mut Conversation,
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
                conversation.prepare = true;
                todo.wake = true;
            }
            Action::ActivateLink { slot, peer_uid } => {
                let (Some(link), Some(place)) =
                    (self.link(*slot), conversation.watches.get_mut(*slot))
                else {
                    return;
                };
                link.activate(*peer_uid);
                let now = Instant::from_nanos(time::now_ns());
                let watch = KeepAlive::new(self.terms.times.test_after, now);
                todo.look_by = watch.deadline();
                *place = Some(watch);
            }
            // There is one link: without it the group ends.
            Action::TakeDownLink { .. } => todo.end = Some(End::ByPeer(DeleteReason::LOST_PATH)),
            Action::TerminateGroup(reason) => {
                conversation.is_over = true;
                todo.wake = true;
                todo.end = Some(End::ByPeer(*reason));
            }
            Action::Finished(how) => {
                conversation.finished = Some(*how);
                todo.wake = true;
            }
            // No slot is given to the core for another link, so it offers and accepts none.
            Action::LinkOffered { .. }
            | Action::ConnectLink { .. }
            | Action::SendKeys { .. }
            | Action::Invited { .. }
            | Action::Ignored(_) => {}
        }
    }

    // --- What time demands.

    /// Does what is due, and says when there is something next. Does not sleep.
    pub(crate) fn look(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        if self.ending().is_some() {
            return None;
        }
        let idle_end = self.idle_end();
        if idle_end.is_some_and(|end| end.is_due(now)) {
            self.end_soon(End::Idle);
            return None;
        }
        self.converse(|llc, _, now| llc.on_timeout(now));
        for (slot, link) in self.links().iter().enumerate() {
            if let Some(link) = link {
                self.test_link(slot, link, now);
            }
        }
        let trim = self.trim_if_due(now);
        self.with_llc(|conversation, _| {
            let watches = conversation.watches.iter().flatten();
            let test = watches.filter_map(KeepAlive::deadline).min();
            let flow = conversation.core.deadline();
            [idle_end, trim, test, flow].into_iter().flatten().min()
        })
    }

    /// Tests a link if nothing was heard on it for long, and takes it down if that did not help.
    fn test_link(self: &Arc<Self>, slot: usize, link: &Arc<Link>, now: Instant) {
        let heard = link.heard();
        let due = self.with_llc(|conversation, _| {
            let watch = conversation.watches.get_mut(slot)?.as_mut()?;
            watch.on_received(heard);
            Some(watch.on_timeout(now))
        });
        match due {
            Some(Due::SendTest) => self.converse(|llc, _, _| llc.test_link(slot)),
            Some(Due::LinkDead) => link.fail(Failure::Silence),
            Some(Due::Nothing) | None => {}
        }
    }

    /// Ends the group: its connections are aborted, the peer is told, the link is taken down, and
    /// nothing of the device is held any more but by who uses it at the moment. May sleep, for as long
    /// as a peer that is there takes to end the group as well. To be called once, after
    /// [`LinkGroup::doom`].
    pub(crate) fn end(self: &Arc<Self>) {
        self.for_each(|member| member.on_group_end());
        if self.drain() {
            self.say_farewell();
        }
        for (slot, link) in self.links().iter().enumerate() {
            if let Some(link) = link {
                self.on_llc_link_down(slot);
                link.shut_down();
            }
        }
        self.for_each(|member| member.on_link_gone());
        self.rmbs.clear();
        self.sndbufs.clear();
        self.wake_llc();
    }

    /// Tells the peer, and goes on answering it until it has ended its connections.
    ///
    /// A C peer waits until all that it sent was received before it takes its link down, and where the
    /// device sends again without end, as soft RoCE does, it waits for good. So the link stays until the
    /// peer has deleted it. For the same reason a peer from which nothing comes any more is told nothing:
    /// soft RoCE hears nothing while its device is removed. Tests of the link show that to the peer.
    fn say_farewell(self: &Arc<Self>) {
        let (Some(why), Some((slot, link))) = (self.ending(), self.active_link()) else {
            return;
        };
        self.converse(|llc, _, _| llc.farewell(why, slot));
        self.drain();
        let end = Instant::from_nanos(time::now_ns()).saturating_add(ANSWER_WAIT);
        loop {
            let left = end.saturating_since(Instant::from_nanos(time::now_ns()));
            let is_over = self.with_llc(|conversation, _| conversation.is_over);
            if is_over || left == Duration::ZERO || !link.is_up() {
                return;
            }
            self.sleep_llc(time::jiffies(left.as_nanos()), |llc| llc.is_over);
        }
    }

    /// Writes a message and posts it. Does not sleep.
    fn send_llc(&self, slot: usize, message: &Message<'_>, order: PeerOrder) -> Result {
        let mut buf = [0; MAX_SEND];
        let bytes = message.emit(order, &mut buf).map_err(|_| EMSGSIZE)?;
        self.link(slot).ok_or(ENOLINK)?.send_control(bytes)
    }

    // --- Flows of ours. May sleep.

    /// Begins the first contact; the client does so before it sends its CONFIRM.
    pub(crate) fn begin_first_contact(self: &Arc<Self>, link: LocalEnd) {
        self.converse(|llc, _, now| llc.begin_first_contact(link, now).unwrap_or_default());
    }

    /// Waits for the end of the first contact; `prepare` brings the link up when it is time.
    pub(crate) fn await_first_contact(
        self: &Arc<Self>,
        prepare: impl Fn() -> Result<(), Reason>,
    ) -> Result<(), first::Error> {
        loop {
            match self.await_llc() {
                Step::Prepare => {
                    let result = prepare();
                    self.converse(|llc, _, now| llc.on_link_prepared(FIRST, result, now));
                }
                Step::Finished(Finished::FirstContact(result)) => return result,
                Step::Finished(_) => {}
                Step::Gone => return Err(first::Error::Silent),
            }
        }
    }

    /// Tells the peer of a region, on the link in `slot`. One at a time: the caller holds the group's `flow` lock.
    pub(crate) fn confirm_rkey(
        self: &Arc<Self>,
        slot: usize,
        region: Announcement<'_>,
    ) -> Result<(), rkey::Error> {
        self.converse(|llc, _, now| {
            llc.begin_confirm_rkey(slot, region, now)
                .unwrap_or_default()
        });
        self.await_flow(|how| match how {
            Finished::ConfirmRkey(result) => Some(result),
            _ => None,
        })
        .unwrap_or(Err(rkey::Error::LinkLost))
    }

    /// Frees regions that nobody has used for long, and tells the peer before. May sleep for as long
    /// as the peer takes to answer.
    pub(crate) fn trim(self: &Arc<Self>) {
        let _turn = self.flow.lock();
        let unused = self.terms.times.unused;
        let now = Instant::from_nanos(time::now_ns());
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(unused.as_nanos()));
        let Ok((rmbs, next)) = self.rmbs.take_unused(since, Deletion::MAX) else {
            // Without memory now, later.
            return self.trim_by(now.saturating_add(unused));
        };
        self.delete_rkeys(&rmbs);
        if self.idle_end().is_some() {
            self.sndbufs.clear();
        }
        if let Some(next) = next {
            self.trim_by(next.saturating_add(unused));
        }
    }

    /// Tells the peer that regions are gone, as far as it knows them, and waits for its answer.
    fn delete_rkeys(self: &Arc<Self>, rmbs: &[Arc<Rmb>]) {
        let mut keys = [WireRkey::from(Rkey(0)); Deletion::MAX];
        let Some((slot, _)) = self.active_link() else {
            return;
        };
        let known = rmbs.iter().filter(|rmb| rmb.is_known());
        let mut count = 0;
        for (key, rtoken) in keys
            .iter_mut()
            .zip(known.filter_map(|rmb| rmb.rtoken(slot)))
        {
            *key = rtoken.rkey.into();
            count += 1;
        }
        let Some(what) = keys.get(..count).and_then(Deletion::new) else {
            return;
        };
        self.converse(|llc, _, now| llc.begin_delete_rkey(slot, what, now).unwrap_or_default());
        // Whatever the answer is, nothing is written to them any more.
        self.await_flow(|how| matches!(how, Finished::DeleteRkey(_)).then_some(()));
    }

    /// Waits for the end of a flow that `pick` knows; `None` when there is no flow any more.
    fn await_flow<R>(self: &Arc<Self>, pick: impl Fn(Finished) -> Option<R>) -> Option<R> {
        loop {
            match self.await_llc() {
                Step::Finished(how) => {
                    if let Some(result) = pick(how) {
                        return Some(result);
                    }
                }
                Step::Prepare => {}
                Step::Gone => return None,
            }
        }
    }

    /// Sleeps until something is to be done, running the core's timeouts meanwhile.
    fn await_llc(self: &Arc<Self>) -> Step {
        loop {
            let step = self.with_llc(|conversation, _| {
                if core::mem::take(&mut conversation.prepare) {
                    return Some(Step::Prepare);
                }
                if let Some(how) = conversation.finished.take() {
                    return Some(Step::Finished(how));
                }
                conversation.core.is_idle().then_some(Step::Gone)
            });
            if let Some(step) = step {
                return step;
            }
            self.sleep_llc(TICK, |llc| llc.prepare || llc.finished.is_some());
            self.converse(|llc, _, now| llc.on_timeout(now));
        }
    }
}

/// A group as the link in one of its slots sees it.
pub(crate) struct Tie {
    group: Arc<LinkGroup>,
    slot: usize,
}

impl Tie {
    /// Ties the link in `slot` to its group.
    pub(crate) fn new(group: &Arc<LinkGroup>, slot: usize) -> Result<Arc<Self>> {
        let group = group.clone();
        Ok(Arc::new(Self { group, slot }, GFP_KERNEL)?)
    }
}

impl Handler for Tie {
    fn on_message(self: Arc<Self>, bytes: &[u8]) {
        if bytes.first() != Some(&cdc::TYPE) {
            self.group.on_llc(self.slot, bytes);
            return;
        }
        match cdc::Message::parse(bytes) {
            Ok(message) => self.group.on_cdc(message.token, &message.cdc),
            Err(e) => pr_warn_once!("dropped a CDC message that is none: {e:?}\n"),
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.group.on_free_slot(self.slot);
    }

    fn on_failure(self: Arc<Self>) {
        self.group.on_llc_link_down(self.slot);
        self.group.end_soon(End::LinkLost);
    }
}

/// Longest message that is sent.
const MAX_SEND: usize = 128;

/// The longest sleep between two looks at the core's deadline, jiffies.
const TICK: Jiffies = time::HZ / 10 + 1;

/// What a waiting thread is woken for.
enum Step {
    Prepare,
    Finished(Finished),
    /// There is no flow any more.
    Gone,
}
