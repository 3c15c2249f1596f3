// SPDX-License-Identifier: GPL-2.0

//! Requests of either side about links while a flow is under way: they begin when that ends (RFC 7609 section 4.5.5,
//! parallel flows; C: the one delayed event of a link group).

use super::add::client::{
    AddLinkClient,
    Offer, //
};
use super::deletion::LinkDeletion;
use super::{
    Actions,
    Finished,
    Flow,
    Llc, //
};
use crate::lgr::{
    LinkIdx,
    MAX_LINKS, //
};
use crate::time::Instant;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A link is to be deleted.
    Delete(LinkDeletion),
    /// The server offered a link.
    Add(Offer),
}

impl Pending {
    /// Returns true if it is impossible without link `idx`. A deletion is possible without the link on which it was
    /// asked for: another one takes its messages.
    fn concerns(&self, idx: LinkIdx) -> bool {
        match self {
            Self::Delete(what) => what.idx() == idx,
            Self::Add(offer) => offer.on == idx,
        }
    }

    /// Returns true if `later` makes this superfluous: it deletes the same link, or the server replaced its offer by
    /// another one.
    fn is_replaced_by(&self, later: &Self) -> bool {
        match (self, later) {
            (Self::Delete(one), Self::Delete(other)) => one.idx() == other.idx(),
            (Self::Add(_), Self::Add(_)) => true,
            (Self::Delete(_), Self::Add(_)) | (Self::Add(_), Self::Delete(_)) => false,
        }
    }
}

/// Each link can be deleted once, and one offer is open.
const CAPACITY: usize = MAX_LINKS + 1;

/// Requests that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    list: [Option<Pending>; CAPACITY],
}

impl Queue {
    /// An empty queue.
    pub(super) const fn new() -> Self {
        Self {
            list: [None; CAPACITY],
        }
    }

    /// Returns true if link `idx` is to be deleted.
    pub(super) fn deletes(&self, idx: LinkIdx) -> bool {
        let deletes_it =
            |what: &Pending| matches!(what, Pending::Delete(what) if what.idx() == idx);
        self.list.iter().flatten().any(deletes_it)
    }

    /// Appends a request, in place of those it makes superfluous.
    pub(super) fn push(&mut self, what: Pending) {
        self.retain(|earlier| !earlier.is_replaced_by(&what));
        let free = self.list.iter_mut().find(|place| place.is_none());
        debug_assert!(free.is_some(), "no place for {what:?}");
        if let Some(place) = free {
            *place = Some(what);
        }
    }

    /// Removes and returns the oldest.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        let first = self.list.first_mut()?.take();
        self.list.rotate_left(1);
        first
    }

    /// Removes requests that are impossible without link `idx`, or done.
    pub(super) fn forget(&mut self, idx: LinkIdx) {
        self.retain(|what| !what.concerns(idx));
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
    /// Ends the flow if the actions contain that, and begins a request that waited for its end.
    pub(super) fn settle<'a>(&mut self, mut actions: Actions<'a>, now: Instant) -> Actions<'a> {
        let Some(how) = actions.finished() else {
            return actions;
        };
        let gone = match (how, self.flow.take()) {
            (_, Some(Flow::DeleteLink { what, .. })) => Some(what.idx()),
            (Finished::AddLink { idx, result }, _) if result.is_err() => Some(idx),
            _ => None,
        };
        if let Some(idx) = gone {
            self.queue.forget(idx);
        }
        actions.append(self.begin_pending(now));
        actions
    }

    /// Begins the oldest request. No flow is under way.
    pub(super) fn begin_pending<'a>(&mut self, now: Instant) -> Actions<'a> {
        while let Some(what) = self.queue.pop() {
            match what {
                Pending::Delete(what) => return self.begin_deletion(what, now),
                // The server has stopped waiting.
                Pending::Add(offer) if offer.until.is_due(now) => {}
                Pending::Add(offer) => return self.begin_answer(offer),
            }
        }
        Actions::default()
    }

    pub(super) fn begin_answer<'a>(&mut self, offer: Offer) -> Actions<'a> {
        let (flow, action) = AddLinkClient::begin(offer, self.version);
        self.flow = Some(Flow::Answer(flow));
        action.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::LinkNum;
    use crate::wire::llc::{
        DeleteLink,
        DeleteReason, //
    };

    #[test]
    fn a_deletion_outlives_the_link_on_which_it_was_asked_for() {
        let (on, idx) = (LinkIdx::ALL[0], LinkIdx::ALL[1]);
        let request = DeleteLink {
            link_num: Some(LinkNum(2)),
            orderly: true,
            reason: DeleteReason::LOST_PATH,
        };
        let mut queue = Queue::new();
        queue.push(Pending::Delete(LinkDeletion { on, idx, request }));
        queue.forget(on);
        assert!(queue.deletes(idx));
        queue.forget(idx);
        assert!(!queue.deletes(idx));
    }
}
