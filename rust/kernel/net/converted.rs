// SPDX-License-Identifier: GPL-2.0

//! Sockets that were TCP sockets before: which `sk` of ours handles one, and the TCP socket behind it. The conversion
//! is in [`ulp`](super::ulp).
//!
//! C header: [`include/net/tcp.h`](srctree/include/net/tcp.h)

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr, //
};

use super::{
    sock_alloc::is_ours,
    IpVersion, //
};
use crate::{
    barrier::{
        smp_mb,
        Read, //
    },
    bindings, //
};

/// The kernel's record of the ULP.
pub(super) struct UlpOps(UnsafeCell<MaybeUninit<bindings::tcp_ulp_ops>>);

// SAFETY: The record is written only before it is registered, by the code that registers it; the kernel synchronises
// its own use.
unsafe impl Sync for UlpOps {}

pub(super) static ULP_OPS: UlpOps = UlpOps(UnsafeCell::new(MaybeUninit::zeroed()));

impl UlpOps {
    pub(super) fn as_ptr(&self) -> *mut bindings::tcp_ulp_ops {
        self.0.get().cast()
    }
}

/// The `proto_ops` of the kernel's own TCP sockets.
pub(super) fn tcp_table(version: IpVersion) -> *const bindings::proto_ops {
    match version {
        #[cfg(CONFIG_IPV6)]
        IpVersion::V6 => &raw const bindings::inet6_stream_ops,
        _ => &raw const bindings::inet_stream_ops,
    }
}

/// # Safety
///
/// `sk` must be a live socket.
pub(super) unsafe fn version_of(sk: *mut bindings::sock) -> IpVersion {
    // SAFETY: By the caller's promise.
    let family = unsafe { (&raw const (*sk).__sk_common.skc_family).read_volatile() };
    match u32::from(family) {
        bindings::AF_INET6 => IpVersion::V6,
        _ => IpVersion::V4,
    }
}

/// The `sk` of ours that handles a socket with our table for converted sockets, or null if there is none: while the
/// socket is released, and while accept(2) fills it.
///
/// Not every socket with that table was converted. The kernel gives the table of a converted listener to the socket to
/// be accepted, and goes on using it for that accept(2) after the socket has got one of ours (`do_accept` calls it for
/// the peer's address). So the kind of the `sk` itself decides.
///
/// # Safety
///
/// `socket` must be a live socket with our table for converted sockets.
pub(super) unsafe fn sk_of(socket: *mut bindings::socket) -> *mut bindings::sock {
    // Pairs with the barrier in `ulp::install`: code that sees the table sees the data.
    smp_mb(Read);
    // SAFETY: By the caller's promise the socket is alive.
    let sk = unsafe { (&raw const (*socket).sk).read_volatile() };
    // SAFETY: A socket keeps its `sk`, if it has one.
    if sk.is_null() || unsafe { is_ours(sk) } {
        return sk;
    }
    // SAFETY: As above. A socket with this table has a `sk` of ours, or the TCP one that it was created with.
    unsafe { successor_of(sk) }
}

/// The `sk` of ours that replaced that of a TCP socket; null unless it was converted.
///
/// # Safety
///
/// `tcp` must be a live TCP socket.
unsafe fn successor_of(tcp: *mut bindings::sock) -> *mut bindings::sock {
    let csk = tcp.cast::<bindings::inet_connection_sock>();
    // SAFETY: By the caller's promise.
    let ops = unsafe { (&raw const (*csk).icsk_ulp_ops).read_volatile() };
    if !ptr::eq(ops, ULP_OPS.as_ptr()) {
        return ptr::null_mut();
    }
    // SAFETY: As above.
    unsafe { (&raw const (*csk).icsk_ulp_data).read_volatile().cast() }
}

/// Whether the socket was a TCP socket before, rather than accepted by one that was.
///
/// # Safety
///
/// `socket` must be a live socket with our table for converted sockets, and a `sk`.
pub(super) unsafe fn is_converted(socket: *mut bindings::socket) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { !is_ours((*socket).sk) }
}

/// Releases the remains of a converted socket: the TCP socket that it was. Returns the result of the kernel's
/// `release`.
///
/// # Safety
///
/// `socket` must be a converted socket that nothing else uses any more, without its front.
pub(super) unsafe fn release_origin(socket: *mut bindings::socket) -> i32 {
    // SAFETY: By the caller's promise.
    let (tcp, version) = unsafe { ((*socket).sk, version_of((*socket).sk)) };
    let csk = tcp.cast::<bindings::inet_connection_sock>();
    // SAFETY: As above.
    unsafe { (*csk).icsk_ulp_data = ptr::null_mut() };
    let table = tcp_table(version);
    // SAFETY: A table of the kernel's.
    let (release, owner) = unsafe { ((*table).release, (*table).owner) };
    // SAFETY: The function is for sockets with such a `sk`.
    let ret = release.map_or(0, |release| unsafe { release(socket) });
    // SAFETY: Held since the socket was created; its table was replaced, so the kernel does not release it.
    unsafe { bindings::module_put(owner) };
    ret
}
