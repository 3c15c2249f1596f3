// SPDX-License-Identifier: GPL-2.0

//! The connections of a link group, its reservations, and the queue for send slots.
//!
//! The server decides whether a group has room for one more, and several handshakes run at a time: a place is taken
//! when the group is chosen, and is a [`ConnReservation`] until the connection joins.

use kernel::{
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};
use kernel_ext::prelude::*;
use smc_proto::{
    conn::Cdc,
    id::{
        AlertToken,
        ShortToken, //
    },
    lgr::{
        balance::Loads,
        LinkIdx,
        LinkMap,
        Role, //
    },
    time::Instant,
    wire::clc::Limits, //
};

use super::LinkGroup;
use crate::clock::now;

/// Interface of a connection to its link group. The methods do not sleep, except for two.
pub(crate) trait LgrConn: Send + Sync {
    /// A CDC message was received on link `idx`.
    fn on_cdc(self: Arc<Self>, idx: LinkIdx, cdc: &Cdc);
    /// Immediate data arrived on link `idx`: message `seq`, and the bytes of the write.
    fn on_immediate(self: Arc<Self>, idx: LinkIdx, seq: u16, len: u32);
    /// The CQs of all links are about to be flushed.
    fn before_rx_flush(self: Arc<Self>);
    /// The CQs of all links were flushed.
    fn after_rx_flush(self: Arc<Self>);
    /// A send slot is free again.
    fn on_slot(self: Arc<Self>);
    /// Moves the connection away from link `idx`, which failed and whose QP is in the error state. While other links
    /// cannot have its send buffer mapped that is tried again until `deadline`.
    /// Context: may sleep.
    fn fail_over_from(self: Arc<Self>, idx: LinkIdx, deadline: Instant);
    /// Moves the connection from link `idx`, if it uses that, to another one that `can_carry` it, to balance the load.
    /// It does so now or soon.
    /// Context: may sleep.
    fn rebalance_from(self: Arc<Self>, idx: LinkIdx, can_carry: &dyn Fn(LinkIdx) -> bool);
    /// The peer answered the request of [`LinkGroup::want_echo`].
    fn on_echo(self: Arc<Self>);
    /// The peer deleted RKeys of its RMBs.
    fn on_rkeys_deleted(self: Arc<Self>);
    /// The peer has taken the keys of another RMB of ours.
    fn on_rmb_announced(self: Arc<Self>);
    /// Runs the timers of the connection, which are listed in `conn/events.rs`. Returns the next deadline.
    fn on_timer(self: Arc<Self>, now: Instant) -> Option<Instant>;
    /// The group ends: aborts the connection, and notifies its peer while the link still works.
    fn on_group_end(self: Arc<Self>);
    /// No link is left for the connection: it leaves the group and releases all resources of the device.
    fn release_all(self: Arc<Self>);
}

/// A connection and the index of its link.
struct ConnEntry {
    token: AlertToken,
    conn: Arc<dyn LgrConn>,
    idx: LinkIdx,
}

/// The connections of a group, guarded by its lock.
pub(super) struct ConnTable {
    /// By the short form of their tokens.
    conns: RBTree<u16, ConnEntry>,
    /// Connections on each link, by index.
    loads: LinkMap<usize>,
    /// Number of connections and reservations.
    taken: usize,
    limit: usize,
    /// Connections that wait for a send slot, with the link's index, oldest first. There is room for all, and each is
    /// there at most once, so it does not allocate.
    waiting: KVec<(AlertToken, LinkIdx)>,
    /// No connection may join.
    closed: bool,
    /// When the last connection or reservation ended.
    idle_since: Instant,
}

impl ConnTable {
    /// Creates an empty table.
    pub(super) fn new(role: Role, limits: Limits) -> Result<Self> {
        let max = usize::from(limits.max_conns);
        let limit = match role {
            Role::Server => max,
            // The server enforces the limit. It may have freed connections that still exist here, but not that many.
            Role::Client => 2 * max,
        };
        Ok(Self {
            conns: RBTree::new(),
            loads: LinkMap::default(),
            taken: 0,
            limit,
            waiting: KVec::with_capacity(limit, GFP_KERNEL)?,
            closed: false,
            idle_since: now(),
        })
    }

    /// Returns whether there is room for one more connection.
    pub(super) fn has_room(&self) -> bool {
        !self.closed && self.taken < self.limit
    }

    /// Returns the limit of connections and reservations.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of connections and reservations.
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Lets no more connections join.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether no connection may join any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns since when there has been no connection; `None` if there is one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.taken == 0).then_some(self.idle_since)
    }

    fn vacate(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        self.idle_since = now();
    }

    /// Returns the entry of the connection with this token.
    fn entry(&self, token: AlertToken) -> Option<&ConnEntry> {
        let entry = self.conns.get(&token.short().0)?;
        (entry.token == token).then_some(entry)
    }

    /// Returns whether a connection has this token.
    pub(super) fn has(&self, token: AlertToken) -> bool {
        self.entry(token).is_some()
    }

    /// Returns whether a connection has this token, or one of the same short form.
    pub(super) fn has_short(&self, token: AlertToken) -> bool {
        self.conns.get(&token.short().0).is_some()
    }

    /// Returns the connection with this token.
    pub(super) fn find(&self, token: AlertToken) -> Option<Arc<dyn LgrConn>> {
        Some(self.entry(token)?.conn.clone())
    }

    /// Returns the connection whose token has this short form.
    pub(super) fn find_short(&self, token: ShortToken) -> Option<Arc<dyn LgrConn>> {
        Some(self.conns.get(&token.0)?.conn.clone())
    }

    /// Returns the first connection; with `last`, the next one after that with this token.
    pub(super) fn after(&self, last: Option<ShortToken>) -> Option<(ShortToken, Arc<dyn LgrConn>)> {
        let from = last.map_or(Some(0), |last| last.0.checked_add(1))?;
        let cursor = self.conns.cursor_lower_bound(&from)?;
        let (next, entry) = cursor.current();
        Some((ShortToken(*next), entry.conn.clone()))
    }

    /// Removes a connection; the caller drops the result without the lock.
    pub(super) fn remove(&mut self, token: AlertToken) -> Option<impl Sized> {
        self.entry(token)?;
        let entry = self.conns.remove(&token.short().0)?;
        self.load(entry.idx, -1);
        self.vacate();
        self.waiting.retain(|(t, _)| *t != token);
        Some(entry.conn)
    }

    /// Queues a connection for a send slot of link `idx`.
    pub(super) fn wait(&mut self, token: AlertToken, idx: LinkIdx) {
        if !self.has(token) {
            return;
        }
        // After a change of its link a connection keeps its place.
        match self.waiting.iter_mut().find(|(t, _)| *t == token) {
            Some((_, waits_for)) => *waits_for = idx,
            None => {
                let _ = self.waiting.push_within_capacity((token, idx));
            }
        }
    }

    /// Removes a connection from the queue for send slots.
    pub(super) fn stop_waiting(&mut self, token: AlertToken) {
        self.waiting.retain(|(t, _)| *t != token);
    }

    /// Returns the number of connections on each link.
    pub(super) fn loads(&self) -> &LinkMap<usize> {
        &self.loads
    }

    /// Returns the number of connections on each of these links.
    pub(super) fn loads_of(&self, links: &LinkMap<bool>) -> Loads {
        LinkMap(LinkIdx::ALL.map(|idx| links[idx].then_some(self.loads[idx])))
    }

    /// Counts a connection on link `idx` from now on, instead of its old one.
    pub(super) fn set_link(&mut self, token: AlertToken, idx: LinkIdx) {
        let entry = self.conns.get_mut(&token.short().0);
        let Some(entry) = entry.filter(|entry| entry.token == token) else {
            return;
        };
        let old = core::mem::replace(&mut entry.idx, idx);
        self.load(old, -1);
        self.load(idx, 1);
    }

    /// Adds `by` to the number of connections on link `idx`.
    fn load(&mut self, idx: LinkIdx, by: isize) {
        self.loads[idx] = self.loads[idx].saturating_add_signed(by);
    }

    /// Returns whether a connection waits for a send slot of any link.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether a connection waits for a send slot of link `idx`.
    pub(super) fn has_waiters_for(&self, idx: LinkIdx) -> bool {
        self.waiting.iter().any(|(_, at)| *at == idx)
    }

    /// Takes the connection that has waited longest for link `idx` out of the queue.
    pub(super) fn next_waiter(&mut self, idx: LinkIdx) -> Option<Arc<dyn LgrConn>> {
        let place = self.waiting.iter().position(|(_, at)| *at == idx)?;
        let (token, _) = self.waiting.remove(place).ok()?;
        self.find(token)
    }
}

/// A place in a group for one connection; released when dropped.
pub(crate) struct ConnReservation {
    group: Arc<LinkGroup>,
    /// Index of the link on which it is counted.
    idx: Option<LinkIdx>,
    is_joined: bool,
}

impl ConnReservation {
    /// Returns the group.
    pub(crate) fn group(&self) -> &Arc<LinkGroup> {
        &self.group
    }

    /// Counts the reservation on link `idx`, so that later choices of a link include it.
    pub(super) fn account_conn(&mut self, conns: &mut ConnTable, idx: LinkIdx) {
        self.idx = Some(idx);
        conns.load(idx, 1);
    }

    /// Turns the reservation into a connection on link `idx`, until [`LinkGroup::leave`].
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOLINK` if the group ended, `EEXIST` if another connection got a token of the same short form meanwhile (after
    /// 65,536 others), `ENOMEM`.
    pub(crate) fn join(
        mut self,
        token: AlertToken,
        idx: LinkIdx,
        conn: Arc<dyn LgrConn>,
    ) -> Result {
        let entry = ConnEntry { token, conn, idx };
        let node = RBTreeNode::new(token.short().0, entry, GFP_KERNEL)?;
        let mut inner = self.group.inner.lock();
        if inner.conns.closed {
            return Err(ENOLINK);
        }
        if inner.conns.has_short(token) {
            return Err(EEXIST);
        }
        // Replaces none.
        inner.conns.conns.insert(node);
        inner.conns.load(idx, 1);
        if let Some(counted) = self.idx {
            inner.conns.load(counted, -1);
        }
        drop(inner);
        self.is_joined = true;
        Ok(())
    }
}

impl Drop for ConnReservation {
    fn drop(&mut self) {
        if !self.is_joined {
            let mut inner = self.group.inner.lock();
            inner.conns.vacate();
            if let Some(idx) = self.idx {
                inner.conns.load(idx, -1);
            }
            drop(inner);
            self.group.arm_idle_timer();
        }
    }
}

impl LinkGroup {
    /// Reserves a place for a connection, if there is one.
    pub(crate) fn reserve_conn(self: &Arc<Self>) -> Option<ConnReservation> {
        let mut inner = self.inner.lock();
        if !inner.conns.has_room() {
            return None;
        }
        inner.conns.taken += 1;
        drop(inner);
        Some(ConnReservation {
            group: self.clone(),
            idx: None,
            is_joined: false,
        })
    }
}
