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
use super::{
    send,
    unexpected,
    ANSWER_WAIT, //
};
use crate::id::{
    Gid,
    LinkNum,
    LinkUid,
    Mac,
    Psn,
    QpNum, //
};
use crate::lgr::{
    Role,
    MAX_LINKS_DEFAULT, //
};
use crate::reason::Reason;
use crate::time::{
    Duration,
    Instant, //
};
use crate::wire::clc::{
    Limits,
    Release, //
};
use crate::wire::llc::{
    AddLink,
    AddLinkV2,
    Body,
    ConfirmLink,
    Kind,
    NewLink, //
};
use crate::wire::{
    List,
    Version, //
};

/// Time that the client waits for the request: longer than the server waits for the answer, so
/// that the two do not give up at the same moment.
pub const CLIENT_WAIT: Duration = Duration::from_secs(4);

/// Time after which the server asks once more. A C client drops a request that it sees before it
/// is ready for it, between its CONFIRM and the start of its flow.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Our end of the first link.
#[derive(Clone, Copy, Debug)]
pub struct FirstLink {
    /// Slot of the link.
    pub slot: usize,
    /// The port's Ethernet address.
    pub mac: Mac,
    /// The port's GID.
    pub gid: Gid,
    /// The queue pair.
    pub qp_num: QpNum,
    /// The link's number, given by the server. Not used by the client.
    pub link_num: LinkNum,
    /// Our name for link number zero of the group, for diagnosis.
    pub group_uid: u32,
    /// The release of version 2; [`Release::R0`] in version 1.
    pub release: Release,
    /// The limits of the group.
    pub limits: Limits,
    /// No gateway lies between the two ports.
    pub is_direct: bool,
}

impl FirstLink {
    fn message(&self, link_num: LinkNum) -> ConfirmLink {
        let limits = match self.release >= Release::R1 {
            true => self.limits,
            false => Limits {
                max_conns: 0,
                max_links: MAX_LINKS_DEFAULT,
            },
        };
        ConfirmLink {
            mac: self.mac,
            gid: self.gid,
            qp_num: self.qp_num,
            link_num,
            uid: LinkUid(self.group_uid.wrapping_add(link_num.0.into())),
            limits,
            no_eye_catcher: true,
        }
    }

    /// Makes the request that tells the client that there will be no second link.
    ///
    /// A C client whose limit is above one waits three seconds for an ADD_LINK. One without a
    /// path MTU is rejected at once and ends the wait (RFC 7609 appendix A.3.2, reason 2). In
    /// version 2 the part with the keys belongs to every such request, even without a key.
    fn no_more_links(&self) -> Body<'static> {
        let number = self.link_num.0.checked_add(1).unwrap_or(1);
        let link = NewLink {
            mac: self.mac,
            gid: self.gid,
            qp_num: self.qp_num,
            link_num: LinkNum(number),
            mtu: None,
            psn: Psn::default(),
        };
        let v2 = AddLinkV2 {
            direct: self.is_direct,
            target_gid: self.gid,
            rkeys: List::EMPTY,
        };
        Body::AddLink(AddLink::Link { link, v2: Some(v2) })
    }
}

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
    link: FirstLink,
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
        link: FirstLink,
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
        let answer = Body::ConfirmLink(self.link.message(link_num));
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
        if self.link.limits.max_links > 1 {
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
        let body = Body::ConfirmLink(self.link.message(self.link.link_num));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::clc::OsType;
    use crate::wire::llc::{
        Message,
        PeerOrder, //
    };

    #[test]
    fn no_second_link_is_said_in_a_whole_message_without_an_mtu() {
        let link = FirstLink {
            slot: 0,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            gid: Gid([1; 16]),
            qp_num: QpNum::default(),
            link_num: LinkNum(1),
            group_uid: 0,
            release: Release::R1,
            limits: Limits {
                max_conns: 255,
                max_links: 2,
            },
            is_direct: true,
        };
        for (version, len) in [(Version::V1, 44), (Version::V2, 72)] {
            let message = Message {
                version,
                kind: Kind::Request,
                body: link.no_more_links(),
            };
            let mut buf = [0; 128];
            let bytes = message
                .emit(PeerOrder::of(OsType::LINUX), &mut buf)
                .unwrap();
            assert_eq!((bytes.len(), bytes[32] & 0x0f), (len, 0), "{version:?}");
        }
    }
}
