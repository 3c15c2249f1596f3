// SPDX-License-Identifier: GPL-2.0

//! Lifetime of a link group: which connections may join, and how it ends (RFC 7609 section 4.4.1).

use core::cell::Cell;

use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::net::{
    memory,
    NetNsId, //
};
use smc_proto::{
    lgr::{
        find::{
            LgrKey,
            LgrView,
            LinkEnds, //
        },
        Rtokens,
        TerminateReason, //
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
use crate::{
    clock::{
        self,
        now, //
    },
    link::Link, //
};

/// The longest time that the end of a group waits until its last messages are sent.
const DRAIN: Duration = Duration::from_secs(2);

/// Value of `due` for a group with no timer.
pub(super) const NEVER: u64 = u64::MAX;

/// The longest time that an unused RMB is kept under socket memory pressure: as long as it may take until a closed
/// connection releases its RMBE.
const KEPT_WHILE_SHORT: Duration = Duration::from_secs(1);

/// How long an RMB is kept whose RMBEs are all unused, some of them in quarantine.
const QUARANTINED: Duration = Duration::from_secs(1);

impl LinkGroup {
    /// Returns whether a new connection of the namespace `net` may use the group; see
    /// [`LgrView::matches`].
    pub(crate) fn matches(&self, wanted: &LgrKey, net: NetNsId) -> bool {
        // Cheap comparisons come first: there may be many groups.
        let params = &self.params;
        let is_it = params.role == wanted.role()
            && params.peer == wanted.peer
            && params.vlan == wanted.vlan
            && wanted.ends.may_join(params.role, &params.ends);
        if !is_it {
            return false;
        }
        let mut inner = self.inner.lock();
        if inner.end.is_some() {
            return false;
        }
        let has_row = !Rtokens::new(&mut inner.rtokens).is_full();
        let has_room = inner.conns.has_room() && has_row && self.rmbs.has_room();
        drop(inner);
        self.view(&self.ends(net), has_room).matches(wanted)
    }

    /// Returns whether a server names the group, which lives, though the connection may be unable to use it; see
    /// [`LgrView::is_named`].
    /// Context: does not sleep.
    pub(crate) fn is_named(&self, wanted: &LgrKey) -> bool {
        if self.terminating().is_some() {
            return false;
        }
        // The former links after those that there are: one that goes meanwhile is among either.
        let links = self.ends(self.params.net);
        let former = self.former_links();
        self.view(&links, true).is_named(&former, wanted, now())
    }

    fn view<'a>(&self, links: &'a LinkEnds, has_room: bool) -> LgrView<'a> {
        LgrView {
            role: self.params.role,
            peer: self.params.peer,
            vlan: self.params.vlan,
            ends: self.params.ends,
            has_room,
            links,
        }
    }

    /// Starts the end of the group: no connection joins any more, and the scheduler runs the rest. Only the first
    /// reason counts.
    /// Context: does not sleep.
    pub(crate) fn terminate_soon(self: &Arc<Self>, why: TerminateReason) {
        if self.mark_terminating(why) {
            self.scheduler.schedule_free_work(self.clone());
        }
    }

    /// Lets no more connections join; returns whether this is the first call.
    /// Context: does not sleep.
    pub(crate) fn mark_terminating(&self, why: TerminateReason) -> bool {
        let mut inner = self.inner.lock();
        let is_first = inner.end.is_none();
        inner.end.get_or_insert(why);
        inner.conns.close();
        // Threads that wait until the last message is sent have to be woken.
        self.links().iter().flatten().for_each(|link| {
            link.request_slot_wakeup(true);
            link.expect_peer_teardown();
        });
        is_first
    }

    /// Returns why the group ends, if it does.
    pub(crate) fn terminating(&self) -> Option<TerminateReason> {
        self.inner.lock().end
    }

    /// Returns when the idle time of the group ends, if it has no connection now.
    pub(crate) fn idle_end(&self) -> Option<Instant> {
        let since = self.inner.lock().conns.idle_since()?;
        let times = &self.params.times;
        let holds_netns = self.links().iter().flatten().any(|link| link.holds_netns());
        Some(since.saturating_add(match holds_netns {
            true => times.idle_holding_netns,
            false => times.idle,
        }))
    }

    /// Returns since when the group has had no connection, if it has none now and is not ending.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        match inner.end {
            None => inner.conns.idle_since(),
            Some(_) => None,
        }
    }

    /// Ends the group if it has had no connection since `since` or longer; returns whether it did.
    /// Context: does not sleep.
    pub(crate) fn terminate_if_idle(
        self: &Arc<Self>,
        why: TerminateReason,
        since: Instant,
    ) -> bool {
        let mut inner = self.inner.lock();
        let idle_since = inner.conns.idle_since().filter(|_| inner.end.is_none());
        if idle_since.is_none_or(|at| at > since) {
            return false;
        }
        // No more reservations.
        inner.conns.close();
        drop(inner);
        self.terminate_soon(why);
        true
    }

    /// Arms the timer of the group for `at`, or an earlier time that is set.
    pub(crate) fn arm_timer_at(&self, at: Instant) {
        self.due_by(at);
        self.scheduler.arm_timer(at.saturating_since(now()));
    }

    /// Schedules a request for an acknowledgement of what was sent on `link` by then, if it needs that.
    /// Context: does not sleep.
    pub(crate) fn request_ack_later(&self, link: &Link) {
        if let Some(at) = link.schedule_ack_request() {
            self.arm_timer_at(at);
        }
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

    /// Runs the timer of the group if it is due at `now`, and returns when it is due next. Cheap if it is not due: the
    /// scheduler calls this for all groups when one is due.
    pub(crate) fn run_timer_if_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        if self.due.load(Relaxed) <= now.as_nanos() {
            // Before the timer runs: it does not handle events that come from now on.
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

    /// Arms the timer for the end of the idle time if there is no connection.
    pub(super) fn arm_idle_timer(&self) {
        if let Some(at) = self.idle_end() {
            self.arm_timer_at(at);
        }
    }

    /// Returns how long an unused RMB is kept.
    pub(crate) fn keeps_unused(&self) -> Duration {
        let usual = self.params.times.unused;
        match memory::is_short() {
            true => usual.min(KEPT_WHILE_SHORT),
            false => usual,
        }
    }

    /// An RMBE was given back, or will be once it was read: its RMB may be unused then.
    /// Context: does not sleep.
    pub(crate) fn note_rmbe_released(&self) {
        self.free_unused_rmbs_at(now().saturating_add(self.keeps_unused()));
    }

    /// Arms the timer for freeing unused RMBs for `at`, unless it is armed for an earlier time.
    pub(crate) fn free_unused_rmbs_at(&self, at: Instant) {
        let mut inner = self.inner.lock();
        if inner.free_rmbs_at.is_none_or(|earlier| at < earlier) {
            inner.free_rmbs_at = Some(at);
            drop(inner);
            self.arm_timer_at(at);
        }
    }

    /// Schedules the freeing of unused RMBs if it is due at `now`, else returns the deadline.
    pub(crate) fn free_unused_rmbs_if_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let at = self.inner.lock().free_rmbs_at?;
        if !at.is_due(now) {
            return Some(at);
        }
        self.inner.lock().free_rmbs_at = None;
        self.scheduler.schedule_free_work(self.clone());
        None
    }

    /// Arms the timer of connections ([`LgrConn::on_timer`]) for `delay` or earlier.
    /// Context: does not sleep.
    pub(crate) fn arm_conn_timer(&self, delay: Duration) {
        let at = now().saturating_add(delay);
        let mut inner = self.inner.lock();
        if inner.conn_timer_at.is_none_or(|earlier| at < earlier) {
            inner.conn_timer_at = Some(at);
            drop(inner);
            self.arm_timer_at(at);
        }
    }

    /// Runs the timers of connections if due at `now`; returns the next deadline.
    pub(crate) fn run_conn_timers(&self, now: Instant) -> Option<Instant> {
        let at = self.inner.lock().conn_timer_at?;
        if !at.is_due(now) {
            return Some(at);
        }
        self.inner.lock().conn_timer_at = None;
        let next = Cell::new(None::<Instant>);
        self.for_each(|member| {
            let times = next.get().into_iter().chain(member.on_timer(now));
            next.set(times.min());
        });
        let mut inner = self.inner.lock();
        inner.conn_timer_at = inner.conn_timer_at.into_iter().chain(next.get()).min();
        inner.conn_timer_at
    }

    /// Notifies connections that wait for the peer that it deleted RKeys of its RMBs.
    /// Context: does not sleep.
    pub(crate) fn notify_rkeys_deleted(&self) {
        if self.inner.lock().conn_timer_at.is_some() {
            self.for_each(|member| member.on_rkeys_deleted());
        }
    }

    /// Called after a connection left whose peer did not close and whose RMBE is in quarantine: schedules the freeing
    /// of the RMB, or the end of the group if it has no other connection.
    /// Context: does not sleep.
    pub(crate) fn on_abandoned(self: &Arc<Self>) {
        if self.len() == 0 {
            return self.terminate_soon(TerminateReason::Idle);
        }
        self.free_retired_rmbs();
    }

    /// Schedules the freeing of RMBs that were retired, or have elements in quarantine, once the last connection has
    /// left them.
    /// Context: does not sleep.
    pub(crate) fn free_retired_rmbs(&self) {
        self.free_unused_rmbs_at(now().saturating_add(QUARANTINED));
    }

    /// Schedules the freeing of about `bytes` bytes of unused RMBs under memory pressure; returns how many bytes there
    /// are, at most `bytes`.
    /// Context: does not sleep.
    pub(crate) fn shrink(self: &Arc<Self>, bytes: u64) -> u64 {
        let part = self.rmbs.request_shrink(bytes);
        if part > 0 {
            self.scheduler.schedule_free_work(self.clone());
        }
        part
    }

    /// Calls `f` for all connections, without the lock.
    pub(crate) fn for_each(&self, f: impl Fn(Arc<dyn LgrConn>)) {
        let mut last = None;
        loop {
            let next = self.inner.lock().conns.after(last);
            let Some((token, member)) = next else {
                return;
            };
            last = Some(token);
            f(member);
        }
    }

    /// Waits until all messages are sent, so that the peer receives the end, and returns whether they are. Stops if no
    /// link works, or after [`DRAIN`].
    /// Context: may sleep.
    pub(crate) fn drain(&self) -> bool {
        let end = now().saturating_add(DRAIN);
        let mut inner = self.inner.lock();
        loop {
            let left = end.saturating_since(now());
            let links = self.links();
            // On a link that failed nothing is sent any more, and completions may be late or never come.
            let is_quiet = |link: &Link| !link.is_up() || link.is_quiet();
            let is_quiet = links.iter().flatten().all(|link| is_quiet(link));
            let is_up = links.iter().flatten().any(|link| link.is_up());
            let is_done = !inner.conns.has_waiters() && is_quiet;
            if is_done || !is_up || left == Duration::ZERO {
                return is_done;
            }
            // A signal does not end the wait.
            let _ = self
                .llc_waiters
                .wait_interruptible_timeout(&mut inner, clock::jiffies(left));
        }
    }
}
