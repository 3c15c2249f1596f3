// SPDX-License-Identifier: GPL-2.0

//! Serialises the creation of link groups with one peer; other handshakes wait for a place in the new group.

use core::mem;

use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    time::Jiffies, //
};
use kernel_ext::{
    net::NetNsId,
    prelude::*,
    time, //
};
use smc_proto::{
    id::{
        Gid,
        PeerId, //
    },
    lgr::{
        find::LgrKey,
        TcpEnds, //
    },
    time::{
        Duration,
        Instant, //
    }, //
};

use super::{
    find,
    jiffies,
    GROUPS, //
};
use crate::{
    clock::now,
    lgr::ConnReservation, //
};

/// Serialises the creation of link groups with one peer (C: `smc_server_lgr_pending`, one mutex for all).
#[pin_data]
struct LgrPending {
    peer: PeerId,
    gid: Gid,
    /// A peer with a forged identifier delays only itself.
    ends: TcpEnds,
    /// A group is being created.
    #[pin]
    is_taken: Mutex<bool>,
    #[pin]
    freed: CondVar,
}

/// An entry of the list, and its number of users.
pub(super) struct PendingUse {
    pending: Arc<LgrPending>,
    users: usize,
}

/// A reference to a peer's entry, which is removed with the last one.
pub(crate) struct LgrPendingRef(Arc<LgrPending>);

/// Finds or creates the entry of the peer in `wanted`.
pub(crate) fn lgr_pending(wanted: &LgrKey) -> Result<LgrPendingRef> {
    let groups = GROUPS.get().ok_or(ENODEV)?;
    let mut all = groups.pending.lock();
    let (peer, gid, ends) = (wanted.peer, wanted.peer_gid, wanted.ends);
    let is_it =
        |pending: &LgrPending| pending.peer == peer && pending.gid == gid && pending.ends == ends;
    if let Some(found) = all.iter_mut().find(|used| is_it(&used.pending)) {
        found.users += 1;
        return Ok(LgrPendingRef(found.pending.clone()));
    }
    let pending = Arc::pin_init(
        pin_init!(LgrPending {
            peer,
            gid,
            ends,
            is_taken <- new_mutex!(false, "smc::LgrPending::is_taken"),
            freed <- new_condvar!("smc::LgrPending::freed"),
        }),
        GFP_KERNEL,
    )?;
    let place = PendingUse {
        pending: pending.clone(),
        users: 1,
    };
    all.push(place, GFP_KERNEL)?;
    Ok(LgrPendingRef(pending))
}

/// The right to create a group with a peer, until dropped.
pub(crate) struct Turn<'a>(&'a LgrPending);

/// Result of a wait for the turn.
pub(crate) enum WaitResult<'a> {
    /// The caller creates a group.
    Turn(Turn<'a>),
    /// A place in a group that another handshake has created.
    Reserved(ConnReservation),
}

impl LgrPendingRef {
    /// Waits for the turn to create a group for a connection of the namespace `net`, or for a place in a
    /// group that another handshake creates, until `end`. `None` on timeout, as handshakes of the same peer took too
    /// long, or if `is_cancelled` returns true.
    /// Context: may sleep.
    pub(crate) fn enter(
        &self,
        (wanted, net): (&LgrKey, NetNsId),
        end: Instant,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<WaitResult<'_>> {
        let pending = &*self.0;
        while !is_cancelled() {
            // A thousand tasks may wait here: each takes its place in a new group without the turn.
            if let Some(reservation) = find(wanted, net) {
                return Some(WaitResult::Reserved(reservation));
            }
            let mut is_taken = pending.is_taken.lock();
            if !mem::replace(&mut *is_taken, true) {
                drop(is_taken);
                let turn = Turn(pending);
                // A group may have been created since the check above.
                return Some(
                    find(wanted, net).map_or(WaitResult::Turn(turn), WaitResult::Reserved),
                );
            }
            let left = end.saturating_since(now());
            if left == Duration::ZERO {
                return None;
            }
            // Workers get no signals, so this is the task state while waiting for a peer.
            let tick = jiffies(left).min(LOOK_EVERY);
            let _ = pending
                .freed
                .wait_interruptible_timeout(&mut is_taken, tick);
        }
        None
    }
}

/// Interval at which waiters check their TCP connection, jiffies, unless it wakes them.
const LOOK_EVERY: Jiffies = time::HZ;

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock() = false;
        // Wakes all waiters: a new group is of use to each.
        self.0.freed.notify_all();
    }
}

impl Drop for LgrPendingRef {
    fn drop(&mut self) {
        let Some(groups) = GROUPS.get() else {
            return;
        };
        groups.pending.lock().retain(|place| {
            if Arc::ptr_eq(&place.pending, &self.0) {
                place.users -= 1;
            }
            place.users > 0
        });
    }
}
