// SPDX-License-Identifier: GPL-2.0

//! The connections of a link group: who is in it, who is about to be, and who waits to send.
//!
//! The server decides whether a group has room for one more, and several handshakes run at a time: a
//! place is taken when the group is chosen, and is a [`ConnReservation`] until the connection joins.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};
use smc_proto::{
    conn::Cdc,
    id::AlertToken,
    lgr::{
        balance::Loads,
        Role,
        LINK_SLOTS, //
    },
    time::Instant,
    wire::clc::Limits, //
};

use super::LinkGroup;
use crate::clock::now;

/// A connection, as its link group sees it. The methods do not sleep, but for two.
pub(crate) trait LgrConn: Send + Sync {
    /// A CDC message was received on the link in `slot`.
    fn on_cdc(self: Arc<Self>, slot: usize, cdc: &Cdc);
    /// The completion queues of all links are about to be emptied.
    fn before_rx_flush(self: Arc<Self>);
    /// They were.
    fn after_rx_flush(self: Arc<Self>);
    /// A send slot is free again.
    fn on_slot(self: Arc<Self>);
    /// The link in `slot` is gone, its queue pair in the error state: the connection uses another one.
    /// May sleep.
    fn fail_over_from(self: Arc<Self>, slot: usize);
    /// Other links have fewer connections than the one in `slot`: if that carries the connection, it uses
    /// another one that `can_carry` it. Says whether it does, or will soon. May sleep.
    fn rebalance_from(self: Arc<Self>, slot: usize, can_carry: &dyn Fn(usize) -> bool) -> bool;
    /// The peer answered what [`LinkGroup::want_echo`] had asked.
    fn on_echo(self: Arc<Self>);
    /// The peer deleted keys of its buffers.
    fn on_rows_gone(self: Arc<Self>);
    /// Runs the timers of an orphan, or of a connection that waits for data after the peer's close. Returns the next
    /// deadline.
    fn on_timer(self: Arc<Self>, now: Instant) -> Option<Instant>;
    /// The group ends: the connection is aborted, and its peer told while the link still works.
    fn on_group_end(self: Arc<Self>);
    /// The link was shut down: the connection leaves, and lets go of all that belongs to the device.
    fn on_link_gone(self: Arc<Self>);
}

/// A connection and the slot of its link.
struct Entry {
    conn: Arc<dyn LgrConn>,
    slot: usize,
}

/// What the lock of the group guards of its connections.
pub(super) struct ConnTable {
    conns: RBTree<u32, Entry>,
    /// Connections on each link, by slot.
    loads: [usize; LINK_SLOTS],
    /// Places taken, by connections and by reservations.
    taken: usize,
    limit: usize,
    /// Connections that wait for a send slot, with the link's slot, oldest first. There is room for all,
    /// and each is there at most once, so it does not allocate.
    waiting: KVec<(AlertToken, usize)>,
    /// Nobody may join.
    closed: bool,
    /// When the last place became free.
    idle_since: Instant,
}

impl ConnTable {
    /// No connection yet.
    pub(super) fn new(role: Role, limits: Limits) -> Result<Self> {
        let max = usize::from(limits.max_conns);
        let limit = match role {
            Role::Server => max,
            // The server counts. It may have seen the end of connections that are still here, but
            // not of that many.
            Role::Client => 2 * max,
        };
        Ok(Self {
            conns: RBTree::new(),
            loads: [0; LINK_SLOTS],
            taken: 0,
            limit,
            waiting: KVec::with_capacity(limit, GFP_KERNEL)?,
            closed: false,
            idle_since: now(),
        })
    }

    /// Whether there is a place for one more.
    pub(super) fn has_room(&self) -> bool {
        !self.closed && self.taken < self.limit
    }

    /// The most places.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Places taken.
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Nobody joins any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether nobody may join any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Since when there has been no connection; `None` while there is one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.taken == 0).then_some(self.idle_since)
    }

    fn vacate(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        self.idle_since = now();
    }

    /// Whether a connection has this token.
    pub(super) fn has(&self, token: AlertToken) -> bool {
        self.conns.get(&token.0).is_some()
    }

    /// The connection with this token.
    pub(super) fn find(&self, token: AlertToken) -> Option<Arc<dyn LgrConn>> {
        Some(self.conns.get(&token.0)?.conn.clone())
    }

    /// The connection with the next higher token.
    pub(super) fn after(&self, token: AlertToken) -> Option<(AlertToken, Arc<dyn LgrConn>)> {
        let cursor = self.conns.cursor_lower_bound(&token.0.checked_add(1)?)?;
        let (next, entry) = cursor.current();
        Some((AlertToken(*next), entry.conn.clone()))
    }

    /// Takes a connection out; what is returned is to be dropped without the lock.
    pub(super) fn remove(&mut self, token: AlertToken) -> Option<impl Sized> {
        let entry = self.conns.remove(&token.0)?;
        self.load(entry.slot, -1);
        self.vacate();
        self.waiting.retain(|(t, _)| *t != token);
        Some(entry.conn)
    }

    /// Has a connection wait for a send slot of the link in `slot`.
    pub(super) fn wait(&mut self, token: AlertToken, slot: usize) {
        if !self.has(token) {
            return;
        }
        // One that changed its link keeps its place.
        match self.waiting.iter_mut().find(|(t, _)| *t == token) {
            Some((_, waits_for)) => *waits_for = slot,
            None => {
                let _ = self.waiting.push_within_capacity((token, slot));
            }
        }
    }

    /// A connection does not wait any more.
    pub(super) fn stop_waiting(&mut self, token: AlertToken) {
        self.waiting.retain(|(t, _)| *t != token);
    }

    /// Connections on each link.
    pub(super) fn loads(&self) -> &[usize; LINK_SLOTS] {
        &self.loads
    }

    /// Connections on each of these links.
    pub(super) fn loads_of(&self, links: &[bool; LINK_SLOTS]) -> Loads {
        let mut loads = [None; LINK_SLOTS];
        let all = loads.iter_mut().zip(links).zip(self.loads);
        for ((place, is_meant), load) in all {
            *place = is_meant.then_some(load);
        }
        loads
    }

    /// A connection uses the link in `slot` from now on.
    pub(super) fn set_slot(&mut self, token: AlertToken, slot: usize) {
        let Some(entry) = self.conns.get_mut(&token.0) else {
            return;
        };
        let old = core::mem::replace(&mut entry.slot, slot);
        self.load(old, -1);
        self.load(slot, 1);
    }

    /// Corrects how many connections the link in `slot` has.
    fn load(&mut self, slot: usize, by: isize) {
        if let Some(load) = self.loads.get_mut(slot) {
            *load = load.saturating_add_signed(by);
        }
    }

    /// Whether somebody waits for a send slot, of whatever link.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether somebody waits for a send slot of the link in `slot`.
    pub(super) fn has_waiters_for(&self, slot: usize) -> bool {
        self.waiting.iter().any(|(_, s)| *s == slot)
    }

    /// Who has waited longest for the link in `slot`, and waits no more.
    pub(super) fn next_waiter(&mut self, slot: usize) -> Option<Arc<dyn LgrConn>> {
        let place = self.waiting.iter().position(|(_, s)| *s == slot)?;
        let (token, _) = self.waiting.remove(place).ok()?;
        self.find(token)
    }
}

/// A place in a group for one connection; free again when dropped.
pub(crate) struct ConnReservation {
    group: Arc<LinkGroup>,
    /// Slot of the link that counts it.
    slot: Option<usize>,
    is_joined: bool,
}

impl ConnReservation {
    /// The group.
    pub(crate) fn group(&self) -> &Arc<LinkGroup> {
        &self.group
    }

    /// The link in `slot` has one connection more from now on: who joins next sees it.
    pub(super) fn count_on(&mut self, conns: &mut ConnTable, slot: usize) {
        self.slot = Some(slot);
        conns.load(slot, 1);
    }

    /// Gives the place to a connection on the link in `slot`, which has it until [`LinkGroup::leave`]. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENOLINK` when the group ended, `ENOMEM`.
    pub(crate) fn join(mut self, token: AlertToken, slot: usize, conn: Arc<dyn LgrConn>) -> Result {
        let node = RBTreeNode::new(token.0, Entry { conn, slot }, GFP_KERNEL)?;
        let mut table = self.group.table.lock();
        if table.conns.closed {
            return Err(ENOLINK);
        }
        let old = table.conns.conns.insert(node);
        table.conns.load(slot, 1);
        if let Some(counted) = self.slot {
            table.conns.load(counted, -1);
        }
        drop(table);
        // Two connections that drew the same token at the same time cannot be: the counter is
        // advanced by one exchange.
        debug_assert!(old.is_none());
        self.is_joined = true;
        Ok(())
    }
}

impl Drop for ConnReservation {
    fn drop(&mut self) {
        if !self.is_joined {
            let mut table = self.group.table.lock();
            table.conns.vacate();
            if let Some(slot) = self.slot {
                table.conns.load(slot, -1);
            }
            drop(table);
            self.group.arm_idle_timer();
        }
    }
}

impl LinkGroup {
    /// Takes a place for a connection, if there is one.
    pub(crate) fn reserve_conn(self: &Arc<Self>) -> Option<ConnReservation> {
        let mut table = self.table.lock();
        if !table.conns.has_room() {
            return None;
        }
        table.conns.taken += 1;
        drop(table);
        Some(ConnReservation {
            group: self.clone(),
            slot: None,
            is_joined: false,
        })
    }
}
