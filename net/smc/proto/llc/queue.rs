// SPDX-License-Identifier: GPL-2.0

//! What the peer, or this side, wants of the links while a flow is under way: it begins when that
//! ends (RFC 7609 section 4.5.5, parallel flows; C: the one delayed event of a link group).

use super::add::client::{
    Adding,
    Offer, //
};
use super::deletion::LinkDeletion;
use super::{
    Actions,
    Finished,
    Flow,
    Llc, //
};
use crate::lgr::LINK_SLOTS;
use crate::time::Instant;

/// Something that waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A link is to be deleted.
    Delete(LinkDeletion),
    /// The server offered a link.
    Add(Offer),
}

impl Pending {
    /// Says whether it cannot be done any more when the link in `slot` is gone.
    const fn concerns(&self, slot: usize) -> bool {
        match self {
            Self::Delete(what) => what.concerns(slot),
            Self::Add(offer) => offer.on == slot,
        }
    }

    /// Says whether `later` makes this superfluous: the same link is to go, or the server gave an
    /// offer up for another one.
    const fn is_replaced_by(&self, later: &Self) -> bool {
        match (self, later) {
            (Self::Delete(one), Self::Delete(other)) => one.slot() == other.slot(),
            (Self::Add(_), Self::Add(_)) => true,
            (Self::Delete(_), Self::Add(_)) | (Self::Add(_), Self::Delete(_)) => false,
        }
    }
}

/// Each link can be deleted once, and one offer is open.
const CAPACITY: usize = LINK_SLOTS + 1;

/// What waits, oldest first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    list: [Option<Pending>; CAPACITY],
}

impl Queue {
    /// Nothing waits.
    pub(super) const fn new() -> Self {
        Self {
            list: [None; CAPACITY],
        }
    }

    /// Appends something, in place of what it makes superfluous.
    pub(super) fn push(&mut self, what: Pending) {
        self.retain(|earlier| !earlier.is_replaced_by(&what));
        let free = self.list.iter_mut().find(|place| place.is_none());
        debug_assert!(free.is_some(), "no place for {what:?}");
        if let Some(place) = free {
            *place = Some(what);
        }
    }

    /// Takes out the oldest.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        let first = self.list.first_mut()?.take();
        self.list.rotate_left(1);
        first
    }

    /// Forgets what cannot be done without the link in `slot`, or has been done.
    pub(super) fn forget(&mut self, slot: usize) {
        self.retain(|what| !what.concerns(slot));
    }

    fn retain(&mut self, keep: impl Fn(&Pending) -> bool) {
        let old = core::mem::take(&mut self.list);
        let kept = old.into_iter().flatten().filter(|what| keep(what));
        for (place, what) in self.list.iter_mut().zip(kept) {
            *place = Some(what);
        }
    }
}

impl Llc {
    /// Ends the flow if the actions say so, and begins what had to wait for its end.
    pub(super) fn settle<'a>(&mut self, mut actions: Actions<'a>, now: Instant) -> Actions<'a> {
        let Some(how) = actions.finished() else {
            return actions;
        };
        let gone = match (how, self.flow.take()) {
            (_, Some(Flow::DeleteLink { what, .. })) => Some(what.slot()),
            (Finished::AddLink { slot, result }, _) if result.is_err() => Some(slot),
            _ => None,
        };
        if let Some(slot) = gone {
            self.queue.forget(slot);
        }
        actions.append(self.begin_pending(now));
        actions
    }

    /// Begins what waits longest. No flow is under way.
    pub(super) fn begin_pending<'a>(&mut self, now: Instant) -> Actions<'a> {
        while let Some(what) = self.queue.pop() {
            match what {
                Pending::Delete(what) => return self.begin_deletion(what, now),
                // The server does not wait any more.
                Pending::Add(offer) if offer.until.is_due(now) => {}
                Pending::Add(offer) => return self.begin_answer(offer),
            }
        }
        Actions::default()
    }

    pub(super) fn begin_answer<'a>(&mut self, offer: Offer) -> Actions<'a> {
        let (flow, action) = Adding::begin(offer, self.version);
        self.flow = Some(Flow::Answer(flow));
        action.into()
    }
}
