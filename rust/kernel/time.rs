// SPDX-License-Identifier: GPL-2.0

//! The clock and its units.
//!
//! `kernel::time::Instant` does not expose its nanoseconds, in which the protocol core counts, and has no coarse clock.
//!
//! C header: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h)

use kernel::time::Jiffies;

use crate::bindings;

/// Jiffies per second.
pub const HZ: Jiffies = bindings::SMC_HZ as Jiffies;

/// Returns the monotonic clock in ns.
/// Context: any.
pub fn now_ns() -> u64 {
    // SAFETY: No precondition.
    let now = unsafe { bindings::ktime_get() };
    // CAST: The clock starts at zero.
    now as u64
}

/// As [`now_ns`], at the last tick: up to a jiffy late, and cheap.
/// Context: any.
pub fn coarse_ns() -> u64 {
    let mut now = bindings::timespec64::default();
    // SAFETY: `now` may be written.
    unsafe { bindings::ktime_get_coarse_ts64(&mut now) };
    // CAST: The clock starts at zero, and nanoseconds are below a second.
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// Returns the counter of jiffies, which wraps around.
/// Context: any.
#[inline]
pub fn now_jiffies() -> Jiffies {
    // SAFETY: A counter of the kernel's, which it writes whole.
    unsafe { (&raw const bindings::jiffies).read_volatile() as Jiffies }
}

/// Converts `ns` nanoseconds to jiffies, rounded up, as the timeout of a wait.
pub fn timeout(ns: u64) -> isize {
    // CAST: A wait is less than years.
    jiffies(ns) as isize
}

/// Nanoseconds per jiffy.
const NS_PER_JIFFY: u64 = 1_000_000_000 / HZ as u64;

/// Converts jiffies to nanoseconds.
pub fn nanos(jiffies: Jiffies) -> u64 {
    (jiffies as u64).saturating_mul(NS_PER_JIFFY)
}

/// Converts `ns` nanoseconds to jiffies, rounded up.
pub fn jiffies(ns: u64) -> Jiffies {
    // CAST: A wait is less than years.
    ns.div_ceil(NS_PER_JIFFY) as Jiffies
}
