// SPDX-License-Identifier: GPL-2.0

//! Counters of each network namespace (C file `smc_stats.c`).

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::prelude::*;
use smc_proto::{
    lgr::Role,
    reason::Reason,
    wire::Version, //
};

/// A monotonic counter.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds to it.
    /// Context: any.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Returns its value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Bytes (or elements) in use now.
pub(crate) struct Gauge(Atomic<u64>);

impl Gauge {
    /// Creates a gauge of zero.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }

    /// Returns its value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Accounts `bytes` until the result is dropped, which may be after the namespace has ended.
    pub(crate) fn hold(gauge: &Arc<Self>, bytes: u64) -> InUse {
        gauge.0.fetch_add(bytes, Relaxed);
        InUse {
            gauge: gauge.clone(),
            bytes,
        }
    }
}

/// Accounts bytes as used until dropped.
pub(crate) struct InUse {
    gauge: Arc<Gauge>,
    bytes: u64,
}

impl InUse {
    /// Accounts `bytes` more.
    pub(crate) fn hold_more(&mut self, bytes: u64) {
        self.gauge.0.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// Buffers of one direction.
pub(crate) struct Buffers {
    /// Buffers assigned to connections, by size: up to 8 KiB, 16 KiB, and so on.
    pub(crate) sizes: [Counter; SIZES],
    /// Bytes in use.
    pub(crate) in_use: Arc<Gauge>,
    /// Reused buffers, and newly allocated ones.
    pub(crate) reused: Counter,
    pub(crate) made: Counter,
    /// Buffers smaller than requested.
    pub(crate) shrunk: Counter,
    /// Times a buffer was full, here and at the peer.
    pub(crate) full: Counter,
    pub(crate) peer_full: Counter,
    /// Times a buffer was smaller than the data to send or receive, here and at the peer.
    pub(crate) small: Counter,
    pub(crate) peer_small: Counter,
}

impl Buffers {
    fn new() -> Result<Self> {
        Ok(Self {
            sizes: [const { Counter::new() }; SIZES],
            in_use: Gauge::new()?,
            reused: Counter::new(),
            made: Counter::new(),
            shrunk: Counter::new(),
            full: Counter::new(),
            peer_full: Counter::new(),
            small: Counter::new(),
            peer_small: Counter::new(),
        })
    }

    /// Counts a read that found more data than requested, or a full ring.
    pub(crate) fn count_read(&self, is_small: bool, is_full: bool) {
        self.small.add(is_small.into());
        self.full.add(is_full.into());
    }

    /// Counts a buffer of `got` bytes for a connection that requested `want`, new (`is_new`) or reused.
    pub(crate) fn count(&self, want: u32, got: u32, is_new: bool) {
        if let Some(counter) = self.sizes.get(bucket(got as usize)) {
            counter.add(1);
        }
        match is_new {
            true => self.made.add(1),
            false => self.reused.add(1),
        }
        if got < want {
            self.shrunk.add(1);
        }
    }

    /// Accounts `bytes` as used until the result is dropped.
    pub(crate) fn hold(&self, bytes: u32) -> InUse {
        Gauge::hold(&self.in_use, bytes.into())
    }
}

/// Calls and bytes of one direction.
pub(crate) struct Traffic {
    /// Calls that transferred nothing.
    idle_calls: Counter,
    pub(crate) bytes: Counter,
    /// The other calls by size: up to 8 KiB, 16 KiB, and so on; the last is above 1 MiB.
    pub(crate) sizes: [Counter; SIZES],
}

/// Number of size classes.
pub(crate) const SIZES: usize = 9;

impl Traffic {
    const fn new() -> Self {
        Self {
            idle_calls: Counter::new(),
            bytes: Counter::new(),
            sizes: [const { Counter::new() }; SIZES],
        }
    }

    /// Counts a call that transferred `moved` bytes, in the class of `size`.
    pub(crate) fn count(&self, moved: usize, size: usize) {
        let counter = match moved > 0 && size > 0 {
            true => self.sizes.get(bucket(size)),
            false => Some(&self.idle_calls),
        };
        if let Some(counter) = counter {
            counter.add(1);
        }
        if moved > 0 {
            self.bytes.add(moved as u64);
        }
    }

    /// Returns how many calls there were, including failed ones.
    pub(crate) fn calls(&self) -> u64 {
        let sizes = self.sizes.iter().map(Counter::get);
        sizes.fold(self.idle_calls.get(), u64::saturating_add)
    }
}

/// Returns 0 for up to 8 KiB, and one more for each doubling.
fn bucket(size: usize) -> usize {
    let steps = usize::BITS - (size.saturating_sub(1) >> 13).leading_zeros();
    (steps as usize).min(SIZES - 1)
}

/// Fallbacks of one side.
pub(crate) struct Fallbacks {
    pub(crate) total: Counter,
    /// For each of [`Reason::ALL`].
    pub(crate) by_reason: [Counter; Reason::ALL.len()],
}

impl Fallbacks {
    const fn new() -> Self {
        Self {
            total: Counter::new(),
            by_reason: [const { Counter::new() }; Reason::ALL.len()],
        }
    }

    fn count(&self, reason: Reason) {
        self.total.add(1);
        let i = Reason::ALL.iter().position(|other| *other == reason);
        if let Some(counter) = i.and_then(|i| self.by_reason.get(i)) {
            counter.add(1);
        }
    }
}

/// Handshakes of one side that led to a connection, by version.
pub(crate) struct Successes {
    pub(crate) v1: Counter,
    pub(crate) v2: Counter,
}

impl Successes {
    const fn new() -> Self {
        Self {
            v1: Counter::new(),
            v2: Counter::new(),
        }
    }

    /// Counts a connection of `version`.
    pub(crate) fn count(&self, version: Version) {
        match version {
            Version::V1 => self.v1.add(1),
            Version::V2 => self.v2.add(1),
        }
    }
}

/// Handshakes of one side that led to none.
pub(crate) struct Handshakes {
    pub(crate) errors: Counter,
    pub(crate) fallbacks: Fallbacks,
}

impl Handshakes {
    const fn new() -> Self {
        Self {
            errors: Counter::new(),
            fallbacks: Fallbacks::new(),
        }
    }
}

/// The counters of one technology.
pub(crate) struct Technology {
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    pub(crate) send_buffers: Buffers,
    pub(crate) rmbs: Buffers,
    pub(crate) urgent: Counter,
    pub(crate) uncorked: Counter,
    pub(crate) nodelay: Counter,
    pub(crate) client: Successes,
    pub(crate) server: Successes,
}

impl Technology {
    fn new() -> Result<Self> {
        Ok(Self {
            sent: Traffic::new(),
            received: Traffic::new(),
            send_buffers: Buffers::new()?,
            rmbs: Buffers::new()?,
            urgent: Counter::new(),
            uncorked: Counter::new(),
            nodelay: Counter::new(),
            client: Successes::new(),
            server: Successes::new(),
        })
    }

    /// Returns the handshakes of one side that led to a connection.
    pub(crate) fn successes(&self, role: Role) -> &Successes {
        match role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }
}

/// The counters of a namespace.
pub(crate) struct Stats {
    pub(crate) smcr: Technology,
    pub(crate) smcd: Technology,
    pub(crate) client: Handshakes,
    pub(crate) server: Handshakes,
}

impl Stats {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            smcr: Technology::new()?,
            smcd: Technology::new()?,
            client: Handshakes::new(),
            server: Handshakes::new(),
        })
    }

    /// Returns the handshake counters of one side.
    pub(crate) fn handshakes(&self, role: Role) -> &Handshakes {
        match role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }

    /// Counts a fallback to TCP.
    pub(crate) fn fell_back(&self, role: Role, reason: Reason) {
        self.handshakes(role).fallbacks.count(reason);
    }
}
