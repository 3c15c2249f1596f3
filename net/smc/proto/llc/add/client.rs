// SPDX-License-Identifier: GPL-2.0

//! The client's side of ADD_LINK.

use super::{
    AddLinkIds,
    KeyExchange,
    CONFIRM_WAIT, //
};
use crate::id::LinkUid;
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
    DeleteReason,
    Kind,
    NewLink,
    RejectReason, //
};
use crate::wire::Version;

/// An offer of the server.
#[derive(Clone, Copy, Debug)]
pub(in crate::llc) struct Offer {
    /// Index of the link that it arrived on.
    pub(in crate::llc) on: LinkIdx,
    /// Index for the new link.
    pub(in crate::llc) idx: LinkIdx,
    /// The server's end.
    pub(in crate::llc) link: NewLink,
    /// When the server gives up.
    pub(in crate::llc) until: Instant,
}

impl Offer {
    /// Makes an offer, and records the peer's RTokens on the link, as the message is not kept.
    pub(in crate::llc) fn new(
        request: &AddLink<'_>,
        idx: LinkIdx,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Option<Self> {
        let AddLink::Link { link, v2 } = request else {
            return None;
        };
        let offer = Self {
            on: arrival.idx,
            idx,
            link: *link,
            until: now.saturating_add(ANSWER_WAIT),
        };
        arrival.rtokens.delete_link(idx);
        if let Some(v2) = v2 {
            offer.place().save_rkeys(arrival.rtokens, &v2.rkeys);
        }
        Some(offer)
    }

    const fn place(&self) -> AddLinkIds {
        AddLinkIds {
            on: self.on,
            idx: self.idx,
            link_num: self.link.link_num,
        }
    }
}

/// Makes the rejection of an offer.
pub(in crate::llc) fn rejection<'a>(link: NewLink, reason: RejectReason) -> Body<'a> {
    Body::AddLink(AddLink::Rejection { link, reason })
}

/// A link that the client adds.
#[derive(Clone, Copy, Debug)]
pub(in crate::llc) struct AddLinkClient {
    offer: Offer,
    version: Version,
    state: ClientState,
}

#[derive(Clone, Copy, Debug)]
enum ClientState {
    /// The caller finds a port and creates its end.
    Offered,
    /// Version 1: keys are exchanged.
    Keys {
        end: LocalEnd,
        exchange: KeyExchange,
        deadline: Instant,
    },
    /// CONFIRM_LINK is awaited on the new link.
    Waiting { end: LocalEnd, deadline: Instant },
    /// The caller prepares the link for sending.
    Preparing { end: LocalEnd, peer_uid: LinkUid },
}

impl AddLinkClient {
    pub(in crate::llc) fn begin<'a>(offer: Offer, version: Version) -> (Self, Action<'a>) {
        let flow = Self {
            offer,
            version,
            state: ClientState::Offered,
        };
        let work = LinkWork::AcceptAddLink {
            on: offer.on,
            idx: offer.idx,
            link: offer.link,
        };
        (flow, Action::LinkWork(work))
    }

    pub(in crate::llc) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            ClientState::Keys { deadline, .. } | ClientState::Waiting { deadline, .. } => {
                Some(deadline)
            }
            ClientState::Offered | ClientState::Preparing { .. } => None,
        }
    }

    /// Returns true if the flow belongs to this offer.
    pub(in crate::llc) fn is_about(&self, request: &AddLink<'_>) -> bool {
        matches!(request, AddLink::Link { link, .. } if link.link_num == self.offer.link.link_num)
    }

    /// The caller created its end for the offered link, or rejects it.
    pub(in crate::llc) fn on_answered<'a>(
        &mut self,
        offer: NewLink,
        result: Result<NewEnd<'a>, RejectReason>,
        now: Instant,
    ) -> Actions<'a> {
        // The result for an offer that the server gave up does not count.
        let is_meant = offer.link_num == self.offer.link.link_num;
        let (ClientState::Offered, true) = (self.state, is_meant) else {
            return unexpected();
        };
        let (body, failure) = match result {
            Ok(new) => {
                self.state = self.after_answer(&new, now);
                (new.add_link(), None)
            }
            Err(reason) => {
                let body = rejection(self.offer.link, reason);
                (body, Some(AddLinkError::Rejected(reason)))
            }
        };
        let mut actions = Actions::from(send(self.version, Kind::Response, self.offer.on, body));
        if let Some(error) = failure {
            actions.append(self.offer.place().failed(error));
        }
        actions
    }

    fn after_answer(&self, new: &NewEnd<'_>, now: Instant) -> ClientState {
        let end = new.end;
        match self.version {
            Version::V1 => ClientState::Keys {
                end,
                exchange: KeyExchange::new(new.keys.count()),
                deadline: now.saturating_add(ANSWER_WAIT),
            },
            Version::V2 => ClientState::Waiting {
                end,
                deadline: now.saturating_add(CONFIRM_WAIT),
            },
        }
    }

    /// The server's keys in version 1.
    pub(in crate::llc) fn on_keys<'a>(
        &mut self,
        cont: &AddLinkCont<'_>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        let ClientState::Keys {
            end, mut exchange, ..
        } = self.state
        else {
            return unexpected();
        };
        let place = self.offer.place();
        if !exchange.take(cont, &place, arrival) {
            return Action::Ignored(Ignored::OtherAnswer).into();
        }
        let answer = exchange.next(&place, Kind::Response);
        self.state = match exchange.is_done() {
            true => ClientState::Waiting {
                end,
                deadline: now.saturating_add(CONFIRM_WAIT),
            },
            false => ClientState::Keys {
                end,
                exchange,
                deadline: now.saturating_add(ANSWER_WAIT),
            },
        };
        answer.into()
    }

    /// The server's CONFIRM_LINK on the new link. It arrives on another link than the keys, and may overtake the last
    /// of them: buffers that are missing then are not used on this link.
    pub(in crate::llc) fn on_confirm_request<'a>(
        &mut self,
        request: &ConfirmLink,
        idx: LinkIdx,
    ) -> Actions<'a> {
        let (ClientState::Keys { end, .. } | ClientState::Waiting { end, .. }) = self.state else {
            return unexpected();
        };
        if idx != self.offer.idx {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        if request.link_num != self.offer.link.link_num {
            return Action::Ignored(Ignored::UnknownLink).into();
        }
        self.state = ClientState::Preparing {
            end,
            peer_uid: request.uid,
        };
        Action::LinkWork(LinkWork::PrepareLink(idx)).into()
    }

    /// The caller prepared link `idx` for sending, or could not.
    pub(in crate::llc) fn on_connected<'a>(
        &mut self,
        idx: LinkIdx,
        result: Result<(), Reason>,
    ) -> Actions<'a> {
        let (ClientState::Preparing { end, peer_uid }, true) = (self.state, idx == self.offer.idx)
        else {
            return unexpected();
        };
        let place = self.offer.place();
        if let Err(reason) = result {
            return place.deleted_by_us(AddLinkError::Failed(reason), self.version);
        }
        let answer = Body::ConfirmLink(end.confirm_link(place.link_num));
        let mut actions = Actions::from(send(self.version, Kind::Response, idx, answer));
        actions.push(Action::ActivateLink { idx, peer_uid });
        actions.push(place.finished(Ok(())));
        actions
    }

    /// The server deletes the new link; `None` if the request names another one.
    pub(in crate::llc) fn on_delete<'a>(&self, request: &DeleteLink) -> Option<Actions<'a>> {
        if request.link_num != Some(self.offer.link.link_num) {
            return None;
        }
        let answer = Body::DeleteLink(DeleteLink {
            reason: DeleteReason::DONE,
            ..*request
        });
        let message = send(self.version, Kind::Response, self.offer.on, answer);
        let mut actions = Actions::from(message);
        actions.append(self.offer.place().failed(AddLinkError::Deleted));
        Some(actions)
    }

    pub(in crate::llc) fn on_timeout<'a>(&self) -> Actions<'a> {
        match self.state {
            ClientState::Keys { .. } | ClientState::Waiting { .. } => self
                .offer
                .place()
                .deleted_by_us(AddLinkError::Silent, self.version),
            ClientState::Offered | ClientState::Preparing { .. } => Actions::default(),
        }
    }

    /// Returns the index of the new link if no more messages are to come on another one.
    pub(in crate::llc) fn awaited(&self) -> Option<LinkIdx> {
        match self.state {
            ClientState::Offered | ClientState::Keys { .. } => None,
            ClientState::Waiting { .. } | ClientState::Preparing { .. } => Some(self.offer.idx),
        }
    }

    /// A link is gone; `None` if the flow does not need it.
    pub(in crate::llc) fn on_link_down<'a>(&self, idx: LinkIdx) -> Option<Actions<'a>> {
        let place = self.offer.place();
        if idx == place.on {
            let is_needed = self.awaited().is_none();
            return is_needed.then(|| place.failed(AddLinkError::LinkLost));
        }
        (idx == place.idx).then(|| place.deleted_by_us(AddLinkError::LinkLost, self.version))
    }

    /// The server offers another link: it has given this one up.
    pub(in crate::llc) fn superseded<'a>(&self) -> Actions<'a> {
        self.offer.place().failed(AddLinkError::Silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{
        Gid,
        LinkNum,
        Mac,
        Mtu,
        Psn,
        QpNum, //
    };
    use crate::lgr::{
        LinkMap,
        Role,
        Rtokens, //
    };
    use crate::llc::{Llc, Params};
    use crate::time::Duration;
    use crate::wire::llc::LlcMessage;

    fn link(number: u8) -> NewLink {
        NewLink {
            mac: Mac::NONE,
            gid: Gid([number; 16]),
            qp_num: QpNum::new(number.into()).unwrap(),
            link_num: LinkNum(number),
            mtu: Mtu::from_code(3),
            psn: Psn::default(),
            listen_addr: None,
        }
    }

    fn offer(llc: &mut Llc, number: u8) {
        let message = LlcMessage {
            version: Version::V2,
            kind: Kind::Request,
            body: Body::AddLink(AddLink::Link {
                link: link(number),
                v2: None,
            }),
        };
        let mut links = LinkMap::default();
        links[LinkIdx::FIRST] = LinkNum(1);
        let mut arrival = Arrival {
            idx: LinkIdx::FIRST,
            spare: Some(LinkIdx::ALL[1]),
            links: &links,
            rtokens: &mut Rtokens::new(&mut []),
        };
        let actions = llc.on_message(&message, &mut arrival, Instant::ZERO);
        let work = LinkWork::AcceptAddLink {
            on: LinkIdx::FIRST,
            idx: LinkIdx::ALL[1],
            link: link(number),
        };
        assert!(
            actions.iter().any(|a| *a == Action::LinkWork(work)),
            "{actions:?}"
        );
    }

    #[test]
    fn an_answer_to_an_offer_that_was_given_up_leaves_the_next_one_alone() {
        let mut llc = Llc::new(Params {
            role: Role::Client,
            version: Version::V2,
            max_links: 2,
            test_after: Duration::ZERO,
        });
        offer(&mut llc, 2);
        offer(&mut llc, 3);
        let no = Err(RejectReason::NO_ALTERNATE_PATH);
        let late = llc.on_offer_answered(link(2), no, Instant::ZERO);
        assert!(late.iter().eq(&[Action::Ignored(Ignored::Unexpected)]));
        let answer = llc.on_offer_answered(link(3), no, Instant::ZERO);
        assert!(matches!(answer.iter().next(), Some(Action::Send { .. })));
    }
}
