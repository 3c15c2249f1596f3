// SPDX-License-Identifier: GPL-2.0

//! The paths of a network namespace on which RDMA packets, or SYNs that offer SMC, did not get through: see
//! [`smc_proto::handshake::paths`].

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use kernel_ext::{
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    handshake::paths::{
        self,
        Avoidance,
        Path,
        Verdict, //
    },
    time::Instant, //
};

/// Incremented when ports or the names of networks change, which invalidates earlier results.
static GENERATION: Atomic<u32> = Atomic::new(0);

/// Forgets all paths of all namespaces, as a port was added or changed.
/// Context: any.
pub(crate) fn forget_all() {
    GENERATION.fetch_add(1, Relaxed);
}

/// The paths of a namespace.
#[pin_data]
pub(crate) struct Paths {
    /// Whether a path has ever failed. Each connection asks for the path of its SYN.
    has_failed: Atomic<bool>,
    /// Lock order: innermost.
    #[pin]
    table: SpinLockBh<KVec<paths::PathEntry>>,
}

impl Paths {
    /// Creates a table without failed paths.
    pub(crate) fn new() -> Result<impl PinInit<Self>> {
        let places = KVec::from_elem(None, paths::MAX, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            has_failed: Atomic::new(false),
            table <- new_spinlock_bh!(places, "smc::Paths::table"),
        }))
    }

    /// Returns whether a connection may use a path.
    pub(crate) fn check(&self, path: &Path, now: Instant) -> Verdict {
        if !self.has_failed.load(Relaxed) {
            return Verdict::Usable;
        }
        self.with(|table, generation| table.check(path, generation, now))
    }

    /// Packets did not get through: avoids the path for a time.
    pub(crate) fn failed(&self, path: &Path, avoids: Avoidance, now: Instant) {
        self.has_failed.store(true, Relaxed);
        self.with(|table, generation| table.failed(path, generation, avoids, now));
    }

    /// Packets may not have got through: avoids the path until it is known.
    pub(crate) fn suspect(&self, path: &Path, now: Instant) {
        self.has_failed.store(true, Relaxed);
        self.with(|table, generation| table.suspect(path, generation, now));
    }

    /// Other packets got through: a path that is suspected has failed.
    pub(crate) fn confirm(&self, path: &Path, avoids: Avoidance, now: Instant) {
        self.with(|table, generation| table.confirm(path, generation, avoids, now));
    }

    /// Other packets did not get through, either: the path is suspected no more.
    pub(crate) fn acquit(&self, path: &Path) {
        self.with(|table, _| table.acquit(path));
    }

    /// Packets got through: clears the path's failure.
    pub(crate) fn worked(&self, path: &Path) {
        if self.has_failed.load(Relaxed) {
            self.with(|table, _| table.worked(path));
        }
    }

    /// Runs `f` with the table and the generation that its entries have now.
    fn with<R>(&self, f: impl FnOnce(&mut paths::PathTable<'_>, u32) -> R) -> R {
        let generation = GENERATION.load(Relaxed);
        f(
            &mut paths::PathTable::new(&mut self.table.lock()),
            generation,
        )
    }
}
