// SPDX-License-Identifier: GPL-2.0

//! The time, as the protocol core counts it.

use kernel_ext::time;
use smc_proto::time::Instant;

/// Nanoseconds since the machine started, without those in which it slept. Any context.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(time::now_ns())
}
