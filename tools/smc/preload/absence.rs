// SPDX-License-Identifier: GPL-2.0

//! Whether the kernel has no SMC, remembered for a while.
//!
//! A kernel that lacks a family or a protocol starts modprobe at each call that asks for it, three
//! times for the two ways to an SMC socket. A program with many connections would have the kernel
//! start thousands of processes a second, and wait for them.

use core::time::Duration;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// How long the kernel is not asked again. A module that is loaded later is used then.
const PAUSE: Duration = Duration::from_secs(10);

/// What this process knows.
pub(crate) static KNOWN: Absence = Absence::new();

/// Until when the kernel is not asked, in nanoseconds since the machine started; 0 if it may have SMC.
pub(crate) struct Absence(AtomicU64);

impl Absence {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns whether the kernel had no SMC a short time ago.
    pub(crate) fn is_known(&self) -> bool {
        // ORDERING: only the number itself is shared.
        match self.0.load(Ordering::Relaxed) {
            0 => false,
            until => now() < until,
        }
    }

    /// Remembers that the kernel has none.
    pub(crate) fn note(&self) {
        // CAST: 584 years.
        let until = now().saturating_add(PAUSE.as_nanos() as u64);
        self.0.store(until, Ordering::Relaxed);
    }
}

/// Nanoseconds since the machine started. Allowed in a signal handler. (rustix would want a vDSO, which not every
/// kernel has.)
fn now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` can be written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    // CAST: neither is negative.
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}
