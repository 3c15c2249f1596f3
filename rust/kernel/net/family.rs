// SPDX-License-Identifier: GPL-2.0

//! Registration of a separate protocol family.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::{
    error::to_result,
    sync::aref::ARef, //
};

use super::{
    proto::ProtoRegistration,
    proto_ops::{
        ProtoOps,
        ProtoOpsVTable, //
    },
    sock_alloc::{
        alloc,
        SockKind, //
    },
    stream_socket::StreamSocket,
    tcp,
    IpVersion, //
};
use crate::{
    bindings,
    module::{
        __this_module,
        is_live, //
    },
    prelude::*, //
};

/// The registered protocol family, with its sockets over IPv4 and IPv6.
pub struct FamilyRegistration<T: StreamSocket> {
    _family: FamilyEntry<T>,
    _protos: [ProtoRegistration<T>; 2],
}

impl<T: StreamSocket> FamilyRegistration<T> {
    /// Registers the family; its sockets can be created from then on.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if such a family exists, `EBUSY` if one is registered here already, `ENOMEM`.
    pub fn new() -> Result<Self> {
        tcp::learn_defaults()?;
        let protos = [
            ProtoRegistration::new(SockKind::Smc)?,
            ProtoRegistration::new(SockKind::Smc6)?,
        ];
        Ok(Self {
            _family: FamilyEntry::new()?,
            _protos: protos,
        })
    }
}

/// The family's entry in the kernel's table.
struct FamilyEntry<T: StreamSocket>(PhantomData<fn(T)>);

/// The kernel's record of the family.
#[repr(transparent)]
struct NetProtoFamily(bindings::net_proto_family);

// SAFETY: The record is never written, and holds a function and the module only.
unsafe impl Sync for NetProtoFamily {}

impl<T: StreamSocket> FamilyEntry<T> {
    const FAMILY: &'static NetProtoFamily = &NetProtoFamily(bindings::net_proto_family {
        family: T::FAMILY as i32,
        create: Some(Self::create_callback),
        owner: (&raw const __this_module).cast_mut().cast(),
    });

    const OPS: &'static ProtoOps = &ProtoOpsVTable::<T>::OWN;

    fn new() -> Result<Self> {
        // SAFETY: A static record.
        to_result(unsafe { bindings::sock_register(&Self::FAMILY.0) })?;
        Ok(Self(PhantomData))
    }

    unsafe extern "C" fn create_callback(
        net: *mut bindings::net,
        socket: *mut bindings::socket,
        protocol: i32,
        _kern: i32,
    ) -> i32 {
        // SAFETY: The kernel passes a new socket and a live namespace.
        let result = unsafe { Self::create(net, socket, protocol) };
        result.map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// `socket` must be a new socket, `net` a live namespace.
    unsafe fn create(
        net: *mut bindings::net,
        socket: *mut bindings::socket,
        protocol: i32,
    ) -> Result {
        if !is_live() {
            return Err(ENODEV);
        }
        // SAFETY: By the caller's promise the socket is new, and ours alone.
        let socket = unsafe { &mut *socket };
        if socket.type_ as u32 != bindings::sock_type_SOCK_STREAM {
            return Err(ESOCKTNOSUPPORT);
        }
        let (kind, version) = match protocol {
            0 => (SockKind::Smc, IpVersion::V4),
            1 => (SockKind::Smc6, IpVersion::V6),
            _ => return Err(EPROTONOSUPPORT),
        };
        // SAFETY: By the caller's promise.
        let sk = unsafe { alloc(net, T::FAMILY, kind.proto(), socket)? };
        // SAFETY: The socket is new and alive.
        unsafe { (*sk.as_ptr()).sk_protocol = protocol as u16 };
        socket.ops = &Self::OPS.0;
        match T::create(sk.clone(), version) {
            Ok(front) => {
                // SAFETY: The kernel has not made the socket visible yet.
                unsafe { ProtoOpsVTable::<T>::attach(&sk, front) };
                // The reference belongs to the socket now.
                let _ = ARef::into_raw(sk);
                Ok(())
            }
            Err(e) => {
                // SAFETY: The socket is alive.
                unsafe { bindings::sock_orphan(sk.as_ptr()) };
                socket.sk = ptr::null_mut();
                Err(e)
            }
        }
    }
}

impl<T: StreamSocket> Drop for FamilyEntry<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::sock_unregister(i32::from(T::FAMILY)) };
    }
}
