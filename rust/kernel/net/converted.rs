// SPDX-License-Identifier: GPL-2.0

//! Sockets that were TCP sockets before: which `sk` of ours handles one, and the TCP socket behind it. The conversion
//! is in [`ulp`](super::ulp).
//!
//! C header: [`include/net/tcp.h`](srctree/include/net/tcp.h)

use core::{
    cell::UnsafeCell,
    mem::{
        offset_of,
        size_of,
        MaybeUninit, //
    },
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

/// The kernel's records of TCP sockets, over IPv4 and IPv6, with an ioctl function of ours, for those that were
/// converted: io_uring calls that function, and not the one in the `proto_ops`.
struct Records(UnsafeCell<MaybeUninit<[bindings::proto; 2]>>);

// SAFETY: As for `UlpOps`.
unsafe impl Sync for Records {}

static RECORDS: Records = Records(UnsafeCell::new(MaybeUninit::zeroed()));

/// The function behind ioctl(2) in a `struct proto`.
type ProtIoctl = unsafe extern "C" fn(*mut bindings::sock, i32, *mut i32) -> i32;

/// Makes the records for converted sockets.
///
/// # Safety
///
/// There must be no converted socket, and no other call meanwhile.
pub(super) unsafe fn fill_records(ioctl: ProtIoctl) {
    for version in [IpVersion::V4, IpVersion::V6] {
        let (from, to) = (tcp_record(version), record(version));
        let (list, after) = (
            offset_of!(bindings::proto, node),
            offset_of!(bindings::proto, node) + size_of::<bindings::list_head>(),
        );
        // All but its place in the list of records, which changes when others are registered, and which nothing reads
        // in a record that is none of the list. The rest has been constant since TCP was registered.
        for (at, end) in [(0, list), (after, size_of::<bindings::proto>())] {
            // SAFETY: Both are records, of which this is a part; by the caller's promise nothing else uses ours.
            unsafe {
                ptr::copy_nonoverlapping(
                    from.byte_add(at).cast::<u8>(),
                    to.byte_add(at).cast(),
                    end - at,
                )
            };
        }
        // SAFETY: As above.
        unsafe { (*to).ioctl = Some(ioctl) };
        // A sockmap would keep the record for longer than this module lives. It takes no socket without this function.
        // SAFETY: As above.
        #[cfg(CONFIG_BPF_SYSCALL)]
        unsafe {
            (*to).psock_update_sk_prot = None;
        }
    }
}

/// The record of converted sockets.
fn record(version: IpVersion) -> *mut bindings::proto {
    let first = RECORDS.0.get().cast::<bindings::proto>();
    match version {
        IpVersion::V4 => first,
        // The second of the two.
        IpVersion::V6 => first.wrapping_add(1),
    }
}

/// The kernel's record of its own TCP sockets.
fn tcp_record(version: IpVersion) -> *mut bindings::proto {
    match version {
        #[cfg(CONFIG_IPV6)]
        IpVersion::V6 => &raw mut bindings::tcpv6_prot,
        _ => &raw mut bindings::tcp_prot,
    }
}

/// Has io_uring ask us about a TCP socket that is being converted. A socket whose record is not TCP's own keeps it.
///
/// # Safety
///
/// `tcp` must be a TCP socket that the caller has locked, with the successor that [`ours`] returns; it must hold a
/// reference to the module until [`release_origin`].
pub(super) unsafe fn install_record(tcp: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    unsafe {
        let version = version_of(tcp);
        replace_record(tcp, tcp_record(version), record(version));
    }
}

/// Replaces the record `from` of a TCP socket, if it has that, by `to`.
///
/// # Safety
///
/// `tcp` must be a live TCP socket whose record nothing else changes now; `to` must be valid as long as it has it, and
/// differ from `from` by what [`fill_records`] changes only.
unsafe fn replace_record(
    tcp: *mut bindings::sock,
    from: *mut bindings::proto,
    to: *mut bindings::proto,
) {
    // SAFETY: By the caller's promise. The kernel reads the field once for each call.
    unsafe {
        let place = &raw mut (*tcp).__sk_common.skc_prot;
        if ptr::eq(place.read_volatile(), from) {
            place.write_volatile(to);
        }
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
    // SAFETY: By the caller's promise the socket is alive.
    let sk = unsafe { (&raw const (*socket).sk).read_volatile() };
    if sk.is_null() {
        return sk;
    }
    // SAFETY: A socket keeps its `sk`, if it has one. With this table it is of ours, or the TCP one that the socket was
    // created with.
    unsafe { ours(sk) }
}

/// The `sk` of ours that handles the calls on `sk`: itself, or what replaced a TCP one; null if nothing did.
///
/// # Safety
///
/// `sk` must be of ours or a TCP socket, and alive.
pub(super) unsafe fn ours(sk: *mut bindings::sock) -> *mut bindings::sock {
    // Pairs with the barrier in `ulp::install`: code that sees the table, or the record, sees the data.
    smp_mb(Read);
    // SAFETY: By the caller's promise.
    if unsafe { is_ours(sk) } {
        return sk;
    }
    // SAFETY: As above.
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
    // Before the reference to the module is given up, in whose memory the other one is.
    // SAFETY: As above.
    unsafe { replace_record(tcp, record(version), tcp_record(version)) };
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
