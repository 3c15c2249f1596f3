// SPDX-License-Identifier: GPL-2.0

//! Elements that the peer may still write to although no connection uses them (RFC 7609 section 4.4.2:
//! an element is not given to another connection before the peer is known to have stopped).
//!
//! Such an element stays out of use until the key of its region is of no use to the peer any more: the peer
//! has answered a DELETE_RKEY, or the group has ended. Its memory stays registered meanwhile.

use kernel::sync::Arc;

use crate::stats::{
    Gauge,
    InUse, //
};

/// One of so many connections of a group may leave an element in quarantine; with more of them the group
/// takes no connection until regions have been deleted.
const PART: usize = 4;

/// The elements of one region that are in quarantine.
pub(super) struct Quarantine {
    /// One bit for each element.
    pub(super) bits: [u64; 4],
    /// Counts them among those of the group.
    of_pool: InUse,
    /// Nobody is to take an element of the region: the peer was asked to delete its key.
    pub(super) is_retired: bool,
}

impl Quarantine {
    /// None yet, of a region of the group that counts them in `of_pool`.
    pub(super) fn new(of_pool: &Arc<Gauge>) -> Self {
        Self {
            bits: [0; 4],
            of_pool: Gauge::hold(of_pool, 0),
            is_retired: false,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bits
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// There is one more, whose bit is set.
    pub(super) fn count(&mut self) {
        self.of_pool.hold_more(1);
    }
}

/// How many elements of a group of at most `max_conns` connections may be in quarantine before it takes no
/// further connection.
pub(super) fn limit(max_conns: usize) -> usize {
    (max_conns / PART).max(1)
}
