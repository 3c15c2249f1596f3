// SPDX-License-Identifier: GPL-2.0

//! Time as the caller gives it: nanoseconds of one monotonic clock.
//!
//! The core never asks what time it is. In the kernel an [`Instant`] is `ktime_get()`, on the host
//! it is the simulation's clock.

use core::num::NonZeroU64;

/// A point on the caller's monotonic clock, in nanoseconds since an origin that the core ignores. One more is stored,
/// so that an `Option` of it is no larger: each connection has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(NonZeroU64::MIN);

    /// Makes an instant from nanoseconds since the clock's origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the clock's origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        // OVERFLOW: it is 1 at least.
        self.0.get().wrapping_sub(1)
    }

    /// The instant `after` later; the last instant there is if that lies beyond it.
    #[inline]
    pub const fn saturating_add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after.0))
    }

    /// The instant `before` earlier; the clock's origin if that lies before it.
    #[inline]
    pub const fn saturating_sub(self, before: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(before.0))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is not earlier.
    #[inline]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// Says whether a deadline at `self` is due at `now`.
    #[inline]
    pub const fn is_due(self, now: Self) -> bool {
        self.0.get() <= now.0.get()
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Makes a duration of `nanos` nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Makes a duration of `micros` microseconds; the longest there is if that does not fit.
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Makes a duration of `millis` milliseconds; the longest there is if that does not fit.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Makes a duration of `secs` seconds; the longest there is if that does not fit.
    #[inline]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The sum, or the longest duration there is.
    #[inline]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of it without the other, or nothing.
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product, or the longest duration there is.
    #[inline]
    pub const fn saturating_mul(self, times: u32) -> Self {
        // CAST: u32 to u64 in a const fn, where `u64::from` is not const.
        Self(self.0.saturating_mul(times as u64))
    }

    /// A part of it: one of `parts`, of which there is one at least.
    #[inline]
    pub const fn div(self, parts: u32) -> Self {
        // CAST: As in `saturating_mul`.
        match self.0.checked_div(parts as u64) {
            Some(part) => Self(part),
            None => self,
        }
    }

    /// Says whether this is no time at all, which for most of the timers means «off».
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_due_at_its_own_instant() {
        let deadline = Instant::from_nanos(10).saturating_add(Duration::from_nanos(5));
        assert!(!deadline.is_due(Instant::from_nanos(14)));
        assert!(deadline.is_due(Instant::from_nanos(15)));
    }

    #[test]
    fn time_saturates_at_both_ends() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(end.saturating_add(Duration::from_secs(1)), end);
        assert_eq!(Instant::ZERO.saturating_since(end), Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX).as_nanos(), u64::MAX);
    }

    #[test]
    fn a_part_is_rounded_down() {
        assert_eq!(Duration::from_nanos(11).div(4), Duration::from_nanos(2));
        assert_eq!(
            Instant::from_nanos(3).saturating_sub(Duration::from_nanos(4)),
            Instant::ZERO
        );
    }
}
