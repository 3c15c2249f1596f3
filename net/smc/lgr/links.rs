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
    conn::Cdc,
    id::{
        AlertToken,
        Gid,
        LinkNum,
        Mac, //
    },
    lgr::{
        self,
        balance::{
            self,
            Loads, //
        },
        find::{
            self,
            LinkEnds, //
        },
        redundancy,
        Kind,
        LinkEnd,
        Links as Ends,
        Port,
        RowId,
        Wanted,
        LINK_SLOTS, //
    },
    link::next_number,
    llc::LocalEnd,
    time::Duration,
    wire::Version, //
};

use super::{
    conn_table::ConnTable,
    ConnReservation,
    LinkGroup, //
};
use crate::{
    clock::now,
    link::{
        Link,
        LinkError, //
    }, //
};

/// The links by slot.
pub(crate) type Slots = [Option<Arc<Link>>; LINK_SLOTS];

/// A link and its slot.
#[derive(Clone)]
pub(crate) struct LinkRef {
    pub(crate) slot: usize,
    pub(crate) link: Arc<Link>,
}

/// A link of which something was heard so short a time ago works. That time is known to a tick.
pub(crate) const FRESH: Duration = Duration::from_millis(50);

impl LinkRef {
    /// Whether something was heard on the link just now.
    pub(crate) fn is_fresh(&self) -> bool {
        now().saturating_since(self.link.last_rx()) < FRESH
    }
}

/// The links of a group.
#[pin_data]
pub(super) struct Links {
    #[pin]
    inner: SpinLock<Inner>,
}

struct Inner {
    slots: Slots,
    /// The number that was given out last.
    last_number: LinkNum,
    /// The group ends: there are no more links.
    is_closed: bool,
    /// The links that were given up last, as far as they deliver after that.
    given_up: [LinkNum; LINK_SLOTS],
}

impl Links {
    /// A group begins with one link.
    pub(super) fn new(first: Arc<Link>) -> impl PinInit<Self> {
        let mut slots = [const { None }; LINK_SLOTS];
        slots[super::FIRST] = Some(first);
        let inner = Inner {
            slots,
            last_number: LinkNum(1),
            is_closed: false,
            given_up: [LinkNum::NONE; LINK_SLOTS],
        };
        pin_init!(Self {
            inner <- new_spinlock!(inner, "smc::Links::inner"),
        })
    }
}

impl LinkGroup {
    /// The link in a slot. Does not sleep.
    pub(crate) fn link(&self, slot: usize) -> Option<Arc<Link>> {
        self.links.inner.lock().slots.get(slot)?.clone()
    }

    /// All links. Does not sleep.
    pub(crate) fn links(&self) -> Slots {
        self.links.inner.lock().slots.clone()
    }

    /// The first active link and its slot. Does not sleep.
    pub(crate) fn active_link(&self) -> Option<(usize, Arc<Link>)> {
        self.find_active(|_| true)
    }

    /// The first active link from another of our ports than the one with this GID, and its slot. Does not
    /// sleep.
    pub(crate) fn active_link_beside(&self, gid: Gid) -> Option<(usize, Arc<Link>)> {
        self.find_active(|link| link.port().gid != gid)
    }

    /// The link that the server named, and its slot. Does not sleep.
    pub(crate) fn named_link(&self, wanted: &Wanted) -> Option<(usize, Arc<Link>)> {
        let slot = find::named_link(&self.ends(self.params.net), wanted)?;
        Some((slot, self.link(slot)?))
    }

    /// The active link whose peer's end is meant, with its slot. Does not sleep.
    pub(crate) fn link_of(&self, is_meant: impl Fn(&LinkEnd) -> bool) -> Option<LinkRef> {
        let (slot, link) = self.find_active(|link| is_meant(&link.end()))?;
        Some(LinkRef { slot, link })
    }

    fn find_active(&self, is_meant: impl Fn(&Link) -> bool) -> Option<(usize, Arc<Link>)> {
        let links = self.links().into_iter().enumerate();
        links
            .filter_map(|(slot, link)| Some((slot, link?)))
            .find(|(_, link)| link.is_active() && is_meant(link))
    }

    /// The numbers of the links that work, as the LLC core wants them. Does not sleep.
    pub(crate) fn link_numbers(&self) -> [LinkNum; LINK_SLOTS] {
        self.links().map(|link| {
            let link = link.filter(|link| link.is_up());
            link.map_or(LinkNum::NONE, |link| link.number())
        })
    }

    /// The links as a new connection of the namespace at address `net` looks for them. Does not sleep.
    pub(super) fn ends(&self, net: usize) -> LinkEnds {
        self.links().map(|link| {
            let link = link?;
            let device = link.device();
            Some(LinkEnd {
                is_visible: device.is_none_or(|device| device.accessible_in(net)),
                ..link.end()
            })
        })
    }

    /// Our end of the link in a slot, for the core. Does not sleep.
    pub(crate) fn local_end(&self, slot: usize, link: &Link) -> LocalEnd {
        let port = link.port();
        LocalEnd {
            slot,
            mac: port.mac,
            gid: port.gid,
            qp_num: link.qp_num(),
            link_num: link.number(),
            group_uid: self.id,
            release: self.params.release,
            limits: self.params.limits,
            is_direct: self.params.is_direct,
        }
    }

    /// An Ethernet address, where it counts: in version 1.
    pub(crate) fn counted_mac(&self, mac: Mac) -> Mac {
        match self.params.version {
            Version::V1 => mac,
            Version::V2 => Mac::NONE,
        }
    }

    /// Puts a link into a free slot. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is not free, `ENOLINK` if the group ends.
    pub(crate) fn put_link(&self, slot: usize, link: &Arc<Link>) -> Result {
        let mut inner = self.links.inner.lock();
        if inner.is_closed {
            return Err(ENOLINK);
        }
        let place = inner.slots.get_mut(slot).ok_or(EINVAL)?;
        if place.is_some() {
            return Err(EBUSY);
        }
        *place = Some(link.clone());
        Ok(())
    }

    /// Takes the link out of a slot. Does not sleep.
    pub(crate) fn take_link(&self, slot: usize) -> Option<Arc<Link>> {
        self.links.inner.lock().slots.get_mut(slot)?.take()
    }

    /// The links of a group that ends: none is added any more. Does not sleep.
    pub(crate) fn close_links(&self) -> Slots {
        let mut inner = self.links.inner.lock();
        inner.is_closed = true;
        inner.slots.clone()
    }

    /// Remembers a link that was given up, and stopped, if what it took may still arrive at the peer: our failover
    /// validations name it. Does not sleep.
    pub(crate) fn note_given_up(&self, link: &Link) {
        if link.delivers_after_down() {
            let number = link.number();
            let given_up = &mut self.links.inner.lock().given_up;
            given_up.rotate_right(1);
            if let Some(newest) = given_up.first_mut() {
                *newest = number;
            }
        }
    }

    /// A validation of ours with the names of the links that were given up, for a peer that knows what to do with
    /// them. Does not sleep.
    pub(crate) fn naming_given_up(&self, validation: Cdc) -> Cdc {
        if !self.peer().takes_any_link {
            return validation;
        }
        let is_new = self.link_numbers();
        let given_up = self.links.inner.lock().given_up;
        validation.naming(given_up.map(|number| match is_new.contains(&number) {
            true => LinkNum::NONE,
            false => number,
        }))
    }

    /// Takes the links down that a validation of the peer names. Says whether there are any: until
    /// [`Link::stop`] they may bring more. Does not sleep.
    pub(crate) fn give_up(&self, validation: &Cdc) -> bool {
        if !self.peer().takes_any_link {
            return false;
        }
        let mut is_any = false;
        for link in self.links().iter().flatten() {
            let number = link.number();
            if link.delivers_after_down() && validation.names().contains(&number) {
                link.fail(LinkError::Retired);
                is_any = true;
            }
        }
        is_any
    }

    /// The lowest free slot. Does not sleep.
    pub(crate) fn spare_slot(&self) -> Option<usize> {
        self.links().iter().position(Option::is_none)
    }

    /// A number for a new link. Does not sleep.
    pub(crate) fn next_link_number(&self) -> Option<LinkNum> {
        let used = self.link_numbers();
        let mut inner = self.links.inner.lock();
        let next = next_number(inner.last_number, |number| used.contains(&number))?;
        inner.last_number = next;
        Some(next)
    }

    /// The ports of the active links. Does not sleep.
    pub(crate) fn ports(&self) -> Ends {
        self.links().map(|link| {
            let link = link.filter(|link| link.is_active())?;
            let peer = link.end();
            let port = |gid, mac| Port {
                gid,
                mac: self.counted_mac(mac),
            };
            Some(lgr::Ends {
                local: port(link.port().gid, link.port().mac),
                peer: port(peer.peer_gid, peer.peer_mac),
            })
        })
    }

    /// The links that new connections use, and old ones when the load is spread, by slot. Of links that
    /// share a port it is only the first, and one that others make superfluous is about to go. Does not
    /// sleep.
    pub(crate) fn carriers(&self) -> [bool; LINK_SLOTS] {
        let ports = self.ports();
        let is_shared = Kind::of(&ports).is_asymmetric();
        let first = ports.iter().position(Option::is_some);
        let superfluous = redundancy::superfluous(&ports);
        let mut carriers = ports.map(|ends| ends.is_some());
        for (slot, can_carry) in carriers.iter_mut().enumerate() {
            *can_carry &= superfluous != Some(slot) && (!is_shared || first == Some(slot));
        }
        carriers
    }

    /// How many connections each of these links has. Does not sleep.
    pub(crate) fn loads_of(&self, links: &[bool; LINK_SLOTS]) -> Loads {
        self.table.lock().conns.loads_of(links)
    }

    /// The last of the active links with the fewest connections, of those for which `is_meant` holds. Does not
    /// sleep.
    pub(crate) fn idlest_link(&self, is_meant: impl Fn(&Link) -> bool) -> Option<Arc<Link>> {
        let links = self.links();
        let table = self.table.lock();
        let all = links.iter().zip(table.conns.loads());
        let is_meant = |link: &Arc<Link>| link.is_active() && is_meant(link);
        let active = all.filter(|(link, _)| link.as_ref().is_some_and(is_meant));
        let (link, _) = active.rev().min_by_key(|(_, load)| **load)?;
        link.clone()
    }

    /// The link for a connection that leaves its own, and its slot: the one with the fewest among those
    /// that `can_carry` it and reach the peer's buffer `row`; `None` before the peer said where that is. The
    /// connection counts there from now on. Does not sleep.
    pub(crate) fn choose_link(
        &self,
        token: AlertToken,
        row: Option<RowId>,
        can_carry: impl Fn(usize) -> bool,
    ) -> Option<(usize, Arc<Link>)> {
        let reaches = |slot| row.is_none_or(|row| self.rtoken(row, slot).is_some());
        let links = self.active_links(|slot| can_carry(slot) && reaches(slot));
        self.choose(&links, |conns, slot| conns.set_slot(token, slot))
    }

    /// A connection uses the link in `slot` after all. Does not sleep.
    pub(crate) fn count_on(&self, token: AlertToken, slot: usize) {
        self.table.lock().conns.set_slot(token, slot);
    }

    fn active_links(&self, is_meant: impl Fn(usize) -> bool) -> Slots {
        let mut links = self.links();
        for (slot, place) in links.iter_mut().enumerate() {
            place.take_if(|link| !link.is_active() || !is_meant(slot));
        }
        links
    }

    /// The link with the fewest connections; the next one that it gets is counted by `count`.
    fn choose(
        &self,
        links: &Slots,
        count: impl FnOnce(&mut ConnTable, usize),
    ) -> Option<(usize, Arc<Link>)> {
        let mut table = self.table.lock();
        let loads = table.conns.loads_of(&links.each_ref().map(Option::is_some));
        let slot = balance::choose(&loads)?;
        count(&mut table.conns, slot);
        Some((slot, links.get(slot)?.clone()?))
    }
}

impl ConnReservation {
    /// The link for the connection that gets the place: the one with the fewest, which has one more from
    /// now on. Does not sleep.
    pub(crate) fn choose_link(&mut self) -> Option<LinkRef> {
        let group = self.group().clone();
        let carriers = group.carriers();
        let links = group.active_links(|slot| carriers.get(slot).is_some_and(|can| *can));
        let (slot, link) = group.choose(&links, |conns, slot| self.count_on(conns, slot))?;
        Some(LinkRef { slot, link })
    }
}
