// SPDX-License-Identifier: GPL-2.0

//! What is counted.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use smc_proto::reason::Reason;

/// Connections that went over TCP.
static FALLBACKS: Atomic<u64> = Atomic::new(0);

/// Counts a connection that goes over TCP.
pub(crate) fn fell_back(reason: Reason) {
    let _ = reason;
    FALLBACKS.fetch_add(1, Relaxed);
}
