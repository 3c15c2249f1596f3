// SPDX-License-Identifier: GPL-2.0

//! RMBs without a connection, which are freed after some time, or when memory is short. The peer is asked to delete
//! their keys first.

use kernel::sync::Arc;
use smc_proto::{
    llc::rkey::Deletion,
    time::Instant, //
};

use super::{
    Rmb,
    RmbPool, //
};

/// RMBs that are deleted together: as many as fit in one message to the peer.
pub(crate) type UnusedRmbs = [Option<Arc<Rmb>>; Deletion::MAX];

/// Of an RMB without a connection.
enum UnusedRmb {
    /// It was retired.
    Retired,
    /// It is unused since then.
    Kept(Instant),
}

impl Rmb {
    /// Returns true if no connection uses an element or ever will: the peer has no use for it on a further link.
    /// Context: does not sleep.
    pub(crate) fn is_useless(&self) -> bool {
        let used = self.used.lock();
        used.is_retired() && used.idle_since().is_some()
    }

    /// Retires the RMB if no connection uses an element, and `is_due`, called with the time since when, and whether
    /// it has quarantined elements or is retired already. `None` while a connection uses one.
    fn retire_if_unused(&self, is_due: impl FnOnce(Instant, bool) -> bool) -> Option<UnusedRmb> {
        let mut used = self.used.lock();
        let since = used.idle_since()?;
        Some(
            match is_due(since, used.quarantined() > 0 || used.is_retired()) {
                true => {
                    used.retire();
                    UnusedRmb::Retired
                }
                false => UnusedRmb::Kept(since),
            },
        )
    }
}

impl RmbPool {
    /// Retires unused RMBs: those unused since `since`, those with quarantined elements or retired before, and others
    /// for the rest of `shrink_target`, in bytes. Also returns the earliest time since which a remaining RMB is unused.
    /// They stay in the pool until [`RmbPool::remove`], as links that come and go concern them, too.
    /// Context: may sleep, but does not allocate.
    pub(crate) fn retire_unused(
        &self,
        since: Instant,
        shrink_target: &mut u64,
    ) -> (UnusedRmbs, Option<Instant>) {
        let mut gone = UnusedRmbs::default();
        let mut next: Option<Instant> = None;
        let rmbs = self.rmbs.lock();
        // Last one first: it is the largest, and the least useful for a few connections.
        for rmb in rmbs.iter().rev() {
            let place = gone.iter_mut().find(|place| place.is_none());
            let has_place = place.is_some();
            // No reason to wait for quarantined elements: they are not recovered otherwise.
            let is_due = |idle_since, is_useless| {
                has_place && (idle_since <= since || *shrink_target > 0 || is_useless)
            };
            match (rmb.retire_if_unused(is_due), place) {
                (Some(UnusedRmb::Retired), Some(place)) => {
                    *place = Some(rmb.clone());
                    *shrink_target = shrink_target.saturating_sub(rmb.bytes());
                }
                (Some(UnusedRmb::Kept(at)), _) => next = next.into_iter().chain([at]).min(),
                (Some(UnusedRmb::Retired) | None, _) => {}
            }
        }
        (gone, next)
    }

    /// Removes RMBs that were retired. If the peer may not have deleted their keys (`is_told` is false) those stay to
    /// whose elements it may write.
    /// Context: may sleep.
    pub(crate) fn remove(&self, gone: &UnusedRmbs, is_told: bool) {
        let is_gone = |rmb: &Arc<Rmb>| gone.iter().flatten().any(|gone| Arc::ptr_eq(rmb, gone));
        let mut rmbs = self.rmbs.lock();
        rmbs.retain(|rmb| !is_gone(rmb) || (!is_told && rmb.quarantined() > 0));
    }
}
