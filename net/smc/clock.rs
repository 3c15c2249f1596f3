// SPDX-License-Identifier: GPL-2.0

//! The clock of the protocol core, and the kernel's units for its durations.

use kernel::time::Jiffies;
use kernel_ext::time;
use smc_proto::time::{
    Duration,
    Instant, //
};

/// Returns nanoseconds since boot, without time in suspend.
/// Context: any.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(time::now_ns())
}

/// As [`now`], at the last tick: up to a jiffy late, and cheap.
/// Context: any.
pub(crate) fn coarse_now() -> Instant {
    Instant::from_nanos(time::coarse_ns())
}

/// Converts to jiffies, rounded up.
pub(crate) fn jiffies(time: Duration) -> Jiffies {
    time::jiffies(time.as_nanos())
}

/// As [`jiffies`], as the timeout of a wait on a socket.
pub(crate) fn timeout(wait: Duration) -> isize {
    time::timeout(wait.as_nanos())
}
