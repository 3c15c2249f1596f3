// SPDX-License-Identifier: GPL-2.0

//! Keep alive: TEST_LINK on a link that has been silent (RFC 7609 section 4.5.3; C function
//! `smc_llc_testlink_work`).
//!
//! The C module waits for the answer to its TEST_LINK; here any message after the request shows that the link works. A
//! link that receives but cannot send is reported by its device, and so is a peer that is gone, so a missing answer
//! means a peer that hangs: it is tested more than once. If the timer ran late when the answer was due, this host was
//! stalled rather than the peer, and the answer may be unprocessed in a queue: such a test does not count.

use crate::time::{Duration, Instant};

/// Time for the peer to answer a TEST_LINK.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Number of tests before the link counts as dead. The C module tests once, and loses links to a host that stalls for
/// two seconds.
pub const TESTS: u8 = 3;

/// A timer that runs this late proves nothing about the peer.
const STALLED: Duration = Duration::from_millis(500);

/// Tests one link.
#[derive(Clone, Copy, Debug)]
pub struct TestLinkTimer {
    interval: Duration,
    last_rx: Instant,
    /// Deadline of the TEST_LINK after which nothing was received yet.
    resp_deadline: Option<Instant>,
    /// Tests since the last message received.
    tests: u8,
}

/// Action due at [`TestLinkTimer::deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAction {
    /// Nothing: a message was received meanwhile. Get the new deadline.
    Nothing,
    /// Send a TEST_LINK request.
    SendTest,
    /// The peer did not answer: take the link down.
    LinkDead,
}

impl TestLinkTimer {
    /// Starts to test a link that became active at `now`. An `interval` of zero disables tests.
    pub const fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            last_rx: now,
            resp_deadline: None,
            tests: 0,
        }
    }

    /// Notes that any message was received on the link at `at`. May be called late, and more than once.
    pub fn on_received(&mut self, at: Instant) {
        if at > self.last_rx {
            self.last_rx = at;
            self.resp_deadline = None;
            self.tests = 0;
        }
    }

    /// Notes that the peer did not answer a TEST_LINK sent elsewhere in time: the next one is due at `now`. The last
    /// message arrived at `last_rx`, before that test, and does not count as its answer when it is noted again.
    pub fn on_suspected(&mut self, last_rx: Instant, now: Instant) {
        self.on_received(last_rx);
        if self.resp_deadline.is_none() {
            self.resp_deadline = Some(now);
            self.tests = 1;
        }
    }

    /// Returns when [`TestLinkTimer::on_timeout`] is due; `None` if keep alive is off.
    pub fn deadline(&self) -> Option<Instant> {
        if self.interval.is_zero() {
            return None;
        }
        let idle = self.last_rx.saturating_add(self.interval);
        Some(self.resp_deadline.unwrap_or(idle))
    }

    /// Returns what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant) -> TimerAction {
        let Some(deadline) = self.deadline().filter(|deadline| deadline.is_due(now)) else {
            return TimerAction::Nothing;
        };
        if now.saturating_since(deadline) >= STALLED {
            self.tests = self.tests.saturating_sub(1);
        }
        if self.tests >= TESTS {
            return TimerAction::LinkDead;
        }
        self.tests = self.tests.saturating_add(1);
        self.resp_deadline = Some(now.saturating_add(ANSWER_WAIT));
        TimerAction::SendTest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn at(secs: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(secs))
    }

    #[test]
    fn a_silent_link_is_tested_and_then_dead() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        assert_eq!(timer.on_timeout(at(29)), TimerAction::Nothing);
        assert_eq!(timer.on_timeout(at(30)), TimerAction::SendTest);
        assert_eq!(timer.deadline(), Some(at(32)));
        assert_eq!(timer.on_timeout(at(31)), TimerAction::Nothing);
        assert_eq!(timer.on_timeout(at(32)), TimerAction::SendTest);
        assert_eq!(timer.on_timeout(at(34)), TimerAction::SendTest);
        assert_eq!(timer.on_timeout(at(36)), TimerAction::LinkDead);
    }

    #[test]
    fn a_late_answer_saves_the_link() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        for secs in [30, 32, 34] {
            assert_eq!(timer.on_timeout(at(secs)), TimerAction::SendTest);
        }
        timer.on_received(at(35));
        assert_eq!(timer.on_timeout(at(36)), TimerAction::Nothing);
        assert_eq!(timer.on_timeout(at(65)), TimerAction::SendTest);
        assert_eq!(timer.on_timeout(at(67)), TimerAction::SendTest);
    }

    #[test]
    fn a_machine_that_stands_still_does_not_blame_its_peer() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        for secs in [30, 32, 34] {
            assert_eq!(timer.on_timeout(at(secs)), TimerAction::SendTest);
        }
        // Due at 36, but the timer ran late.
        for secs in [45, 60, 75] {
            assert_eq!(timer.on_timeout(at(secs)), TimerAction::SendTest);
        }
        assert_eq!(timer.on_timeout(at(77)), TimerAction::LinkDead);
    }

    #[test]
    fn a_late_first_test_counts_as_one() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        for secs in [40, 42, 44] {
            assert_eq!(timer.on_timeout(at(secs)), TimerAction::SendTest);
        }
        assert_eq!(timer.on_timeout(at(46)), TimerAction::LinkDead);
    }

    #[test]
    fn traffic_puts_the_test_off() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        timer.on_received(at(20));
        assert_eq!(timer.on_timeout(at(30)), TimerAction::Nothing);
        assert_eq!(timer.deadline(), Some(at(50)));
    }

    #[test]
    fn an_answer_starts_the_interval_anew() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        assert_eq!(timer.on_timeout(at(30)), TimerAction::SendTest);
        timer.on_received(at(31));
        assert_eq!(timer.on_timeout(at(32)), TimerAction::Nothing);
        assert_eq!(timer.deadline(), Some(at(61)));
        assert_eq!(timer.on_timeout(at(61)), TimerAction::SendTest);
    }

    #[test]
    fn what_came_before_the_test_is_no_answer() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        timer.on_received(at(5));
        assert_eq!(timer.on_timeout(at(35)), TimerAction::SendTest);
        timer.on_received(at(5));
        assert_eq!(timer.deadline(), Some(at(37)));
    }

    #[test]
    fn a_test_by_somebody_else_counts() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        timer.on_suspected(at(0), at(3));
        assert_eq!(timer.on_timeout(at(3)), TimerAction::SendTest);
        timer.on_suspected(at(0), at(4));
        assert_eq!(timer.on_timeout(at(5)), TimerAction::SendTest);
        assert_eq!(timer.on_timeout(at(7)), TimerAction::LinkDead);
    }

    #[test]
    fn a_message_before_the_test_of_somebody_else_does_not_answer_it() {
        let mut timer = TestLinkTimer::new(INTERVAL, at(0));
        timer.on_suspected(at(1), at(3));
        timer.on_received(at(1));
        assert_eq!(timer.on_timeout(at(3)), TimerAction::SendTest);
        timer.on_received(at(4));
        assert_eq!(timer.deadline(), Some(at(34)));
    }

    #[test]
    fn no_interval_means_no_test() {
        let mut timer = TestLinkTimer::new(Duration::ZERO, at(0));
        assert_eq!(timer.deadline(), None);
        assert_eq!(timer.on_timeout(at(1000)), TimerAction::Nothing);
    }
}
