// SPDX-License-Identifier: GPL-2.0

//! Link layer control (LLC): the protocol by which two hosts manage the links and buffers of one link group, over its
//! links.
//!
//! [`Llc`] decides how to react to a message, a timeout or the end of a link, and returns the actions for the caller.
//! Requests of the peer are answered in the call that delivers them. Our own requests are flows: one at a time, each
//! with its deadline; an answer is matched by its subject, so that a late one does not end a later flow. Requests of
//! the peer about links are queued during a flow. (RFC 7609 sections 3.3, 3.5.5 and appendix C.7; C file `smc_llc.c`.)
//!
//! - [`first_contact`]: CONFIRM_LINK on the first link of a group
//! - [`add`]: ADD_LINK and related messages, for every further link
//! - `delete`: DELETE_LINK, of one link or all
//! - [`rkey`]: CONFIRM_RKEY and DELETE_RKEY, both ways
//! - [`testlink`]: TEST_LINK on a silent link
//! - [`link_work`]: work on links that may sleep
//! - [`retry`]: when adding a link is retried

use crate::id::{
    Gid,
    LinkNum,
    Mac, //
};
use crate::lgr::{
    LinkIdx,
    LinkMap,
    Role,
    Rtokens, //
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
    LlcMessage,
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
pub mod link_work;
mod queue;
pub mod retry;
pub mod rkey;
pub mod testlink;
mod testlinks;

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
use link_work::{
    LinkWork,
    LinkWorkQueue, //
};
use queue::Queue;
use retry::Retry;
use testlink::TimerAction;
use testlinks::TestLinkTimers;

/// Time to wait for an answer, unless specified otherwise.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Time that a flow may have to wait until another one ends.
pub const FLOW_WAIT: Duration = Duration::from_secs(20);

/// The LLC state of one link group. The caller keeps it under the group's lock and performs the actions after it
/// dropped the lock.
#[derive(Debug)]
pub struct Llc {
    role: Role,
    version: Version,
    flow: Option<Flow>,
    /// Requests that wait for the end of the flow.
    queue: Queue,
    max_links: u8,
    link_work: LinkWorkQueue,
    retry: Retry,
    /// The client knows whether a second link follows the first contact.
    is_second_link_known: bool,
    testlinks: TestLinkTimers,
}

/// Parameters of a link group.
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

/// The flow under way.
#[derive(Clone, Copy, Debug)]
enum Flow {
    /// Reserved: the caller is about to begin one; see [`Llc::hold`].
    Held,
    FirstContact(first_contact::FirstContact),
    Rkey(rkey::RkeyFlow),
    DeleteLink {
        what: deletion::LinkDeletion,
        deadline: Instant,
    },
    /// The server's side of ADD_LINK.
    Offer(add::server::AddLinkServer),
    /// The client's side of ADD_LINK.
    Answer(add::client::AddLinkClient),
}

/// Another flow is under way. Wait until it is [`Action::Finished`], at most [`FLOW_WAIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Where a message arrived, and the tables that it may refer to.
#[derive(Debug)]
pub struct Arrival<'t, 'r> {
    /// Index of the link that it arrived on.
    pub idx: LinkIdx,
    /// Index for a new link; `None` if the group can have no more.
    pub spare: Option<LinkIdx>,
    /// The numbers of the links by index; [`LinkNum::NONE`] where there is no usable link.
    pub links: &'t LinkMap<LinkNum>,
    /// The peer's buffers.
    pub rtokens: &'t mut Rtokens<'r>,
}

impl Arrival<'_, '_> {
    /// The index of the link with this number. Zero is not a link number.
    fn idx_of(&self, number: LinkNum) -> Option<LinkIdx> {
        let found = || self.links.position(|link| *link == number);
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
            testlinks: TestLinkTimers::new(params.test_after),
        }
    }

    /// Returns true if a flow can begin.
    pub const fn is_idle(&self) -> bool {
        self.flow.is_none()
    }

    /// Returns when [`Llc::on_timeout`] is due, or [`Llc::on_link_timeout`] for one of the links.
    pub fn deadline(&self) -> Option<Instant> {
        let others = [self.retry.at(), self.testlinks.deadline()];
        let all = others.into_iter().chain([self.flow_deadline()]);
        all.flatten().min()
    }

    /// Returns the deadline of the flow under way.
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

    /// Performs what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant) -> Actions<'static> {
        if let Some(why) = self.retry.take_due(now) {
            self.queue_link_work(LinkWork::AddLink(why));
        }
        if !self.is_flow_due(now) {
            return Actions::default();
        }
        // This call may be in time even if the waiting thread is late.
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

    /// Notes that link `idx` is gone: a flow that waits for a message on it ends.
    pub fn on_link_down(&mut self, idx: LinkIdx, now: Instant) -> Actions<'static> {
        self.queue.forget(idx);
        let actions = match &self.flow {
            // The server has decided or will, whatever happens to the link.
            Some(Flow::FirstContact(flow)) if flow.idx() == idx && !flow.has_answered() => {
                first_contact::silent()
            }
            Some(Flow::Rkey(flow)) if flow.idx() == idx => flow.failed(RkeyError::LinkLost),
            Some(Flow::DeleteLink { what, .. }) if what.concerns(idx) => what.done(),
            Some(Flow::Offer(flow)) => flow.on_link_down(idx).unwrap_or_default(),
            Some(Flow::Answer(flow)) => flow.on_link_down(idx).unwrap_or_default(),
            Some(_) | None => Actions::default(),
        };
        self.settle_and_note(actions, now)
    }

    /// Reserves the flow, so that links and buffers do not change until the caller begins a flow, or calls
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

    /// Begins the first contact. The client begins it *before* it sends its CONFIRM, because the server's request may
    /// arrive before that call returns.
    ///
    /// # Errors
    ///
    /// [`Busy`], which a new link group never is.
    pub fn begin_first_contact(
        &mut self,
        link: LocalEnd,
        peer: first_contact::PeerModule,
        now: Instant,
    ) -> Result<Actions<'static>, Busy> {
        self.check_free()?;
        let (flow, actions) =
            first_contact::FirstContact::begin(self.role, self.version, link, peer, now);
        self.flow = Some(Flow::FirstContact(flow));
        Ok(actions)
    }

    /// Reports that the thread that waits for the end of a first contact is running. If this comes more than
    /// [`first_contact::AWAKE_WITHIN`] after the last call, this host is busy, and the peer gets more time.
    pub fn on_awake(&mut self, now: Instant) {
        if let Some(Flow::FirstContact(flow)) = &mut self.flow {
            flow.on_awake(now);
        }
    }

    /// Reports the result of [`Action::PrepareLink`], [`LinkWork::PrepareLink`] or [`LinkWork::ConnectLink`]: the
    /// reason if the link cannot be used.
    pub fn on_link_prepared(
        &mut self,
        idx: LinkIdx,
        result: Result<(), Reason>,
        now: Instant,
    ) -> Actions<'static> {
        let version = self.version;
        let actions = match &mut self.flow {
            Some(Flow::FirstContact(flow)) => flow.on_prepared(result, version, now),
            Some(Flow::Offer(flow)) => flow.on_connected(idx, result, now),
            Some(Flow::Answer(flow)) => flow.on_connected(idx, result),
            Some(Flow::Held | Flow::Rkey(_) | Flow::DeleteLink { .. }) | None => unexpected(),
        };
        self.settle_and_note(actions, now)
    }

    /// Whether the client has answered in a first contact, and waits for the server's decision: it comes on the link,
    /// or as a DECLINE over TCP. If the client declines now, the server may use the link nevertheless.
    pub const fn has_answered(&self) -> bool {
        matches!(&self.flow, Some(Flow::FirstContact(flow)) if flow.has_answered())
    }

    /// Begins to add a link, as the server, on the active link `on`.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn begin_add_link<'a>(
        &mut self,
        on: LinkIdx,
        new: &NewEnd<'a>,
        now: Instant,
    ) -> Result<Actions<'a>, Busy> {
        self.check_free()?;
        let (flow, offer) = add::server::AddLinkServer::begin(on, new, self.version, now);
        self.flow = Some(Flow::Offer(flow));
        self.is_second_link_known = true;
        Ok(offer.into())
    }

    /// Reports the client's end of the link for [`LinkWork::AcceptAddLink`], or why there is none. If that is ignored
    /// the flow ended meanwhile, and the caller releases its end.
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

    /// Makes the client's message that it can add a link on the ports with `gids`, that of the link in `on` first. No
    /// answer is awaited: the server may or may not offer a link. The invitation is repeated after a while; the C
    /// module tries once, and after a failure only at the peer's request.
    pub fn invite<'a>(
        &mut self,
        on: LinkIdx,
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

    /// Begins to announce one of our buffers to the peer, on link `idx`.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn begin_confirm_rkey<'a>(
        &mut self,
        idx: LinkIdx,
        buffer: rkey::ConfirmRkeyParams<'a>,
        now: Instant,
    ) -> Result<Actions<'a>, Busy> {
        self.check_free()?;
        let (flow, body) = rkey::RkeyFlow::confirm(idx, buffer, now);
        self.flow = Some(Flow::Rkey(flow));
        Ok(self.ask(idx, body))
    }

    /// Begins to announce that buffers of ours are gone, by their RKeys on link `idx`. The result does not matter:
    /// nothing is written to them any more.
    ///
    /// # Errors
    ///
    /// [`Busy`].
    pub fn begin_delete_rkey<'a>(
        &mut self,
        idx: LinkIdx,
        rkeys: rkey::Deletion<'a>,
        now: Instant,
    ) -> Result<Actions<'a>, Busy> {
        self.check_free()?;
        let (flow, body) = rkey::RkeyFlow::delete(idx, rkeys, now);
        self.flow = Some(Flow::Rkey(flow));
        Ok(self.ask(idx, body))
    }

    /// Makes a TEST_LINK request for link `idx`; its answer shows that the link works.
    pub fn test_link(&self, idx: LinkIdx) -> Actions<'static> {
        self.ask(idx, Body::TestLink([0; 16]))
    }

    /// Tests link `idx`, on which the last message arrived at `last_rx`, for a connection that is about to use it. One
    /// test serves all connections that need one at that time.
    pub fn probe_link(&mut self, idx: LinkIdx, last_rx: Instant, now: Instant) -> Actions<'static> {
        match self.testlinks.probe(idx, last_rx, now) {
            true => self.test_link(idx),
            false => Actions::default(),
        }
    }

    /// Reports that such a test was not answered in time: the link, on which the last message arrived at `last_rx`,
    /// counts as silent from now on.
    pub fn on_probe_unanswered(&mut self, idx: LinkIdx, last_rx: Instant, now: Instant) {
        if let Some(timer) = self.testlinks.get(idx) {
            timer.on_suspected(last_rx, now);
        }
    }

    /// Notes that any message was received on link `idx` at `at`. May be called late.
    pub fn on_heard(&mut self, idx: LinkIdx, at: Instant) {
        if let Some(timer) = self.testlinks.get(idx) {
            timer.on_received(at);
        }
    }

    /// Tests link `idx` if it has been silent for its interval, or takes it down if tests were not answered. To be
    /// called after [`Llc::on_heard`].
    pub fn on_link_timeout(&mut self, idx: LinkIdx, now: Instant) -> Actions<'static> {
        match self.testlinks.on_timeout(idx, now) {
            TimerAction::Nothing => Actions::default(),
            TimerAction::SendTest => self.test_link(idx),
            TimerAction::LinkDead => Action::LinkDead { idx }.into(),
        }
    }

    /// Stops testing link `idx`, which is about to be deleted. Returns whether it was watched, as every active link is.
    pub fn stop_testlink(&mut self, idx: LinkIdx) -> bool {
        self.testlinks.stop(idx)
    }

    /// Makes a TEST_LINK request with this number, other than 0, on link `idx`: its answer shows that the peer has
    /// received what was sent on the link before.
    pub fn echo(&self, idx: LinkIdx, number: u64) -> Actions<'static> {
        self.ask(idx, Body::numbered_test(number))
    }

    /// Abandons the flow because no thread waits for it any more. Its answer will be ignored.
    pub fn abandon(&mut self, now: Instant) -> Actions<'static> {
        self.flow = None;
        let actions = self.begin_pending(now);
        self.note(actions, now)
    }

    fn answer<'a>(&self, idx: LinkIdx, body: Body<'a>) -> Actions<'a> {
        send(self.version, Kind::Response, idx, body).into()
    }

    fn ask<'a>(&self, idx: LinkIdx, body: Body<'a>) -> Actions<'a> {
        send(self.version, Kind::Request, idx, body).into()
    }

    fn check_free(&self) -> Result<(), Busy> {
        match self.flow {
            None | Some(Flow::Held) => Ok(()),
            Some(_) => Err(Busy),
        }
    }
}

/// Makes the action that sends a message.
fn send(version: Version, kind: Kind, idx: LinkIdx, body: Body<'_>) -> Action<'_> {
    Action::Send {
        idx,
        message: LlcMessage {
            version,
            kind,
            body,
        },
    }
}

fn unexpected<'a>() -> Actions<'a> {
    Action::Ignored(Ignored::Unexpected).into()
}
