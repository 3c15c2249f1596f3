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
use crate::wire::llc::DeleteLink;

/// One link to be deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkDeletion {
    /// The link that the request is sent on.
    pub(super) on: usize,
    /// The link to be deleted.
    pub(super) slot: usize,
    pub(super) request: DeleteLink,
}

/// Deletes the link; both sides know of that.
pub(super) const fn agreed<'a>(slot: usize) -> Action<'a> {
    Action::LinkWork(LinkWork::DeleteLink(slot, DeleteCause::Agreed))
}

impl LinkDeletion {
    /// The link to be deleted.
    pub(super) const fn slot(&self) -> usize {
        self.slot
    }

    /// Returns true if the deletion involves the link in `slot`.
    pub(super) const fn concerns(&self, slot: usize) -> bool {
        self.on == slot || self.slot == slot
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
        let mut actions = Actions::from(agreed(self.slot));
        actions.push(Action::Finished(Finished::DeleteLink));
        actions
    }
}
