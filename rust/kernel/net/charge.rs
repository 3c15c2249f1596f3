// SPDX-License-Identifier: GPL-2.0

//! Memory that counts as a socket's, as that of TCP does.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use kernel::{
    prelude::*,
    sync::aref::ARef, //
};

use super::Sk;
use crate::bindings;

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Data on their way to the peer.
    Send,
    /// Data from the peer.
    Receive,
}

/// Memory that counts as a socket's until this is dropped: SO_MEMINFO shows it, and its cgroup is charged for
/// it. May be dropped where sleeping is not allowed, but not from interrupts, nor with the socket's spinlock
/// held.
///
/// # Invariants
///
/// `bytes` are charged to `sk`, and part of its counter for `purpose`.
pub struct Charge {
    sk: ARef<Sk>,
    purpose: Purpose,
    bytes: i32,
}

impl Charge {
    /// Charges a socket. The context is that of dropping it.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if its cgroup may not have more.
    pub fn new(sk: &Sk, purpose: Purpose, bytes: u32) -> Result<Self> {
        let bytes = i32::try_from(bytes)?;
        let ptr = sk.as_ptr();
        let is_granted = sk.with_spinlock(|| {
            let is_granted = match purpose {
                // SAFETY: The socket is alive and its lock held.
                Purpose::Send => unsafe { bindings::sk_wmem_schedule(ptr, bytes) },
                // SAFETY: As above.
                Purpose::Receive => unsafe { bindings::sk_rmem_schedule(ptr, bytes) },
            };
            if is_granted {
                // SAFETY: As above.
                unsafe { bindings::sk_mem_charge(ptr, bytes) };
                // SAFETY: As above.
                unsafe { count(ptr, purpose, bytes) };
            }
            is_granted
        });
        if !is_granted {
            return Err(ENOMEM);
        }
        // INVARIANT: Both was just done.
        Ok(Self {
            sk: sk.into(),
            purpose,
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let (sk, purpose, bytes) = (self.sk.as_ptr(), self.purpose, self.bytes);
        self.sk.with_spinlock(|| {
            // SAFETY: The socket is alive and its lock held; by the type invariant so much is counted.
            unsafe { count(sk, purpose, -bytes) };
            // SAFETY: As above; by the type invariant so much is charged.
            unsafe { bindings::sk_mem_uncharge(sk, bytes) };
        });
    }
}

/// Adds to the counter for a purpose.
///
/// # Safety
///
/// `sk` must be alive and its spinlock held.
unsafe fn count(sk: *mut bindings::sock, purpose: Purpose, bytes: i32) {
    match purpose {
        // SAFETY: By the caller's promise.
        Purpose::Send => unsafe { bindings::sk_wmem_queued_add(sk, bytes) },
        // SAFETY: By the caller's promise.
        Purpose::Receive => unsafe { bindings::sk_rmem_alloc_add(sk, bytes) },
    }
}

impl Sk {
    /// Runs `f`, which must not sleep, with the spinlock of the socket held.
    fn with_spinlock<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: The socket is alive.
        unsafe { bindings::sk_spin_lock_bh(self.as_ptr()) };
        let result = f();
        // SAFETY: As above, and locked by us.
        unsafe { bindings::sk_spin_unlock_bh(self.as_ptr()) };
        result
    }
}
