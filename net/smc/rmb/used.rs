// SPDX-License-Identifier: GPL-2.0

//! Accounting of buffers in use, and of memory kept in unused buffers.

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc, //
};
use smc_proto::time::Instant;

use super::quarantine::Quarantine;
use crate::clock::now;
use crate::stats::{
    Gauge,
    InUse, //
};

/// Bytes of all buffers kept for later connections.
static UNUSED: Atomic<u64> = Atomic::new(0);

/// Returns the bytes of buffers, of all groups, that can be freed if memory is short.
/// Context: any.
pub(crate) fn unused_bytes() -> u64 {
    UNUSED.load(Relaxed)
}

/// Accounts bytes that can be freed, until dropped.
pub(super) struct Unused(u64);

impl Unused {
    pub(super) fn new(bytes: u64) -> Self {
        UNUSED.fetch_add(bytes, Relaxed);
        Self(bytes)
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        UNUSED.fetch_sub(self.0, Relaxed);
    }
}

/// Tracks the elements of an RMB that are in use.
pub(super) struct RmbeBitmap {
    /// One bit for each element.
    bits: [u64; 4],
    /// Bytes of the RMB.
    bytes: u64,
    /// The unused RMBs of the group.
    pool: Arc<Gauge>,
    /// Set while no element is in use except quarantined ones.
    idle: Option<IdleRmb>,
    /// Elements marked as used without a connection.
    quarantine: Quarantine,
}

/// An RMB without an element in use by a connection.
struct IdleRmb {
    since: Instant,
    _of_all: Unused,
    _of_pool: InUse,
}

impl RmbeBitmap {
    /// Creates the state of an RMB of `bytes` with no element in use.
    pub(super) fn new(bytes: u64, pool: &Arc<Gauge>, quarantine: Quarantine) -> Self {
        let mut used = Self {
            bits: [0; 4],
            bytes,
            pool: pool.clone(),
            idle: None,
            quarantine,
        };
        used.rest();
        used
    }

    /// Takes a free one of the first `elements`, if any.
    pub(super) fn take(&mut self, elements: usize) -> Option<usize> {
        if self.quarantine.is_retired {
            return None;
        }
        let free = (0..elements).find(|i| !bit(&self.bits, *i))?;
        set_bit(&mut self.bits, free, true);
        self.idle = None;
        Some(free)
    }

    pub(super) fn give_back(&mut self, element: usize) {
        set_bit(&mut self.bits, element, false);
        self.rest_if_unused();
    }

    /// Quarantines an element whose connection is gone, as the peer may still write to it.
    pub(super) fn quarantine(&mut self, element: usize) {
        set_bit(&mut self.quarantine.bits, element, true);
        self.quarantine.count();
        self.rest_if_unused();
    }

    /// Returns the number of quarantined elements.
    pub(super) fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// No element can be taken any more.
    pub(super) fn retire(&mut self) {
        self.quarantine.is_retired = true;
    }

    /// Returns true if no element can be taken any more.
    pub(super) fn is_retired(&self) -> bool {
        self.quarantine.is_retired
    }

    fn rest_if_unused(&mut self) {
        if self.bits == self.quarantine.bits {
            self.rest();
        }
    }

    fn rest(&mut self) {
        self.idle = Some(IdleRmb {
            since: now(),
            _of_all: Unused::new(self.bytes),
            _of_pool: Gauge::hold(&self.pool, self.bytes),
        });
    }

    /// Returns since when no connection has used an element; `None` while one does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        Some(self.idle.as_ref()?.since)
    }
}

fn bit(words: &[u64; 4], i: usize) -> bool {
    words
        .get(i / 64)
        .is_some_and(|word| word & (1 << (i % 64)) != 0)
}

fn set_bit(words: &mut [u64; 4], i: usize, on: bool) {
    if let Some(word) = words.get_mut(i / 64) {
        let mask = 1 << (i % 64);
        *word = if on { *word | mask } else { *word & !mask };
    }
}
