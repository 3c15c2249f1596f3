// SPDX-License-Identifier: GPL-2.0

//! The first contact: CONFIRM_LINK on the first link of a new group.
//!
//! The server sends a request, the client brings its queue pair up and answers. Until then nothing is written to a
//! buffer (RFC 7609 section 3.5.1.7; C functions `smcr_serv_conf_first_link`,
//! `smcr_clnt_conf_first_link`).
//!
//! Packets may stop in one direction at any of these messages, so one side decides and the other one waits for the
//! decision. The server decides: it tests the link once more (TEST_LINK), as the client's answer does not show that
//! later messages of the server arrive, and uses the link when that is answered, else it declines over TCP. The client
//! never declines after its answer. It uses the link when the server's next request shows that the server does, and
//! when a server that has tested the link sends no DECLINE within the time for it. A C server does not test the link,
//! so the client does (TEST_LINK behind its answer), and uses it when that is answered. If nothing of that happens the
//! first contact is undecided: a C server that has the answer uses the link, and reads nothing from TCP any more.

use super::action::{
    Action,
    Actions,
    Finished,
    Ignored, //
};
use super::end::LocalEnd;
use super::error::FirstContactError;
use super::{
    send,
    unexpected,
    ANSWER_WAIT, //
};
use crate::id::{
    LinkNum,
    LinkUid, //
};
use crate::lgr::{
    LinkIdx,
    Role, //
};
use crate::reason::Reason;
use crate::time::{
    Duration,
    Instant, //
};
use crate::wire::llc::{
    Body,
    ConfirmLink,
    Kind, //
};
use crate::wire::Version;

/// Time that the client waits for the request before it declines. A server of this implementation declines 2 seconds
/// after its request; a C server waits 2 seconds for the answer, then for a DECLINE for 1 second, then sends its own
/// and reads none. So both sides never decline at the same moment.
pub const CLIENT_WAIT: Duration = Duration::from_millis(2500);

/// Time added for a peer that was slow to answer over TCP, or if this host runs late: the peer is far away, or one of
/// the two hosts is busy. A firewall delays neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    length: Duration,
    /// How much longer it may become.
    spare: Duration,
}

/// What is known of the peer's implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerModule {
    /// This one. As a server it tests the link.
    Same(Grace),
    /// Another one, as the C module. It waits for a DECLINE for one second only: a server from two seconds after its
    /// request, a client after its answer. So it gets no extra time.
    Other,
}

impl PeerModule {
    /// The extra time for the peer.
    pub const fn grace(self) -> Grace {
        match self {
            Self::Same(grace) => grace,
            Self::Other => Grace::NONE,
        }
    }
}

impl Grace {
    const NONE: Self = Self {
        length: Duration::ZERO,
        spare: Duration::ZERO,
    };

    /// The maximum: with it the server still declines before the client's wait for that ends ([`DECISION_WAIT`]).
    const MAX: Duration = Duration::from_secs(3);

    /// RDMA and TCP messages differ in the processing on both hosts, so it is several round trips long.
    const ROUND_TRIPS: u32 = 4;

    /// For a peer with this module; `round_trip` is the longest time that it took to answer a message over TCP.
    pub fn new(round_trip: Duration) -> Self {
        let length = round_trip.saturating_mul(Self::ROUND_TRIPS).min(Self::MAX);
        Self {
            length,
            spare: Self::MAX.saturating_sub(length),
        }
    }

    /// Uses up spare time because this host was `late`. Returns how much longer the peer gets.
    fn grow(&mut self, late: Duration) -> Duration {
        let more = late.min(self.spare);
        self.spare = self.spare.saturating_sub(more);
        more
    }
}

/// Time from its beginning after which a failed first contact is declined. An earlier failure without a [`Reason`] may
/// be due to a DECLINE of the peer, which is awaited until then.
pub const fn wait_limit(role: Role, grace: Grace) -> Duration {
    let wait = match role {
        Role::Client => CLIENT_WAIT,
        Role::Server => ANSWER_WAIT,
    };
    wait.saturating_add(grace.length)
}

/// Time that the client waits for the server's decision after its answer. A C server's DECLINE comes after 5 seconds,
/// of which it waits 2 for messages to leave.
pub const DECISION_WAIT: Duration = Duration::from_secs(7);

/// Minimum time for the server's test, should the client's answer have come late. A C client waits for a DECLINE 2 to 3
/// seconds after its answer.
const TEST_WAIT: Duration = Duration::from_secs(1);

/// Time after which the server repeats its request. A C client drops a request that arrives between its CONFIRM and the
/// start of its flow. After its answer, a second request ends its wait of two seconds, and it waits for a DECLINE for
/// one second from then on: that has to arrive well before the end.
pub const ASK_AGAIN: Duration = Duration::from_millis(1500);

/// The thread that waits for the end of a first contact calls [`super::Llc::on_awake`] that often, unless this host is
/// too busy to wake it. Such a host is too busy for RDMA messages as well, so the excess time does not count.
pub const AWAKE_WITHIN: Duration = Duration::from_millis(120);

/// The first contact under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstContact {
    link: LocalEnd,
    grace: Grace,
    /// The peer, as a server, tests the link.
    is_tested_by_server: bool,
    /// When the waiting thread last ran, or should have run.
    awake: Instant,
    state: FirstContactState,
}

#[derive(Clone, Copy, Debug)]
enum FirstContactState {
    /// Server: the request was sent.
    Asked {
        again: Option<Instant>,
        deadline: Instant,
        /// Deadline of a test that begins at once.
        test_deadline: Instant,
    },
    /// Server: the client has answered, and its answer to the test is awaited.
    Testing {
        peer_uid: LinkUid,
        deadline: Instant,
    },
    /// Client: the request is awaited.
    Waiting { deadline: Instant },
    /// Client: the caller prepares the link.
    Preparing {
        link_num: LinkNum,
        peer_uid: LinkUid,
    },
    /// Client: the answer was sent, and the server's decision is awaited.
    Answered {
        /// The server's test has arrived.
        is_tested: bool,
        deadline: Instant,
    },
}

impl FirstContact {
    pub(super) fn begin(
        role: Role,
        version: Version,
        link: LocalEnd,
        peer: PeerModule,
        now: Instant,
    ) -> (Self, Actions<'static>) {
        let grace = peer.grace();
        let deadline = now.saturating_add(wait_limit(role, grace));
        let state = match role {
            Role::Client => FirstContactState::Waiting { deadline },
            Role::Server => FirstContactState::Asked {
                again: Some(now.saturating_add(ASK_AGAIN)),
                deadline,
                test_deadline: now.saturating_add(ANSWER_WAIT),
            },
        };
        let flow = Self {
            link,
            grace,
            is_tested_by_server: matches!(peer, PeerModule::Same(_)),
            awake: now,
            state,
        };
        let actions = match role {
            Role::Client => Actions::default(),
            Role::Server => flow.request(version).into(),
        };
        (flow, actions)
    }

    pub(super) const fn idx(&self) -> LinkIdx {
        self.link.idx
    }

    /// The waiting thread is running at `now`, or a timer is due that it should have handled by then.
    pub(super) fn on_awake(&mut self, now: Instant) {
        let late = now.saturating_since(self.awake);
        let late = late.saturating_sub(AWAKE_WITHIN);
        self.awake = now;
        let deadline = match &mut self.state {
            FirstContactState::Asked { deadline, .. }
            | FirstContactState::Testing { deadline, .. }
            | FirstContactState::Waiting { deadline }
            | FirstContactState::Answered { deadline, .. } => deadline,
            FirstContactState::Preparing { .. } => return,
        };
        *deadline = deadline.saturating_add(self.grace.grow(late));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            FirstContactState::Asked {
                again, deadline, ..
            } => Some(again.unwrap_or(deadline)),
            FirstContactState::Testing { deadline, .. }
            | FirstContactState::Waiting { deadline }
            | FirstContactState::Answered { deadline, .. } => Some(deadline),
            FirstContactState::Preparing { .. } => None,
        }
    }

    /// Client: whether the answer was sent.
    pub(super) const fn has_answered(&self) -> bool {
        matches!(self.state, FirstContactState::Answered { .. })
    }

    /// Client: a request of the server other than CONFIRM_LINK. The first may be its test, the next one shows that it
    /// uses the link. That of a server that does not test does not show that it gets what is sent now.
    pub(super) fn on_other_request<'a>(&mut self, is_test: bool) -> Actions<'a> {
        match &mut self.state {
            FirstContactState::Answered { .. } if !self.is_tested_by_server => Actions::default(),
            FirstContactState::Answered { is_tested, .. } if is_test && !*is_tested => {
                *is_tested = true;
                Actions::default()
            }
            FirstContactState::Answered { .. } => established(),
            _ => Actions::default(),
        }
    }

    /// Client: the server's request.
    pub(super) fn on_request<'a>(&mut self, request: &ConfirmLink, idx: LinkIdx) -> Actions<'a> {
        let FirstContactState::Waiting { .. } = self.state else {
            return unexpected();
        };
        if idx != self.link.idx {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        if !request.link_num.is_link() {
            return Action::Ignored(Ignored::UnknownLink).into();
        }
        if !request.no_eye_catcher {
            return failed(Reason::RmbeEyeCatcher);
        }
        self.state = FirstContactState::Preparing {
            link_num: request.link_num,
            peer_uid: request.uid,
        };
        Action::PrepareLink {
            idx,
            link_num: request.link_num,
        }
        .into()
    }

    /// Client: the caller prepared the link, or could not.
    pub(super) fn on_prepared<'a>(
        &mut self,
        result: Result<(), Reason>,
        version: Version,
        now: Instant,
    ) -> Actions<'a> {
        let FirstContactState::Preparing { link_num, peer_uid } = self.state else {
            return unexpected();
        };
        if let Err(reason) = result {
            return failed(reason);
        }
        // The time since `awake` was spent on preparing the link.
        self.awake = now;
        let idx = self.link.idx;
        let answer = Body::ConfirmLink(self.link.confirm_link(link_num));
        self.state = FirstContactState::Answered {
            is_tested: false,
            deadline: now.saturating_add(DECISION_WAIT),
        };
        let mut actions = Actions::from(send(version, Kind::Response, idx, answer));
        if !self.is_tested_by_server {
            actions.push(send(version, Kind::Request, idx, TEST));
        }
        // As soon as the server uses the link it may use it for another connection.
        actions.push(Action::ActivateLink { idx, peer_uid });
        actions
    }

    /// Server: the client's answer.
    pub(super) fn on_answer<'a>(
        &mut self,
        answer: &ConfirmLink,
        idx: LinkIdx,
        version: Version,
        now: Instant,
    ) -> Actions<'a> {
        let FirstContactState::Asked { test_deadline, .. } = self.state else {
            return unexpected();
        };
        if idx != self.link.idx {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        if answer.link_num != self.link.link_num {
            return Action::Ignored(Ignored::OtherAnswer).into();
        }
        if !answer.no_eye_catcher {
            return failed(Reason::RmbeEyeCatcher);
        }
        self.state = FirstContactState::Testing {
            peer_uid: answer.uid,
            deadline: test_deadline
                .max(now.saturating_add(TEST_WAIT.saturating_add(self.grace.length))),
        };
        send(version, Kind::Request, idx, TEST).into()
    }

    /// The peer's answer to a TEST_LINK. `None` if it does not belong to this flow.
    pub(super) fn on_tested<'a>(&self, idx: LinkIdx, version: Version) -> Option<Actions<'a>> {
        if idx != self.link.idx {
            return None;
        }
        let peer_uid = match self.state {
            FirstContactState::Testing { peer_uid, .. } => peer_uid,
            // The server had the answer before the test, so it uses the link.
            FirstContactState::Answered { .. } if !self.is_tested_by_server => {
                return Some(established())
            }
            _ => return None,
        };
        let mut actions = Actions::from(Action::ActivateLink { idx, peer_uid });
        // This shows the client that the link is in use.
        actions.push(send(version, Kind::Request, idx, TEST));
        actions.push(Action::Finished(Finished::FirstContact(Ok(()))));
        Some(actions)
    }

    pub(super) fn on_timeout<'a>(&mut self, version: Version, now: Instant) -> Actions<'a> {
        match &mut self.state {
            FirstContactState::Asked {
                again, deadline, ..
            } if !deadline.is_due(now) => {
                *again = None;
                self.request(version).into()
            }
            FirstContactState::Asked { .. }
            | FirstContactState::Testing { .. }
            | FirstContactState::Waiting { .. } => silent(),
            // A server that tests the link either declines or uses it.
            FirstContactState::Answered {
                is_tested: true, ..
            } => established(),
            FirstContactState::Answered { .. } => {
                Action::Finished(Finished::FirstContact(Err(FirstContactError::Undecided))).into()
            }
            FirstContactState::Preparing { .. } => Actions::default(),
        }
    }

    fn request<'a>(&self, version: Version) -> Action<'a> {
        let body = Body::ConfirmLink(self.link.confirm_link(self.link.link_num));
        send(version, Kind::Request, self.link.idx, body)
    }
}

/// The request whose answer shows that messages arrive in both directions.
const TEST: Body<'static> = Body::TestLink([0; 16]);

fn established<'a>() -> Actions<'a> {
    Action::Finished(Finished::FirstContact(Ok(()))).into()
}

/// Ends the flow because no message of the peer arrived.
pub(super) fn silent<'a>() -> Actions<'a> {
    Action::Finished(Finished::FirstContact(Err(FirstContactError::Silent))).into()
}

fn failed<'a>(reason: Reason) -> Actions<'a> {
    Action::Finished(Finished::FirstContact(Err(FirstContactError::Failed(
        reason,
    ))))
    .into()
}
