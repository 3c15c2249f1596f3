// SPDX-License-Identifier: GPL-2.0

//! TCP_USER_TIMEOUT: how long data may wait for the peer before the connection ends with ETIMEDOUT (tcp(7), RFC 5482).
//!
//! As over TCP, data wait while nothing confirms that they have arrived, or while the peer has no room for them; data
//! that the peer has and does not read do not wait. The C module ignores the option once a connection is over SMC.

use super::Stream;
use crate::time::{
    Duration,
    Instant, //
};

/// How often a connection is looked at while its data may wait.
const LOOKS: u32 = 4;

/// A look is punctual if it comes late by at most the limit divided by this, as timers are.
const PUNCTUAL: u32 = 16;

/// How long TCP waits for an acknowledgement, or for room at the peer, before its time begins (`TCP_RTO_MIN`). Corked
/// data leave within this time.
const RTO_MIN: Duration = Duration::from_millis(200);

/// How far the peer has come with the data sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// End of the data known to have arrived.
    arrived: u64,
    /// End of the data that the peer has read.
    read: u64,
}

impl Stream {
    /// How far the peer has come, if data wait for it. `confirmed_later`: a completion does not say that the peer has
    /// the data (iWARP), so that only those wait which were not sent.
    pub fn progress_if_waiting(&self, confirmed_later: bool) -> Option<PeerProgress> {
        let is_in_flight = self.send.is_in_flight() && !confirmed_later;
        (self.send.unsent() > 0 || is_in_flight).then(|| self.send.progress())
    }

    /// How far the peer has come.
    pub fn progress(&self) -> PeerProgress {
        self.send.progress()
    }
}

impl PeerProgress {
    pub(super) const fn new(arrived: u64, read: u64) -> Self {
        Self { arrived, read }
    }
}

/// What follows from a look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// No data wait; [`UserTimeout::begin`] says when to look again.
    Done,
    /// To be looked at again then.
    Again(Instant),
    /// Data have waited for as long as the limit.
    Expired,
}

/// How long data of a connection may wait, and since when the peer makes no progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct UserTimeout {
    /// TCP_USER_TIMEOUT and [`RTO_MIN`]; zero without the option.
    limit: Duration,
    since: Option<(Instant, PeerProgress)>,
    /// When the next look is due. Time by which it comes later does not count, as this host may have stood still.
    due: Instant,
}

impl UserTimeout {
    /// Sets the option; zero is none. [`UserTimeout::begin`] comes next, as data may wait.
    pub fn set(&mut self, option: Duration) {
        self.limit = match option.is_zero() {
            true => Duration::ZERO,
            false => option.saturating_add(RTO_MIN),
        };
    }

    /// Whether [`UserTimeout::begin`] has to be called for data that are sent now.
    #[inline]
    pub fn needs_begin(&self) -> bool {
        !self.limit.is_zero() && self.since.is_none()
    }

    /// Data may wait from now on, if they do not already; returns after which time to look, `None` without the option.
    pub fn begin(&mut self, progress: PeerProgress, now: Instant) -> Option<Duration> {
        if self.limit.is_zero() {
            return None;
        }
        self.since.get_or_insert((now, progress));
        let wait = self.limit.div(LOOKS);
        self.due = now.saturating_add(wait);
        Some(wait)
    }

    /// Looks at a connection with this [`Stream::progress_if_waiting`]: what waits has done so since a look at most a
    /// quarter of the limit before it began to.
    pub fn look(&mut self, progress: Option<PeerProgress>, now: Instant) -> Look {
        let limit = self.limit;
        let (false, Some((since, before)), Some(progress)) =
            (limit.is_zero(), self.since, progress)
        else {
            self.since = None;
            return Look::Done;
        };
        let late = now.saturating_since(self.due);
        let stood_still = late > limit.div(PUNCTUAL);
        let since = match progress == before {
            true if stood_still => since.saturating_add(late),
            true => since,
            false => now,
        };
        self.since = Some((since, progress));
        let (end, again) = (
            since.saturating_add(limit),
            now.saturating_add(limit.div(LOOKS)),
        );
        // What has arrived meanwhile may not be known yet.
        self.due = match end.is_due(now) {
            true if stood_still => again,
            true => return Look::Expired,
            false => end.min(again),
        };
        Look::Again(self.due)
    }
}
