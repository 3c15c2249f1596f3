// SPDX-License-Identifier: GPL-2.0

//! Limits on the number of link groups: each has a queue pair, receives and tables, and outlives its connections by
//! minutes, and any host that can connect can cause one to be created.

use core::net::IpAddr;

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
use kernel_ext::{
    ib::Device,
    net::{
        memory,
        NetNsId, //
    },
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    lgr::TerminateReason,
    time::Instant, //
};

use super::{
    Groups,
    LgrList,
    GROUPS, //
};
use crate::{
    clock::now,
    lgr::LinkGroup, //
};

/// Groups of a namespace with one address, which may be another host elsewhere: enough for a thousand connections with
/// a peer that allows sixteen in a group, the minimum.
const OF_PEER: usize = 64;

/// Memory of the host per group, in all. A group uses some 100 KiB.
const MEMORY_FOR_ONE: usize = 4 << 20;

/// Ending groups may exceed the limits by one part in so many: their peers may take seconds to answer.
const ENDING_DIVISOR: usize = 4;

/// Estimate of the memory freed by the end of a group, pages.
pub(super) const GROUP_PAGES: usize = (100 << 10) / PAGE_SIZE;

/// For lack of memory a group without connections may be ended after one part in so many of its idle time: most idle
/// groups are used again soon.
const IDLE_DIVISOR: u32 = 20;

/// Returns the maximum number of groups.
pub(super) fn most() -> usize {
    (memory::machine_pages() / (MEMORY_FOR_ONE / PAGE_SIZE)).max(OF_PEER)
}

/// Number of groups of some kind.
#[derive(Default)]
struct Count {
    all: usize,
    /// Those that are not ending.
    living: usize,
}

impl LgrList {
    /// Makes room for a group of the namespace `net` with a peer at that address: at the limit, ends the group that has
    /// been without connections longest.
    ///
    /// # Errors
    ///
    /// The limit that was reached, if no group is without connections.
    pub(super) fn make_room(&self, net: NetNsId, peer: IpAddr, most: usize) -> Result<(), Cause> {
        let is_peer = |other: IpAddr, group: &LinkGroup| other == peer && group.params.net == net;
        let (mut all, mut of_peer) = (Count::default(), Count::default());
        for listed in &self.groups {
            let is_living = usize::from(listed.group.terminating().is_none());
            all.all += 1;
            all.living += is_living;
            if is_peer(listed.peer, &listed.group) {
                of_peer.all += 1;
                of_peer.living += is_living;
            }
        }
        let limits = [
            (of_peer, OF_PEER, false, Cause::PeerGroups),
            (all, most, true, Cause::AllGroups),
        ];
        for (count, limit, is_any, cause) in limits {
            let is_meant = |other, group: &LinkGroup| is_any || is_peer(other, group);
            let has_room = count.living < limit || self.terminate_idlest(now(), is_meant);
            if !has_room || count.all >= limit + limit / ENDING_DIVISOR {
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Ends the selected group that has been without connections longest, at least since `since`; returns whether there
    /// is one.
    /// Context: does not sleep.
    pub(super) fn terminate_idlest(
        &self,
        since: Instant,
        is_meant: impl Fn(IpAddr, &LinkGroup) -> bool,
    ) -> bool {
        let listed = self.groups.iter();
        let meant = listed.filter(|listed| is_meant(listed.peer, &listed.group));
        let idle = meant.filter_map(|listed| Some((listed.group.idle_since()?, &listed.group)));
        let idlest = idle.min_by_key(|(at, _)| *at);
        idlest.is_some_and(|(_, group)| group.terminate_if_idle(TerminateReason::Idle, since))
    }
}

impl Groups {
    /// Ends groups that have long been without connections, for about `pages`, when memory is short. Neither sleeps nor
    /// waits for the lock of the list.
    pub(super) fn terminate_idle(&self, pages: usize) {
        let Some(list) = self.list.try_lock() else {
            return;
        };
        let now = now();
        let mut left = pages.div_ceil(GROUP_PAGES);
        for group in list.iter() {
            if left == 0 {
                break;
            }
            let since = now.saturating_sub(group.params.times.idle.div(IDLE_DIVISOR));
            if group.terminate_if_idle(TerminateReason::Idle, since) {
                left -= 1;
            }
        }
    }
}

/// Ends the group that has been without connections longest among those that use a queue pair of the device, which has
/// none left.
/// Context: may sleep.
pub(crate) fn spare_queue_pair(device: &Arc<Device>) {
    if let Some(groups) = GROUPS.get() {
        let is_on = |group: &LinkGroup| {
            let links = group.links();
            links.iter().flatten().any(|link| link.is_on(device))
        };
        groups
            .list
            .lock()
            .terminate_idlest(now(), |_, group| is_on(group));
    }
}
