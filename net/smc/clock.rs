// SPDX-License-Identifier: GPL-2.0

//! The clock of the protocol core.

use kernel_ext::time;
use smc_proto::time::Instant;

/// Returns nanoseconds since boot, without time in suspend. Any context.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(time::now_ns())
}
