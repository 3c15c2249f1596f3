// SPDX-License-Identifier: GPL-2.0

//! Link layer control (LLC): what two hosts agree about the links and buffers of one
//! link group, over its links.
//!
//! [`Llc`] decides what a message, a timeout or the end of a link means, and what the caller does
//! about it. Requests of the peer are answered in the call that delivers them. Our own requests
//! are flows: one at a time, each with its deadline; the answer is matched by what it is about, so
//! that a late one does not end a later flow. What the peer wants of the links during a flow is kept
//! until it ends. (RFC 7609 sections 3.3, 3.5.5 and appendix C.7; C file
//! `smc_llc.c`.)
//!
//! - [`first`]: CONFIRM_LINK on the first link of a group
//! - [`add`]: ADD_LINK and what belongs to it, for every further link
//! - `delete`: DELETE_LINK, of one link or all
//! - [`rkey`]: CONFIRM_RKEY and DELETE_RKEY, both ways
//! - [`keepalive`]: TEST_LINK on a silent link

use crate::id::{
    Gid,
    LinkNum,
    Mac, //
};
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
    NewLink,
    RejectReason,
    ReqAddLink, //
};
use crate::wire::{
    List,
    Version, //
};

mod action;
pub mod add;
mod delete;
mod dispatch;
mod echo;
mod end;
pub mod first;
pub mod keepalive;
mod queue;
pub mod rkey;

pub use action::{
    Action,
    Actions,
    Finished,
    Ignored,
    MAX_ACTIONS, //
};
pub use delete::DeleteLinkParams;
pub use end::{
    Keys,
    LocalEnd,
    NewEnd, //
};
use queue::Queue;

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
    /// What waits for the end of the flow.
    queue: Queue,
}

/// What we are waiting for.
#[derive(Clone, Copy, Debug)]
enum Flow {
    /// The caller is about to begin one; see [`Llc::hold`].
    Held,
    FirstContact(first::FirstContact),
    Rkey(rkey::Exchange),
    DeleteLink {
        what: delete::LinkDeletion,
        deadline: Instant,
    },
    /// The server's side of ADD_LINK.
    Offer(add::server::Adding),
    /// The client's side of ADD_LINK.
    Answer(add::client::Adding),
}

/// Another flow is under way. Wait until it is [`Action::Finished`], at most [`FLOW_WAIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Where a message arrived, and the tables that it may be about.
#[derive(Debug)]
pub struct Arrival<'t, 'r> {
    /// Slot of the link that it arrived on.
    pub slot: usize,
    /// Where a new link would be; `None` if the group takes no more.
    pub spare: Option<usize>,
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
            queue: Queue::new(),
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
            Flow::Offer(flow) => flow.deadline(),
            Flow::Answer(flow) => flow.deadline(),
            Flow::Held => None,
        }
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
            Some(Flow::Offer(flow)) => flow.on_timeout(),
            Some(Flow::Answer(flow)) => flow.on_timeout(),
            Some(Flow::Held) | None => Actions::default(),
        };
        self.settle(actions, now)
    }

    /// Notes that the link in `slot` is gone: a flow that waits for a message on it ends.
    pub fn on_link_down(&mut self, slot: usize, now: Instant) -> Actions<'static> {
        self.queue.forget(slot);
        let actions = match &self.flow {
            // The server has decided or will, whatever became of the link.
            Some(Flow::FirstContact(flow)) if flow.slot() == slot && !flow.has_answered() => {
                first::silent()
            }
            Some(Flow::Rkey(flow)) if flow.slot() == slot => flow.failed(rkey::Error::LinkLost),
            Some(Flow::DeleteLink { what, .. }) if what.concerns(slot) => what.done(),
            Some(Flow::Offer(flow)) => flow.on_link_down(slot).unwrap_or_default(),
            Some(Flow::Answer(flow)) => flow.on_link_down(slot).unwrap_or_default(),
            Some(_) | None => Actions::default(),
        };
        self.settle(actions, now)
    }

    /// Keeps links and buffers as they are until the caller begins a flow, or calls
    /// [`Llc::abandon`]. For one thread at a time.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn hold(&mut self) -> Result<(), Busy> {
        if !self.is_idle() {
            return Err(Busy);
        }
        self.flow = Some(Flow::Held);
        Ok(())
    }

    /// Begins the first contact. The client begins it *before* it sends its CONFIRM, because the
    /// server's request may be here before that call returns.
    ///
    /// # Errors
    ///
    /// [`Busy`], which a new link group is not.
    pub fn begin_first_contact(
        &mut self,
        link: LocalEnd,
        grace: first::Grace,
        now: Instant,
    ) -> Result<Actions<'static>, Busy> {
        self.check_free()?;
        let (flow, actions) = first::FirstContact::begin(self.role, self.version, link, grace, now);
        self.flow = Some(Flow::FirstContact(flow));
        Ok(actions)
    }

    /// Reports that the machine was too busy to look in time, by so much: the peer of a first contact has more
    /// time.
    pub fn on_late(&mut self, late: Duration) {
        if let Some(Flow::FirstContact(flow)) = &mut self.flow {
            flow.on_late(late);
        }
    }

    /// Reports how [`Action::PrepareLink`] or [`Action::ConnectLink`] went: the reason if the link
    /// cannot be used.
    pub fn on_link_prepared(
        &mut self,
        slot: usize,
        result: Result<(), Reason>,
        now: Instant,
    ) -> Actions<'static> {
        let version = self.version;
        let actions = match &mut self.flow {
            Some(Flow::FirstContact(flow)) => flow.on_prepared(result, version, now),
            Some(Flow::Offer(flow)) => flow.on_connected(slot, result, now),
            Some(Flow::Answer(flow)) => flow.on_connected(slot, result),
            Some(Flow::Held | Flow::Rkey(_) | Flow::DeleteLink { .. }) | None => unexpected(),
        };
        self.settle(actions, now)
    }

    /// Whether the client has answered in a first contact, and waits for the server's decision: that comes on
    /// the link, or as a DECLINE over TCP, and a client that declines now may be alone with that.
    pub const fn has_answered(&self) -> bool {
        matches!(&self.flow, Some(Flow::FirstContact(flow)) if flow.has_answered())
    }

    /// Reports that the client's answer in a first contact has arrived, where the server is one that does not
    /// test the link afterwards.
    pub fn on_answer_delivered(&mut self, now: Instant) -> Actions<'static> {
        let actions = match &self.flow {
            Some(Flow::FirstContact(flow)) => flow.on_delivered(),
            Some(_) | None => Actions::default(),
        };
        self.settle(actions, now)
    }

    /// Begins to add a link: the server, on the active link in slot `on`.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn begin_add_link<'a>(
        &mut self,
        on: usize,
        new: &NewEnd<'a>,
        now: Instant,
    ) -> Result<Actions<'a>, Busy> {
        self.check_free()?;
        let (flow, offer) = add::server::Adding::begin(on, new, self.version, now);
        self.flow = Some(Flow::Offer(flow));
        Ok(offer.into())
    }

    /// Reports the client's end of the link that [`Action::LinkOffered`] is about, or why there is
    /// none. If that is ignored the flow ended meanwhile, and the caller takes its end away.
    pub fn on_offer_answered<'a>(
        &mut self,
        offer: NewLink,
        result: Result<NewEnd<'a>, RejectReason>,
        now: Instant,
    ) -> Actions<'a> {
        let actions = match &mut self.flow {
            Some(Flow::Answer(flow)) => flow.on_answered(offer, result, now),
            Some(_) | None => unexpected(),
        };
        self.settle(actions, now)
    }

    /// Makes the client's message that it can add a link: it has `gids`, that of the link in `on`
    /// first. Nobody waits for the answer: an offer comes, or does not.
    pub fn invite<'a>(&self, on: usize, mac: Mac, gids: List<'a, Gid, 255>) -> Actions<'a> {
        match (self.version, gids.last()) {
            (Version::V1, Some(&gid)) => {
                self.ask(on, Body::AddLink(AddLink::Invitation { mac, gid }))
            }
            (Version::V2, Some(_)) => self.ask(on, Body::ReqAddLink(ReqAddLink { gids })),
            (Version::V1 | Version::V2, None) => Actions::default(),
        }
    }

    /// Makes the message that tells the client that no link is offered, at the end of a first
    /// contact that promised one.
    pub fn offer_nothing(&self, link: &LocalEnd) -> Actions<'static> {
        self.ask(link.slot, link.no_more_links())
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
        self.check_free()?;
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
        self.check_free()?;
        let (flow, body) = rkey::Exchange::delete(slot, rkeys, now);
        self.flow = Some(Flow::Rkey(flow));
        Ok(self.ask(slot, body))
    }

    /// Makes the request on the link in `slot` whose answer shows that the link lives.
    pub fn test_link(&self, slot: usize) -> Actions<'static> {
        self.ask(slot, Body::TestLink([0; 16]))
    }

    /// Makes the request on the link in `slot` whose answer has this number, other than 0: the peer has seen what was
    /// sent on the link before.
    pub fn echo(&self, slot: usize, number: u64) -> Actions<'static> {
        self.ask(slot, Body::numbered_test(number))
    }

    /// Gives the flow up because nobody waits for it any more. Its answer will be ignored.
    pub fn abandon(&mut self, now: Instant) -> Actions<'static> {
        self.flow = None;
        self.begin_pending(now)
    }

    fn answer<'a>(&self, slot: usize, body: Body<'a>) -> Actions<'a> {
        send(self.version, Kind::Response, slot, body).into()
    }

    fn ask<'a>(&self, slot: usize, body: Body<'a>) -> Actions<'a> {
        send(self.version, Kind::Request, slot, body).into()
    }

    fn check_free(&self) -> Result<(), Busy> {
        match self.flow {
            None | Some(Flow::Held) => Ok(()),
            Some(_) => Err(Busy),
        }
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
