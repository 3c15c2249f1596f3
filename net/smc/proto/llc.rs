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
//! - [`link_work`]: what is to be done about links where sleeping is allowed
//! - [`retry`]: when a link that could not be added is tried again

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
mod deletion;
mod dispatch;
mod echo;
mod end;
mod error;
pub mod first_contact;
pub mod keepalive;
pub mod link_work;
mod queue;
pub mod retry;
pub mod rkey;
mod watches;

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
pub use error::{
    AddLinkError,
    FirstContactError,
    RkeyError, //
};
use keepalive::Due;
use link_work::{
    LinkWork,
    LinkWorkQueue, //
};
use queue::Queue;
use retry::Retry;
use watches::Watches;

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
    max_links: u8,
    link_work: LinkWorkQueue,
    retry: Retry,
    /// The client knows whether a second link follows the first contact.
    is_second_link_known: bool,
    watches: Watches,
}

/// What a link group is like.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Our role.
    pub role: Role,
    /// The protocol version.
    pub version: Version,
    /// The most links that the two sides agreed on.
    pub max_links: u8,
    /// Silence after which a link is tested; zero for never.
    pub test_after: Duration,
}

/// What we are waiting for.
#[derive(Clone, Copy, Debug)]
enum Flow {
    /// The caller is about to begin one; see [`Llc::hold`].
    Held,
    FirstContact(first_contact::FirstContact),
    Rkey(rkey::Exchange),
    DeleteLink {
        what: deletion::LinkDeletion,
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
    pub const fn new(params: Params) -> Self {
        Self {
            role: params.role,
            version: params.version,
            flow: None,
            queue: Queue::new(),
            max_links: params.max_links,
            link_work: LinkWorkQueue::new(),
            retry: Retry::new(),
            is_second_link_known: false,
            watches: Watches::new(params.test_after),
        }
    }

    /// Says whether a flow can begin.
    pub const fn is_idle(&self) -> bool {
        self.flow.is_none()
    }

    /// Says when [`Llc::on_timeout`] is due, or [`Llc::on_link_timeout`] for one of the links.
    pub fn deadline(&self) -> Option<Instant> {
        let others = [self.retry.at(), self.watches.deadline()];
        let all = others.into_iter().chain([self.flow_deadline()]);
        all.flatten().min()
    }

    /// Says when the flow under way runs out of time.
    fn flow_deadline(&self) -> Option<Instant> {
        match self.flow.as_ref()? {
            Flow::FirstContact(flow) => flow.deadline(),
            Flow::Rkey(flow) => Some(flow.deadline()),
            Flow::DeleteLink { deadline, .. } => Some(*deadline),
            Flow::Offer(flow) => flow.deadline(),
            Flow::Answer(flow) => flow.deadline(),
            Flow::Held => None,
        }
    }

    fn is_flow_due(&self, now: Instant) -> bool {
        self.flow_deadline().is_some_and(|at| at.is_due(now))
    }

    /// Does what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant) -> Actions<'static> {
        if let Some(why) = self.retry.take_due(now) {
            self.queue_link_work(LinkWork::AddLink(why));
        }
        if !self.is_flow_due(now) {
            return Actions::default();
        }
        // Whoever calls may be in time where the thread that waits is late.
        self.on_awake(now);
        if !self.is_flow_due(now) {
            return Actions::default();
        }
        let version = self.version;
        let actions = match &mut self.flow {
            Some(Flow::FirstContact(flow)) => flow.on_timeout(version, now),
            Some(Flow::Rkey(flow)) => flow.failed(RkeyError::TimedOut),
            Some(Flow::DeleteLink { what, .. }) => what.done(),
            Some(Flow::Offer(flow)) => flow.on_timeout(),
            Some(Flow::Answer(flow)) => flow.on_timeout(),
            Some(Flow::Held) | None => Actions::default(),
        };
        self.settle_and_note(actions, now)
    }

    fn settle_and_note<'a>(&mut self, actions: Actions<'a>, now: Instant) -> Actions<'a> {
        let actions = self.settle(actions, now);
        self.note(actions, now)
    }

    /// Notes that the link in `slot` is gone: a flow that waits for a message on it ends.
    pub fn on_link_down(&mut self, slot: usize, now: Instant) -> Actions<'static> {
        self.queue.forget(slot);
        let actions = match &self.flow {
            // The server has decided or will, whatever became of the link.
            Some(Flow::FirstContact(flow)) if flow.slot() == slot && !flow.has_answered() => {
                first_contact::silent()
            }
            Some(Flow::Rkey(flow)) if flow.slot() == slot => flow.failed(RkeyError::LinkLost),
            Some(Flow::DeleteLink { what, .. }) if what.concerns(slot) => what.done(),
            Some(Flow::Offer(flow)) => flow.on_link_down(slot).unwrap_or_default(),
            Some(Flow::Answer(flow)) => flow.on_link_down(slot).unwrap_or_default(),
            Some(_) | None => Actions::default(),
        };
        self.settle_and_note(actions, now)
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
        grace: first_contact::Grace,
        now: Instant,
    ) -> Result<Actions<'static>, Busy> {
        self.check_free()?;
        let (flow, actions) =
            first_contact::FirstContact::begin(self.role, self.version, link, grace, now);
        self.flow = Some(Flow::FirstContact(flow));
        Ok(actions)
    }

    /// Reports that the thread that waits for the end of a first contact is awake. If it is so later than
    /// [`first_contact::AWAKE_WITHIN`] after the last time, the machine is busy, and the peer has more time.
    pub fn on_awake(&mut self, now: Instant) {
        if let Some(Flow::FirstContact(flow)) = &mut self.flow {
            flow.on_awake(now);
        }
    }

    /// Reports how [`Action::PrepareLink`], [`LinkWork::PrepareLink`] or [`LinkWork::ConnectLink`] went: the reason if
    /// the link cannot be used.
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
        self.settle_and_note(actions, now)
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
        self.settle_and_note(actions, now)
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
        self.is_second_link_known = true;
        Ok(offer.into())
    }

    /// Reports the client's end of the link that [`LinkWork::AcceptAddLink`] is about, or why there is
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
        self.settle_and_note(actions, now)
    }

    /// Makes the client's message that it can add a link: it has `gids`, that of the link in `on`
    /// first. Nobody waits for the answer: an offer comes, or does not. Then the server is invited again after a while:
    /// the C module tries once, and if that fails not before it is asked.
    pub fn invite<'a>(
        &mut self,
        on: usize,
        mac: Mac,
        gids: List<'a, Gid, 255>,
        now: Instant,
    ) -> Actions<'a> {
        self.add_later(now);
        match (self.version, gids.last()) {
            (Version::V1, Some(&gid)) => {
                self.ask(on, Body::AddLink(AddLink::Invitation { mac, gid }))
            }
            (Version::V2, Some(_)) => self.ask(on, Body::ReqAddLink(ReqAddLink { gids })),
            (Version::V1 | Version::V2, None) => Actions::default(),
        }
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

    /// Tests the link in `slot` for a connection that is about to use it, where nothing was received since
    /// `silent_since`. One test does for all connections that want one at that time.
    pub fn probe_link(
        &mut self,
        slot: usize,
        silent_since: Instant,
        now: Instant,
    ) -> Actions<'static> {
        match self.watches.probe(slot, silent_since, now) {
            true => self.test_link(slot),
            false => Actions::default(),
        }
    }

    /// Reports that such a test was not answered in time: the link counts as silent from now on.
    pub fn on_probe_unanswered(&mut self, slot: usize, now: Instant) {
        if let Some(watch) = self.watches.get(slot) {
            watch.on_suspected(now);
        }
    }

    /// Notes that something was received on the link in `slot` at `at`, whatever it was. May be told late.
    pub fn on_heard(&mut self, slot: usize, at: Instant) {
        if let Some(watch) = self.watches.get(slot) {
            watch.on_received(at);
        }
    }

    /// Tests the link in `slot` if that has been silent for long, or has it taken down if that did not help. To be
    /// called after [`Llc::on_heard`].
    pub fn on_link_timeout(&mut self, slot: usize, now: Instant) -> Actions<'static> {
        match self.watches.on_timeout(slot, now) {
            Due::Nothing => Actions::default(),
            Due::SendTest => self.test_link(slot),
            Due::LinkDead => Action::LinkDead { slot }.into(),
        }
    }

    /// The link in `slot` is about to be deleted, and not tested any more. Returns whether it was, as it is from when it
    /// is active.
    pub fn stop_watching(&mut self, slot: usize) -> bool {
        self.watches.stop(slot)
    }

    /// Makes the request on the link in `slot` whose answer has this number, other than 0: the peer has seen what was
    /// sent on the link before.
    pub fn echo(&self, slot: usize, number: u64) -> Actions<'static> {
        self.ask(slot, Body::numbered_test(number))
    }

    /// Gives the flow up because nobody waits for it any more. Its answer will be ignored.
    pub fn abandon(&mut self, now: Instant) -> Actions<'static> {
        self.flow = None;
        let actions = self.begin_pending(now);
        self.note(actions, now)
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
