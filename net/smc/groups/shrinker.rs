// SPDX-License-Identifier: GPL-2.0

//! Shrinker for buffers that groups keep for later connections.
//!
//! Send buffers are freed at once. An RMB that the peer knows is freed once the peer was notified, by the group's own
//! work: memory allocation does not wait for a peer.

use kernel::{
    page::PAGE_SIZE,
    sync::atomic::Relaxed, //
};
use kernel_ext::shrinker::Shrinker;

use super::{
    limits::GROUP_PAGES,
    Groups,
    LgrList,
    GROUPS, //
};
use crate::rmb;

/// Objects are pages.
impl Shrinker for Groups {
    fn count(&self) -> usize {
        // Buffers come first; the number of idle groups is determined in the scan.
        match pages(rmb::unused_bytes()) {
            0 => self.count_groups().saturating_mul(GROUP_PAGES),
            unused => unused,
        }
    }

    fn scan(&self, objects: usize) -> usize {
        let wanted = objects.saturating_mul(PAGE_SIZE) as u64;
        if rmb::unused_bytes() == 0 {
            self.terminate_idle(objects);
            return 0;
        }
        let freed = self.free_send_buffers(wanted);
        if freed < wanted {
            // Limited to the current amount: a larger demand would also free RMBs that become unused later.
            let rest = (wanted - freed).min(rmb::unused_bytes());
            self.shrink_target.fetch_add(rest, Relaxed);
            self.timer.run_within(1);
        }
        pages(freed)
    }
}

/// Frees unused send buffers and schedules unused RMBs to be freed, as the memory for sockets is short.
/// Context: does not sleep.
pub(crate) fn relieve() {
    GROUPS.with(|groups| groups.scan(pages(rmb::unused_bytes())));
}

impl Groups {
    /// Returns the number of groups, 0 if the list is locked.
    fn count_groups(&self) -> usize {
        self.list.try_lock().map_or(0, |list| list.groups.len())
    }

    /// Frees idle send buffers of about `wanted` bytes; returns the bytes freed. Memory is allocated under the lock of
    /// the list, so this does not wait for it.
    fn free_send_buffers(&self, wanted: u64) -> u64 {
        let Some(list) = self.list.try_lock() else {
            return 0;
        };
        let mut freed = 0u64;
        for group in list.iter() {
            if freed >= wanted {
                break;
            }
            freed = freed.saturating_add(group.sndbufs.shrink(wanted - freed));
        }
        freed
    }

    /// Schedules groups to free the demanded amount of unused RMBs.
    /// Context: does not sleep.
    pub(super) fn shrink(&self, list: &LgrList) {
        let mut left = self.shrink_target.xchg(0, Relaxed);
        for group in list.iter() {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(group.shrink(left));
        }
    }
}

fn pages(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE_SIZE
}
