// SPDX-License-Identifier: GPL-2.0

//! Elements that the peer may still write to although no connection uses them (RFC 7609 section 4.4.2:
//! an element is not given to another connection before the peer is known to have stopped).
//!
//! Such an element is not reused until the key of its RMB is invalid for the peer: the peer has answered a
//! DELETE_RKEY, or the group has ended. Its memory stays registered until then.

use kernel::sync::Arc;

use crate::stats::{
    Gauge,
    InUse, //
};

/// One in so many connections of a group may leave an element quarantined; above that the group accepts no connection
/// until RMBs have been deleted.
const QUARANTINE_DIVISOR: usize = 4;

/// The quarantined elements of one RMB.
pub(super) struct Quarantine {
    /// One bit for each element.
    pub(super) bits: [u64; 4],
    /// Accounts them in the group.
    of_pool: InUse,
    /// No element of the RMB may be taken: the peer did not take its key, or is asked to delete it.
    pub(super) is_retired: bool,
}

impl Quarantine {
    /// Creates an empty set, accounted in the group's `of_pool`.
    pub(super) fn new(of_pool: &Arc<Gauge>) -> Self {
        Self {
            bits: [0; 4],
            of_pool: Gauge::hold(of_pool, 0),
            is_retired: false,
        }
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.bits
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Accounts one more, whose bit is set.
    pub(super) fn count(&mut self) {
        self.of_pool.hold_more(1);
    }
}

/// Returns how many elements of a group of at most `max_conns` connections may be quarantined before it accepts no
/// further connection.
pub(super) fn limit(max_conns: usize) -> usize {
    (max_conns / QUARANTINE_DIVISOR).max(1)
}
