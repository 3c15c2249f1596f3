// SPDX-License-Identifier: GPL-2.0

//! Limits on what is logged.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use crate::bindings;

/// Whether another message may be logged that a peer can bring about: ten in five seconds, whoever
/// the peers are. What was held back is counted in a message of the kernel. Any context.
pub fn peer() -> bool {
    // SAFETY: No precondition.
    unsafe { bindings::ratelimit_peer() }
}
