// SPDX-License-Identifier: GPL-2.0

//! Memory accounted to a socket, as TCP does.
//!
//! The counters are guarded by the ownership of the socket, as TCP's are: a charge may wait for its cgroup to reclaim
//! memory, for which a spinlock must not be held. An uncharge that finds the socket owned is left to the owner, in
//! [`release_callback`].
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::mem;

use kernel::{
    page::PAGE_SIZE,
    sync::aref::ARef,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

#[cfg(CONFIG_MEMCG)]
use super::memcg;
use super::{
    sock::{
        Owed,
        SmcSock, //
    },
    sock_lock::try_owned,
    Sk, //
};
#[cfg(CONFIG_MEMCG)]
use crate::rcu;
use crate::{
    bindings,
    prelude::*, //
};

/// The purpose of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Data to be sent to the peer.
    Send,
    /// Data received from the peer.
    Receive,
}

/// The pauses of a worker that finds a socket owned: most calls own it for some microseconds.
const OWNED_PAUSES: [Delta; 3] = [
    Delta::from_micros(50),
    Delta::from_millis(1),
    Delta::from_millis(10),
];

/// A charge may use at most one in this many parts of what its cgroup has left.
const LEFT_DIVISOR: i32 = 4;

/// The minimum that a charge requests from its cgroup, bytes, for the moment of the charge: a cgroup out of memory
/// refuses that much, while for less the kernel kills one of its tasks to make room.
// CAST: Some 64 pages at most.
const REFUSABLE: i32 = (PAGE_SIZE << (bindings::PAGE_ALLOC_COSTLY_ORDER + 1)) as i32;

/// Memory accounted to a socket until this is dropped: SO_MEMINFO shows it, and its cgroup is charged for it. May be
/// dropped where sleeping is not allowed, but neither from interrupts nor with the socket's spinlock held.
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
    /// Charges a socket.
    /// Context: may sleep while its cgroup (v2) reclaims memory; no task is killed for it.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if its cgroup may not have four times as much.
    pub fn new(sk: &Sk, purpose: Purpose, bytes: u32) -> Result<Self> {
        let bytes = i32::try_from(bytes)?;
        // SAFETY: The socket is alive and owned by us.
        sk.owned(|ptr| unsafe { charge_within(ptr, purpose, bytes) })?;
        // INVARIANT: So much was just charged.
        Ok(Self {
            sk: sk.into(),
            purpose,
            bytes,
        })
    }

    /// As [`Self::new`], for data that were received, in a worker: not while a call of the application owns the socket,
    /// as one that reads its memory then (SO_GET_FILTER) does for as long as that memory takes.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if the socket is owned for longer than some milliseconds.
    pub fn received_in_work(sk: &Sk, bytes: u32) -> Result<Self> {
        let bytes = i32::try_from(bytes)?;
        let purpose = Purpose::Receive;
        let charge = || {
            // SAFETY: The socket is alive and, inside, owned by us.
            unsafe { try_owned(sk.as_ptr(), |ptr| charge_within(ptr, purpose, bytes)) }
        };
        let mut result = charge();
        for pause in OWNED_PAUSES {
            if result.is_none() {
                fsleep(pause);
                result = charge();
            }
        }
        result.unwrap_or(Err(ENOMEM))?;
        // INVARIANT: So much was just charged.
        Ok(Self {
            sk: sk.into(),
            purpose,
            bytes,
        })
    }

    /// Charges a socket for data to send regardless of its cgroup's limit, as TCP does for a stream with nothing in
    /// flight, which could not make progress otherwise.
    /// Context: may sleep.
    pub fn force(sk: &Sk, bytes: u32) -> Result<Self> {
        let bytes = i32::try_from(bytes)?;
        // SAFETY: The spinlock is held, and the socket owned by us.
        let granted = sk.owned(|_| sk.with_spinlock(|| unsafe { force_locked(sk, bytes) }));
        // INVARIANT: So much was just charged.
        Ok(Self {
            sk: sk.into(),
            purpose: Purpose::Send,
            bytes: granted,
        })
    }

    /// How many bytes are charged.
    pub fn bytes(&self) -> u32 {
        // By the type invariant; a socket is never charged for less than nothing.
        self.bytes.unsigned_abs()
    }

    /// Whether `sk` is the socket that is charged.
    pub fn is_of(&self, sk: &Sk) -> bool {
        core::ptr::eq(&raw const *self.sk, sk)
    }

    /// Whether [`Self::new`] would grant so much without taking other memory from the socket's cgroup.
    /// Context: any.
    #[cfg(CONFIG_MEMCG)]
    pub fn has_room(sk: &Sk, bytes: u32) -> bool {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        let _rcu = rcu::read_lock();
        // SAFETY: The socket is alive, and this is an RCU read section.
        unsafe { memcg::has_room(sk.as_ptr(), asked(bytes)) }
    }

    /// The same, without cgroups.
    /// Context: any.
    #[cfg(not(CONFIG_MEMCG))]
    pub fn has_room(_sk: &Sk, _bytes: u32) -> bool {
        true
    }

    /// As [`Self::new`], for data that were received, where sleeping is not allowed: only if nobody owns the socket.
    /// Context: does not sleep; neither from interrupts nor with the socket's spinlock held.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if somebody does, `ENOMEM`.
    pub fn try_received(sk: &Sk, bytes: u32) -> Result<Self> {
        let bytes = i32::try_from(bytes)?;
        let purpose = Purpose::Receive;
        sk.with_spinlock(|| {
            // SAFETY: The socket is alive and its lock held.
            if unsafe { bindings::sock_owned_by_user(sk.as_ptr()) } {
                return Err(EAGAIN);
            }
            #[cfg(CONFIG_MEMCG)]
            // SAFETY: As above, and nobody owns the socket.
            if !unsafe { memcg::has_room(sk.as_ptr(), asked(bytes)) } {
                return Err(ENOMEM);
            }
            // SAFETY: The spinlock is held, so that the charge does not wait for memory, and nobody owns the socket.
            unsafe { charge_within(sk.as_ptr(), purpose, bytes) }
        })?;
        // INVARIANT: So much was just charged.
        Ok(Self {
            sk: sk.into(),
            purpose,
            bytes,
        })
    }
}

/// What a cgroup must have left for a charge: a buffer may stay empty, and the tasks of the cgroup need memory for
/// other things.
fn asked(bytes: i32) -> i32 {
    bytes.saturating_mul(LEFT_DIVISOR).max(REFUSABLE)
}

/// Charges a socket, if its cgroup may have four times as much.
///
/// # Errors
///
/// `ENOMEM` if not.
///
/// # Safety
///
/// `sk` must be alive. The caller must own it, or hold its spinlock while nobody owns it.
unsafe fn charge_within(sk: *mut bindings::sock, purpose: Purpose, bytes: i32) -> Result {
    // Receive memory for both purposes: the kernel grants a stream's send buffer in any case.
    // SAFETY: By the caller's promise.
    if !unsafe { bindings::sk_rmem_schedule(sk, asked(bytes)) } {
        return Err(ENOMEM);
    }
    // SAFETY: As above, and granted.
    unsafe { charge(sk, purpose, bytes) };
    // SAFETY: As above. The excess of the request is returned.
    unsafe { bindings::sk_mem_reclaim(sk) };
    Ok(())
}

/// Charges a socket for data to send regardless of limits, and returns how much was charged: `bytes`, or 0 where even
/// that is not granted.
///
/// # Safety
///
/// The socket's spinlock must be held, and the socket owned by the caller or not at all.
unsafe fn force_locked(sk: &Sk, bytes: i32) -> i32 {
    let ptr = sk.as_ptr();
    // With the spinlock held, the charge does not wait for memory, and cgroup v2 grants the request; all else grants it
    // to a stream that has reached SO_SNDBUF.
    let lead = sk.lead_to_sndbuf(bytes);
    // SAFETY: The socket is alive and its lock held.
    unsafe { bindings::sk_wmem_queued_add(ptr, lead) };
    // SAFETY: As above.
    let is_granted = unsafe { bindings::sk_wmem_schedule(ptr, bytes) };
    // SAFETY: As above.
    unsafe { bindings::sk_wmem_queued_add(ptr, -lead) };
    if !is_granted {
        return 0;
    }
    // SAFETY: By the caller's promise.
    unsafe { charge(ptr, Purpose::Send, bytes) };
    bytes
}

impl Drop for Charge {
    fn drop(&mut self) {
        let (sk, purpose, bytes) = (self.sk.as_ptr(), self.purpose, self.bytes);
        self.sk.with_spinlock(|| {
            // SAFETY: The socket is alive and its lock held.
            if unsafe { bindings::sock_owned_by_user(sk) } {
                // SAFETY: As above.
                let owed = unsafe { owed(sk) };
                match purpose {
                    Purpose::Send => owed.send += bytes,
                    Purpose::Receive => owed.receive += bytes,
                }
            } else {
                // SAFETY: As above, and it is not owned; by the type invariant that much is charged.
                unsafe { uncharge(sk, purpose, bytes) };
            }
        });
    }
}

/// The deferred uncharges of a socket.
///
/// # Safety
///
/// `sk` must be a [`SmcSock`] and alive, and its spinlock held while the result is in use.
unsafe fn owed<'a>(sk: *mut bindings::sock) -> &'a mut Owed {
    // SAFETY: By the caller's promise; the spinlock excludes others.
    unsafe { &mut (*sk.cast::<SmcSock>()).owed }
}

/// The owner releases a socket: performs the uncharges deferred meanwhile.
///
/// # Safety
///
/// To be called only by the kernel, for sockets of our kinds, with the spinlock held and the socket owned.
pub(super) unsafe extern "C" fn release_callback(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    let owed = unsafe { owed(sk) };
    for (purpose, bytes) in [
        (Purpose::Send, &mut owed.send),
        (Purpose::Receive, &mut owed.receive),
    ] {
        let bytes = mem::take(bytes);
        if bytes != 0 {
            // SAFETY: By the caller's promise; that much was charged by the dropped charges.
            unsafe { uncharge(sk, purpose, bytes) };
        }
    }
}

/// Adds granted bytes to the counter for a purpose.
///
/// # Safety
///
/// `sk` must be alive, and that much granted to it. The caller must own it, or hold its spinlock while nobody owns it.
unsafe fn charge(sk: *mut bindings::sock, purpose: Purpose, bytes: i32) {
    // SAFETY: By the caller's promise.
    unsafe { bindings::sk_mem_charge(sk, bytes) };
    // SAFETY: By the caller's promise.
    unsafe { count(sk, purpose, bytes) };
}

/// Undoes [`charge`].
///
/// # Safety
///
/// `sk` must be alive and its spinlock held, and owned by the caller or not at all.
unsafe fn uncharge(sk: *mut bindings::sock, purpose: Purpose, bytes: i32) {
    // SAFETY: By the caller's promise.
    unsafe { count(sk, purpose, -bytes) };
    // SAFETY: By the caller's promise.
    unsafe { bindings::sk_mem_uncharge(sk, bytes) };
}

/// Adds to the counter for a purpose.
///
/// # Safety
///
/// As for [`charge`] or [`uncharge`].
unsafe fn count(sk: *mut bindings::sock, purpose: Purpose, bytes: i32) {
    match purpose {
        // SAFETY: By the caller's promise.
        Purpose::Send => unsafe { bindings::sk_wmem_queued_add(sk, bytes) },
        // SAFETY: By the caller's promise.
        Purpose::Receive => unsafe { bindings::sk_rmem_alloc_add(sk, bytes) },
    }
}

impl Sk {
    /// Runs `f`, which may sleep, while the caller owns the socket.
    /// Context: may sleep.
    fn owned<R>(&self, f: impl FnOnce(*mut bindings::sock) -> R) -> R {
        // SAFETY: The socket is alive; sleeping is allowed.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), 0) };
        let result = f(self.as_ptr());
        // SAFETY: As above, and locked by us.
        unsafe { bindings::release_sock(self.as_ptr()) };
        result
    }

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
