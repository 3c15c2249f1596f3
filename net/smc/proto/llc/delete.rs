// SPDX-License-Identifier: GPL-2.0

//! DELETE_LINK: one link, or all of them, is to be deleted.
//!
//! The server decides about links: a client sends it a request, and the server sends a request back for each; the
//! client answers the server (RFC 7609 section 3.5.5.2; C functions `smc_llc_process_cli_delete_link`,
//! `smc_llc_process_srv_delete_link`).

use super::action::{
    Action,
    Actions,
    Ignored, //
};
use super::deletion::{
    agreed,
    LinkDeletion, //
};
use super::link_work::DeleteCause;
use super::queue::Pending;
use super::{
    Arrival,
    Flow,
    Llc,
    ANSWER_WAIT, //
};
use crate::id::LinkNum;
use crate::lgr::{
    LinkIdx,
    Role,
    TerminateReason, //
};
use crate::time::Instant;
use crate::wire::llc::{
    Body,
    DeleteLink,
    DeleteReason, //
};

/// A link of ours that is to be deleted.
#[derive(Clone, Copy, Debug)]
pub struct DeleteLinkParams {
    /// Index of another link, to send the DELETE LINK on.
    pub on: LinkIdx,
    /// Index of the link.
    pub idx: LinkIdx,
    /// Its number.
    pub link_num: LinkNum,
    /// Why it is deleted.
    pub cause: DeleteCause,
}

impl Llc {
    pub(super) fn on_delete_link<'a>(
        &mut self,
        request: &DeleteLink,
        arrival: &Arrival<'_, '_>,
        now: Instant,
    ) -> Actions<'a> {
        let Some(number) = request.link_num else {
            return self.on_delete_group(request, arrival.idx);
        };
        if let Some(actions) = self.on_delete_new_link(request) {
            return self.settle(actions, now);
        }
        match (self.role, arrival.idx_of(number)) {
            (Role::Client, None) => {
                self.answer_deletion(arrival.idx, request, DeleteReason::UNKNOWN_LINK)
            }
            (Role::Client, Some(idx)) => {
                // The answer is sent first: it may have to use the link that is deleted.
                let mut actions = self.answer_deletion(arrival.idx, request, DeleteReason::DONE);
                actions.push(agreed(idx));
                actions
            }
            (Role::Server, None) => Action::Ignored(Ignored::UnknownLink).into(),
            (Role::Server, Some(idx)) => {
                let what = LinkDeletion {
                    on: arrival.idx,
                    idx,
                    request: *request,
                };
                self.delete_or_delay(what, now)
            }
        }
    }

    /// The peer deletes the link that is being added, which the tables may not contain yet.
    fn on_delete_new_link<'a>(&self, request: &DeleteLink) -> Option<Actions<'a>> {
        match self.flow.as_ref()? {
            Flow::Offer(flow) => flow.on_delete(request),
            Flow::Answer(flow) => flow.on_delete(request),
            Flow::Held | Flow::FirstContact(_) | Flow::Rkey(_) | Flow::DeleteLink { .. } => None,
        }
    }

    /// Deletes a link of ours that was in use, and whose connections have moved to another one. If the peer does not
    /// know, the server sends a request, and queues the deletion once more at the answer; the client sends a request
    /// and does not wait, as the server sends one in turn. Another link is added or invited in its place.
    pub fn delete_link<'a>(&mut self, link: DeleteLinkParams, now: Instant) -> Actions<'a> {
        self.replace_link(now);
        let Some(reason) = link.cause.reason() else {
            return Actions::default();
        };
        let request = DeleteLink {
            link_num: Some(link.link_num),
            orderly: true,
            reason,
        };
        match self.role {
            Role::Client => self.ask(link.on, Body::DeleteLink(request)),
            Role::Server => {
                let what = LinkDeletion {
                    on: link.on,
                    idx: link.idx,
                    request,
                };
                self.delete_or_delay(what, now)
            }
        }
    }

    /// Returns true if link `idx` is to be deleted, though it may be active until that is done. No connection is to
    /// begin there: a client that asked for it does not use the link any more.
    pub fn is_going(&self, idx: LinkIdx) -> bool {
        let is_flow = matches!(&self.flow, Some(Flow::DeleteLink { what, .. }) if what.idx == idx);
        is_flow || self.queue.deletes(idx) || self.link_work.deletes(idx)
    }

    /// The peer deletes all links. The client answers a server, which may keep the link until then; the server carries
    /// out a client's request, see [`TerminateReason::delete_all`].
    fn on_delete_group<'a>(&self, request: &DeleteLink, idx: LinkIdx) -> Actions<'a> {
        let mut actions = match self.role {
            Role::Server => Actions::default(),
            Role::Client => self.answer_deletion(idx, request, DeleteReason::DONE),
        };
        actions.push(Action::TerminateGroup(request.reason));
        actions
    }

    /// Makes the message on link `idx` that ends the whole group, if one is to be sent. [`Action::TerminateGroup`] is
    /// the peer's equivalent.
    pub fn delete_all(&self, why: TerminateReason, idx: LinkIdx) -> Actions<'static> {
        match why.delete_all(self.role) {
            Some(request) => self.ask(idx, Body::DeleteLink(request)),
            None => Actions::default(),
        }
    }

    fn answer_deletion<'a>(
        &self,
        idx: LinkIdx,
        request: &DeleteLink,
        reason: DeleteReason,
    ) -> Actions<'a> {
        let answer = DeleteLink { reason, ..*request };
        self.answer(idx, Body::DeleteLink(answer))
    }

    fn delete_or_delay<'a>(&mut self, what: LinkDeletion, now: Instant) -> Actions<'a> {
        match &self.flow {
            None => self.begin_deletion(what, now),
            // Both sides detected the failure.
            Some(Flow::DeleteLink { what: same, .. }) if same.idx == what.idx => {
                Action::Ignored(Ignored::Noted).into()
            }
            Some(_) => {
                self.queue.push(Pending::Delete(what));
                Action::Ignored(Ignored::Delayed).into()
            }
        }
    }

    /// The server sends the client a request, whichever side began, and deletes the link at the answer.
    pub(super) fn begin_deletion<'a>(&mut self, what: LinkDeletion, now: Instant) -> Actions<'a> {
        let deadline = now.saturating_add(ANSWER_WAIT);
        self.flow = Some(Flow::DeleteLink { what, deadline });
        self.ask(what.on, Body::DeleteLink(what.request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lgr::{
        LinkMap,
        Rtokens,
        MAX_LINKS, //
    };
    use crate::llc::Params;
    use crate::time::Duration;
    use crate::wire::llc::{
        Kind,
        LlcMessage, //
    };
    use crate::wire::Version;

    const fn params(role: Role) -> Params {
        Params {
            role,
            version: Version::V2,
            max_links: 2,
            test_after: Duration::ZERO,
        }
    }

    const ALL: DeleteLink = DeleteLink {
        link_num: None,
        orderly: false,
        reason: DeleteReason::OPERATOR,
    };

    fn deliver(role: Role, kind: Kind, body: DeleteLink) -> Actions<'static> {
        let message = LlcMessage {
            version: Version::V2,
            kind,
            body: Body::DeleteLink(body),
        };
        let mut arrival = Arrival {
            idx: LinkIdx::FIRST,
            spare: None,
            links: &LinkMap([LinkNum(1); MAX_LINKS]),
            rtokens: &mut Rtokens::new(&mut []),
        };
        Llc::new(params(role)).on_message(&message, &mut arrival, Instant::ZERO)
    }

    #[test]
    fn a_client_answers_a_server_that_deletes_the_group() {
        let actions = deliver(Role::Client, Kind::Request, ALL);
        let answer = LlcMessage {
            version: Version::V2,
            kind: Kind::Response,
            body: Body::DeleteLink(DeleteLink {
                reason: DeleteReason::DONE,
                ..ALL
            }),
        };
        let want = [
            Action::Send {
                idx: LinkIdx::FIRST,
                message: answer,
            },
            Action::TerminateGroup(ALL.reason),
        ];
        assert!(actions.iter().eq(&want), "{actions:?}");
        let actions = deliver(Role::Server, Kind::Request, ALL);
        assert!(actions.iter().eq(&want[1..]), "{actions:?}");
    }

    #[test]
    fn the_answer_says_that_the_peer_ended_the_group() {
        for role in [Role::Client, Role::Server] {
            let actions = deliver(role, Kind::Response, ALL);
            let want = [Action::TerminateGroup(ALL.reason)];
            assert!(actions.iter().eq(&want), "{role:?}: {actions:?}");
        }
    }
}
