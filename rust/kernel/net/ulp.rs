// SPDX-License-Identifier: GPL-2.0

//! `setsockopt(TCP_ULP)`: makes a socket of ours of a TCP socket that was not connected yet.
//!
//! The file, its inode, the `struct socket` and its `sk` stay what they are, since calls that are under
//! way, and whoever holds the file, go on using them: only the table of functions is another from then
//! on. The TCP socket is left unbound and idle below the application's socket, for as long as that
//! lives; it keeps the SOL_SOCKET options, the pending error and the queue of those who poll. The
//! connection belongs to a socket of ours, on a TCP socket of its own with the same options.
//!
//! C header: [`include/net/tcp.h`](srctree/include/net/tcp.h)

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        barrier::{
            smp_mb,
            Read,
            Write, //
        },
        Arc, //
    }, //
};

use super::{
    proto::{
        self,
        Kind, //
    },
    sk::FrontSock,
    stream::{
        ProtoOpsVTable,
        StreamSocket, //
    },
    IpVersion,
    Sk, //
};
use crate::{
    bindings,
    module::is_live, //
};

mod carry;

/// The kernel's record of the protocol.
struct Record(UnsafeCell<MaybeUninit<bindings::tcp_ulp_ops>>);

// SAFETY: The record is written only before it is registered, by the one who registers it; the kernel
// synchronises its own use.
unsafe impl Sync for Record {}

static RECORD: Record = Record(UnsafeCell::new(MaybeUninit::zeroed()));

/// The protocol, as TCP_ULP knows it.
pub(super) struct Registered<T>(PhantomData<fn(T)>);

impl<T: StreamSocket> Registered<T> {
    /// Registers the protocol. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is one of that name.
    ///
    /// # Safety
    ///
    /// To be called once at a time, while the kinds of AF_INET and AF_INET6 are registered.
    pub(super) unsafe fn new() -> Result<Self> {
        let record = RECORD.0.get().cast::<bindings::tcp_ulp_ops>();
        // SAFETY: By the caller's promise nobody else uses the record; zeroes are a valid one.
        let ops = unsafe {
            ptr::write_bytes(record, 0, 1);
            &mut *record
        };
        for (to, from) in ops.name.iter_mut().zip(T::ULP.to_bytes_with_nul()) {
            *to = *from;
        }
        ops.owner = proto::this_module();
        ops.init = Some(init_callback::<T>);
        // SAFETY: A static record that is not registered.
        to_result(unsafe { bindings::tcp_register_ulp(record) })?;
        Ok(Self(PhantomData))
    }
}

impl<T> Drop for Registered<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::tcp_unregister_ulp(RECORD.0.get().cast()) };
    }
}

/// The application sets the option. The kernel holds the lock of the TCP socket.
unsafe extern "C" fn init_callback<T: StreamSocket>(tcp: *mut bindings::sock) -> i32 {
    if !is_live() {
        return ENODEV.to_errno();
    }
    // SAFETY: The kernel passes a TCP socket that it has locked.
    unsafe { convert::<T>(tcp) }.map_or_else(Error::to_errno, |()| 0)
}

/// The table of the kernel's own TCP sockets.
fn tcp_table(version: IpVersion) -> *const bindings::proto_ops {
    match version {
        #[cfg(CONFIG_IPV6)]
        IpVersion::V6 => &raw const bindings::inet6_stream_ops,
        _ => &raw const bindings::inet_stream_ops,
    }
}

/// # Safety
///
/// `sk` must be a living socket.
unsafe fn version_of(sk: *mut bindings::sock) -> IpVersion {
    // SAFETY: By the caller's promise.
    let family = unsafe { (&raw const (*sk).__sk_common.skc_family).read_volatile() };
    match u32::from(family) {
        bindings::AF_INET6 => IpVersion::V6,
        _ => IpVersion::V4,
    }
}

/// The socket of an application, if it can be converted.
///
/// # Errors
///
/// `EISCONN` if the socket has been used, `EOPNOTSUPP` if it is no ordinary TCP socket.
///
/// # Safety
///
/// `tcp` must be a TCP socket that the caller has locked.
unsafe fn convertible(tcp: *mut bindings::sock) -> Result<*mut bindings::socket> {
    // SAFETY: By the caller's promise.
    let socket = unsafe { bindings::sk_socket(tcp) };
    if socket.is_null() {
        return Err(ENOTCONN);
    }
    // SAFETY: As above.
    let state = u32::from(unsafe { (*tcp).__sk_common.skc_state });
    // SAFETY: The option is set through the socket, so it is alive.
    let is_fresh = unsafe {
        (*socket).state == bindings::socket_state_SS_UNCONNECTED && (*tcp).sk_shutdown == 0
    };
    if state != bindings::TCP_CLOSE || !is_fresh {
        return Err(EISCONN);
    }
    // SAFETY: As above; the kernel locks nothing to read the table either.
    let ops = unsafe { (&raw const (*socket).ops).read_volatile() };
    // SAFETY: As above.
    let (has_file, version) = unsafe { (!(*socket).file.is_null(), version_of(tcp)) };
    if !has_file || ops != tcp_table(version) {
        return Err(EOPNOTSUPP);
    }
    Ok(socket)
}

/// A socket of ours over `tcp`.
///
/// # Safety
///
/// `tcp` must be a living TCP socket.
unsafe fn make<T: StreamSocket>(tcp: *mut bindings::sock, version: IpVersion) -> Result<ARef<Sk>> {
    let kind = match version {
        IpVersion::V4 => Kind::Inet4,
        IpVersion::V6 => Kind::Inet6,
    };
    // SAFETY: The socket keeps its namespace; the kinds are registered while the protocol is.
    let sk = unsafe {
        let net = bindings::sock_net(tcp);
        proto::alloc(net, version.family(), kind.proto(), ptr::null_mut())?
    };
    let front = sk.as_ptr().cast::<FrontSock>();
    // SAFETY: Nobody else uses the new socket yet, and the other is alive.
    unsafe {
        (*sk.as_ptr()).sk_protocol = T::PROTOCOL;
        (*sk.as_ptr()).sk_type = bindings::sock_type_SOCK_STREAM as u16;
        bindings::sock_hold(tcp);
        (*front).origin = tcp;
    }
    Ok(sk)
}

/// # Safety
///
/// `tcp` must be a TCP socket that the caller has locked.
unsafe fn convert<T: StreamSocket>(tcp: *mut bindings::sock) -> Result {
    // SAFETY: By the caller's promise.
    let (socket, version) = unsafe { (convertible(tcp)?, version_of(tcp)) };
    // SAFETY: As above.
    let sk = unsafe { make::<T>(tcp, version)? };
    let front = T::create(sk.clone(), version)?;
    let inner = T::tcp(front.as_arc_borrow()).ok_or(EINVAL);
    // SAFETY: As above, and nobody else uses the new TCP socket yet.
    let carried = inner.and_then(|inner| unsafe { carry::all(tcp, &inner) });
    if let Err(e) = carried {
        T::release(front);
        return Err(e);
    }
    // SAFETY: As above; both sockets are alive.
    unsafe { install::<T>(tcp, socket, sk, front) };
    Ok(())
}

/// Has `front` answer the calls on `socket` from now on.
///
/// # Safety
///
/// `tcp` must be the TCP socket of `socket`, and locked; `sk` and `front` new, and of one another.
unsafe fn install<T: StreamSocket>(
    tcp: *mut bindings::sock,
    socket: *mut bindings::socket,
    sk: ARef<Sk>,
    front: Arc<T>,
) {
    // SAFETY: By the caller's promise.
    unsafe {
        bindings::callback_write_lock_bh(sk.as_ptr());
        bindings::sk_set_wq(sk.as_ptr(), socket);
        bindings::sk_set_socket(sk.as_ptr(), socket);
        bindings::callback_write_unlock_bh(sk.as_ptr());
        ProtoOpsVTable::<T>::attach(&sk, front);
    }
    // SAFETY: As above.
    let version = unsafe { version_of(tcp) };
    // The new table holds the module; what the old one held is given back at the end.
    // SAFETY: The kernel holds a reference for this call.
    unsafe { bindings::__module_get(proto::this_module()) };
    let data = ARef::into_raw(sk.clone()).as_ptr().cast();
    let csk = tcp.cast::<bindings::inet_connection_sock>();
    // SAFETY: As above. Nobody looks at the fields before the socket has the new table. The kernel writes the
    // record as well when this returns, but calls may come before that.
    unsafe {
        (&raw mut (*csk).icsk_ulp_data).write_volatile(data);
        (&raw mut (*csk).icsk_ulp_ops).write_volatile(RECORD.0.get().cast());
    }
    // Pairs with the barrier in `sk_of`.
    smp_mb(Write);
    let table = &ProtoOpsVTable::<T, true>::inet_table(version).0;
    // SAFETY: As above; the kernel reads the table once for each call.
    unsafe { (&raw mut (*socket).ops).write_volatile(table) };
    // Those who poll are to look again, at the new socket.
    sk.wake_state();
}

/// The `sk` of ours that answers for a socket with our table for converted sockets, or null if there is none:
/// while the socket is released, and while accept(2) fills it.
///
/// Not every socket with that table was converted. The kernel gives the table of a converted listener to the
/// socket that is to be accepted, and goes on using it for that accept(2) after the socket has got one of ours
/// (`do_accept` asks it for the peer's address). So what the `sk` itself is decides.
///
/// # Safety
///
/// `socket` must be a living socket with our table for converted sockets.
pub(super) unsafe fn sk_of(socket: *mut bindings::socket) -> *mut bindings::sock {
    // Pairs with the barrier in `install`: whoever sees the table sees the data.
    smp_mb(Read);
    // SAFETY: By the caller's promise the socket is alive.
    let sk = unsafe { (&raw const (*socket).sk).read_volatile() };
    // SAFETY: A socket keeps its `sk`, if it has one.
    if sk.is_null() || unsafe { proto::is_ours(sk) } {
        return sk;
    }
    // SAFETY: As above. A socket with this table has a `sk` of ours, or the one of TCP that it began with.
    unsafe { successor_of(sk) }
}

/// The `sk` of ours for that of a TCP socket; null unless it was converted.
///
/// # Safety
///
/// `tcp` must be a living TCP socket.
unsafe fn successor_of(tcp: *mut bindings::sock) -> *mut bindings::sock {
    let csk = tcp.cast::<bindings::inet_connection_sock>();
    // SAFETY: By the caller's promise.
    let ops = unsafe { (&raw const (*csk).icsk_ulp_ops).read_volatile() };
    if !ptr::eq(ops, RECORD.0.get().cast()) {
        return ptr::null_mut();
    }
    // SAFETY: As above.
    unsafe { (&raw const (*csk).icsk_ulp_data).read_volatile().cast() }
}

/// Whether the socket was one of TCP before, and not accepted by one that was.
///
/// # Safety
///
/// `socket` must be a living socket with our table for converted sockets, and a `sk`.
pub(super) unsafe fn is_converted(socket: *mut bindings::socket) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { !proto::is_ours((*socket).sk) }
}

/// Ends what is left of a converted socket: the TCP socket that it was. Returns what the kernel's
/// `release` does.
///
/// # Safety
///
/// `socket` must be a converted socket that nobody else uses any more, without its front.
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
    // SAFETY: Held since the socket was made; its table is another, so nobody else gives it back.
    unsafe { bindings::module_put(owner) };
    ret
}
