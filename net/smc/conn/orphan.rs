// SPDX-License-Identifier: GPL-2.0

//! Orphans: connections whose application has closed them (as in TCP). They continue until the peer has received all
//! data and has closed, too, but for a limited time.
//!
//! Data are sent as long as the peer consumes some. If it consumes none for [`DATA_WAIT`] times
//! `net.ipv4.tcp_fin_timeout`, or does not close within `tcp_fin_timeout` after our close, the connection is
//! aborted, as TCP ends FIN_WAIT2. A peer that does not answer the abort either may still write: the RMBE goes into
//! quarantine, and the place in the link group becomes free. If what was posted before the abort is not completed
//! within [`LINK_WAIT`], the link is given up first. There may be [`MAX_ORPHANS`] orphans; connections closed
//! beyond that are aborted at once, as TCP does beyond `tcp_max_orphans`.
//!
//! The C module has no limit here.

use kernel::{
    pr_warn_once,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use kernel_ext::prelude::*;
use smc_proto::time::{
    Duration,
    Instant, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::{
    clock::now,
    link::{
        Link,
        LinkError, //
    }, //
};

/// Limit of orphans, for all namespaces together.
const MAX_ORPHANS: usize = 8192;

/// How long the peer may consume nothing, in `tcp_fin_timeout` (60 s). Its programs may be slow, and cursors come for
/// a tenth of the ring at a time. TCP probes the window of such a peer for over 200 s before it gives up
/// (C function `tcp_probe_timer`).
const DATA_WAIT: u32 = 4;

/// How long to wait for the peer's answer to our abort.
const ABORT_WAIT: Duration = Duration::from_secs(5);

/// How long what was posted before our abort may take to be completed: a peer that posts no receives any more is asked
/// again and again by the device. The C module gives such a link up after ten seconds (`smc_wr_tx_get_free_slot`).
const LINK_WAIT: Duration = Duration::from_secs(15);

/// Number of orphans.
static ORPHANS: Atomic<usize> = Atomic::new(0);

/// Counts an orphan in [`ORPHANS`] until it is dropped.
struct OrphanCount {
    is_one_too_many: bool,
}

impl OrphanCount {
    fn new() -> Self {
        Self {
            is_one_too_many: ORPHANS.fetch_add(1, Relaxed) >= MAX_ORPHANS,
        }
    }
}

impl Drop for OrphanCount {
    fn drop(&mut self) {
        ORPHANS.fetch_sub(1, Relaxed);
    }
}

/// What an orphan waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The peer has yet to consume this number of bytes.
    Data(u32),
    /// The peer has yet to close.
    Closed,
    /// The peer has yet to answer our abort.
    Aborted,
}

/// State of an orphan.
pub(super) struct Orphan {
    /// `net.ipv4.tcp_fin_timeout` when the application closed.
    fin_timeout: Duration,
    stage: Stage,
    /// When that stage began.
    since: Instant,
    counted: OrphanCount,
}

impl Orphan {
    /// Returns the deadline of the stage.
    fn end(&self) -> Instant {
        self.since.saturating_add(match self.stage {
            Stage::Data(_) => self.fin_timeout.saturating_mul(DATA_WAIT),
            Stage::Closed => self.fin_timeout,
            Stage::Aborted => ABORT_WAIT,
        })
    }

    /// Returns when to check again. What the peer consumes is noticed by checks only, and counts from then on.
    fn next_check(&self, now: Instant) -> Instant {
        match self.stage {
            Stage::Data(_) => self.end().min(now.saturating_add(self.fin_timeout)),
            Stage::Closed | Stage::Aborted => self.end(),
        }
    }
}

/// What to do with an orphan.
enum OrphanAction {
    /// Check again at that time.
    Waits(Instant),
    /// Abort the connection.
    Abort,
    /// Stop waiting for the peer.
    Abandon,
    /// Give up the link on which nothing is completed.
    FailLink(Arc<Link>),
}

impl ConnInner {
    /// Makes the connection an orphan, with deadlines for the peer by `fin_timeout`. Returns when to check them, or
    /// `None` if the connection is finished.
    fn make_orphan(&mut self, fin_timeout: Duration) -> Option<Instant> {
        if self.stream.is_finished() {
            return None;
        }
        let since = now();
        let orphan = Orphan {
            fin_timeout,
            stage: self.stage(),
            since,
            counted: OrphanCount::new(),
        };
        let next = orphan.next_check(since);
        self.orphan = Some(orphan);
        Some(next)
    }

    fn stage(&self) -> Stage {
        let stream = &self.stream;
        if stream.is_killed() {
            Stage::Aborted
        } else if stream.is_closing() {
            Stage::Data(stream.queues().map_or(0, |queues| queues.outq))
        } else {
            Stage::Closed
        }
    }

    fn verdict(&mut self, now: Instant) -> Option<OrphanAction> {
        let (stage, is_quiet) = (self.stage(), self.stream.is_quiet());
        let orphan = self.orphan.as_mut()?;
        if orphan.stage != stage {
            (orphan.stage, orphan.since) = (stage, now);
        }
        let end = orphan.end();
        Some(match stage {
            _ if !end.is_due(now) => OrphanAction::Waits(orphan.next_check(now)),
            // Work requests may still read the send buffer until the link is taken down.
            Stage::Aborted if !is_quiet => {
                match orphan.since.saturating_add(LINK_WAIT).is_due(now) {
                    true => OrphanAction::FailLink(self.at.link.clone()),
                    false => OrphanAction::Waits(now.saturating_add(ABORT_WAIT)),
                }
            }
            Stage::Data(_) | Stage::Closed => OrphanAction::Abort,
            Stage::Aborted => OrphanAction::Abandon,
        })
    }
}

impl Conn {
    /// Makes the connection an orphan after its application closed it: the peer has deadlines by `fin_timeout`.
    /// Context: does not sleep.
    pub(crate) fn make_orphan(self: &Arc<Self>, fin_timeout: Duration) {
        let mut inner = self.inner.lock();
        let next = inner.make_orphan(fin_timeout);
        let orphan = inner.orphan.as_ref();
        let is_one_too_many = orphan.is_some_and(|orphan| orphan.counted.is_one_too_many);
        drop(inner);
        if let Some(next) = next {
            self.group.arm_conn_timer(next.saturating_since(now()));
        }
        if is_one_too_many {
            pr_warn_once!("too many connections wait for their peers, more are aborted\n");
            self.kill(ECONNABORTED);
        }
    }

    /// Timer for orphans; returns the next deadline, `None` if the connection is no orphan any more.
    /// Context: does not sleep.
    pub(super) fn on_orphan_timer(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        match self.with(|inner| inner.verdict(now))? {
            OrphanAction::Waits(next) => Some(next),
            OrphanAction::Abort => {
                self.kill(ETIMEDOUT);
                Some(now.saturating_add(ABORT_WAIT))
            }
            OrphanAction::Abandon => {
                self.abandon();
                None
            }
            OrphanAction::FailLink(link) => {
                link.fail(LinkError::Stalled);
                Some(now.saturating_add(ABORT_WAIT))
            }
        }
    }

    /// Gives up waiting for a peer that may still write: its RMBE stays in quarantine.
    fn abandon(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.stream.set_no_link();
        if let Some(rmbe) = &inner.rmbe {
            rmbe.quarantine();
        }
        let others = inner.others.give_up_all();
        let gone = (inner.rmbe.take(), inner.orphan.take(), others);
        let has_tcp = inner.closed_tcp.is_some();
        drop(inner);
        drop(gone);
        if has_tcp {
            self.schedule_tcp_reset();
        }
        self.free_if_done();
        self.group.leave(self.token);
        self.group.on_abandoned();
    }
}
