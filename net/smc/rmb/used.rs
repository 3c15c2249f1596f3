// SPDX-License-Identifier: GPL-2.0

//! What of the buffers is in use, and how much memory is kept that no connection uses.

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::time;
use smc_proto::time::Instant;

use crate::stats::{
    Gauge,
    InUse, //
};

/// Bytes of all buffers that are kept for connections to come.
static UNUSED: Atomic<u64> = Atomic::new(0);

/// Bytes of all buffers, of all groups, that could be freed if memory is short. Any context.
pub(crate) fn unused_bytes() -> u64 {
    UNUSED.load(Relaxed)
}

/// So many bytes could be freed, while it lives.
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

/// Which elements of a region are in use.
pub(super) struct Used {
    /// One bit for each element.
    bits: [u64; 4],
    /// Bytes of the region.
    bytes: u64,
    /// The unused regions of the group.
    pool: Arc<Gauge>,
    /// While no element is in use.
    idle: Option<Idle>,
}

/// A region of which no element is in use.
struct Idle {
    since: Instant,
    _of_all: Unused,
    _of_pool: InUse,
}

impl Used {
    /// No element of a region of so many bytes is in use.
    pub(super) fn new(bytes: u64, pool: &Arc<Gauge>) -> Self {
        let mut used = Self {
            bits: [0; 4],
            bytes,
            pool: pool.clone(),
            idle: None,
        };
        used.rest();
        used
    }

    /// Takes one of the first `elements`, if one is free.
    pub(super) fn take(&mut self, elements: usize) -> Option<usize> {
        let free = (0..elements).find(|i| !bit(&self.bits, *i))?;
        set_bit(&mut self.bits, free, true);
        self.idle = None;
        Some(free)
    }

    pub(super) fn give_back(&mut self, element: usize) {
        set_bit(&mut self.bits, element, false);
        if self.bits == [0; 4] {
            self.rest();
        }
    }

    fn rest(&mut self) {
        self.idle = Some(Idle {
            since: Instant::from_nanos(time::now_ns()),
            _of_all: Unused::new(self.bytes),
            _of_pool: Gauge::hold(&self.pool, self.bytes),
        });
    }

    /// Since when no element has been in use; `None` while one is.
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
