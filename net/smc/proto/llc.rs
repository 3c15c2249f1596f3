// SPDX-License-Identifier: GPL-2.0

//! Link layer control (LLC): the conversation of two machines about the links and buffers of one
//! link group, over its links.
//!
//! [`Llc`] decides what a message, a timeout or the end of a link means, and what the caller does
//! about it. Requests of the peer are answered in the call that delivers them. Our own requests
//! are flows: one at a time, each with its deadline; the answer is matched by what it is about, so
//! that a late one does not end a later flow. The peer's request to delete a link that arrives
//! during a flow is kept until it ends. (RFC 7609 sections 3.3, 3.5.5 and appendix C.7; C file
//! `smc_llc.c`.)
//!
//! - [`first`]: CONFIRM_LINK on the first link of a group
//! - [`rkey`]: CONFIRM_RKEY and DELETE_RKEY, both ways
//! - [`keepalive`]: TEST_LINK on a silent link

use crate::id::LinkNum;
use crate::lgr::{
    Role,
    Rtokens,
    LINK_SLOTS, //
};
use crate::reason::Reason;
use crate::time::{
    Duration,
    Instant, //
};
use crate::wire::llc::{
    AddLink,
    Body,
    Kind,
    Message,
    RejectReason,
    ReqAddLink, //
};
use crate::wire::{
    List,
    Version, //
};

mod action;
mod delete;
pub mod first;
pub mod keepalive;
pub mod rkey;

pub use action::{
    Action,
    Actions,
    Finished,
    Ignored,
    MAX_ACTIONS, //
};

/// Time to wait for an answer, where nothing else is said.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Time that a flow may have to wait until another one ends.
pub const FLOW_WAIT: Duration = Duration::from_secs(20);

/// The LLC state of one link group. The caller keeps it under the group's lock and carries out
/// the actions after it dropped that.
#[derive(Debug)]
pub struct Llc {
    role: Role,
    version: Version,
    flow: Option<Flow>,
    /// A deletion that the peer asked for while a flow was under way.
    delayed: Option<delete::LinkDeletion>,
}

/// What we are waiting for.
#[derive(Clone, Copy, Debug)]
enum Flow {
    FirstContact(first::FirstContact),
    Rkey(rkey::Exchange),
    DeleteLink {
        what: delete::LinkDeletion,
        deadline: Instant,
    },
}

/// Another flow is under way. Wait until it is [`Action::Finished`], at most [`FLOW_WAIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Where a message arrived, and the tables that it may be about.
#[derive(Debug)]
pub struct Arrival<'t, 'r> {
    /// Slot of the link that it arrived on.
    pub slot: usize,
    /// The numbers of the links by slot; [`LinkNum::NONE`] where there is no usable link.
    pub links: &'t [LinkNum; LINK_SLOTS],
    /// The peer's buffers.
    pub rtokens: &'t mut Rtokens<'r>,
}

impl Arrival<'_, '_> {
    /// The slot of the link with this number. Zero is no link's number.
    fn slot_of(&self, number: LinkNum) -> Option<usize> {
        let found = || self.links.iter().position(|link| *link == number);
        number.is_link().then(found).flatten()
    }
}

impl Llc {
    /// Makes the state of a new link group.
    pub const fn new(role: Role, version: Version) -> Self {
        Self {
            role,
            version,
            flow: None,
            delayed: None,
        }
    }

    /// Says whether a flow can begin.
    pub const fn is_idle(&self) -> bool {
        self.flow.is_none()
    }

    /// Says when [`Llc::on_timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.flow.as_ref()? {
            Flow::FirstContact(flow) => flow.deadline(),
            Flow::Rkey(flow) => Some(flow.deadline()),
            Flow::DeleteLink { deadline, .. } => Some(*deadline),
        }
    }

    /// Takes a message from the peer.
    pub fn on_message<'a>(
        &mut self,
        message: &Message<'a>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        if message.version != self.version {
            return Action::Ignored(Ignored::WrongVersion).into();
        }
        match message.kind {
            Kind::Request => self.on_request(&message.body, arrival, now),
            Kind::Response => self.on_response(&message.body, arrival.slot, now),
        }
    }

    fn on_request<'a>(
        &mut self,
        body: &Body<'a>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        match body {
            Body::TestLink(user_data) => self.answer(arrival.slot, Body::TestLink(*user_data)),
            Body::ConfirmRkey(request) => {
                let answer = rkey::confirm(request, arrival);
                self.answer(arrival.slot, Body::ConfirmRkey(answer))
            }
            Body::DeleteRkey(request) => {
                let answer = rkey::delete(request, self.version, arrival);
                self.answer(arrival.slot, Body::DeleteRkey(answer))
            }
            Body::DeleteLink(request) => self.on_delete_link(request, arrival, now),
            Body::AddLink(request) => self.on_add_link(request, arrival.slot),
            Body::ReqAddLink(_) => match self.role {
                Role::Server => {
                    let nothing = ReqAddLink { gids: List::EMPTY };
                    self.answer(arrival.slot, Body::ReqAddLink(nothing))
                }
                Role::Client => Action::Ignored(Ignored::NotForRole).into(),
            },
            Body::ConfirmLink(request) => match &mut self.flow {
                Some(Flow::FirstContact(flow)) => {
                    let actions = flow.on_request(request, arrival.slot);
                    self.settle(actions, now)
                }
                Some(Flow::Rkey(_) | Flow::DeleteLink { .. }) | None => unexpected(),
            },
            Body::AddLinkCont(_) | Body::ConfirmRkeyCont(_) => unexpected(),
        }
    }

    fn on_response<'a>(&mut self, body: &Body<'a>, slot: usize, now: Instant) -> Actions<'a> {
        let version = self.version;
        let actions = match (body, &mut self.flow) {
            (Body::ConfirmLink(answer), Some(Flow::FirstContact(flow))) => {
                flow.on_answer(answer, slot, version)
            }
            (Body::ConfirmRkey(answer), Some(Flow::Rkey(flow))) => flow.on_confirmed(answer, slot),
            (Body::DeleteRkey(answer), Some(Flow::Rkey(flow))) => flow.on_deleted(answer, slot),
            (Body::DeleteLink(answer), Some(Flow::DeleteLink { what, .. })) => {
                what.on_answer(answer)
            }
            (Body::DeleteLink(answer), None) if answer.link_num.is_none() => {
                Action::TerminateGroup(answer.reason).into()
            }
            // Whatever came on the link shows that it lives; the caller noted that.
            (Body::TestLink(_), _) => Action::Ignored(Ignored::Noted).into(),
            (_, _) => unexpected(),
        };
        self.settle(actions, now)
    }

    /// Does what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant) -> Actions<'static> {
        if !self.deadline().is_some_and(|deadline| deadline.is_due(now)) {
            return Actions::default();
        }
        let version = self.version;
        let actions = match &mut self.flow {
            Some(Flow::FirstContact(flow)) => flow.on_timeout(version, now),
            Some(Flow::Rkey(flow)) => flow.failed(rkey::Error::TimedOut),
            Some(Flow::DeleteLink { what, .. }) => what.done(),
            None => Actions::default(),
        };
        self.settle(actions, now)
    }

    /// Notes that the link in `slot` is gone: a flow that waits for a message on it ends.
    pub fn on_link_down(&mut self, slot: usize, now: Instant) -> Actions<'static> {
        if self.delayed.is_some_and(|what| what.concerns(slot)) {
            self.delayed = None;
        }
        let actions = match &self.flow {
            Some(Flow::FirstContact(flow)) if flow.slot() == slot => first::silent(),
            Some(Flow::Rkey(flow)) if flow.slot() == slot => flow.failed(rkey::Error::LinkLost),
            Some(Flow::DeleteLink { what, .. }) if what.concerns(slot) => what.done(),
            Some(Flow::FirstContact(_) | Flow::Rkey(_) | Flow::DeleteLink { .. }) | None => {
                Actions::default()
            }
        };
        self.settle(actions, now)
    }

    /// Begins the first contact. The client begins it *before* it sends its CONFIRM, because the
    /// server's request may be here before that call returns.
    ///
    /// # Errors
    ///
    /// [`Busy`], which a new link group is not.
    pub fn begin_first_contact(
        &mut self,
        link: first::FirstLink,
        now: Instant,
    ) -> Result<Actions<'static>, Busy> {
        self.check_idle()?;
        let (flow, actions) = first::FirstContact::begin(self.role, self.version, link, now);
        self.flow = Some(Flow::FirstContact(flow));
        Ok(actions)
    }

    /// Reports how [`Action::PrepareLink`] went: the reason if the link cannot be used.
    pub fn on_link_prepared(
        &mut self,
        result: Result<(), Reason>,
        now: Instant,
    ) -> Actions<'static> {
        let version = self.version;
        let actions = match &mut self.flow {
            Some(Flow::FirstContact(flow)) => flow.on_prepared(result, version),
            Some(Flow::Rkey(_) | Flow::DeleteLink { .. }) | None => unexpected(),
        };
        self.settle(actions, now)
    }

    /// Begins to tell the peer of one of our buffers, on the link in `slot`.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn begin_confirm_rkey<'a>(
        &mut self,
        slot: usize,
        buffer: rkey::Announcement<'a>,
        now: Instant,
    ) -> Result<Actions<'a>, Busy> {
        self.check_idle()?;
        let (flow, body) = rkey::Exchange::confirm(slot, buffer, now);
        self.flow = Some(Flow::Rkey(flow));
        Ok(self.ask(slot, body))
    }

    /// Begins to tell the peer that buffers of ours are gone, by their keys on the link in `slot`.
    /// How it ends does not matter: nothing is written to them any more.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn begin_delete_rkey<'a>(
        &mut self,
        slot: usize,
        rkeys: rkey::Deletion<'a>,
        now: Instant,
    ) -> Result<Actions<'a>, Busy> {
        self.check_idle()?;
        let (flow, body) = rkey::Exchange::delete(slot, rkeys, now);
        self.flow = Some(Flow::Rkey(flow));
        Ok(self.ask(slot, body))
    }

    /// Makes the request on the link in `slot` whose answer shows that the link lives.
    pub fn test_link(&self, slot: usize) -> Actions<'static> {
        self.ask(slot, Body::TestLink([0; 16]))
    }

    /// Gives the flow up because nobody waits for it any more. Its answer will be ignored.
    pub fn abandon(&mut self, now: Instant) -> Actions<'static> {
        self.flow = None;
        self.begin_delayed(now)
    }

    /// No link is added: the client says so at once, the server does not act on an invitation.
    fn on_add_link<'a>(&self, request: &AddLink<'a>, slot: usize) -> Actions<'a> {
        match (self.role, request) {
            (Role::Client, AddLink::Link { link, .. }) => {
                let reason = match link.mtu {
                    Some(_) => RejectReason::NO_ALTERNATE_PATH,
                    None => RejectReason::INVALID_MTU,
                };
                let link = *link;
                self.answer(slot, Body::AddLink(AddLink::Rejection { link, reason }))
            }
            (Role::Server, AddLink::Invitation { .. }) => {
                Action::Ignored(Ignored::NotWanted).into()
            }
            (Role::Client | Role::Server, _) => Action::Ignored(Ignored::NotForRole).into(),
        }
    }

    fn answer<'a>(&self, slot: usize, body: Body<'a>) -> Actions<'a> {
        send(self.version, Kind::Response, slot, body).into()
    }

    fn ask<'a>(&self, slot: usize, body: Body<'a>) -> Actions<'a> {
        send(self.version, Kind::Request, slot, body).into()
    }

    fn check_idle(&self) -> Result<(), Busy> {
        if self.is_idle() {
            Ok(())
        } else {
            Err(Busy)
        }
    }

    /// Ends the flow if the actions say so, and begins what had to wait for its end.
    fn settle<'a>(&mut self, mut actions: Actions<'a>, now: Instant) -> Actions<'a> {
        if actions.has_finished() {
            self.flow = None;
            actions.append(self.begin_delayed(now));
        }
        actions
    }
}

/// Makes the action that sends a message.
fn send(version: Version, kind: Kind, slot: usize, body: Body<'_>) -> Action<'_> {
    Action::Send {
        slot,
        message: Message {
            version,
            kind,
            body,
        },
    }
}

fn unexpected<'a>() -> Actions<'a> {
    Action::Ignored(Ignored::Unexpected).into()
}
