// SPDX-License-Identifier: GPL-2.0

//! Serialises the creation of link groups with one peer; other handshakes wait for a place in the new group.

use kernel::sync::Arc;
use kernel_ext::{
    net::NetNsId,
    prelude::*, //
};
use smc_proto::{
    id::{
        Gid,
        PeerId, //
    },
    lgr::{
        find::LgrKey,
        TcpEnds, //
    }, //
};

use super::{
    find,
    GROUPS, //
};
use crate::{
    lgr::ConnReservation,
    turn::{
        Turn,
        TurnWait,
        Turns, //
    }, //
};

/// Serialises the creation of link groups with one peer (C: `smc_server_lgr_pending`, one mutex for all).
#[pin_data]
struct LgrPending {
    peer: PeerId,
    gid: Gid,
    /// A peer with a forged identifier delays only itself.
    ends: TcpEnds,
    /// To create a group.
    #[pin]
    turns: Turns,
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
            turns <- Turns::new(),
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

/// Result of a wait for the turn.
pub(crate) enum WaitResult<'a> {
    /// The caller creates a group.
    Turn(Turn<'a>),
    /// A place in a group that another handshake has created.
    Reserved(ConnReservation),
}

impl LgrPendingRef {
    /// Waits for the turn to create a group for a connection of the namespace `net`, or for a place in a
    /// group that another handshake creates. `None` if the wait is over before.
    /// Context: may sleep.
    pub(crate) fn enter(
        &self,
        (wanted, net): (&LgrKey, NetNsId),
        wait: &TurnWait<'_>,
    ) -> Option<WaitResult<'_>> {
        let mut reservation = None;
        let turn = self.0.turns.enter(wait, || {
            reservation = find(wanted, net);
            reservation.is_some()
        });
        match reservation {
            Some(reservation) => Some(WaitResult::Reserved(reservation)),
            None => turn.map(WaitResult::Turn),
        }
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
