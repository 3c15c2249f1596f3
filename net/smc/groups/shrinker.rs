// SPDX-License-Identifier: GPL-2.0

//! What the buffers that groups keep for connections to come are worth when memory is short.
//!
//! A send buffer goes at once. A region that the peer knows goes when the peer has been told, which the
//! group's own work does: whoever waits for memory waits for no peer.

use kernel::{
    page::PAGE_SIZE,
    sync::atomic::Relaxed, //
};
use kernel_ext::shrinker::Shrinker;

use super::{
    limits::GROUP_PAGES,
    Groups,
    Listing,
    GROUPS, //
};
use crate::rmb;

/// Objects are pages.
impl Shrinker for Groups {
    fn count(&self) -> usize {
        // Buffers come first; how many groups are idle is seen when they are asked for.
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
            // What there is now: more asked for would have what is unused later go, too.
            let rest = (wanted - freed).min(rmb::unused_bytes());
            self.demand.fetch_add(rest, Relaxed);
            self.timer.run_within(1);
        }
        pages(freed)
    }
}

/// The memory of sockets is short: has all that no connection uses go. Does not sleep.
pub(crate) fn relieve() {
    GROUPS.with(|groups| groups.scan(pages(rmb::unused_bytes())));
}

impl Groups {
    /// How many groups there are, if that can be said at once.
    fn count_groups(&self) -> usize {
        self.list.try_lock().map_or(0, |list| list.groups.len())
    }

    /// Frees idle send buffers of about `wanted` bytes; says how many bytes. Memory is allocated under
    /// the lock of the list, so there is no waiting for it here.
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

    /// Has groups let go of as many unused regions as were asked for. Does not sleep.
    pub(super) fn shrink(&self, list: &Listing) {
        let mut left = self.demand.xchg(0, Relaxed);
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
