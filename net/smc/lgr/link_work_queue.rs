// SPDX-License-Identifier: GPL-2.0

//! What is to be done about a group's links where sleeping is allowed: noted under the group's lock when
//! a message or a failure asks for it, done by a worker of the group, one after the other.

use smc_proto::{
    lgr::{
        redundancy::Occasion,
        LINK_SLOTS, //
    },
    wire::llc::NewLink, //
};

/// Why a link goes.
#[derive(Clone, Copy)]
pub(crate) enum DeleteCause {
    /// It failed here: the peer is to be told.
    LostPath,
    /// The server does not need it: the client is to be told, then it goes.
    AsymmetricUnneeded,
    /// Both know.
    Agreed,
}

/// One thing to do.
#[derive(Clone, Copy)]
pub(crate) enum LinkWork {
    /// A connection waits for what may have been received by another link.
    FlushRx,
    /// The link in a slot goes.
    DeleteLink(usize, DeleteCause),
    /// The server offered a link: on the link in slot `on`, for `slot`.
    AcceptAddLink {
        on: usize,
        slot: usize,
        link: NewLink,
    },
    /// The client accepted the link in a slot.
    ConnectLink(usize, NewLink),
    /// The server tries the link in a slot.
    PrepareLink(usize),
    /// There is one more link: connections of others use it.
    Rebalance,
    /// Another link may be of use.
    AddLink(Occasion),
}

/// What is to be done. A flow asks for one thing at a time, so that nothing is lost here.
#[derive(Default)]
pub(crate) struct LinkWorkQueue {
    flush_rx: bool,
    deletes: [Option<DeleteCause>; LINK_SLOTS],
    step: Option<LinkWork>,
    rebalance: bool,
    add: Option<Occasion>,
}

impl LinkWorkQueue {
    /// Notes something to do.
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

    /// Takes the next: first what connections wait for, then slots become free, and what the peer waits
    /// for comes before what it does not know of. A flow of ours cannot begin unless `is_idle`: at the end of
    /// the one under way [`LinkWorkQueue::wants_flow`] tells of it.
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

    /// Whether a link is to go.
    pub(crate) fn has_deletes(&self) -> bool {
        self.deletes.iter().any(Option::is_some)
    }

    /// Whether a flow of ours waits to begin.
    pub(crate) fn wants_flow(&self) -> bool {
        self.add.is_some()
    }
}
