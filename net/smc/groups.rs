// SPDX-License-Identifier: GPL-2.0

//! All link groups of this host, and their scheduler.
//!
//! The list is locked for short accesses only. Creation is serialised for each peer (`lgr_pending`), so that a slow or
//! hostile peer delays only itself.

mod lgr_pending;
mod limits;
mod shrinker;

pub(crate) use lgr_pending::{
    lgr_pending,
    LgrPendingRef,
    WaitResult, //
};
pub(crate) use limits::spare_queue_pair;
pub(crate) use shrinker::relieve;

use core::{
    mem,
    net::IpAddr, //
};

use kernel::{
    new_mutex,
    sync::{
        atomic::Atomic,
        Arc,
        Mutex, //
    },
    time::Jiffies,
    workqueue::WorkItem, //
};
use kernel_ext::{
    delayed_work::{
        DelayedWork,
        Job, //
    },
    global::{
        Global,
        Published, //
    },
    ib::Device,
    net::NetNsId,
    prelude::*,
    workqueue::OwnedWorkqueue, //
};
use smc_proto::{
    handshake::Failure,
    id::Gid,
    lgr::{
        find::{
            LgrKey,
            TcpEnds, //
        },
        LinkIdx,
        Role,
        TerminateReason, //
    },
    reason::Reason,
    time::Duration, //
};

use crate::{
    clock::{
        self,
        now, //
    },
    lgr::{
        ConnReservation,
        LgrScheduler,
        LinkGroup,
        LinkRef,
        LINK_WORK, //
    },
    link::{
        Link,
        LinkError,
        PortInfo, //
    }, //
};

static GROUPS: Global<Groups> = Global::new();

/// The scheduler of all groups.
pub(crate) static SCHEDULER: Scheduler = Scheduler;

/// A group of the list.
pub(crate) struct ListedLgr {
    /// Increases from group to group, unlike the group's id, which may repeat.
    pub(crate) serial: u64,
    pub(crate) group: Arc<LinkGroup>,
}

/// An entry of the list.
struct LgrEntry {
    serial: u64,
    group: Arc<LinkGroup>,
    /// The peer's address in the TCP connection of the first contact.
    peer: IpAddr,
    /// A task is ending the group.
    is_leaving: bool,
}

/// The list itself, oldest first.
struct LgrList {
    groups: KVec<LgrEntry>,
    last_serial: u64,
}

impl LgrList {
    const EMPTY: Self = Self {
        groups: KVec::new(),
        last_serial: 0,
    };

    fn iter(&self) -> impl Iterator<Item = &Arc<LinkGroup>> {
        let there = self.groups.iter().filter(|place| !place.is_leaving);
        there.map(|place| &place.group)
    }

    fn add(&mut self, group: Arc<LinkGroup>, peer: IpAddr) -> Result {
        let serial = self.last_serial + 1;
        let place = LgrEntry {
            serial,
            group,
            peer,
            is_leaving: false,
        };
        self.groups.push(place, GFP_KERNEL)?;
        self.last_serial = serial;
        Ok(())
    }
}

/// The link groups.
#[pin_data]
struct Groups {
    #[pin]
    list: Mutex<LgrList>,
    #[pin]
    pending: Mutex<KVec<lgr_pending::PendingUse>>,
    /// Runs what is due in groups.
    #[pin]
    timer: DelayedWork<LgrTimer>,
    /// Work queue for groups that end or shrink, independently of each other.
    works: OwnedWorkqueue,
    /// Bytes of unused RMBs to free because memory is short.
    shrink_target: Atomic<u64>,
    /// Maximum number of groups.
    most: usize,
}

/// Owns the list of link groups while the module is loaded. Dropping it ends them all, and may sleep.
pub(crate) struct LgrRegistry {
    shrinker: Option<kernel_ext::shrinker::Registration<Groups>>,
    published: Option<Published<Groups>>,
}

impl LgrRegistry {
    /// Creates the list.
    pub(crate) fn new() -> Result<Self> {
        let works = OwnedWorkqueue::unbound(c"smc_groups", 0)?;
        let groups = Arc::pin_init(
            pin_init!(Groups {
                list <- new_mutex!(LgrList::EMPTY, "smc::Groups::list"),
                pending <- new_mutex!(KVec::new(), "smc::Groups::pending"),
                timer <- DelayedWork::new(LgrTimer),
                works,
                shrink_target: Atomic::new(0),
                most: limits::most(),
            }),
            GFP_KERNEL,
        )?;
        let shrinker = kernel_ext::shrinker::Registration::new(c"smc-buffers", groups.clone())?;
        Ok(Self {
            published: Some(GROUPS.publish(groups)?),
            shrinker: Some(shrinker),
        })
    }
}

impl Drop for LgrRegistry {
    fn drop(&mut self) {
        let Some(groups) = GROUPS.get() else {
            return;
        };
        self.shrinker = None;
        terminate_where(TerminateReason::Shutdown, |_| true);
        groups.timer.stop();
        // Groups remove themselves from the list, so it must still exist.
        groups.works.flush();
        self.published = None;
    }
}

/// The timer's handler.
struct LgrTimer;

impl Job for LgrTimer {
    fn run(&self) -> Option<Jiffies> {
        let groups = GROUPS.get()?;
        let now = now();
        let list = groups.list.lock();
        groups.shrink(&list);
        let next = list
            .iter()
            .filter_map(|group| group.run_timer_if_due(now))
            .min()?;
        Some(jiffies(next.saturating_since(now)))
    }
}

/// At least one jiffy, to avoid a busy loop.
fn jiffies(delay: Duration) -> Jiffies {
    clock::jiffies(delay).max(1)
}

/// The list, as used by its groups.
pub(crate) struct Scheduler;

impl LgrScheduler for Scheduler {
    fn schedule_free_work(&self, group: Arc<LinkGroup>) {
        // Work already queued covers this one.
        GROUPS.with(|groups| {
            let _ = groups.works.enqueue::<Arc<LinkGroup>, 0>(group);
        });
    }

    fn schedule_link_work(&self, group: Arc<LinkGroup>) {
        GROUPS.with(|groups| {
            let _ = groups.works.enqueue::<Arc<LinkGroup>, LINK_WORK>(group);
        });
    }

    fn arm_timer(&self, delay: Duration) {
        GROUPS.with(|groups| groups.timer.run_within(jiffies(delay)));
    }
}

impl WorkItem for LinkGroup {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.terminating().is_none() {
            this.free_unused_rmbs();
        } else {
            terminate(&this);
        }
    }
}

/// Ends the groups for which `is_due` returns true; it must neither sleep nor call this module.
fn terminate_where(why: TerminateReason, is_due: impl Fn(&LinkGroup) -> bool) {
    if let Some(groups) = GROUPS.get() {
        let list = groups.list.lock();
        list.iter()
            .filter(|group| is_due(group))
            .for_each(|group| group.terminate_soon(why));
    }
}

/// Makes room for another group of the namespace `net` with a peer at that address, or returns why there may be none;
/// see [`add`].
/// Context: may sleep.
pub(crate) fn make_room(net: NetNsId, peer: IpAddr) -> Result<(), Failure> {
    let groups = GROUPS.get().ok_or(Reason::Internal)?;
    let list = groups.list.lock();
    let room = list.make_room(net, peer, groups.most);
    room.map_err(|cause| Failure::Declined(Reason::Memory, Some(cause)))
}

/// Adds a group with a peer at that address. It can be found once its link is active.
/// Context: may sleep.
///
/// # Errors
///
/// The result for the handshake if the limit of groups is reached.
pub(crate) fn add(group: &Arc<LinkGroup>, peer: IpAddr) -> Result<(), Failure> {
    let groups = GROUPS.get().ok_or(Reason::Internal)?;
    let mut list = groups.list.lock();
    // Others may have been added since room was made.
    let room = list.make_room(group.params.net, peer, groups.most);
    room.map_err(|cause| Failure::Declined(Reason::Memory, Some(cause)))?;
    let added = list.add(group.clone(), peer);
    Ok(added.map_err(|_| Reason::Memory)?)
}

/// Ends a group marked as terminating, unless another task does. It counts towards the limits until then.
/// Context: may sleep.
fn terminate(group: &Arc<LinkGroup>) {
    let Some(groups) = GROUPS.get() else {
        return;
    };
    let is_it = |place: &LgrEntry| Arc::ptr_eq(&place.group, group);
    let mut list = groups.list.lock();
    let place = list.groups.iter_mut().find(|place| is_it(place));
    let is_ours = place.is_some_and(|place| !mem::replace(&mut place.is_leaving, true));
    drop(list);
    if is_ours {
        group.terminate();
        groups.list.lock().groups.retain(|place| !is_it(place));
    }
}

/// Reserves a place in the oldest group that a new connection of the namespace `net` may use.
pub(crate) fn find(wanted: &LgrKey, net: NetNsId) -> Option<ConnReservation> {
    let groups = GROUPS.get()?;
    let list = groups.list.lock();
    let mut matching = list.iter().filter(|group| group.matches(wanted, net));
    matching.find_map(LinkGroup::reserve_conn)
}

/// Returns an active link from our port `gid` of a group that a connection between `ends` may join as client.
pub(crate) fn link_as_client(ends: &TcpEnds, gid: Gid) -> Option<(Arc<LinkGroup>, LinkRef)> {
    let groups = GROUPS.get()?;
    let list = groups.list.lock();
    let mut of_peer = list.iter().filter(|group| {
        let params = &group.params;
        params.role == Role::Client && ends.may_join(params.role, &params.ends)
    });
    of_peer.find_map(|group| {
        Some((
            group.clone(),
            group.find_active(|link| link.port().gid == gid)?,
        ))
    })
}

/// Returns true if a handshake names a link of a group that lives: see [`LinkGroup::is_named`].
/// Context: may sleep.
pub(crate) fn is_any_named(wanted: &LgrKey) -> bool {
    let mut is_any = false;
    for_each(|group| is_any |= group.is_named(wanted));
    is_any
}

/// Returns at most `max` groups from serial number `from` on, oldest first, except ending ones.
/// Context: may sleep.
pub(crate) fn list(from: u64, max: usize) -> Result<KVec<ListedLgr>> {
    let mut found = KVec::with_capacity(max, GFP_KERNEL)?;
    let Some(groups) = GROUPS.get() else {
        return Ok(found);
    };
    let list = groups.list.lock();
    let start = list.groups.partition_point(|listed| listed.serial < from);
    let rest = list.groups.get(start..).unwrap_or_default();
    let there = rest.iter().filter(|listed| !listed.is_leaving);
    let living = there.filter(|listed| listed.group.terminating().is_none());
    for listed in living.take(max) {
        let (serial, group) = (listed.serial, listed.group.clone());
        found.push(ListedLgr { serial, group }, GFP_KERNEL)?;
    }
    Ok(found)
}

/// Calls `f` for each group with the list locked; it must neither sleep nor call this module.
pub(crate) fn for_each(f: impl FnMut(&Arc<LinkGroup>)) {
    if let Some(groups) = GROUPS.get() {
        groups.list.lock().iter().for_each(f);
    }
}

/// Takes down the links on ports of `device` for which `is_gone`, called with the list locked, returns true.
/// Context: may sleep.
pub(crate) fn fail_links_on(device: &Arc<Device>, is_gone: impl Fn(&PortInfo) -> bool) {
    fail_links(LinkError::Port, |_, link| {
        link.is_on(device) && is_gone(link.port())
    });
}

/// Takes down links of other groups with the same peer queue pair as the first link of `new`, which works: the peer's
/// device was removed and re-added, with the same queue pair numbers. A handshake that names one of them would find the
/// wrong group.
/// Context: may sleep.
pub(crate) fn fail_replaced_links(new: &Arc<LinkGroup>) {
    let Some(end) = new.link(LinkIdx::FIRST).map(|link| link.end()) else {
        return;
    };
    fail_links(LinkError::Replaced, |group, link| {
        !Arc::ptr_eq(group, new)
            && group.params.is_same_peer(&new.params)
            && link.end().is_same_queue_pair(&end)
    });
}

/// Takes down the links for which `is_it`, called with the list locked, returns true.
/// Context: may sleep.
fn fail_links(why: LinkError, is_it: impl Fn(&Arc<LinkGroup>, &Link) -> bool) {
    let Some(groups) = GROUPS.get() else {
        return;
    };
    for group in groups.list.lock().iter() {
        for (idx, link) in group.links().present() {
            if is_it(group, link) {
                link.fail(why);
                group.delete_lost_link(idx);
            }
        }
    }
}

/// A port became active, or has other addresses: groups check whether to use it for another link.
/// Context: may sleep.
pub(crate) fn on_port() {
    if let Some(groups) = GROUPS.get() {
        let list = groups.list.lock();
        list.iter().for_each(|group| group.on_port());
    }
}
