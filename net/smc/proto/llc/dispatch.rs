// SPDX-License-Identifier: GPL-2.0

//! Dispatches a message of the peer by its type, our role and the flow under way.

use super::add::client::{
    rejection,
    Offer, //
};
use super::link_work::LinkWork;
use super::queue::Pending;
use super::{
    rkey,
    unexpected,
    Action,
    Actions,
    Arrival,
    Flow,
    Ignored,
    Llc, //
};
use crate::lgr::redundancy::AddLinkTrigger;
use crate::lgr::{
    LinkIdx,
    Role, //
};
use crate::time::Instant;
use crate::wire::llc::{
    AddLink,
    Body,
    Kind,
    LlcMessage,
    NewLink,
    RejectReason,
    ReqAddLink, //
};
use crate::wire::List;

/// The client can add a link.
const INVITED: Action<'static> = Action::LinkWork(LinkWork::AddLink(AddLinkTrigger::Invitation));

impl Llc {
    /// Processes a message of the peer.
    pub fn on_message<'a>(
        &mut self,
        message: &LlcMessage<'a>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        if message.version != self.version {
            return Action::Ignored(Ignored::WrongVersion).into();
        }
        let actions = match message.kind {
            Kind::Request => {
                let mut actions = self.note_request(&message.body, now);
                actions.append(self.on_request(&message.body, arrival, now));
                actions
            }
            Kind::Response => self.on_response(&message.body, arrival, now),
        };
        self.note(actions, now)
    }

    /// A request of the server may end the client's first contact before it is processed.
    fn note_request<'a>(&mut self, body: &Body<'a>, now: Instant) -> Actions<'a> {
        let actions = match (body, &mut self.flow) {
            // The first contact's own request, or its end.
            (Body::ConfirmLink(_) | Body::DeleteLink(_), _) => Actions::default(),
            (_, Some(Flow::FirstContact(flow))) => {
                flow.on_other_request(matches!(body, Body::TestLink(_)))
            }
            _ => Actions::default(),
        };
        self.settle(actions, now)
    }

    fn on_request<'a>(
        &mut self,
        body: &Body<'a>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        match body {
            Body::TestLink(user_data) => self.answer(arrival.idx, Body::TestLink(*user_data)),
            Body::ConfirmRkey(request) => {
                let answer = rkey::confirm(request, arrival);
                self.answer(arrival.idx, Body::ConfirmRkey(answer))
            }
            Body::DeleteRkey(request) => {
                let answer = rkey::delete(request, self.version, arrival);
                self.answer(arrival.idx, Body::DeleteRkey(answer))
            }
            Body::DeleteLink(request) => self.on_delete_link(request, arrival, now),
            Body::AddLink(request) => self.on_add_link(request, arrival, now),
            Body::ReqAddLink(_) => self.on_req_add_link(arrival.idx),
            Body::ConfirmLink(request) => {
                let actions = match &mut self.flow {
                    Some(Flow::FirstContact(flow)) => flow.on_request(request, arrival.idx),
                    Some(Flow::Answer(flow)) => flow.on_confirm_request(request, arrival.idx),
                    Some(_) | None => unexpected(),
                };
                self.settle(actions, now)
            }
            Body::AddLinkCont(request) => match &mut self.flow {
                Some(Flow::Answer(flow)) => flow.on_keys(request, arrival, now),
                Some(_) | None => unexpected(),
            },
            Body::ConfirmRkeyCont(_) => unexpected(),
        }
    }

    fn on_response<'a>(
        &mut self,
        body: &Body<'a>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        let (version, idx) = (self.version, arrival.idx);
        let actions = match (body, &mut self.flow) {
            (Body::ConfirmLink(answer), Some(Flow::FirstContact(flow))) => {
                flow.on_answer(answer, idx, version, now)
            }
            (Body::TestLink(_), Some(Flow::FirstContact(flow))) => flow
                .on_tested(idx, version)
                .unwrap_or_else(|| Action::Ignored(Ignored::Noted).into()),
            (Body::ConfirmLink(answer), Some(Flow::Offer(flow))) => flow.on_confirmed(answer, idx),
            (Body::AddLink(answer), Some(Flow::Offer(flow))) => flow.on_answer(answer, arrival),
            (Body::AddLinkCont(answer), Some(Flow::Offer(flow))) => {
                flow.on_keys(answer, arrival, now)
            }
            (Body::ConfirmRkey(answer), Some(Flow::Rkey(flow))) => flow.on_confirmed(answer, idx),
            (Body::DeleteRkey(answer), Some(Flow::Rkey(flow))) => flow.on_deleted(answer, idx),
            (Body::DeleteLink(answer), Some(Flow::DeleteLink { what, .. })) => {
                what.on_answer(answer)
            }
            (Body::DeleteLink(answer), None) if answer.link_num.is_none() => {
                Action::TerminateGroup(answer.reason).into()
            }
            // Any message on the link shows that it works; the caller noted that. No answer to an invitation of ours is
            // awaited, either.
            (Body::TestLink(_) | Body::ReqAddLink(_), _) => Action::Ignored(Ignored::Noted).into(),
            (_, _) => unexpected(),
        };
        self.settle(actions, now)
    }

    fn on_add_link<'a>(
        &mut self,
        request: &AddLink<'a>,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        match (self.role, request) {
            (Role::Client, AddLink::Link { link, .. }) => {
                self.on_offer(request, *link, arrival, now)
            }
            (Role::Server, AddLink::Invitation { .. }) => INVITED.into(),
            (Role::Client | Role::Server, _) => Action::Ignored(Ignored::NotForRole).into(),
        }
    }

    /// The server offers a link. An offer for a link that exists already is late or a duplicate.
    fn on_offer<'a>(
        &mut self,
        request: &AddLink<'a>,
        link: NewLink,
        arrival: &mut Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        let is_under_way = matches!(&self.flow, Some(Flow::Answer(flow)) if flow.is_about(request));
        if is_under_way || arrival.idx_of(link.link_num).is_some() {
            return Action::Ignored(Ignored::Unexpected).into();
        }
        let (Some(_), Some(idx)) = (link.mtu, arrival.spare) else {
            let reason = match link.mtu {
                Some(_) => RejectReason::NO_ALTERNATE_PATH,
                None => RejectReason::INVALID_MTU,
            };
            return self.answer(arrival.idx, rejection(link, reason));
        };
        let Some(offer) = Offer::new(request, idx, arrival, now) else {
            return unexpected();
        };
        match &self.flow {
            None => self.begin_answer(offer),
            Some(Flow::Answer(flow)) => {
                let ended = flow.superseded();
                self.queue.push(Pending::Add(offer));
                self.settle(ended, now)
            }
            Some(_) => {
                self.queue.push(Pending::Add(offer));
                Action::Ignored(Ignored::Delayed).into()
            }
        }
    }

    /// The client can add a link. It is answered at once, whether or not an offer follows: a C client begins no other
    /// flow until then.
    fn on_req_add_link<'a>(&self, idx: LinkIdx) -> Actions<'a> {
        match self.role {
            Role::Server => {
                let nothing = ReqAddLink { gids: List::EMPTY };
                let mut actions = self.answer(idx, Body::ReqAddLink(nothing));
                actions.push(INVITED);
                actions
            }
            Role::Client => Action::Ignored(Ignored::NotForRole).into(),
        }
    }
}
