// SPDX-License-Identifier: GPL-2.0

//! Work on the links of a group that may sleep: queued on a message, a failure or a timeout, executed by one work item
//! of the caller, one after the other (C: `llc_add_link_work`, `llc_del_link_work`).
//!
//! This module decides about the order, retries, and what follows the end of a flow. The caller handles ports and queue
//! pairs.

pub use super::action::{
    DeleteCause,
    LinkWork, //
};
use super::error::AddLinkError;
use super::{
    Action,
    Actions,
    Finished,
    Flow,
    Llc,
    LocalEnd, //
};
use crate::lgr::redundancy::{
    superfluous,
    wants_link,
    ActiveLinks,
    AddLinkTrigger, //
};
use crate::lgr::{
    LinkIdx,
    LinkMap,
    Role,
    MAX_LINKS, //
};
use crate::time::Instant;

/// The queue. A flow queues one item at a time, so that one place for each kind suffices.
#[derive(Debug)]
pub(super) struct LinkWorkQueue {
    flush_rx: bool,
    /// The last item was that.
    has_flushed: bool,
    deletes: LinkMap<Option<DeleteCause>>,
    step: Option<LinkWork>,
    rebalance: bool,
    add: Option<AddLinkTrigger>,
    /// Lost links that are deleted once another one is active ([`LostLink::Kept`]).
    kept: LinkMap<bool>,
}

impl LinkWorkQueue {
    /// An empty queue.
    pub(super) const fn new() -> Self {
        Self {
            flush_rx: false,
            has_flushed: false,
            deletes: LinkMap([None; MAX_LINKS]),
            step: None,
            rebalance: false,
            add: None,
            kept: LinkMap([false; MAX_LINKS]),
        }
    }

    fn push(&mut self, work: LinkWork) {
        match work {
            LinkWork::FlushRx => self.flush_rx = true,
            LinkWork::Rebalance => self.rebalance = true,
            LinkWork::DeleteLink(idx, why) => self.deletes[idx] = Some(why),
            // An invitation takes precedence over a trigger of our own.
            LinkWork::AddLink(AddLinkTrigger::OwnPort) if self.add.is_some() => {}
            LinkWork::AddLink(why) => self.add = Some(why),
            LinkWork::AcceptAddLink { .. }
            | LinkWork::ConnectLink(..)
            | LinkWork::PrepareLink(_) => {
                self.step = Some(work);
            }
        }
    }

    /// Returns the next item: first what connections wait for, then deletions, which free slots, then what the peer
    /// waits for, then what it does not know of. A flow of ours cannot begin unless `is_idle`. A peer can have
    /// connections wait for flushes without end: after each it is the turn of other items.
    fn pop(&mut self, is_idle: bool) -> Option<LinkWork> {
        let gives_way = core::mem::take(&mut self.has_flushed) && self.has_others(is_idle);
        if !gives_way && core::mem::take(&mut self.flush_rx) {
            self.has_flushed = true;
            return Some(LinkWork::FlushRx);
        }
        if let Some(idx) = self.deletes.position(Option::is_some) {
            let why = self.deletes[idx].take()?;
            return Some(LinkWork::DeleteLink(idx, why));
        }
        if let Some(step) = self.step.take() {
            return Some(step);
        }
        if core::mem::take(&mut self.rebalance) {
            return Some(LinkWork::Rebalance);
        }
        self.add.take_if(|_| is_idle).map(LinkWork::AddLink)
    }

    fn is_ready(&self, is_idle: bool) -> bool {
        self.flush_rx || self.has_others(is_idle)
    }

    /// Returns true if there is an item besides a flush.
    fn has_others(&self, is_idle: bool) -> bool {
        let waits_for_nobody = self.rebalance || self.step.is_some() || self.has_deletes();
        waits_for_nobody || (is_idle && self.add.is_some())
    }

    /// Returns true if link `idx` is to be deleted.
    pub(super) fn deletes(&self, idx: LinkIdx) -> bool {
        self.deletes[idx].is_some()
    }

    fn has_deletes(&self) -> bool {
        self.deletes.iter().any(Option::is_some)
    }
}

/// What to do about a link that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostLink {
    /// Another one is active: its deletion was queued.
    Deleted,
    /// The link that is being added may be active at the peer already: the deletion is queued once it is active here.
    /// If it cannot be added the group ends.
    Kept,
    /// It was the last one: the group ends.
    Last,
}

/// What to do for [`LinkWork::AddLink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddPlan {
    /// Server: other links make this one superfluous. Delete it first, for [`DeleteCause::AsymmetricUnneeded`].
    DeleteFirst(LinkIdx),
    /// Server: [`Llc::reserve_flow_for_add_link`], then find a port and call [`Llc::begin_add_link`], or
    /// [`Llc::abandon`] and [`Llc::offer_nothing`].
    Offer,
    /// Client: find a port, and call [`Llc::invite`] if there is one.
    Invite,
}

impl Llc {
    /// Queues an item.
    pub fn queue_link_work(&mut self, work: LinkWork) {
        self.link_work.push(work);
    }

    /// Returns whether [`Llc::next_link_work`] has an item. To be checked after each other call: it may have queued an
    /// item, or ended the flow that an item waits for.
    pub fn has_link_work(&self) -> bool {
        self.link_work.is_ready(self.is_idle())
    }

    /// Returns the next item of work.
    pub fn next_link_work(&mut self) -> Option<LinkWork> {
        self.link_work.pop(self.is_idle())
    }

    /// Link `idx` has failed, and [`Llc::on_link_down`] was called. `has_active` says whether another link is active,
    /// `is_up` whether a link has not failed.
    pub fn on_lost_link(
        &mut self,
        idx: LinkIdx,
        has_active: bool,
        is_up: impl FnOnce(LinkIdx) -> bool,
    ) -> LostLink {
        let awaited = self.awaited_link().filter(|new| *new != idx);
        if has_active {
            self.queue_link_work(LinkWork::DeleteLink(idx, DeleteCause::LostPath));
            LostLink::Deleted
        } else if awaited.is_some_and(is_up) {
            self.link_work.kept[idx] = true;
            LostLink::Kept
        } else {
            LostLink::Last
        }
    }

    /// Returns the index of the link that is being added, if the flow needs no other link any more.
    fn awaited_link(&self) -> Option<LinkIdx> {
        match self.flow.as_ref()? {
            Flow::Offer(flow) => flow.awaited(),
            Flow::Answer(flow) => flow.awaited(),
            Flow::Held | Flow::FirstContact(_) | Flow::Rkey(_) | Flow::DeleteLink { .. } => None,
        }
    }

    /// A port became active: another link may be of use now.
    pub fn on_port(&mut self) {
        self.retry.restart();
        self.queue_link_work(LinkWork::AddLink(AddLinkTrigger::OwnPort));
    }

    /// Returns what to do to add a link to the `active` ones, if anything. Before the server adds a link it deletes one
    /// that is not needed.
    pub fn plan_add_link(&self, active: &ActiveLinks) -> Option<AddPlan> {
        match (self.role, superfluous(active)) {
            (Role::Server, Some(idx)) => Some(AddPlan::DeleteFirst(idx)),
            (Role::Server, None) => Some(AddPlan::Offer),
            (Role::Client, _) => wants_link(active, self.max_links).then_some(AddPlan::Invite),
        }
    }

    /// Reserves the flow for [`Llc::begin_add_link`], as [`Llc::hold`] does. Returns false, and queues the attempt
    /// again, if a flow is under way or a link is to be deleted, which comes first.
    pub fn reserve_flow_for_add_link(&mut self, why: AddLinkTrigger) -> bool {
        let is_held = !self.link_work.has_deletes() && self.hold().is_ok();
        if !is_held {
            self.queue_link_work(LinkWork::AddLink(why));
        }
        is_held
    }

    /// No link is offered. Informs a client that waits for a second link after the first contact, once.
    pub fn offer_nothing(&mut self, link: &LocalEnd) -> Actions<'static> {
        let is_known = core::mem::replace(&mut self.is_second_link_known, true);
        match is_known || self.max_links <= 1 {
            true => Actions::default(),
            false => self.ask(link.idx, link.no_more_links()),
        }
    }

    /// A link is of use, but this side could not make its end of it, as for want of memory or of a route: tries again
    /// after a while, with the same trigger. A client invites the server then.
    pub fn on_add_link_failed(&mut self, why: AddLinkTrigger, now: Instant) {
        self.retry.set_trigger(why);
        self.add_later(now);
    }

    /// Another link is of use, but cannot be added yet.
    pub(super) fn add_later(&mut self, now: Instant) {
        self.retry.later(now);
    }

    /// A watched link is deleted here: the server adds another one in its place, also when the client deletes one; in
    /// case it does not, the client invites it later.
    pub(super) fn replace_link(&mut self, now: Instant) {
        match self.role {
            Role::Server => self.queue_link_work(LinkWork::AddLink(AddLinkTrigger::OwnPort)),
            Role::Client => self.add_later(now),
        }
    }

    /// Updates link work, watches and retries from `actions`.
    pub(super) fn note<'a>(&mut self, actions: Actions<'a>, now: Instant) -> Actions<'a> {
        for action in actions.iter() {
            match action {
                Action::LinkWork(work) => {
                    if let LinkWork::AddLink(why) = work {
                        self.retry.set_trigger(*why);
                    }
                    self.queue_link_work(*work);
                }
                Action::ActivateLink { idx, .. } => {
                    self.testlinks.start(*idx, now);
                    self.delete_kept_links();
                }
                Action::Finished(how) => self.on_finished(*how, now),
                _ => {}
            }
        }
        actions
    }

    fn delete_kept_links(&mut self) {
        for idx in LinkIdx::ALL {
            if core::mem::take(&mut self.link_work.kept[idx]) {
                self.queue_link_work(LinkWork::DeleteLink(idx, DeleteCause::LostPath));
            }
        }
    }

    fn on_finished(&mut self, how: Finished, now: Instant) {
        match how {
            Finished::FirstContact(Ok(())) => self.add_next(),
            Finished::AddLink { result: Ok(()), .. } => {
                self.retry.reset();
                self.queue_link_work(LinkWork::Rebalance);
                self.add_next();
            }
            Finished::AddLink {
                idx,
                result: Err(error),
            } => {
                self.queue_link_work(LinkWork::DeleteLink(idx, DeleteCause::Agreed));
                // A side without a path now reports when it has one. The C module does when the port is up, which may
                // be before it knows the port's address.
                let is_rejected = matches!(error, AddLinkError::Rejected(_));
                if !is_rejected || self.retry.trigger() == AddLinkTrigger::Invitation {
                    self.add_later(now);
                }
            }
            Finished::FirstContact(Err(_))
            | Finished::ConfirmRkey(_)
            | Finished::DeleteRkey(_)
            | Finished::DeleteLink => {}
        }
    }

    /// The server checks whether one more link is of use.
    fn add_next(&mut self) {
        if self.role == Role::Server {
            self.queue_link_work(LinkWork::AddLink(AddLinkTrigger::OwnPort));
        }
    }
}
