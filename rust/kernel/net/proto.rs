// SPDX-License-Identifier: GPL-2.0

//! Registration of the kinds of sockets of a [`StreamSocket`] (`struct proto`), and their callbacks.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    marker::PhantomData,
    mem::{
        offset_of,
        size_of, //
    },
    ptr, //
};

use kernel::{
    error::to_result,
    sync::{
        aref::ARef,
        atomic::{
            Full,
            Release, //
        },
        Arc, //
    },
    types::ForeignOwnable, //
};

use super::{
    charge,
    memory::MEMORY,
    proto_ops::ProtoOpsVTable,
    sock::SmcSock,
    sock_alloc::{
        destruct,
        prepare,
        SockKind, //
    },
    stream_socket::StreamSocket,
    IpVersion,
    Sk, //
};
use crate::{
    bindings,
    module::{
        is_live,
        this_module, //
    },
    prelude::*, //
};

/// A registered kind of sockets. To be dropped when no socket of the kind is left, as is so when the module is
/// unloaded.
pub(super) struct ProtoRegistration<T>(SockKind, PhantomData<fn(T)>);

impl<T: StreamSocket> ProtoRegistration<T> {
    /// Registers a kind.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is registered already, `ENOMEM`.
    pub(super) fn new(kind: SockKind) -> Result<Self> {
        if kind.taken().xchg(true, Full) {
            return Err(EBUSY);
        }
        let proto = kind.proto();
        // SAFETY: Taken above, so the record is ours until it is registered.
        unsafe { Self::fill(kind, proto) };
        // SAFETY: A static record that is filled and not registered.
        to_result(unsafe { bindings::proto_register(proto, 1) })
            .inspect_err(|_| kind.taken().store(false, Release))?;
        Ok(Self(kind, PhantomData))
    }

    /// # Safety
    ///
    /// `proto` must be valid for writing, and not registered.
    unsafe fn fill(kind: SockKind, proto: *mut bindings::proto) {
        // SAFETY: By the caller's promise; zeroes are a valid record.
        let proto = unsafe {
            ptr::write_bytes(proto, 0, 1);
            &mut *proto
        };
        proto.owner = this_module();
        proto.obj_size = size_of::<SmcSock>() as u32;
        let name = match kind {
            SockKind::Smc => T::NAMES[0],
            SockKind::Smc6 => T::NAMES[1],
            SockKind::InetSmc => T::NAMES[2],
            SockKind::Inet6Smc => T::NAMES[3],
        };
        for (to, from) in proto.name.iter_mut().zip(name.to_bytes_with_nul()) {
            *to = *from;
        }
        proto.memory_allocated = MEMORY.pages();
        // SAFETY: No precondition.
        proto.per_cpu_fw_alloc = unsafe { bindings::memory_per_cpu_fw_alloc() };
        proto.sysctl_mem = MEMORY.limits();
        // Used by the tracepoint sock_exceed_buf_limit.
        proto.sysctl_rmem_offset = bindings::smc_layout_SMC_OFFSETOF_NET_TCP_RMEM;
        proto.sysctl_wmem_offset = bindings::smc_layout_SMC_OFFSETOF_NET_TCP_WMEM;
        proto.release_cb = Some(charge::release_callback);
        proto.ioctl = Some(ProtoOpsVTable::<T>::prot_ioctl_callback);
        if matches!(kind, SockKind::InetSmc | SockKind::Inet6Smc) {
            fill_inet::<T>(proto);
        }
        if kind == SockKind::Inet6Smc {
            proto.ipv6_pinfo_offset = offset_of!(SmcSock, inet6) as u32;
        }
    }
}

impl<T> Drop for ProtoRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`, and no socket of the kind is left.
        unsafe { bindings::proto_unregister(self.0.proto()) };
        self.0.taken().store(false, Release);
    }
}

/// Adds the callbacks for the creation of AF_INET sockets.
fn fill_inet<T: StreamSocket>(proto: &mut bindings::proto) {
    proto.init = Some(init_callback::<T>);
    proto.destroy = Some(destroy_callback::<T>);
    proto.unhash = Some(unhash_callback);
}

/// The kernel has created a socket.
unsafe extern "C" fn init_callback<T: StreamSocket>(sk: *mut bindings::sock) -> i32 {
    // SAFETY: The kernel passes a new socket of one of our kinds.
    let family = unsafe { (*sk).__sk_common.skc_family };
    let (version, destruct): (_, unsafe extern "C" fn(_)) = match u32::from(family) {
        #[cfg(CONFIG_IPV6)]
        bindings::AF_INET6 => (IpVersion::V6, destruct6),
        _ => (IpVersion::V4, destruct4),
    };
    // SAFETY: As above; both functions end in `destruct`, as required.
    unsafe { prepare(sk, destruct) };
    // SAFETY: The socket is new.
    if !unsafe { bindings::sk_holds_net(sk) } {
        // An `Sk` always holds its namespace, also for a socket that the kernel created for itself.
        // SAFETY: As above.
        unsafe { bindings::sk_net_refcnt_upgrade(sk) };
    }
    if !is_live() {
        // The kernel releases the socket, as when it cannot be created.
        return ENODEV.to_errno();
    }
    // SAFETY: Prepared above.
    let sk: ARef<Sk> = unsafe { Sk::from_ptr(sk) }.into();
    match T::create(sk.clone(), version) {
        Ok(front) => {
            // SAFETY: The kernel has not made the socket visible yet.
            unsafe { ProtoOpsVTable::<T>::attach(&sk, front) };
            0
        }
        Err(e) => e.to_errno(),
    }
}

/// Releases a socket just created, as its creation failed elsewhere.
unsafe extern "C" fn destroy_callback<T: StreamSocket>(sk: *mut bindings::sock) {
    // SAFETY: The kernel passes a socket of one of our kinds, which nothing else uses.
    let front = unsafe { ptr::replace(Sk::from_ptr(sk).front_slot(), ptr::null_mut()) };
    // SAFETY: From `attach`, or null if `init_callback` failed.
    if let Some(front) = unsafe { Arc::<T>::try_from_foreign(front) } {
        T::release(front);
    }
}

/// Does nothing; the kernel calls this without checking for null.
unsafe extern "C" fn unhash_callback(_sk: *mut bindings::sock) {}

unsafe extern "C" fn destruct4(sk: *mut bindings::sock) {
    // SAFETY: The kernel passes a socket that is about to be freed.
    unsafe { bindings::inet_sock_destruct(sk) };
    // SAFETY: As above.
    unsafe { destruct(sk) };
}

#[cfg(CONFIG_IPV6)]
unsafe extern "C" fn destruct6(sk: *mut bindings::sock) {
    // SAFETY: The kernel passes a socket that is about to be freed.
    unsafe { bindings::inet6_sock_destruct(sk) };
    // SAFETY: As above.
    unsafe { destruct(sk) };
}
