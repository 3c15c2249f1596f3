// SPDX-License-Identifier: GPL-2.0

//! A link that is to be deleted, as the server does it: it waits for other flows, then for the client's answer.

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
    /// The link that the request came on.
    pub(super) on: usize,
    /// The link to be deleted.
    pub(super) slot: usize,
    pub(super) request: DeleteLink,
}

/// The link goes, because both sides know that it does.
pub(super) const fn agreed<'a>(slot: usize) -> Action<'a> {
    Action::LinkWork(LinkWork::DeleteLink(slot, DeleteCause::Agreed))
}

impl LinkDeletion {
    /// The link to be deleted.
    pub(super) const fn slot(&self) -> usize {
        self.slot
    }

    /// Says whether it has to do with the link in `slot`.
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

    /// Answered or not, the link goes.
    pub(super) fn done<'a>(&self) -> Actions<'a> {
        let mut actions = Actions::from(agreed(self.slot));
        actions.push(Action::Finished(Finished::DeleteLink));
        actions
    }
}
