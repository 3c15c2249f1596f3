// SPDX-License-Identifier: GPL-2.0

//! Rate limits for log messages.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use crate::bindings;

/// Whether another message that a peer can cause may be logged: ten in five seconds, for all peers together. The kernel
/// logs the number of suppressed ones.
/// Context: any.
pub fn peer() -> bool {
    // SAFETY: No precondition.
    unsafe { bindings::ratelimit_peer() }
}

/// The same for a message about the links of a group, which tell whether it is redundant.
/// Context: any.
pub fn links() -> bool {
    // SAFETY: No precondition.
    unsafe { bindings::ratelimit_links() }
}
