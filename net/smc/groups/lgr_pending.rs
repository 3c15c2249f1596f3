// SPDX-License-Identifier: GPL-2.0

//! Handshakes with one peer create a link group one at a time; the others wait for a place in it.

use core::mem;

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    time::Jiffies, //
};
use kernel_ext::time;
use smc_proto::{
    id::{
        Gid,
        PeerId, //
    },
    lgr::{
        find::Wanted,
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

/// Serialises the creation of link groups with one peer (C: `smc_server_lgr_pending`, which is one mutex for all).
#[pin_data]
struct LgrPending {
    peer: PeerId,
    gid: Gid,
    /// Who says it is another peer waits for itself only.
    ends: TcpEnds,
    /// Somebody makes a group.
    #[pin]
    is_taken: Mutex<bool>,
    #[pin]
    freed: CondVar,
}

/// One in the list, and how many use it.
pub(super) struct PendingUse {
    pending: Arc<LgrPending>,
    users: usize,
}

/// A reference to that of a peer, which goes with the last one.
pub(crate) struct LgrPendingRef(Arc<LgrPending>);

/// Finds or makes that of the peer that `wanted` names.
pub(crate) fn lgr_pending(wanted: &Wanted) -> Result<LgrPendingRef> {
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

/// The turn to make a group with a peer, until it is dropped.
pub(crate) struct Turn<'a>(&'a LgrPending);

/// How a wait for the turn ended.
pub(crate) enum Entry<'a> {
    /// It has come: the caller makes a group.
    Turn(Turn<'a>),
    /// Somebody else has made one meanwhile: a place in it.
    Reserved(ConnReservation),
}

impl LgrPendingRef {
    /// Waits for the turn to make a group for a connection of the namespace at address `net`, until `end` at the
    /// latest, or for a place in a group that another handshake makes. `None` when neither came, as handshakes of
    /// the same peer took too long, or `is_vain` says so. May sleep.
    pub(crate) fn enter(
        &self,
        (wanted, net): (&Wanted, usize),
        end: Instant,
        is_vain: impl Fn() -> bool,
    ) -> Option<Entry<'_>> {
        let pending = &*self.0;
        while !is_vain() {
            // A thousand may wait here: of a group that was made each takes its place without the turn.
            if let Some(reservation) = find(wanted, net) {
                return Some(Entry::Reserved(reservation));
            }
            let mut is_taken = pending.is_taken.lock();
            if !mem::replace(&mut *is_taken, true) {
                drop(is_taken);
                let turn = Turn(pending);
                // One may have been made since the look above.
                return Some(find(wanted, net).map_or(Entry::Turn(turn), Entry::Reserved));
            }
            let left = end.saturating_since(now());
            if left == Duration::ZERO {
                return None;
            }
            // Workers get no signals, so that this is the state of a task that waits for a peer.
            let tick = jiffies(left).min(LOOK_EVERY);
            let _ = pending
                .freed
                .wait_interruptible_timeout(&mut is_taken, tick);
        }
        None
    }
}

/// Time between two looks of who waits for a turn at its TCP connection, jiffies, if that does not wake it.
const LOOK_EVERY: Jiffies = time::HZ;

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock() = false;
        // All of them: if a group was made it is of use to each.
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
