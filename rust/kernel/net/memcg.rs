// SPDX-License-Identifier: GPL-2.0

//! The cgroup that is charged for the memory of a socket.
//!
//! As with TCP (C function `__inet_accept`) it is that of the task which accepts a connection, and not of the one which
//! made the listener: systemd makes those of its services. Handshakes run in workers, which have no cgroup. What a
//! connection has before accept(2) is charged to the listener's cgroup, and moves then.

use core::ptr;

use kernel::page::PAGE_SIZE;

use super::{
    sock_alloc::alloc,
    Sk,
    TcpSocket,
    UnattachedSk, //
};
use crate::{
    bindings,
    prelude::*,
    rcu, //
};

impl UnattachedSk {
    /// Charges the connection to the cgroup of the current task from now on, and the TCP connection below it unless
    /// that has a cgroup, or memory, already. Without memory for that they stay charged as they are.
    /// Context: process, may sleep.
    pub fn charge_to_caller(self, tcp: &TcpSocket) -> Self {
        let sk = self.sk();
        let front = sk.as_ptr();
        // SAFETY: It is alive.
        if !unsafe { is_callers(front) } {
            let Ok(purse) = Purse::new(&sk) else {
                return self;
            };
            // SAFETY: It is alive; sleeping is allowed, and it is locked meanwhile. Nobody polls it before it is
            // attached.
            unsafe {
                bindings::lock_sock_nested(front, 0);
                purse.take_over(front);
                bindings::release_sock(front);
            }
        }
        // SAFETY: Both are alive. The cgroup of a connection that is not attached changes above only, and there is one
        // `UnattachedSk` of it.
        unsafe { share(front, tcp.sk_ptr()) };
        self
    }
}

/// Has `tcp`, if it is of no cgroup, be one of the cgroup of `front` from now on, unless it has memory that is charged
/// to none. Who looks at it without its lock finds no cgroup or this one, which lives on.
/// Context: may sleep.
///
/// # Safety
///
/// Both must be alive, and the cgroup of `front` the same until this returns.
unsafe fn share(front: *mut bindings::sock, tcp: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    let memcg = unsafe { (*front).sk_memcg };
    if memcg.is_null() {
        return;
    }
    // SAFETY: As above; `front` has a reference to its cgroup. Sleeping is allowed.
    unsafe {
        bindings::lock_sock_nested(tcp, 0);
        let is_free = (*tcp).sk_memcg.is_null() && charged(tcp) == 0;
        if is_free && bindings::mem_cgroup_tryget(memcg) {
            (&raw mut (*tcp).sk_memcg).write_volatile(memcg);
        }
        bindings::release_sock(tcp);
    }
}

/// Whether the cgroup of a socket, and those above it, may have so many bytes more. The kernel grants a charge that may
/// not wait in any case.
/// Context: any; it may have changed when this returns.
///
/// # Safety
///
/// `sk` must be alive. The caller must be in an RCU read section, or hold a spinlock with bottom halves disabled.
pub(super) unsafe fn has_room(sk: *const bindings::sock, bytes: i32) -> bool {
    // SAFETY: By the caller's promise, by which the cgroup is not freed.
    let memcg = unsafe { bindings::mem_cgroup_from_sk(sk) };
    if memcg.is_null() {
        return true;
    }
    let pages = usize::try_from(bytes).unwrap_or(0).div_ceil(PAGE_SIZE);
    // SAFETY: As above, and the cgroup has references to those above it; the fields are read whole.
    unsafe {
        let mut counter = &raw const (*memcg).memory;
        while !counter.is_null() {
            let used = (&raw const (*counter).usage.counter).read_volatile();
            let most = (&raw const (*counter).max).read_volatile();
            let used = usize::try_from(used).unwrap_or(0);
            if used.saturating_add(pages) > most as usize {
                return false;
            }
            counter = (*counter).parent;
        }
    }
    true
}

/// Whether a socket is charged to the cgroup of the current task, as far as that is seen without a reference. So it is
/// where sockets are charged to none.
///
/// # Safety
///
/// `sk` must be alive.
unsafe fn is_callers(sk: *const bindings::sock) -> bool {
    // SAFETY: Always safe to call.
    if !unsafe { bindings::mem_cgroup_has_sockets() } {
        return true;
    }
    let _rcu = rcu::read_lock();
    // SAFETY: In an RCU read section, during which the cgroup of the current task lives.
    let own = unsafe { bindings::mem_cgroup_from_current() };
    // SAFETY: As above.
    let own = match unsafe { bindings::mem_cgroup_is_root(own) } {
        true => ptr::null_mut(),
        false => own,
    };
    // SAFETY: By the caller's promise; the pointer is only compared.
    ptr::eq(unsafe { (&raw const (*sk).sk_memcg).read_volatile() }, own)
}

/// A socket that nobody sees, for charges to the cgroup of the current task: the kernel has no other way for modules to
/// find that cgroup by its rules, and to charge it.
///
/// # Invariants
///
/// Nothing else uses the socket, nothing is charged to it between calls, and it is a stream whose SO_SNDBUF is locked
/// at 0.
struct Purse(kernel::sync::aref::ARef<Sk>);

impl Purse {
    /// Context: may sleep.
    fn new(like: &Sk) -> Result<Self> {
        let sk = like.as_ptr();
        // SAFETY: `like` is alive, and holds its namespace and its kind.
        let purse = unsafe {
            let family = (*sk).__sk_common.skc_family;
            alloc(
                like.net_ptr(),
                family,
                (*sk).sk_prot_creator,
                ptr::null_mut(),
            )?
        };
        let new = purse.as_ptr();
        // SAFETY: Nothing else uses the new socket.
        unsafe {
            // CAST: small numbers.
            (*new).sk_type = bindings::sock_type_SOCK_STREAM as u16;
            (*new).sk_userlocks |= bindings::SOCK_SNDBUF_LOCK as u8;
            (*new).sk_sndbuf = 0;
        }
        // INVARIANT: New, and set up above.
        Ok(Self(purse))
    }

    /// Moves what `sk` has charged to the cgroup of this socket, which is that of `sk` from now on.
    ///
    /// # Safety
    ///
    /// `sk` must be alive and owned by the caller.
    unsafe fn take_over(&self, sk: *mut bindings::sock) {
        let purse = self.0.as_ptr();
        // SAFETY: Both are alive and ours.
        let (from, to) = unsafe { ((*sk).sk_memcg, (*purse).sk_memcg) };
        if ptr::eq(from, to) {
            return;
        }
        // SAFETY: By the caller's promise.
        let bytes = unsafe { charged(sk) };
        if !to.is_null() {
            // SAFETY: The purse has a reference.
            if !unsafe { bindings::mem_cgroup_tryget(to) } {
                return;
            }
            // SAFETY: The purse is ours. With its spinlock held the charge does not wait for memory, and no task is
            // killed for it; a stream that has reached its SO_SNDBUF is granted any.
            unsafe {
                bindings::sk_spin_lock_bh(purse);
                bindings::sk_wmem_schedule(purse, bytes);
                bindings::sk_spin_unlock_bh(purse);
                // What was charged is for `sk`. It counts in no sum, see `memory`.
                (*purse).sk_forward_alloc = 0;
            }
        }
        // SAFETY: By the caller's promise; the reference was taken above.
        unsafe { (&raw mut (*sk).sk_memcg).write_volatile(to) };
        if !from.is_null() {
            // SAFETY: The purse is ours; so much of `from` was charged for `sk`, and the reference that `sk` had is put
            // once.
            unsafe {
                (*purse).sk_memcg = from;
                (*purse).sk_forward_alloc = bytes;
                bindings::sk_mem_reclaim(purse);
                (*purse).sk_memcg = to;
                bindings::mem_cgroup_put(from);
            }
        }
    }
}

/// How much a socket has had granted, in bytes: a multiple of pages.
///
/// # Safety
///
/// `sk` must be alive and owned by the caller.
unsafe fn charged(sk: *mut bindings::sock) -> i32 {
    // SAFETY: By the caller's promise.
    let parts = unsafe {
        [
            (*sk).sk_forward_alloc,
            (*sk).sk_wmem_queued,
            bindings::sk_rmem_alloc_get(sk),
        ]
    };
    let bytes = parts.into_iter().fold(0, i32::saturating_add);
    // CAST: A page.
    let page = PAGE_SIZE as i32;
    bytes.max(0).saturating_add(page - 1) / page * page
}
