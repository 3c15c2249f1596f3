// SPDX-License-Identifier: GPL-2.0

//! Work on the links of a group that may sleep: queued under the group's lock when a message or a failure asks for it,
//! done by one work item of the group, one after the other.

use smc_proto::{
    lgr::{
        redundancy::Occasion,
        LINK_SLOTS, //
    },
    wire::llc::NewLink, //
};

/// Why a link is deleted.
#[derive(Clone, Copy)]
pub(crate) enum DeleteCause {
    /// It failed here: the peer is sent a DELETE LINK.
    LostPath,
    /// The server does not need it: the client is sent a DELETE LINK, then it is cleared.
    AsymmetricUnneeded,
    /// Both sides know.
    Agreed,
}

/// One item of work.
#[derive(Clone, Copy)]
pub(crate) enum LinkWork {
    /// A connection waits for messages that another link may have received.
    FlushRx,
    /// Delete the link in a slot.
    DeleteLink(usize, DeleteCause),
    /// Client: answer the server's ADD LINK, which came on the link in slot `on` and is for `slot`.
    AcceptAddLink {
        on: usize,
        slot: usize,
        link: NewLink,
    },
    /// Server: the client accepted the link in a slot; connect it.
    ConnectLink(usize, NewLink),
    /// Client: the server's CONFIRM LINK is here; bring the link in a slot up.
    PrepareLink(usize),
    /// There is one more link: move connections of others to it.
    Rebalance,
    /// Add another link, if one is of use.
    AddLink(Occasion),
}

/// The queue. A flow asks for one item at a time, so that one place for each kind suffices.
#[derive(Default)]
pub(crate) struct LinkWorkQueue {
    flush_rx: bool,
    deletes: [Option<DeleteCause>; LINK_SLOTS],
    step: Option<LinkWork>,
    rebalance: bool,
    add: Option<Occasion>,
}

impl LinkWorkQueue {
    /// Queues an item.
    pub(crate) fn push(&mut self, work: LinkWork) {
        match work {
            LinkWork::FlushRx => self.flush_rx = true,
            LinkWork::Rebalance => self.rebalance = true,
            LinkWork::DeleteLink(slot, why) => {
                if let Some(place) = self.deletes.get_mut(slot) {
                    *place = Some(why);
                }
            }
            // An invitation says more than an occasion of our own.
            LinkWork::AddLink(Occasion::OwnPort) if self.add.is_some() => {}
            LinkWork::AddLink(why) => self.add = Some(why),
            LinkWork::AcceptAddLink { .. }
            | LinkWork::ConnectLink(..)
            | LinkWork::PrepareLink(_) => {
                self.step = Some(work);
            }
        }
    }

    /// Takes the next item: first what connections wait for, then deletions, which free slots, then what the peer waits
    /// for, then what it does not know of. A flow of ours cannot begin unless `is_idle`; at the end of the one under
    /// way [`LinkWorkQueue::wants_flow`] says that one waits.
    pub(crate) fn pop(&mut self, is_idle: bool) -> Option<LinkWork> {
        if core::mem::take(&mut self.flush_rx) {
            return Some(LinkWork::FlushRx);
        }
        let deleted = self.deletes.iter().position(Option::is_some);
        if let Some(slot) = deleted {
            let why = self.deletes.get_mut(slot)?.take()?;
            return Some(LinkWork::DeleteLink(slot, why));
        }
        if let Some(step) = self.step.take() {
            return Some(step);
        }
        if core::mem::take(&mut self.rebalance) {
            return Some(LinkWork::Rebalance);
        }
        self.add.take_if(|_| is_idle).map(LinkWork::AddLink)
    }

    /// Whether a link is to be deleted.
    pub(crate) fn has_deletes(&self) -> bool {
        self.deletes.iter().any(Option::is_some)
    }

    /// Whether a flow of ours waits to begin.
    pub(crate) fn wants_flow(&self) -> bool {
        self.add.is_some()
    }
}
