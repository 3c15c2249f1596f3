// SPDX-License-Identifier: GPL-2.0

//! How many link groups there may be: each has a queue pair, receives and tables, and outlives its connections by
//! minutes, while whoever can connect can have one made.

use core::net::IpAddr;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    ib::Device,
    net::memory, //
};
use smc_proto::{
    cause::Cause,
    lgr::End,
    time::Instant, //
};

use super::{
    Groups,
    Listing,
    GROUPS, //
};
use crate::{
    clock::now,
    lgr::LinkGroup, //
};

/// Groups with one address: enough for a thousand connections with a peer that has sixteen in a group, which is the
/// least that it may.
const OF_PEER: usize = 64;

/// Memory of the machine for which there may be one group, in all. A group takes some 100 KiB.
const MEMORY_FOR_ONE: usize = 4 << 20;

/// A part of the limits by which groups may exceed them that are ending: their peers may take seconds to answer.
const ENDING: usize = 4;

/// Memory that the end of a group frees: an estimate, for who wants to have so many pages.
pub(super) const GROUP_PAGES: usize = (100 << 10) / PAGE_SIZE;

/// The part of its idle time for which a group has had no connection when it ends for lack of memory: most that
/// become idle are used again soon.
const IDLE_LONG: u64 = 20;

/// Groups in all.
pub(super) fn most() -> usize {
    (memory::machine_pages() / (MEMORY_FOR_ONE / PAGE_SIZE)).max(OF_PEER)
}

/// How many groups there are of some kind.
#[derive(Default)]
struct Count {
    all: usize,
    /// Those that are not ending.
    living: usize,
}

impl Listing {
    /// Makes room for a group with a peer at that address: where there are as many as may be, the one ends that
    /// has been without connections for longest.
    ///
    /// # Errors
    ///
    /// Which limit has been reached, where none is without connections.
    pub(super) fn make_room(&self, peer: IpAddr, most: usize) -> Result<(), Cause> {
        let (mut all, mut of_peer) = (Count::default(), Count::default());
        for listed in &self.groups {
            let is_living = usize::from(listed.group.terminating().is_none());
            all.all += 1;
            all.living += is_living;
            if listed.peer == peer {
                of_peer.all += 1;
                of_peer.living += is_living;
            }
        }
        let limits = [
            (of_peer, OF_PEER, Some(peer), Cause::PeerGroups),
            (all, most, None, Cause::AllGroups),
        ];
        for (count, limit, peer, cause) in limits {
            let is_meant = |other: IpAddr| peer.is_none_or(|peer| peer == other);
            let has_room =
                count.living < limit || self.terminate_idlest(now(), |peer, _| is_meant(peer));
            if !has_room || count.all >= limit + limit / ENDING {
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Ends the group that has been without connections for longest, since `since` at least, of those that are
    /// meant; says whether there is one. Does not sleep.
    pub(super) fn terminate_idlest(
        &self,
        since: Instant,
        is_meant: impl Fn(IpAddr, &LinkGroup) -> bool,
    ) -> bool {
        let listed = self.groups.iter();
        let meant = listed.filter(|listed| is_meant(listed.peer, &listed.group));
        let idle = meant.filter_map(|listed| Some((listed.group.idle_since()?, &listed.group)));
        let idlest = idle.min_by_key(|(at, _)| *at);
        idlest.is_some_and(|(_, group)| group.terminate_if_idle(End::Idle, since))
    }
}

impl Groups {
    /// Memory is short: ends groups that have had no connection for long, until they are worth so many pages. Does
    /// not sleep, nor wait for the lock of the list.
    pub(super) fn terminate_idle(&self, pages: usize) {
        let Some(list) = self.list.try_lock() else {
            return;
        };
        let now = now().as_nanos();
        let mut left = pages.div_ceil(GROUP_PAGES);
        for group in list.iter() {
            if left == 0 {
                break;
            }
            let long = group.params.times.idle.as_nanos() / IDLE_LONG;
            let since = Instant::from_nanos(now.saturating_sub(long));
            if group.terminate_if_idle(End::Idle, since) {
                left -= 1;
            }
        }
    }
}

/// A device has no queue pair left: ends the group that uses one and has been without connections for longest.
/// May sleep.
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
