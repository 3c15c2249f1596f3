// SPDX-License-Identifier: GPL-2.0

//! The clock and its units.
//!
//! C header: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h)

use kernel::time::Jiffies;

use crate::bindings;

/// Jiffies of a second.
pub const HZ: Jiffies = bindings::SMC_HZ as Jiffies;

/// Nanoseconds of the monotonic clock. Any context.
pub fn now_ns() -> u64 {
    // SAFETY: No precondition.
    let now = unsafe { bindings::ktime_get() };
    // CAST: the clock starts at zero.
    now as u64
}

/// Jiffies that are at least `ns` nanoseconds, as the timeout of a wait.
pub fn timeout(ns: u64) -> isize {
    // CAST: a wait is less than years.
    jiffies(ns) as isize
}

/// Jiffies that are at least `ns` nanoseconds.
pub fn jiffies(ns: u64) -> Jiffies {
    const NS_PER_JIFFY: u64 = 1_000_000_000 / HZ as u64;
    // CAST: a wait is less than years.
    ns.div_ceil(NS_PER_JIFFY) as Jiffies
}
