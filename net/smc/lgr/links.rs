// SPDX-License-Identifier: GPL-2.0

//! The links of a group, each in a slot; what arrives on one goes to the group with the slot's number.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use smc_proto::{
    id::LinkNum,
    lgr::{
        LinkEnd,
        Wanted,
        LINK_SLOTS, //
    }, //
};

use super::LinkGroup;
use crate::link::Link;

/// The links by slot.
pub(crate) type Slots = [Option<Arc<Link>>; LINK_SLOTS];

/// The links of a group.
#[pin_data]
pub(super) struct Links {
    #[pin]
    slots: SpinLock<Slots>,
}

impl Links {
    /// A group begins with one link.
    pub(super) fn new(first: Arc<Link>) -> impl PinInit<Self> {
        let mut slots = [const { None }; LINK_SLOTS];
        slots[super::FIRST] = Some(first);
        pin_init!(Self {
            slots <- new_spinlock!(slots, "smc::Links::slots"),
        })
    }
}

impl LinkGroup {
    /// The link in a slot. Does not sleep.
    pub(crate) fn link(&self, slot: usize) -> Option<Arc<Link>> {
        self.links.slots.lock().get(slot)?.clone()
    }

    /// All links. Does not sleep.
    pub(crate) fn links(&self) -> Slots {
        self.links.slots.lock().clone()
    }

    /// The first active link and its slot. Does not sleep.
    pub(crate) fn active_link(&self) -> Option<(usize, Arc<Link>)> {
        let links = self.links().into_iter().enumerate();
        links
            .filter_map(|(slot, link)| Some((slot, link?)))
            .find(|(_, link)| link.is_active())
    }

    /// The link that the server named, and its slot. Does not sleep.
    pub(crate) fn named_link(&self, wanted: &Wanted) -> Option<(usize, Arc<Link>)> {
        let links = self.links().into_iter().enumerate();
        links
            .filter_map(|(slot, link)| Some((slot, link?)))
            .find(|(_, link)| link.is_active() && link.end().is_named_by(wanted))
    }

    /// The numbers of the links that work, as the LLC core wants them. Does not sleep.
    pub(crate) fn link_numbers(&self) -> [LinkNum; LINK_SLOTS] {
        self.links().map(|link| {
            let link = link.filter(|link| link.is_up());
            link.map_or(LinkNum::NONE, |link| link.number())
        })
    }

    /// The links as a new connection looks for them. Does not sleep.
    pub(super) fn ends(&self) -> Result<KVec<LinkEnd>> {
        let mut ends = KVec::new();
        for link in self.links().iter().flatten() {
            ends.push(link.end(), GFP_ATOMIC)?;
        }
        Ok(ends)
    }
}
