// SPDX-License-Identifier: GPL-2.0

//! When a writer wakes a reader that sleeps: at once, or a moment later, so that many small messages need one wake-up.
//!
//! This is Nagle's algorithm (RFC 896) with a limit of microseconds. Data are visible to the reader as soon as they
//! are written, and a reader that does not sleep finds them; only the wake-up waits. It does so for a writer that
//! sends one small message after the other and gets no answer: requests and answers never wait. TCP_NODELAY switches
//! it off, as does `net.smc.autocorking_size` set to 0.

use crate::time::{
    Duration,
    Instant, //
};

/// How long a wake-up waits at most.
pub const GATHER_TIME: Duration = Duration::from_micros(50);

/// Unread bytes for which the reader is woken at once.
pub const GATHER_MAX: u32 = 64 * 1024;

/// Writes without an answer from which on wake-ups wait.
const STREAK: u8 = 8;

/// What a writer knows of its last writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gather {
    /// Writes since the last answer; no more than [`STREAK`].
    streak: u8,
    /// How many bytes of answers had been read at the last write.
    answered: u64,
    /// When the reader was last woken, or will be.
    woken_at: Instant,
}

/// When to wake the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// At once.
    Now,
    /// Once so much time has passed.
    Later(Duration),
}

impl Gather {
    /// Something was written, and the reader sleeps. `answered` counts the bytes that the writer has read from the
    /// connection.
    pub fn on_write(&mut self, answered: u64, now: impl FnOnce() -> Instant) -> Wake {
        if self.answered != answered {
            self.answered = answered;
            self.streak = 0;
        }
        if self.streak < STREAK {
            self.streak = self.streak.saturating_add(1);
            return Wake::Now;
        }
        let now = now();
        // The wake-up that was to come later may have come already, as much was written.
        let due = self.woken_at.min(now).saturating_add(GATHER_TIME);
        if due.is_due(now) {
            self.woken_at = now;
            return Wake::Now;
        }
        self.woken_at = due;
        Wake::Later(due.saturating_since(now))
    }
}

/// How many unread bytes wake the reader at once, if `autocork` bytes may be gathered and `limit` may be under way.
pub fn gather_max(autocork: u32, limit: u32) -> u32 {
    autocork.min(GATHER_MAX).min(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_micros(micros))
    }

    #[test]
    fn a_stream_of_messages_wakes_once_in_a_while() {
        let mut gather = Gather::default();
        for n in 0..u64::from(STREAK) {
            assert_eq!(gather.on_write(0, || at(1000 + n)), Wake::Now);
        }
        // The first that is timed.
        assert_eq!(gather.on_write(0, || at(1010)), Wake::Now);
        assert_eq!(
            gather.on_write(0, || at(1020)),
            Wake::Later(Duration::from_micros(40))
        );
        // The reader was woken at 1060, has read all and sleeps again.
        assert_eq!(
            gather.on_write(0, || at(1070)),
            Wake::Later(Duration::from_micros(40))
        );
    }

    /// 64 KiB were written before the time was over, which wakes the reader early.
    #[test]
    fn a_wake_up_that_came_early_delays_no_later_one() {
        let mut gather = Gather::default();
        for n in 0..u64::from(STREAK) {
            gather.on_write(0, || at(1000 + n));
        }
        for n in 0..1000 {
            match gather.on_write(0, || at(1010 + n * 20)) {
                Wake::Now => {}
                Wake::Later(wait) => assert!(wait <= GATHER_TIME, "{wait:?} the {n}th time"),
            }
        }
    }

    #[test]
    fn messages_that_come_seldom_wake_at_once() {
        let mut gather = Gather::default();
        for n in 0..100 {
            let now = at(1000 + n * 50);
            assert_eq!(gather.on_write(0, || now), Wake::Now);
        }
    }

    #[test]
    fn an_answer_begins_a_new_streak() {
        let mut gather = Gather::default();
        for n in 0..100 {
            assert_eq!(gather.on_write(n, || at(1000)), Wake::Now);
        }
        for _ in 0..100 {
            gather.on_write(99, || at(1001));
        }
        assert!(matches!(gather.on_write(99, || at(1002)), Wake::Later(_)));
        assert_eq!(gather.on_write(100, || at(1003)), Wake::Now);
    }

    #[test]
    fn what_is_gathered_fits_half_of_the_ring() {
        assert_eq!(gather_max(0, 1 << 20), 0);
        assert_eq!(gather_max(65536, 1 << 20), GATHER_MAX);
        assert_eq!(gather_max(65536, 4608), 2304);
        assert_eq!(gather_max(1000, 1 << 20), 1000);
    }
}
