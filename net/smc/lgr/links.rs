// SPDX-License-Identifier: GPL-2.0

//! The links of a group, each at its index of the link table, with which events of a link go to the group.

use kernel::sync::{
    Arc, //
};
use kernel_ext::{
    net::NetNsId,
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    conn::Cdc,
    id::{
        AlertToken,
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
            FormerLinks,
            LinkEnds, //
        },
        redundancy,
        ActiveLinks,
        LgrKey,
        LgrType,
        LinkEnd,
        LinkIdx,
        LinkMap,
        Port,
        RtokenIdx,
        MAX_LINKS, //
    },
    link::next_number,
    llc::{
        link_work::LinkWork,
        LocalEnd, //
    },
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

/// The link table of a group: its links by index.
pub(crate) type LinkTable = LinkMap<Option<Arc<Link>>>;

/// A link and its index.
#[derive(Clone)]
pub(crate) struct LinkRef {
    pub(crate) idx: LinkIdx,
    pub(crate) link: Arc<Link>,
}

/// A link on which a message arrived within this time counts as working. Arrival times have a resolution of one tick.
const FRESH: Duration = Duration::from_millis(50);

impl LinkRef {
    /// Returns whether a message arrived on the link within [`FRESH`].
    pub(crate) fn is_fresh(&self) -> bool {
        now().saturating_since(self.link.last_rx()) < FRESH
    }
}

/// The links of a group.
#[pin_data]
pub(super) struct Links {
    #[pin]
    inner: SpinLockBh<LinksInner>,
}

struct LinksInner {
    table: LinkTable,
    /// The link number assigned last.
    last_number: LinkNum,
    /// The group ends: no link may be added.
    is_closed: bool,
    /// The links taken down last, of those that may deliver data after that.
    retired: [LinkNum; MAX_LINKS],
    /// The links that went last.
    former: FormerLinks,
}

impl Links {
    /// Creates the link table of a group with its first link.
    pub(super) fn new(first: Arc<Link>) -> impl PinInit<Self> {
        let mut table = LinkTable::default();
        table[LinkIdx::FIRST] = Some(first);
        let inner = LinksInner {
            table,
            last_number: LinkNum(1),
            is_closed: false,
            retired: [LinkNum::NONE; MAX_LINKS],
            former: FormerLinks::default(),
        };
        pin_init!(Self {
            inner <- new_spinlock_bh!(inner, "smc::Links::inner"),
        })
    }
}

impl LinkGroup {
    /// Returns a link.
    /// Context: does not sleep.
    pub(crate) fn link(&self, idx: LinkIdx) -> Option<Arc<Link>> {
        self.links.inner.lock().table[idx].clone()
    }

    /// Returns all links.
    /// Context: does not sleep.
    pub(crate) fn links(&self) -> LinkTable {
        self.links.inner.lock().table.clone()
    }

    /// Returns the first active link.
    /// Context: does not sleep.
    pub(crate) fn active_link(&self) -> Option<LinkRef> {
        self.find_active(|_| true)
    }

    /// Returns the first active link for which `is_meant` holds.
    /// Context: does not sleep.
    pub(crate) fn find_active(&self, is_meant: impl Fn(&Link) -> bool) -> Option<LinkRef> {
        let links = self.links();
        let mut active = links.present().filter(|(_, link)| link.is_active());
        let (idx, link) = active.find(|(_, link)| is_meant(link))?;
        let link = link.clone();
        Some(LinkRef { idx, link })
    }

    /// Returns the link that the server named.
    /// Context: does not sleep.
    pub(crate) fn named_link(&self, wanted: &LgrKey) -> Option<LinkRef> {
        let idx = find::named_link(&self.ends(self.params.net), wanted)?;
        let link = self.link(idx)?;
        Some(LinkRef { idx, link })
    }

    /// Returns the numbers of the links that work, in the form of the LLC core.
    /// Context: does not sleep.
    pub(crate) fn link_numbers(&self) -> LinkMap<LinkNum> {
        self.links().map(|link| {
            let link = link.filter(|link| link.is_up());
            link.map_or(LinkNum::NONE, |link| link.number())
        })
    }

    /// Returns the links' ends as seen by a connection of the namespace `net`.
    /// Context: does not sleep.
    pub(super) fn ends(&self, net: NetNsId) -> LinkEnds {
        self.links().map(|link| {
            let link = link?;
            let device = link.device();
            Some(LinkEnd {
                is_visible: device.is_none_or(|device| device.accessible_in(net)),
                ..link.end()
            })
        })
    }

    /// Returns our end of link `idx`, for the core.
    /// Context: does not sleep.
    pub(crate) fn local_end(&self, idx: LinkIdx, link: &Link) -> LocalEnd {
        let port = link.port();
        LocalEnd {
            idx,
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

    /// Returns `mac` in version 1, where MAC addresses are compared, else none.
    pub(crate) fn mac_for_match(&self, mac: Mac) -> Mac {
        match self.params.version {
            Version::V1 => mac,
            Version::V2 => Mac::NONE,
        }
    }

    /// Puts a link at its index, which is free.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is not, `ENOLINK` if the group ends.
    pub(crate) fn put_link(&self, idx: LinkIdx, link: &Arc<Link>) -> Result {
        let mut inner = self.links.inner.lock();
        if inner.is_closed {
            return Err(ENOLINK);
        }
        if inner.table[idx].is_some() {
            return Err(EBUSY);
        }
        inner.table[idx] = Some(link.clone());
        Ok(())
    }

    /// Removes a link from the table, and remembers its end for a while.
    /// Context: does not sleep.
    pub(crate) fn remove_link(&self, idx: LinkIdx) -> Option<Arc<Link>> {
        let end = self.link(idx)?.end();
        let mut inner = self.links.inner.lock();
        inner.former.note(end, now());
        inner.table[idx].take()
    }

    /// Returns the links that were removed last.
    /// Context: does not sleep.
    pub(super) fn former_links(&self) -> FormerLinks {
        self.links.inner.lock().former
    }

    /// Returns the links of a group that ends, and lets none be added any more.
    /// Context: does not sleep.
    pub(crate) fn close_links(&self) -> LinkTable {
        let mut inner = self.links.inner.lock();
        inner.is_closed = true;
        inner.table.clone()
    }

    /// Remembers a link that was taken down and stopped, if what was posted on it may still arrive at the peer: our
    /// failover validations name it.
    /// Context: does not sleep.
    pub(crate) fn note_retired(&self, link: &Link) {
        if link.delivers_after_down() {
            let number = link.number();
            let retired = &mut self.links.inner.lock().retired;
            retired.rotate_right(1);
            if let Some(newest) = retired.first_mut() {
                *newest = number;
            }
        }
    }

    /// Adds the numbers of links that were taken down to a failover validation of ours, if the peer supports that.
    /// Context: does not sleep.
    pub(crate) fn with_retired_links(&self, validation: Cdc) -> Cdc {
        if !self.peer().takes_cdc_on_any_link {
            return validation;
        }
        let is_new = self.link_numbers();
        let retired = self.links.inner.lock().retired;
        validation.with_retired_links(retired.map(|number| match is_new.0.contains(&number) {
            true => LinkNum::NONE,
            false => number,
        }))
    }

    /// Takes down the links that a failover validation of the peer names. Returns whether there are any: until
    /// [`Link::stop`] they may deliver more.
    /// Context: does not sleep.
    pub(crate) fn retire_named_links(&self, validation: &Cdc) -> bool {
        if !self.peer().takes_cdc_on_any_link {
            return false;
        }
        let mut is_any = false;
        for link in self.links().iter().flatten() {
            let number = link.number();
            if link.delivers_after_down() && validation.retired_links().contains(&number) {
                link.fail(LinkError::Retired);
                is_any = true;
            }
        }
        is_any
    }

    /// Returns the lowest index without a link.
    /// Context: does not sleep.
    pub(crate) fn spare_idx(&self) -> Option<LinkIdx> {
        self.links().position(Option::is_none)
    }

    /// Assigns a number for a new link.
    /// Context: does not sleep.
    pub(crate) fn next_link_number(&self) -> Option<LinkNum> {
        let used = self.link_numbers();
        let mut inner = self.links.inner.lock();
        let next = next_number(inner.last_number, |number| used.0.contains(&number))?;
        inner.last_number = next;
        Some(next)
    }

    /// Returns the ports of the active links.
    /// Context: does not sleep.
    pub(crate) fn ports(&self) -> ActiveLinks {
        self.links().map(|link| {
            let link = link.filter(|link| link.is_active())?;
            let peer = link.end();
            let port = |gid, mac| Port {
                gid,
                mac: self.mac_for_match(mac),
            };
            Some(lgr::LinkPorts {
                local: port(link.port().gid, link.port().mac),
                peer: port(peer.peer_gid, peer.peer_mac),
            })
        })
    }

    /// Returns, by index, the links that carry new connections, and old ones when the load is balanced: none that is to
    /// be deleted, or that others make superfluous, which is deleted soon; of links that share a port only the first.
    /// Context: does not sleep.
    pub(crate) fn eligible_links(&self) -> LinkMap<bool> {
        let going = self.going_links();
        let mut ports = self.ports();
        for idx in LinkIdx::ALL {
            ports[idx].take_if(|_| going[idx]);
        }
        let is_shared = LgrType::of(&ports).is_asymmetric();
        let first = ports.position(Option::is_some);
        let superfluous = redundancy::superfluous(&ports);
        LinkMap(LinkIdx::ALL.map(|idx| {
            let is_first = first == Some(idx);
            ports[idx].is_some() && superfluous != Some(idx) && (is_first || !is_shared)
        }))
    }

    /// Returns, by index, the links that are to be deleted.
    fn going_links(&self) -> LinkMap<bool> {
        let inner = self.inner.lock();
        LinkMap(LinkIdx::ALL.map(|idx| inner.llc.core.is_going(idx)))
    }

    /// Returns the number of connections on each of these links.
    /// Context: does not sleep.
    pub(crate) fn loads_of(&self, links: &LinkMap<bool>) -> Loads {
        self.inner.lock().conns.loads_of(links)
    }

    /// Balances the loads if they are uneven after a connection began. A client uses the link that the server named by
    /// its own loads, which balancing has made others than those here; and connections that began just then, or were
    /// about to change their link, could not be moved before.
    /// Context: does not sleep.
    pub(crate) fn balance_after_join(self: &Arc<Self>) {
        let has_several = self.links().present().nth(1).is_some();
        if has_several && balance::is_any_crowded(&self.loads_of(&self.eligible_links())) {
            self.queue_link_work(LinkWork::Rebalance);
        }
    }

    /// Returns the active link with the fewest connections of those for which `is_meant` holds; the last of several.
    /// Context: does not sleep.
    pub(crate) fn least_loaded_link(&self, is_meant: impl Fn(&Link) -> bool) -> Option<Arc<Link>> {
        let links = self.links();
        let inner = self.inner.lock();
        let loads = inner.conns.loads();
        let active = links.present().filter(|(_, link)| link.is_active());
        let meant = active.filter(|(_, link)| is_meant(link));
        let (_, link) = meant.rev().min_by_key(|(idx, _)| loads[*idx])?;
        Some(link.clone())
    }

    /// Chooses the link for a connection that leaves its own: the one with the fewest connections of those that
    /// `can_carry` it and reach the peer's RMB `row`, if that is known; one that is to be deleted only if there is no
    /// other. The connection is counted there from now on.
    /// Context: does not sleep.
    pub(crate) fn choose_link(
        &self,
        token: AlertToken,
        row: Option<RtokenIdx>,
        can_carry: impl Fn(LinkIdx) -> bool,
    ) -> Option<LinkRef> {
        let reaches = |idx| row.is_none_or(|row| self.rtoken(row, idx).is_some());
        let links = self.active_links(|idx| can_carry(idx) && reaches(idx));
        let going = self.going_links();
        let mut lasting = links.clone();
        for idx in LinkIdx::ALL {
            lasting[idx].take_if(|_| going[idx]);
        }
        let lasting = self.choose(&lasting, |conns, idx| conns.set_link(token, idx));
        lasting.or_else(|| self.choose(&links, |conns, idx| conns.set_link(token, idx)))
    }

    /// Counts a connection on link `idx`.
    /// Context: does not sleep.
    pub(crate) fn account_conn(&self, token: AlertToken, idx: LinkIdx) {
        self.inner.lock().conns.set_link(token, idx);
    }

    fn active_links(&self, is_meant: impl Fn(LinkIdx) -> bool) -> LinkTable {
        let mut links = self.links();
        for idx in LinkIdx::ALL {
            links[idx].take_if(|link| !link.is_active() || !is_meant(idx));
        }
        links
    }

    /// Chooses the link with the fewest connections, on which `count` counts the next one.
    fn choose(
        &self,
        links: &LinkTable,
        count: impl FnOnce(&mut ConnTable, LinkIdx),
    ) -> Option<LinkRef> {
        let mut inner = self.inner.lock();
        let is_there = LinkIdx::ALL.map(|idx| links[idx].is_some());
        let loads = inner.conns.loads_of(&LinkMap(is_there));
        let idx = balance::choose(&loads)?;
        count(&mut inner.conns, idx);
        let link = links[idx].clone()?;
        Some(LinkRef { idx, link })
    }
}

impl ConnReservation {
    /// Chooses the link for the connection: the one with the fewest, on which the reservation is counted from now on.
    /// Context: does not sleep.
    pub(crate) fn choose_link(&mut self) -> Option<LinkRef> {
        let group = self.group().clone();
        let eligible_links = group.eligible_links();
        let links = group.active_links(|idx| eligible_links[idx]);
        group.choose(&links, |conns, idx| self.account_conn(conns, idx))
    }
}
