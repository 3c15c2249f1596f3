// SPDX-License-Identifier: GPL-2.0

//! The server's side of ADD_LINK.

use super::{
    AddLinkIds,
    KeyExchange,
    CONFIRM_WAIT, //
};
use crate::lgr::LinkIdx;
use crate::llc::action::{
    Action,
    Actions,
    Ignored, //
};
use crate::llc::end::{
    LocalEnd,
    NewEnd, //
};
use crate::llc::link_work::LinkWork;
use crate::llc::AddLinkError;
use crate::llc::{
    send,
    unexpected,
    Arrival,
    ANSWER_WAIT, //
};
use crate::reason::Reason;
use crate::time::Instant;
use crate::wire::llc::{
    AddLink,
    AddLinkCont,
    Body,
    ConfirmLink,
    DeleteLink,
    Kind, //
};
use crate::wire::Version;

/// A link that the server adds.
#[derive(Clone, Copy, Debug)]
pub(in crate::llc) struct AddLinkServer {
    place: AddLinkIds,
    version: Version,
    end: LocalEnd,
    keys: u8,
    state: ServerState,
}

#[derive(Clone, Copy, Debug)]
enum ServerState {
    /// The offer was sent.
    Offered { deadline: Instant },
    /// The caller connects the queue pair.
    Connecting,
    /// Version 1: keys are exchanged.
    Keys {
        exchange: KeyExchange,
        deadline: Instant,
    },
    /// CONFIRM_LINK was sent on the new link.
    Confirming { deadline: Instant },
}

impl AddLinkServer {
    pub(in crate::llc) fn begin<'a>(
        on: LinkIdx,
        new: &NewEnd<'a>,
        version: Version,
        now: Instant,
    ) -> (Self, Action<'a>) {
        let deadline = now.saturating_add(ANSWER_WAIT);
        let flow = Self {
            place: AddLinkIds {
                on,
                idx: new.end.idx,
                link_num: new.end.link_num,
            },
            version,
            end: new.end,
            keys: new.keys.count(),
            state: ServerState::Offered { deadline },
        };
        (flow, send(version, Kind::Request, on, new.add_link()))
    }

    pub(in crate::llc) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            ServerState::Offered { deadline }
            | ServerState::Keys { deadline, .. }
            | ServerState::Confirming { deadline } => Some(deadline),
            ServerState::Connecting => None,
        }
    }

    /// The client's end of the link, or its rejection.
    pub(in crate::llc) fn on_answer<'a>(
        &mut self,
        answer: &AddLink<'_>,
        arrival: &mut Arrival<'_, '_>,
    ) -> Actions<'a> {
        match answer {
            // A C client that fails after accepting sends a rejection, too.
            AddLink::Rejection { link, reason } if link.link_num == self.place.link_num => {
                self.place.failed(AddLinkError::Rejected(*reason))
            }
            AddLink::Link { link, v2 } if link.link_num == self.place.link_num => {
                let ServerState::Offered { .. } = self.state else {
                    return unexpected();
                };
                if arrival.idx != self.place.on {
                    return Action::Ignored(Ignored::OtherLink).into();
                }
                if link.mtu.is_none() {
                    return self
                        .place
                        .deleted_by_us(AddLinkError::Unusable, self.version);
                }
                arrival.rtokens.delete_link(self.place.idx);
                if let Some(v2) = v2 {
                    self.place.save_rkeys(arrival.rtokens, &v2.rkeys);
                }
                self.state = ServerState::Connecting;
                Action::LinkWork(LinkWork::ConnectLink(self.place.idx, *link)).into()
            }
            AddLink::Invitation { .. } | AddLink::Link { .. } | AddLink::Rejection { .. } => {
                Action::Ignored(Ignored::OtherAnswer).into()
            }
        }
    }

    /// The caller connected the queue pair of link `idx`, or could not.
    pub(in crate::llc) fn on_connected<'a>(
        &mut self,
        idx: LinkIdx,
        result: Result<(), Reason>,
        now: Instant,
    ) -> Actions<'a> {
        match (self.state, result) {
            (ServerState::Connecting, _) if idx != self.place.idx => unexpected(),
            (ServerState::Connecting, Err(reason)) => self
                .place
                .deleted_by_us(AddLinkError::Failed(reason), self.version),
            (ServerState::Connecting, Ok(())) => match self.version {
                Version::V1 => self.send_keys(KeyExchange::new(self.keys), now),
                Version::V2 => self.confirm(now),
            },
            (
                ServerState::Offered { .. }
                | ServerState::Keys { .. }
                | ServerState::Confirming { .. },
                _,
            ) => unexpected(),
        }
    }

    /// The client's keys in version 1.
    pub(in crate::llc) fn on_keys<'a>(
        &mut self,
        cont: &AddLinkCont<'_>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        let ServerState::Keys { mut exchange, .. } = self.state else {
            return unexpected();
        };
        if !exchange.take(cont, &self.place, arrival) {
            return Action::Ignored(Ignored::OtherAnswer).into();
        }
        match exchange.is_done() {
            true => self.confirm(now),
            false => self.send_keys(exchange, now),
        }
    }

    fn send_keys<'a>(&mut self, mut exchange: KeyExchange, now: Instant) -> Actions<'a> {
        let message = exchange.next(&self.place, Kind::Request);
        let deadline = now.saturating_add(ANSWER_WAIT);
        self.state = ServerState::Keys { exchange, deadline };
        message.into()
    }

    fn confirm<'a>(&mut self, now: Instant) -> Actions<'a> {
        let deadline = now.saturating_add(CONFIRM_WAIT);
        self.state = ServerState::Confirming { deadline };
        let body = Body::ConfirmLink(self.end.confirm_link(self.place.link_num));
        send(self.version, Kind::Request, self.place.idx, body).into()
    }

    /// The client's CONFIRM_LINK on the new link.
    pub(in crate::llc) fn on_confirmed<'a>(
        &self,
        answer: &ConfirmLink,
        idx: LinkIdx,
    ) -> Actions<'a> {
        let ServerState::Confirming { .. } = self.state else {
            return unexpected();
        };
        if idx != self.place.idx {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        if answer.link_num != self.place.link_num {
            return Action::Ignored(Ignored::OtherAnswer).into();
        }
        let peer_uid = answer.uid;
        let mut actions = Actions::from(Action::ActivateLink { idx, peer_uid });
        actions.push(self.place.finished(Ok(())));
        actions
    }

    /// The client requests deletion of the new link; `None` if the request names another one.
    pub(in crate::llc) fn on_delete<'a>(&self, request: &DeleteLink) -> Option<Actions<'a>> {
        let is_meant = request.link_num == Some(self.place.link_num);
        is_meant.then(|| {
            self.place
                .deleted_by_us(AddLinkError::Deleted, self.version)
        })
    }

    pub(in crate::llc) fn on_timeout<'a>(&self) -> Actions<'a> {
        match self.state {
            // A client that did not receive the offer has nothing to delete; one that is late deletes the link itself.
            ServerState::Offered { .. } => self.place.failed(AddLinkError::Silent),
            ServerState::Keys { .. } | ServerState::Confirming { .. } => {
                self.place.deleted_by_us(AddLinkError::Silent, self.version)
            }
            ServerState::Connecting => Actions::default(),
        }
    }

    /// Returns the index of the new link if no more messages are to come on another one. The client may use it already.
    pub(in crate::llc) fn awaited(&self) -> Option<LinkIdx> {
        let is_awaited = match self.state {
            ServerState::Offered { .. } | ServerState::Keys { .. } => false,
            ServerState::Connecting => self.version == Version::V2,
            ServerState::Confirming { .. } => true,
        };
        is_awaited.then_some(self.place.idx)
    }

    /// A link is gone; `None` if the flow does not need it.
    pub(in crate::llc) fn on_link_down<'a>(&self, idx: LinkIdx) -> Option<Actions<'a>> {
        if idx == self.place.on {
            let is_needed = self.awaited().is_none();
            return is_needed.then(|| self.place.failed(AddLinkError::LinkLost));
        }
        let is_new = idx == self.place.idx;
        is_new.then(|| {
            self.place
                .deleted_by_us(AddLinkError::LinkLost, self.version)
        })
    }
}
