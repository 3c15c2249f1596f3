// SPDX-License-Identifier: GPL-2.0

//! The TEST_LINKs of all links of a group: on silence, and for connections that are about to use a link.

use super::testlink::{
    TestLinkTimer,
    TimerAction, //
};
use crate::lgr::{
    LinkIdx,
    LinkMap,
    MAX_LINKS, //
};
use crate::time::{
    Duration,
    Instant, //
};

/// Within this time one test of a link serves all connections.
const ONE_DOES: Duration = Duration::from_secs(1);

/// Tests the active links.
#[derive(Debug)]
pub(super) struct TestLinkTimers {
    interval: Duration,
    links: LinkMap<Option<TestLinkTimer>>,
    /// When each link was last tested for a connection about to join, and when the last message before that arrived.
    probed: LinkMap<(Instant, Instant)>,
}

impl TestLinkTimers {
    /// No link is active.
    pub(super) const fn new(interval: Duration) -> Self {
        Self {
            interval,
            links: LinkMap([None; MAX_LINKS]),
            probed: LinkMap([(Instant::ZERO, Instant::ZERO); MAX_LINKS]),
        }
    }

    /// Link `idx` became active.
    pub(super) fn start(&mut self, idx: LinkIdx, now: Instant) {
        self.links[idx] = Some(TestLinkTimer::new(self.interval, now));
    }

    /// Returns whether the link was watched.
    pub(super) fn stop(&mut self, idx: LinkIdx) -> bool {
        self.links[idx].take().is_some()
    }

    pub(super) fn get(&mut self, idx: LinkIdx) -> Option<&mut TestLinkTimer> {
        self.links[idx].as_mut()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let links = self.links.iter().flatten();
        links.filter_map(TestLinkTimer::deadline).min()
    }

    pub(super) fn on_timeout(&mut self, idx: LinkIdx, now: Instant) -> TimerAction {
        self.get(idx)
            .map_or(TimerAction::Nothing, |link| link.on_timeout(now))
    }

    /// Returns whether a link, on which the last message arrived at `last_rx`, is to be tested for a connection that is
    /// about to join. A message has arrived since the test before if `last_rx` is another one, whatever clock it is of.
    pub(super) fn probe(&mut self, idx: LinkIdx, last_rx: Instant, now: Instant) -> bool {
        let (sent, silent_since) = self.probed[idx];
        let is_answered = silent_since != last_rx;
        let is_due = is_answered || sent.saturating_add(ONE_DOES).is_due(now);
        if is_due {
            self.probed[idx] = (now, last_rx);
        }
        is_due
    }
}
