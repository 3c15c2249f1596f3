// SPDX-License-Identifier: GPL-2.0

//! The kinds of our sockets, and the allocation of a `struct sock` of one.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::sync::{
    aref::ARef,
    atomic::Atomic, //
};

use super::{
    sock::SmcSock,
    Sk, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// A kind of sockets, as `/proc/net/protocols` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SockKind {
    /// Of the separate family, over IPv4.
    Smc = 0,
    /// Of the separate family, over IPv6.
    Smc6 = 1,
    /// Of AF_INET, with a separate protocol number.
    InetSmc = 2,
    /// Of AF_INET6, with a separate protocol number.
    Inet6Smc = 3,
}

/// The kernel's records of the kinds.
struct Protos {
    protos: UnsafeCell<MaybeUninit<[bindings::proto; SockKind::COUNT]>>,
    taken: [Atomic<bool>; SockKind::COUNT],
}

// SAFETY: A record is written only in `ProtoRegistration::new`, by the caller that has set `taken`, before the kernel
// accesses it; the kernel synchronises its own use.
unsafe impl Sync for Protos {}

static PROTOS: Protos = Protos {
    protos: UnsafeCell::new(MaybeUninit::zeroed()),
    taken: [const { Atomic::new(false) }; SockKind::COUNT],
};

impl SockKind {
    const COUNT: usize = 4;

    /// The kernel's record of the kind.
    pub(super) fn proto(self) -> *mut bindings::proto {
        // CAST: The index of an element of the array.
        PROTOS
            .protos
            .get()
            .cast::<bindings::proto>()
            .wrapping_add(self as usize)
    }

    pub(super) fn taken(self) -> &'static Atomic<bool> {
        match self {
            Self::Smc => &PROTOS.taken[0],
            Self::Smc6 => &PROTOS.taken[1],
            Self::InetSmc => &PROTOS.taken[2],
            Self::Inet6Smc => &PROTOS.taken[3],
        }
    }
}

/// Whether a socket is one of ours, that is, a [`SmcSock`].
/// Context: any.
///
/// # Safety
///
/// `sk` must be a live socket.
pub(super) unsafe fn is_ours(sk: *const bindings::sock) -> bool {
    // SAFETY: By the caller's promise.
    let proto = unsafe { (&raw const (*sk).__sk_common.skc_prot).read_volatile() };
    let kinds = PROTOS.protos.get().cast::<bindings::proto>();
    (0..SockKind::COUNT).any(|kind| ptr::eq(proto, kinds.wrapping_add(kind)))
}

/// Allocates a `sk` of a registered kind, attached to `socket` if that is not null.
///
/// # Safety
///
/// `net` must be a live namespace, `proto` a registered kind, `socket` null or new.
pub(super) unsafe fn alloc(
    net: *mut bindings::net,
    family: u16,
    proto: *mut bindings::proto,
    socket: *mut bindings::socket,
) -> Result<ARef<Sk>> {
    let gfp = bindings::GFP_KERNEL;
    // The last argument makes the socket hold its namespace, also for a socket that the kernel creates for itself.
    // SAFETY: By the caller's promise.
    let sk = unsafe { bindings::sk_alloc(net, i32::from(family), gfp, proto, 0) };
    let sk = NonNull::new(sk).ok_or(ENOBUFS)?;
    // SAFETY: A new `sk`, and a socket by the caller's promise.
    unsafe { bindings::sock_init_data(socket, sk.as_ptr()) };
    // SAFETY: A new `sk` of one of our kinds.
    unsafe { prepare(sk.as_ptr(), destruct) };
    if u32::from(family) == bindings::AF_INET6 {
        let front = sk.as_ptr().cast::<SmcSock>();
        // SAFETY: As above; the kernel finds the IPv6 part of its own sockets so.
        unsafe { (*front).inet.pinet6 = &raw mut (*front).inet6 };
    }
    // SAFETY: Prepared above; the first reference is ours.
    Ok(unsafe { Sk::from_owned(sk) })
}

/// Initialises a new `sk` as a [`Sk`].
///
/// # Safety
///
/// `sk` must be of one of our kinds, new, and zeroed beyond what the kernel itself uses; `destruct` must end in this
/// module's function of that name.
pub(super) unsafe fn prepare(
    sk: *mut bindings::sock,
    destruct: unsafe extern "C" fn(*mut bindings::sock),
) {
    let front = sk.cast::<SmcSock>();
    // SAFETY: The objects of our kinds are `SmcSock`s.
    unsafe { bindings::init_waitqueue_head(&raw mut (*front).waiters) };
    // SAFETY: Nothing else uses it yet.
    unsafe { (*sk).sk_destruct = Some(destruct) };
    // SAFETY: As above. The socket's charges are in the sum already.
    unsafe {
        let common = &raw mut (*sk).__sk_common;
        bindings::sock_common::set_skc_bypass_prot_mem_raw(common, 1);
    }
    // SAFETY: As above.
    unsafe { bindings::sock_prot_inuse_add(sk, 1) };
}

/// Undoes what [`prepare`] did.
/// Context: any.
///
/// # Safety
///
/// `sk` must be about to be freed.
pub(super) unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise the socket has not been freed.
    unsafe { bindings::sock_prot_inuse_add(sk, -1) };
    // SAFETY: As above; the objects of our kinds are `SmcSock`s.
    let tcp_origin = unsafe { (*sk.cast::<SmcSock>()).tcp_origin };
    if !tcp_origin.is_null() {
        // SAFETY: We own the reference stored with it.
        unsafe { bindings::sock_put(tcp_origin) };
    }
}

/// Charges a child to its listener's cgroup until accept(2): handshakes run in workers, which have no cgroup. (The
/// kernel's own function for that is not exported.)
///
/// # Safety
///
/// Both must be alive, and the child not yet used by anything else.
#[cfg(CONFIG_MEMCG)]
unsafe fn inherit_memcg(listener: *const bindings::sock, child: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    let memcg = unsafe { bindings::mem_cgroup_from_sk(listener) };
    // SAFETY: By the caller's promise; the listener holds a reference, if there is a cgroup at all.
    unsafe {
        if (*child).sk_memcg.is_null() && bindings::mem_cgroup_tryget(memcg) {
            (*child).sk_memcg = memcg;
        }
    }
}

/// Has a child be one of its listener's cgroup, as with TCP (C function `cgroup_sk_clone`, which is not exported), for
/// the BPF programs of that.
///
/// # Safety
///
/// Both must be alive, and the child not yet used by anything else.
#[cfg(CONFIG_SOCK_CGROUP_DATA)]
unsafe fn inherit_cgroup(listener: *const bindings::sock, child: *mut bindings::sock) {
    // SAFETY: By the caller's promise each has references to a cgroup and to the programs of that, which the listener
    // keeps as long as it lives. The child's are put once, and those to what it gets are taken.
    unsafe {
        let data = &raw mut (*child).sk_cgrp_data;
        bindings::cgroup_bpf_put((*data).cgroup);
        bindings::cgroup_put((*data).cgroup);
        // The numbers of version 1 may change meanwhile.
        *data = (&raw const (*listener).sk_cgrp_data).read_volatile();
        bindings::cgroup_get((*data).cgroup);
        bindings::cgroup_bpf_get((*data).cgroup);
    }
}

/// A socket that was created for a connection and is not yet attached to a `struct socket`. There is one of these per
/// socket, consumed by accept(2): so it is accepted at most once.
///
/// # Invariants
///
/// The socket is attached to no `struct socket`, and this is its only [`UnattachedSk`].
pub struct UnattachedSk(ARef<Sk>);

impl UnattachedSk {
    /// A reference to the socket, for work on the connection.
    pub fn sk(&self) -> ARef<Sk> {
        self.0.clone()
    }

    /// The socket, for attaching it.
    pub(super) fn into_sk(self) -> ARef<Sk> {
        self.0
    }
}

impl Sk {
    /// Creates a socket for a connection to this listener, with the listener's options.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if out of memory.
    pub fn new_child(&self) -> Result<UnattachedSk> {
        let sk = self.as_ptr();
        // SAFETY: The listener is alive.
        let proto = unsafe { (*sk).sk_prot_creator };
        // SAFETY: As above.
        let family = unsafe { (*sk).__sk_common.skc_family };
        // SAFETY: The listener holds its namespace and its kind.
        let child = unsafe { alloc(self.net_ptr(), family, proto, ptr::null_mut())? };
        let new = child.as_ptr();
        // SAFETY: Nothing else uses the child yet.
        unsafe {
            (*new).sk_protocol = (*sk).sk_protocol;
            (*new).sk_type = (*sk).sk_type;
        }
        // SAFETY: As above; the listener is alive.
        #[cfg(CONFIG_MEMCG)]
        unsafe {
            inherit_memcg(sk, new)
        };
        // SAFETY: As above; `option_sk` is the listener, or the TCP socket that it was, which it holds.
        #[cfg(CONFIG_SOCK_CGROUP_DATA)]
        unsafe {
            inherit_cgroup(self.option_sk(), new)
        };
        // As TCP's own child has it: security modules check what is done with the socket by that.
        // SAFETY: As above.
        unsafe { bindings::sk_clone_label(self.option_sk(), new) };
        child.inherit(self);
        // INVARIANT: The socket is new.
        Ok(UnattachedSk(child))
    }
}
