// SPDX-License-Identifier: GPL-2.0

//! Orphans: connections whose application has closed them (as in TCP). They go on by themselves until the peer has all
//! data and has closed, too, but not for ever.
//!
//! Data go to the peer as long as that takes some. A peer that takes none for `net.ipv4.tcp_fin_timeout`, or that
//! does not close for as long after our close, has the connection aborted, as TCP ends FIN_WAIT2. One that does not
//! answer the abort either may go on to write: the receive element goes into quarantine, the place in the
//! link group is free. There may be [`MAX_ORPHANS`] of these connections; what more applications close is
//! aborted at once, as TCP does beyond `tcp_max_orphans`.
//!
//! The C module has no limit here.

use kernel::{
    pr_warn_once,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};

use super::{
    Conn,
    Inner, //
};
use crate::clock::now;

/// Connections of all namespaces together that are left of applications and may wait for their peers.
const MAX_ORPHANS: usize = 8192;

/// How long a peer may leave an abort of ours unanswered.
const ABORT_WAIT: Duration = Duration::from_secs(5);

/// How many connections are left.
static ORPHANS: Atomic<usize> = Atomic::new(0);

/// Counts a connection among those that are left.
struct Counted {
    is_one_too_many: bool,
}

impl Counted {
    fn new() -> Self {
        Self {
            is_one_too_many: ORPHANS.fetch_add(1, Relaxed) >= MAX_ORPHANS,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ORPHANS.fetch_sub(1, Relaxed);
    }
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The peer has yet to take so many bytes.
    Data(u32),
    /// The peer has yet to close.
    Closed,
    /// The peer has yet to answer our abort.
    Aborted,
}

/// What is left of a connection.
pub(super) struct Orphan {
    /// How long the peer may do nothing.
    fin_timeout: Duration,
    stage: Stage,
    /// When it came to that.
    since: Instant,
    counted: Counted,
}

impl Orphan {
    /// Until when the peer may do nothing more.
    fn end(&self) -> Instant {
        self.since.saturating_add(match self.stage {
            Stage::Data(_) | Stage::Closed => self.fin_timeout,
            Stage::Aborted => ABORT_WAIT,
        })
    }
}

/// What becomes of a connection that is left.
enum Verdict {
    /// It is looked at again then.
    Waits(Instant),
    /// It is aborted.
    Abort,
    /// Nothing more is expected of its peer.
    Abandon,
}

impl Inner {
    /// The application has gone, and the peer may do nothing for `fin_timeout`. Says until when it is not looked at
    /// again; `None` if nothing is left.
    fn make_orphan(&mut self, fin_timeout: Duration) -> Option<Instant> {
        if self.stream.is_finished() {
            return None;
        }
        let orphan = Orphan {
            fin_timeout,
            stage: self.stage(),
            since: now(),
            counted: Counted::new(),
        };
        let end = orphan.end();
        self.orphan = Some(orphan);
        Some(end)
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

    fn verdict(&mut self, now: Instant) -> Option<Verdict> {
        let (stage, is_quiet) = (self.stage(), self.stream.is_quiet());
        let orphan = self.orphan.as_mut()?;
        if orphan.stage != stage {
            (orphan.stage, orphan.since) = (stage, now);
        }
        let end = orphan.end();
        Some(match stage {
            _ if !end.is_due(now) => Verdict::Waits(end),
            // Work requests may read the send buffer, until the link is taken down.
            Stage::Aborted if !is_quiet => Verdict::Waits(now.saturating_add(ABORT_WAIT)),
            Stage::Data(_) | Stage::Closed => Verdict::Abort,
            Stage::Aborted => Verdict::Abandon,
        })
    }
}

impl Conn {
    /// The application has gone: from now on the peer may do nothing for at most `fin_timeout` at a time. Does not
    /// sleep.
    pub(crate) fn make_orphan(self: &Arc<Self>, fin_timeout: Duration) {
        let mut inner = self.inner.lock();
        let end = inner.make_orphan(fin_timeout);
        let orphan = inner.orphan.as_ref();
        let is_one_too_many = orphan.is_some_and(|orphan| orphan.counted.is_one_too_many);
        drop(inner);
        if let Some(end) = end {
            self.group.arm_closing_timer(end.saturating_since(now()));
        }
        if is_one_too_many {
            pr_warn_once!("too many connections wait for their peers, more are aborted\n");
            self.kill(ECONNABORTED);
        }
    }

    /// Does what time demands of what is left of the connection, and says when to look again; `None` if nothing
    /// is left. Does not sleep.
    pub(super) fn on_orphan_timer(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        match self.with(|inner| inner.verdict(now))? {
            Verdict::Waits(end) => Some(end),
            Verdict::Abort => {
                self.kill(ETIMEDOUT);
                Some(now.saturating_add(ABORT_WAIT))
            }
            Verdict::Abandon => {
                self.abandon();
                None
            }
        }
    }

    /// The peer may go on to write for ever: the receive element stays out of use.
    fn abandon(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.stream.set_no_link();
        if let Some(rmbe) = &inner.rmbe {
            rmbe.quarantine();
        }
        let gone = (inner.rmbe.take(), inner.orphan.take());
        drop(inner);
        drop(gone);
        self.free_if_done();
        self.group.leave(self.token);
        self.group.on_abandoned();
    }
}
