// SPDX-License-Identifier: GPL-2.0

//! How long a link group lives: who may join it, and how it ends (RFC 7609 section 4.4.1).

use core::cell::Cell;

use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::{
    net::memory,
    time, //
};
use smc_proto::{
    id::AlertToken,
    lgr::{
        find::{
            Candidate,
            Wanted, //
        },
        End,
        Rtokens, //
    },
    time::{
        Duration,
        Instant, //
    }, //
};

use super::{
    LgrConn,
    LinkGroup, //
};
use crate::clock::now;

/// The longest time that the end of a group waits for its last messages to leave.
const DRAIN: Duration = Duration::from_secs(2);

/// A group at which nobody has to look.
pub(super) const NEVER: u64 = u64::MAX;

/// The longest time that an unused region is kept while the memory of sockets is short: as long as it may take
/// until whoever has closed a connection lets go of its element.
const KEPT_WHILE_SHORT: Duration = Duration::from_secs(1);

/// How long a region stays whose elements are all unused, some of them in quarantine.
const QUARANTINED: Duration = Duration::from_secs(1);

impl LinkGroup {
    /// Whether a new connection of the namespace at address `net` may use the group; see
    /// [`Candidate::matches`].
    pub(crate) fn matches(&self, wanted: &Wanted, net: usize) -> bool {
        // What costs nothing to compare comes first: there may be many groups.
        let params = &self.params;
        let is_it = params.role == wanted.role()
            && params.peer == wanted.peer
            && params.vlan == wanted.vlan
            && wanted.ends.may_join(params.role, &params.ends);
        if !is_it {
            return false;
        }
        let mut table = self.table.lock();
        if table.end.is_some() {
            return false;
        }
        let has_row = !Rtokens::new(&mut table.rtokens).is_full();
        let has_room = table.conns.has_room() && has_row && self.rmbs.has_room();
        drop(table);
        Candidate {
            role: self.params.role,
            peer: self.params.peer,
            vlan: self.params.vlan,
            ends: self.params.ends,
            has_room,
            links: &self.ends(net),
        }
        .matches(wanted)
    }

    /// The group ends: no connection joins any more, and what else there is to do is done by its
    /// scheduler. Only the first reason counts. Does not sleep.
    pub(crate) fn terminate_soon(self: &Arc<Self>, why: End) {
        if self.mark_terminating(why) {
            self.scheduler.schedule_free_work(self.clone());
        }
    }

    /// No connection joins any more; says whether that is new. Does not sleep.
    pub(crate) fn mark_terminating(&self, why: End) -> bool {
        let mut table = self.table.lock();
        let is_first = table.end.is_none();
        table.end.get_or_insert(why);
        table.conns.close();
        // Whoever waits for the last message to leave is to be told.
        self.links().iter().flatten().for_each(|link| {
            link.want_slot(true);
            link.expect_peer_teardown();
        });
        is_first
    }

    /// Why the group ends, if it does.
    pub(crate) fn terminating(&self) -> Option<End> {
        self.table.lock().end
    }

    /// When the group has been without connections for its idle time, if it has none now.
    pub(crate) fn idle_end(&self) -> Option<Instant> {
        let since = self.table.lock().conns.idle_since()?;
        let times = &self.params.times;
        let holds_netns = self.links().iter().flatten().any(|link| link.holds_netns());
        Some(since.saturating_add(match holds_netns {
            true => times.idle_holding_netns,
            false => times.idle,
        }))
    }

    /// Since when the group has had no connection, if it has none now and is not ending.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let table = self.table.lock();
        match table.end {
            None => table.conns.idle_since(),
            Some(_) => None,
        }
    }

    /// The group ends if it has had no connection since `since` or longer; says whether it does. Does not sleep.
    pub(crate) fn terminate_if_idle(self: &Arc<Self>, why: End, since: Instant) -> bool {
        let mut table = self.table.lock();
        let idle_since = table.conns.idle_since().filter(|_| table.end.is_none());
        if idle_since.is_none_or(|at| at > since) {
            return false;
        }
        // Nobody gets a reservation any more.
        table.conns.close();
        drop(table);
        self.terminate_soon(why);
        true
    }

    /// Has the scheduler look at the group again, no later than at `at`.
    pub(crate) fn arm_timer_at(&self, at: Instant) {
        self.due_by(at);
        self.scheduler.arm_timer(at.saturating_since(now()));
    }

    fn due_by(&self, at: Instant) {
        let at = at.as_nanos();
        let mut due = self.due.load(Relaxed);
        while at < due {
            match self.due.cmpxchg(due, at, Full) {
                Ok(_) => return,
                Err(other) => due = other,
            }
        }
    }

    /// Looks at the group if that is due at `now`, which costs next to nothing if it is not: the scheduler asks all
    /// groups when one is due. Says when it is due again.
    pub(crate) fn run_timer_if_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        if self.due.load(Relaxed) <= now.as_nanos() {
            // Before the look: who comes from now on is not served by it.
            self.due.xchg(NEVER, Full);
            if let Some(next) = self.on_timer(now) {
                self.due_by(next);
            }
        }
        match self.due.load(Relaxed) {
            NEVER => None,
            due => Some(Instant::from_nanos(due)),
        }
    }

    /// If there is no connection, has the scheduler look when that has been so for long.
    pub(super) fn arm_idle_timer(&self) {
        if let Some(at) = self.idle_end() {
            self.arm_timer_at(at);
        }
    }

    /// How long a region is kept that no connection uses.
    pub(crate) fn keeps_unused(&self) -> Duration {
        let usual = self.params.times.unused;
        match memory::is_short() {
            true => usual.min(KEPT_WHILE_SHORT),
            false => usual,
        }
    }

    /// Has unused regions looked for at `at`, unless they are to be earlier.
    pub(crate) fn trim_by(&self, at: Instant) {
        let mut table = self.table.lock();
        if table.trim_at.is_none_or(|earlier| at < earlier) {
            table.trim_at = Some(at);
            drop(table);
            self.arm_timer_at(at);
        }
    }

    /// When unused regions are to be looked for. If that is due at `now`, it is done.
    pub(crate) fn trim_if_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let at = self.table.lock().trim_at?;
        if !at.is_due(now) {
            return Some(at);
        }
        self.table.lock().trim_at = None;
        self.scheduler.schedule_free_work(self.clone());
        None
    }

    /// A connection waits for its peer, for nothing to come of it, or for more to send: has it looked at after `delay` at the latest.
    pub(crate) fn arm_closing_timer(&self, delay: Duration) {
        let at = now().saturating_add(delay);
        let mut table = self.table.lock();
        if table.closing_at.is_none_or(|earlier| at < earlier) {
            table.closing_at = Some(at);
            drop(table);
            self.arm_timer_at(at);
        }
    }

    /// When to look at such connections. If that is due at `now`, it is done.
    pub(crate) fn on_closing_timer(&self, now: Instant) -> Option<Instant> {
        let at = self.table.lock().closing_at?;
        if !at.is_due(now) {
            return Some(at);
        }
        self.table.lock().closing_at = None;
        let next = Cell::new(None::<Instant>);
        self.for_each(|member| {
            let times = next.get().into_iter().chain(member.on_timer(now));
            next.set(times.min());
        });
        let mut table = self.table.lock();
        table.closing_at = table.closing_at.into_iter().chain(next.get()).min();
        table.closing_at
    }

    /// The peer deleted keys of its buffers: connections that wait for it look at theirs. Does not sleep.
    pub(crate) fn look_at_rows(&self) {
        if self.table.lock().closing_at.is_some() {
            self.for_each(|member| member.on_rows_gone());
        }
    }

    /// A connection left that the peer would not end, and its element is in quarantine: the region goes soon, or the
    /// group does if it has no other connection. Does not sleep.
    pub(crate) fn on_abandoned(self: &Arc<Self>) {
        if self.len() == 0 {
            return self.terminate_soon(End::Idle);
        }
        self.trim_by(now().saturating_add(QUARANTINED));
    }

    /// Memory is short: has unused regions go, of about so many bytes; says how many bytes there are, at
    /// most those. Does not sleep.
    pub(crate) fn shrink(self: &Arc<Self>, bytes: u64) -> u64 {
        let part = self.rmbs.demand(bytes);
        if part > 0 {
            self.scheduler.schedule_free_work(self.clone());
        }
        part
    }

    /// Calls `f` for all connections, without the lock.
    pub(crate) fn for_each(&self, f: impl Fn(Arc<dyn LgrConn>)) {
        let mut last = AlertToken(0);
        loop {
            let next = self.table.lock().conns.after(last);
            let Some((token, member)) = next else {
                return;
            };
            last = token;
            f(member);
        }
    }

    /// Waits until all messages have left, so that the peer hears of the end, and says whether they
    /// have. In vain where a link is broken; and a peer that takes nothing is not waited for long.
    pub(crate) fn drain(&self) -> bool {
        let end = now().saturating_add(DRAIN);
        let mut table = self.table.lock();
        loop {
            let left = end.saturating_since(now());
            let links = self.links();
            let is_quiet = links.iter().flatten().all(|link| link.is_quiet());
            let is_up = links.iter().flatten().any(|link| link.is_up());
            let is_done = !table.conns.has_waiters() && is_quiet;
            if is_done || !is_up || left == Duration::ZERO {
                return is_done;
            }
            // A signal says nothing about the peer.
            let _ = self
                .llc_waiters
                .wait_interruptible_timeout(&mut table, time::jiffies(left.as_nanos()));
        }
    }
}
