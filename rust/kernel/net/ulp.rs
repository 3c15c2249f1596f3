// SPDX-License-Identifier: GPL-2.0

//! `setsockopt(TCP_ULP)`: converts a TCP socket that was not connected yet to one of ours.
//!
//! The file, its inode, the `struct socket` and its `sk` stay the same, since calls in progress and holders of the file
//! go on using them: only the `proto_ops` is replaced, and the `struct proto` by a copy in this module's memory with
//! another function for ioctl(2), until the file is closed. The TCP socket is left unbound and idle below the
//! application's socket, for as long as that lives; it keeps the SOL_SOCKET options, the pending error and the queue of
//! pollers. The connection belongs to a socket of ours, on a separate TCP
//! socket with the same options.
//!
//! C header: [`include/net/tcp.h`](srctree/include/net/tcp.h)

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::{
    error::to_result,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use super::{
    converted::{
        fill_records,
        install_record,
        tcp_table,
        version_of,
        ULP_OPS, //
    },
    proto_ops::ProtoOpsVTable,
    sock::SmcSock,
    sock_alloc::{
        self,
        SockKind, //
    },
    stream_socket::StreamSocket,
    IpVersion,
    Sk, //
};
use crate::{
    barrier::{
        smp_mb,
        Write, //
    },
    bindings,
    module::{
        is_live,
        this_module, //
    },
    prelude::*, //
};

mod inherit;

/// The registered ULP.
pub(super) struct UlpEntry<T>(PhantomData<fn(T)>);

impl<T: StreamSocket> UlpEntry<T> {
    /// Registers the ULP.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if one of that name exists.
    ///
    /// # Safety
    ///
    /// To be called once at a time, while the kinds of AF_INET and AF_INET6 are registered.
    pub(super) unsafe fn new() -> Result<Self> {
        let record = ULP_OPS.as_ptr();
        // SAFETY: By the caller's promise nothing else uses the record; zeroes are a valid one.
        let ops = unsafe {
            ptr::write_bytes(record, 0, 1);
            &mut *record
        };
        for (to, from) in ops.name.iter_mut().zip(T::ULP.to_bytes_with_nul()) {
            *to = *from;
        }
        ops.owner = this_module();
        ops.init = Some(init_callback::<T>);
        // SAFETY: By the caller's promise; sockets are converted once the ULP is registered, and hold the module.
        unsafe { fill_records(ProtoOpsVTable::<T, true>::prot_ioctl_callback) };
        // SAFETY: A static record that is not registered.
        to_result(unsafe { bindings::tcp_register_ulp(record) })?;
        Ok(Self(PhantomData))
    }
}

impl<T> Drop for UlpEntry<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::tcp_unregister_ulp(ULP_OPS.as_ptr()) };
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

/// Returns the application's socket, if it can be converted.
///
/// # Errors
///
/// `EISCONN` if the socket has been used, `EOPNOTSUPP` if it is not an ordinary TCP socket.
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
    // SAFETY: As above; the kernel also reads the table without a lock.
    let ops = unsafe { (&raw const (*socket).ops).read_volatile() };
    // SAFETY: As above.
    let (has_file, version) = unsafe { (!(*socket).file.is_null(), version_of(tcp)) };
    if !has_file || ops != tcp_table(version) {
        return Err(EOPNOTSUPP);
    }
    Ok(socket)
}

/// Creates a socket of ours over `tcp`.
///
/// # Safety
///
/// `tcp` must be a live TCP socket.
unsafe fn make<T: StreamSocket>(tcp: *mut bindings::sock, version: IpVersion) -> Result<ARef<Sk>> {
    let kind = match version {
        IpVersion::V4 => SockKind::InetSmc,
        IpVersion::V6 => SockKind::Inet6Smc,
    };
    // SAFETY: The socket holds its namespace; the kinds are registered while the protocol is.
    let sk = unsafe {
        let net = bindings::sock_net(tcp);
        sock_alloc::alloc(net, version.family(), kind.proto(), ptr::null_mut())?
    };
    let front = sk.as_ptr().cast::<SmcSock>();
    // SAFETY: Nothing else uses the new socket yet, and the other is alive.
    unsafe {
        (*sk.as_ptr()).sk_protocol = T::PROTOCOL;
        (*sk.as_ptr()).sk_type = bindings::sock_type_SOCK_STREAM as u16;
        bindings::sock_hold(tcp);
        (*front).tcp_origin = tcp;
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
    // SAFETY: As above, and nothing else uses the new TCP socket yet.
    let inherited = inner.and_then(|inner| unsafe { inherit::all(tcp, &inner) });
    if let Err(e) = inherited {
        T::release(front);
        return Err(e);
    }
    // SAFETY: As above; both sockets are alive.
    unsafe { install::<T>(tcp, socket, sk, front) };
    Ok(())
}

/// Makes `front` handle the calls on `socket` from now on.
///
/// # Safety
///
/// `tcp` must be the TCP socket of `socket`, and locked; `sk` and `front` new, and belong to each other.
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
    // The new table holds a reference to the module; that of the old one is released with the socket.
    // SAFETY: The kernel holds a reference for this call.
    unsafe { bindings::__module_get(this_module()) };
    let data = ARef::into_raw(sk.clone()).as_ptr().cast();
    let csk = tcp.cast::<bindings::inet_connection_sock>();
    // SAFETY: As above. Nothing reads the fields before the socket has the new table. The kernel writes the record as
    // well when this returns, but calls may come before that.
    unsafe {
        (&raw mut (*csk).icsk_ulp_data).write_volatile(data);
        (&raw mut (*csk).icsk_ulp_ops).write_volatile(ULP_OPS.as_ptr());
    }
    // Pairs with the barrier in `converted::ours`.
    smp_mb(Write);
    let table = &ProtoOpsVTable::<T, true>::inet_table(version).0;
    // SAFETY: As above; the kernel reads the table once for each call.
    unsafe { (&raw mut (*socket).ops).write_volatile(table) };
    // SAFETY: As above; the successor was stored before the barrier, and the reference taken.
    unsafe { install_record(tcp) };
    // Makes pollers check again, at the new socket.
    sk.wake_state();
}
