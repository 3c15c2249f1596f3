// SPDX-License-Identifier: GPL-2.0

//! The first contact: CONFIRM_LINK on the first link of a new group.
//!
//! The server asks, the client brings its queue pair up and answers; each knows then that the
//! link works both ways. Until then nothing is written into a buffer (RFC 7609 section 3.5.1.7; C
//! functions `smcr_serv_conf_first_link`, `smcr_clnt_conf_first_link`).

use super::action::{
    Action,
    Actions,
    Finished,
    Ignored, //
};
use super::end::LocalEnd;
use super::{
    send,
    unexpected,
    ANSWER_WAIT, //
};
use crate::id::{
    LinkNum,
    LinkUid, //
};
use crate::lgr::Role;
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

/// Time that the client waits for the request: longer than the server waits for the answer, so
/// that the two do not give up at the same moment.
pub const CLIENT_WAIT: Duration = Duration::from_secs(4);

/// Time after which the server asks once more. A C client drops a request that it sees before it
/// is ready for it, between its CONFIRM and the start of its flow.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Why there is no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The peer was not heard. Wait [`crate::handshake::DECLINE_WAIT`] for a DECLINE on TCP and
    /// ask [`crate::handshake::after_silence`] what it means.
    Silent,
    /// The link cannot be used.
    Failed(Reason),
}

/// The first contact under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstContact {
    link: LocalEnd,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Server: the request is out.
    Asked {
        again: Option<Instant>,
        deadline: Instant,
    },
    /// Client: the request is awaited.
    Waiting { deadline: Instant },
    /// Client: the caller prepares the link.
    Preparing {
        link_num: LinkNum,
        peer_uid: LinkUid,
    },
}

impl FirstContact {
    pub(super) fn begin(
        role: Role,
        version: Version,
        link: LocalEnd,
        now: Instant,
    ) -> (Self, Actions<'static>) {
        match role {
            Role::Client => {
                let deadline = now.saturating_add(CLIENT_WAIT);
                let state = State::Waiting { deadline };
                (Self { link, state }, Actions::default())
            }
            Role::Server => {
                let state = State::Asked {
                    again: Some(now.saturating_add(ASK_AGAIN)),
                    deadline: now.saturating_add(ANSWER_WAIT),
                };
                let flow = Self { link, state };
                let request = flow.request(version);
                (flow, request.into())
            }
        }
    }

    pub(super) const fn slot(&self) -> usize {
        self.link.slot
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asked { again, deadline } => Some(again.unwrap_or(deadline)),
            State::Waiting { deadline } => Some(deadline),
            State::Preparing { .. } => None,
        }
    }

    /// Client: the server's request.
    pub(super) fn on_request<'a>(&mut self, request: &ConfirmLink, slot: usize) -> Actions<'a> {
        let State::Waiting { .. } = self.state else {
            return unexpected();
        };
        if slot != self.link.slot {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        if !request.link_num.is_link() {
            return Action::Ignored(Ignored::UnknownLink).into();
        }
        if !request.no_eye_catcher {
            return failed(Reason::RmbeEyeCatcher);
        }
        self.state = State::Preparing {
            link_num: request.link_num,
            peer_uid: request.uid,
        };
        Action::PrepareLink {
            slot,
            link_num: request.link_num,
        }
        .into()
    }

    /// Client: the caller prepared the link, or could not.
    pub(super) fn on_prepared<'a>(
        &mut self,
        result: Result<(), Reason>,
        version: Version,
    ) -> Actions<'a> {
        let State::Preparing { link_num, peer_uid } = self.state else {
            return unexpected();
        };
        if let Err(reason) = result {
            return failed(reason);
        }
        let slot = self.link.slot;
        let answer = Body::ConfirmLink(self.link.confirm_link(link_num));
        let mut actions = Actions::from(send(version, Kind::Response, slot, answer));
        actions.push(Action::ActivateLink { slot, peer_uid });
        actions.push(Action::Finished(Finished::FirstContact(Ok(()))));
        actions
    }

    /// Server: the client's answer.
    pub(super) fn on_answer<'a>(
        &mut self,
        answer: &ConfirmLink,
        slot: usize,
        version: Version,
    ) -> Actions<'a> {
        let State::Asked { .. } = self.state else {
            return unexpected();
        };
        if slot != self.link.slot {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        if answer.link_num != self.link.link_num {
            return Action::Ignored(Ignored::OtherAnswer).into();
        }
        if !answer.no_eye_catcher {
            return failed(Reason::RmbeEyeCatcher);
        }
        let peer_uid = answer.uid;
        let mut actions = Actions::from(Action::ActivateLink { slot, peer_uid });
        if self.link.limits.max_links > 1 && !self.link.more_follows {
            actions.push(send(
                version,
                Kind::Request,
                slot,
                self.link.no_more_links(),
            ));
        }
        actions.push(Action::Finished(Finished::FirstContact(Ok(()))));
        actions
    }

    pub(super) fn on_timeout<'a>(&mut self, version: Version, now: Instant) -> Actions<'a> {
        match &mut self.state {
            State::Asked { again, deadline } if !deadline.is_due(now) => {
                *again = None;
                self.request(version).into()
            }
            State::Asked { .. } | State::Waiting { .. } => silent(),
            State::Preparing { .. } => Actions::default(),
        }
    }

    fn request<'a>(&self, version: Version) -> Action<'a> {
        let body = Body::ConfirmLink(self.link.confirm_link(self.link.link_num));
        send(version, Kind::Request, self.link.slot, body)
    }
}

/// Ends the flow because the peer was not heard.
pub(super) fn silent<'a>() -> Actions<'a> {
    Action::Finished(Finished::FirstContact(Err(Error::Silent))).into()
}

fn failed<'a>(reason: Reason) -> Actions<'a> {
    Action::Finished(Finished::FirstContact(Err(Error::Failed(reason)))).into()
}
