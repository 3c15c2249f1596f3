// SPDX-License-Identifier: GPL-2.0

//! Actions that the LLC core requests from its caller.

use super::error::{
    AddLinkError,
    FirstContactError,
    RkeyError, //
};
use crate::id::{
    LinkNum,
    LinkUid, //
};
use crate::lgr::redundancy::AddLinkTrigger;
use crate::lgr::LinkIdx;
use crate::wire::llc::{
    DeleteReason,
    Kind,
    LlcMessage,
    NewLink, //
};

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Send this on link `idx`. On failure take the link down and report it by [`super::Llc::on_link_down`].
    Send {
        /// The link's index.
        idx: LinkIdx,
        /// The message.
        message: LlcMessage<'a>,
    },
    /// The server's request in a first contact arrived: bring the queue pair to RTS, register the buffers, then call
    /// [`super::Llc::on_link_prepared`]. The link has this number from now on.
    PrepareLink {
        /// The link's index.
        idx: LinkIdx,
        /// The number assigned by the server.
        link_num: LinkNum,
    },
    /// This was queued; see [`super::Llc::has_link_work`].
    LinkWork(LinkWork),
    /// Version 1: send the message that [`keys_from`](super::add::keys_from) makes of the buffers on the new link.
    SendKeys {
        /// The index of the link to send it on.
        on: LinkIdx,
        /// Whether it is a request or a response.
        kind: Kind,
        /// The new link.
        link_num: LinkNum,
        /// The number of keys sent before.
        from: u8,
    },
    /// CONFIRM_LINK was exchanged: the link is active.
    ActivateLink {
        /// The link's index.
        idx: LinkIdx,
        /// The peer's UID of the link, for diagnosis.
        peer_uid: LinkUid,
    },
    /// The peer did not answer TEST_LINK: take the link down.
    LinkDead {
        /// The link's index.
        idx: LinkIdx,
    },
    /// The peer ends the whole group: [`crate::lgr::TerminateReason::ByPeer`].
    TerminateGroup(DeleteReason),
    /// The flow under way ended; wake all threads that wait for it or for its end.
    Finished(Finished),
    /// Nothing to do, and why.
    Ignored(Ignored),
}

/// Why a link is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteCause {
    /// It failed here: the peer is sent a DELETE LINK.
    LostPath,
    /// The server does not need it: the client is sent a DELETE LINK, then it is cleared.
    AsymmetricUnneeded,
    /// Both sides know of the deletion.
    Agreed,
}

impl DeleteCause {
    /// The reason sent to the peer; `None` if the peer knows.
    pub(super) const fn reason(self) -> Option<DeleteReason> {
        match self {
            Self::LostPath => Some(DeleteReason::LOST_PATH),
            Self::AsymmetricUnneeded => Some(DeleteReason::ASYMMETRIC_UNNEEDED),
            Self::Agreed => None,
        }
    }
}

/// One item of work on links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkWork {
    /// A connection waits for messages that another link may have received.
    FlushRx,
    /// This link is to be deleted: [`super::Llc::stop_testlink`], move its connections to another one, then
    /// [`super::Llc::delete_link`] if it was watched. Without another link the group ends.
    DeleteLink(LinkIdx, DeleteCause),
    /// Client: the server offers a link. Find a port, create a queue pair that receives from it, map the buffers, then
    /// call [`super::Llc::on_offer_answered`].
    AcceptAddLink {
        /// Index of the link that the flow runs on.
        on: LinkIdx,
        /// Index for the new link.
        idx: LinkIdx,
        /// The server's end.
        link: NewLink,
    },
    /// Server: the client accepted this link. Connect the queue pair to it, bring it to RTS, register the buffers, then
    /// call [`super::Llc::on_link_prepared`].
    ConnectLink(LinkIdx, NewLink),
    /// Client: the server's CONFIRM LINK arrived. Bring this link to RTS, register the buffers, then call
    /// [`super::Llc::on_link_prepared`].
    PrepareLink(LinkIdx),
    /// A link was added: move connections of other links to it.
    Rebalance,
    /// Another link may be of use: [`super::Llc::plan_add_link`] decides what to do.
    AddLink(AddLinkTrigger),
}

/// Result of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The first contact.
    FirstContact(Result<(), FirstContactError>),
    /// CONFIRM_RKEY; an error means [`crate::reason::Reason::RegistrationFailed`].
    ConfirmRkey(Result<(), RkeyError>),
    /// DELETE_RKEY; an error has no effect.
    DeleteRkey(Result<(), RkeyError>),
    /// The deletion of a link at the server.
    DeleteLink,
    /// ADD_LINK. After an error link work releases what was created for the link.
    AddLink {
        /// The new link's index.
        idx: LinkIdx,
        /// The result.
        result: Result<(), AddLinkError>,
    },
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The message has the layout of another version than the link group.
    WrongVersion,
    /// It is not expected, or late.
    Unexpected,
    /// It answers another request than ours.
    OtherAnswer,
    /// It arrived on another link than the request was sent on.
    OtherLink,
    /// Only the other role receives such a message.
    NotForRole,
    /// It names a link that does not exist.
    UnknownLink,
    /// It is queued until the flow under way ends.
    Delayed,
    /// It only shows that the link works.
    Noted,
}

/// Maximum number of actions of one call: a first contact that ends, and a deletion that waited for it.
pub const MAX_ACTIONS: usize = 4;

/// Actions, in order.
#[must_use = "the peer waits for what is to be sent"]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions<'a> {
    list: [Option<Action<'a>>; MAX_ACTIONS],
}

impl<'a> Actions<'a> {
    /// Appends an action. A full list is a defect of the core, which the tests detect.
    pub(super) fn push(&mut self, action: Action<'a>) {
        let free = self.list.iter_mut().find(|place| place.is_none());
        debug_assert!(free.is_some(), "no place for {action:?}");
        if let Some(place) = free {
            *place = Some(action);
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        for action in other {
            self.push(action);
        }
    }

    /// The result of the flow, if it ended.
    pub(super) fn finished(&self) -> Option<Finished> {
        self.iter().find_map(|action| match action {
            Action::Finished(how) => Some(*how),
            _ => None,
        })
    }

    /// The actions, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Action<'a>> {
        self.list.iter().flatten()
    }
}

impl<'a> From<Action<'a>> for Actions<'a> {
    fn from(action: Action<'a>) -> Self {
        let mut actions = Self::default();
        actions.push(action);
        actions
    }
}

impl<'a> IntoIterator for Actions<'a> {
    type Item = Action<'a>;
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Action<'a>>, MAX_ACTIONS>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter().flatten()
    }
}
