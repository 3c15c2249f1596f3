// SPDX-License-Identifier: GPL-2.0

//! The server's deletion of a link: it waits for other flows, then for the client's answer.

use super::action::{
    Action,
    Actions,
    DeleteCause,
    Finished,
    Ignored,
    LinkWork, //
};
use crate::lgr::LinkIdx;
use crate::wire::llc::DeleteLink;

/// One link to be deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkDeletion {
    /// The link that the request is sent on.
    pub(super) on: LinkIdx,
    /// The link to be deleted.
    pub(super) idx: LinkIdx,
    pub(super) request: DeleteLink,
}

/// Deletes the link; both sides know of that.
pub(super) const fn agreed<'a>(idx: LinkIdx) -> Action<'a> {
    Action::LinkWork(LinkWork::DeleteLink(idx, DeleteCause::Agreed))
}

impl LinkDeletion {
    /// The link to be deleted.
    pub(super) const fn idx(&self) -> LinkIdx {
        self.idx
    }

    /// Returns true if the deletion involves link `idx`.
    pub(super) fn concerns(&self, idx: LinkIdx) -> bool {
        self.on == idx || self.idx == idx
    }

    pub(super) fn on_answer<'a>(&self, answer: &DeleteLink) -> Actions<'a> {
        if answer.link_num == self.request.link_num {
            self.done()
        } else {
            Action::Ignored(Ignored::OtherAnswer).into()
        }
    }

    /// Deletes the link, answered or not.
    pub(super) fn done<'a>(&self) -> Actions<'a> {
        let mut actions = Actions::from(agreed(self.idx));
        actions.push(Action::Finished(Finished::DeleteLink));
        actions
    }
}
