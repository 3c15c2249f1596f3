// SPDX-License-Identifier: GPL-2.0
//! How large the RMBE of a connection is to be, between two ends that replace RMBEs (`Documentation/rmbe.md`): what it
//! begins with, when a larger one is of use, and when it is idle.

use crate::buffer::SizeClass;
use crate::time::{
    Duration,
    Instant, //
};

/// A connection that has received nothing for this time gets the first size again, and an offer that was not adopted is
/// made again.
pub const IDLE: Duration = Duration::from_secs(10);

/// Of a connection that fills a small RMBE so many times within [`IDLE`], the RMBE is as large as SO_RCVBUF says,
/// though the peer does not wait: fewer messages have to say what was read.
const BUSY: u64 = 64;

/// A transfer that fills an RMBE so many times within [`IDLE`] is a bulk transfer.
const BULK: u64 = 256;

/// How much larger the next RMBE of a bulk transfer is.
const GROWTH: u32 = 4;

/// The sizes that an RMBE may have, as the socket and the settings say now.
#[derive(Clone, Copy, Debug)]
pub struct RmbeSizes {
    /// Half of SO_RCVBUF.
    pub asked: SizeClass,
    /// `net.smc.smcr_rmem_min`.
    pub min: SizeClass,
    /// `net.smc.smcr_rmem_max`; `None` if the program has set SO_RCVBUF, or memory is short.
    pub max: Option<SizeClass>,
    /// SO_RCVLOWAT is set: poll(2) waits for bytes that have to fit.
    pub has_lowat: bool,
}

impl RmbeSizes {
    /// The size that an RMBE begins with if it can be replaced, and that an idle one gets again.
    pub fn first(&self) -> SizeClass {
        match self.has_lowat {
            true => self.asked,
            false => self.min.min(self.asked),
        }
    }

    /// The next size of an RMBE that is too small for what the peer has to send, if there is one. In a bulk transfer it
    /// grows beyond SO_RCVBUF, which the kernel's TCP raises then.
    ///
    /// It is as large as SO_RCVBUF says at once: another one can be offered only when the application has read what is
    /// in the one before, and it may wait for more than that (MSG_PEEK with MSG_WAITALL).
    pub fn larger(&self, size: SizeClass, is_bulk: bool) -> Option<SizeClass> {
        if size < self.asked {
            return Some(self.asked);
        }
        let max = self.max.filter(|_| is_bulk)?;
        let next = SizeClass::for_bytes(size.bytes().saturating_mul(GROWTH)).min(max);
        Some(next).filter(|next| *next > size)
    }

    /// The first size, for an RMBE that is smaller: the socket needs it, whatever the peer does.
    pub fn needed(&self, size: SizeClass) -> Option<SizeClass> {
        Some(self.first()).filter(|first| *first > size)
    }

    /// The first size, for an idle RMBE that is larger.
    pub fn smaller(&self, size: SizeClass) -> Option<SizeClass> {
        Some(self.first()).filter(|first| *first < size)
    }
}

/// What arrives in an RMBE, since it was looked at last, or came into use.
#[derive(Clone, Copy, Debug)]
pub struct RmbeWatch {
    since: Instant,
    /// Bytes that the connection had received by then.
    received: u64,
}

impl RmbeWatch {
    /// The connection has received that many bytes at `now`.
    pub const fn new(received: u64, now: Instant) -> Self {
        Self {
            since: now,
            received,
        }
    }

    /// Whether so much arrives that an RMBE as large as SO_RCVBUF says is of use.
    pub fn is_busy(
        &mut self,
        size: SizeClass,
        received: u64,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        self.was_filled(BUSY, size, received, now)
    }

    /// Whether so much arrives that a still larger one is.
    pub fn is_bulk(
        &mut self,
        size: SizeClass,
        received: u64,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        self.was_filled(BULK, size, received, now)
    }

    /// Whether the RMBE was filled so many times since it was looked at, and that is not long ago. `now` is asked only
    /// if it was filled.
    fn was_filled(
        &mut self,
        times: u64,
        size: SizeClass,
        received: u64,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let full = u64::from(size.bytes()).saturating_mul(times);
        if received.saturating_sub(self.received) < full {
            return false;
        }
        let now = now();
        let is_late = self.since.saturating_add(IDLE).is_due(now);
        if is_late {
            *self = Self::new(received, now);
        }
        !is_late
    }

    /// Whether nothing has come since, and there is nothing to read.
    pub const fn is_quiet(&self, received: u64, readable: u32) -> bool {
        received == self.received && readable == 0
    }

    /// The timer: whether the RMBE is idle, and when to look again.
    pub fn on_timer(&mut self, received: u64, readable: u32, now: Instant) -> (bool, Instant) {
        let end = self.since.saturating_add(IDLE);
        if !end.is_due(now) {
            return (false, end);
        }
        let is_idle = self.is_quiet(received, readable);
        if !is_idle {
            *self = Self::new(received, now);
        }
        (is_idle, now.saturating_add(IDLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kib(kib: u32) -> SizeClass {
        SizeClass::for_bytes(kib << 10)
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(secs))
    }

    /// The defaults.
    const SIZES: RmbeSizes = RmbeSizes {
        asked: SizeClass::for_bytes(64 << 10),
        min: SizeClass::SMALLEST,
        max: Some(SizeClass::for_bytes(512 << 10)),
        has_lowat: false,
    };

    #[test]
    fn it_begins_small_unless_the_socket_needs_all_of_it() {
        assert_eq!(SIZES.first(), kib(16));
        let of_min = |min| RmbeSizes { min, ..SIZES }.first();
        assert_eq!([of_min(kib(32)), of_min(kib(1024))], [kib(32), kib(64)]);
        let lowat = RmbeSizes {
            has_lowat: true,
            ..SIZES
        };
        assert_eq!(lowat.first(), kib(64));
        assert_eq!(lowat.needed(kib(16)), Some(kib(64)));
        assert_eq!([lowat.needed(kib(64)), SIZES.needed(kib(16))], [None, None]);
    }

    #[test]
    fn it_grows_to_what_so_rcvbuf_asks_for_at_once_and_shrinks_to_the_first_size() {
        assert_eq!(SIZES.larger(kib(16), false), Some(kib(64)));
        assert_eq!(SIZES.larger(kib(16), true), Some(kib(64)));
        assert_eq!(SIZES.larger(kib(64), false), None);
        assert_eq!(SIZES.smaller(kib(512)), Some(kib(16)));
        assert_eq!(SIZES.smaller(kib(16)), None);
    }

    #[test]
    fn in_a_bulk_transfer_it_grows_fourfold_up_to_the_limit() {
        assert_eq!(SIZES.larger(kib(64), true), Some(kib(256)));
        assert_eq!(SIZES.larger(kib(256), true), Some(kib(512)));
        assert_eq!(SIZES.larger(kib(512), true), None);
        let of_max = |max| RmbeSizes { max, ..SIZES }.larger(kib(64), true);
        assert_eq!(of_max(None), None);
        assert_eq!(of_max(Some(kib(64))), None);
        assert_eq!(of_max(Some(kib(16))), None);
        assert_eq!(of_max(Some(kib(128))), Some(kib(128)));
        assert_eq!(
            SIZES.larger(SizeClass::LARGEST, true),
            None,
            "no overflow at the end"
        );
    }

    #[test]
    fn it_is_busy_once_it_was_filled_64_times_and_bulk_at_256() {
        let size = kib(16);
        let bytes = |times: u64| times * u64::from(size.bytes());
        let is_busy = |times| RmbeWatch::new(5, at(0)).is_busy(size, 5 + bytes(times), || at(9));
        let is_bulk = |times| RmbeWatch::new(5, at(0)).is_bulk(size, 5 + bytes(times), || at(9));
        assert_eq!([is_busy(63), is_busy(64)], [false, true]);
        assert_eq!([is_bulk(255), is_bulk(256)], [false, true]);
    }

    #[test]
    fn what_took_ten_seconds_to_arrive_counts_for_nothing() {
        let size = kib(16);
        let full = 64 * u64::from(size.bytes());
        let mut watch = RmbeWatch::new(0, at(0));
        assert!(!watch.is_busy(size, full - 1, || unreachable!("not filled")));
        assert!(!watch.is_busy(size, full, || at(10)));
        // It begins anew.
        assert!(!watch.is_busy(size, 2 * full - 1, || at(11)));
        assert!(watch.is_busy(size, 2 * full, || at(19)));
    }

    #[test]
    fn it_is_idle_when_nothing_has_come_for_ten_seconds_and_all_is_read() {
        let mut watch = RmbeWatch::new(7, at(0));
        assert_eq!(watch.on_timer(7, 0, at(9)), (false, at(10)));
        assert_eq!(watch.on_timer(7, 1, at(10)), (false, at(20)));
        assert_eq!(watch.on_timer(8, 0, at(20)), (false, at(30)));
        assert!(!watch.is_quiet(9, 0) && watch.is_quiet(8, 0));
        assert_eq!(watch.on_timer(8, 0, at(29)), (false, at(30)));
        assert_eq!(watch.on_timer(8, 0, at(30)), (true, at(40)));
        // It stays idle until something comes.
        assert_eq!(watch.on_timer(8, 0, at(40)), (true, at(50)));
    }
}
