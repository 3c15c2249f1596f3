// SPDX-License-Identifier: GPL-2.0

//! Registration of a protocol family, and the making of its sockets.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{
        size_of,
        MaybeUninit, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        }, //
    }, //
};

use super::{
    sk::FrontSock,
    stream::{
        ProtoOpsVTable,
        StreamSocket, //
    },
    IpVersion,
    Sk, //
};
use crate::bindings;

/// The kinds of sockets of the family: number 0 over IPv4, number 1 over IPv6.
struct Protos(UnsafeCell<MaybeUninit<[bindings::proto; 2]>>);

// SAFETY: Written only in `FamilyRegistration::new` before anybody else sees them; the kernel
// synchronises its own use.
unsafe impl Sync for Protos {}

static PROTOS: Protos = Protos(UnsafeCell::new(MaybeUninit::zeroed()));
static REGISTERED: Atomic<bool> = Atomic::new(false);

impl Protos {
    fn get(&self, version: IpVersion) -> *mut bindings::proto {
        let first = self.0.get().cast::<bindings::proto>();
        match version {
            IpVersion::V4 => first,
            // CAST: The second of two elements.
            IpVersion::V6 => first.wrapping_add(1),
        }
    }
}

/// The registered protocol family. There is at most one of them.
pub struct FamilyRegistration<T>(PhantomData<T>);

/// The kernel's record of the family.
#[repr(transparent)]
struct Family(bindings::net_proto_family);

// SAFETY: The record is never written, and holds a function and the module only.
unsafe impl Sync for Family {}

impl<T: StreamSocket> FamilyRegistration<T> {
    /// Registers the family; its sockets can be made from then on. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is such a family, `EBUSY` if one is registered here already, `ENOMEM`.
    pub fn new() -> Result<Self> {
        if REGISTERED.xchg(true, kernel::sync::atomic::Full) {
            return Err(EBUSY);
        }
        Self::register().inspect_err(|_| REGISTERED.store(false, Relaxed))?;
        Ok(Self(PhantomData))
    }

    fn register() -> Result {
        for (version, name) in [IpVersion::V4, IpVersion::V6].into_iter().zip(T::NAMES) {
            // SAFETY: Not registered, so nobody else uses it.
            unsafe { Self::fill(PROTOS.get(version), name) };
        }
        let (v4, v6) = (PROTOS.get(IpVersion::V4), PROTOS.get(IpVersion::V6));
        // SAFETY: A static that was filled above.
        to_result(unsafe { bindings::proto_register(v4, 1) })?;
        // SAFETY: As above.
        let result = to_result(unsafe { bindings::proto_register(v6, 1) }).and_then(|()| {
            // SAFETY: A static record.
            to_result(unsafe { bindings::sock_register(&Self::FAMILY.0) }).inspect_err(|_| {
                // SAFETY: Registered above, without sockets.
                unsafe { bindings::proto_unregister(v6) }
            })
        });
        result.inspect_err(|_| {
            // SAFETY: Registered above, without sockets.
            unsafe { bindings::proto_unregister(v4) }
        })
    }

    const FAMILY: &'static Family = &Family(bindings::net_proto_family {
        family: T::FAMILY as i32,
        create: Some(Self::create_callback),
        owner: (&raw const super::stream::__this_module).cast_mut().cast(),
    });

    const OPS: &'static super::stream::Table = &ProtoOpsVTable::<T>::AF;

    /// # Safety
    ///
    /// `proto` must be valid for writing, and not registered.
    unsafe fn fill(proto: *mut bindings::proto, name: &CStr) {
        // SAFETY: By the caller's promise.
        let proto = unsafe {
            ptr::write_bytes(proto, 0, 1);
            &mut *proto
        };
        proto.owner = Self::FAMILY.0.owner;
        proto.obj_size = size_of::<FrontSock>() as u32;
        for (to, from) in proto.name.iter_mut().zip(name.to_bytes_with_nul()) {
            *to = *from;
        }
    }

    unsafe extern "C" fn create_callback(
        net: *mut bindings::net,
        socket: *mut bindings::socket,
        protocol: i32,
        kern: i32,
    ) -> i32 {
        // SAFETY: The kernel passes a new socket and a living namespace.
        let result = unsafe { Self::create(net, socket, protocol, kern) };
        result.map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// `socket` must be a new socket, `net` a living namespace.
    unsafe fn create(
        net: *mut bindings::net,
        socket: *mut bindings::socket,
        protocol: i32,
        kern: i32,
    ) -> Result {
        // SAFETY: The caller promises a new socket, which is ours alone.
        let socket = unsafe { &mut *socket };
        if socket.type_ as u32 != bindings::sock_type_SOCK_STREAM {
            return Err(ESOCKTNOSUPPORT);
        }
        let version = match protocol {
            0 => IpVersion::V4,
            1 => IpVersion::V6,
            _ => return Err(EPROTONOSUPPORT),
        };
        // SAFETY: By the caller's promise.
        let sk = unsafe { alloc(net, T::FAMILY, PROTOS.get(version), kern, socket)? };
        // SAFETY: The socket is new and alive.
        unsafe { (*sk.as_ptr()).sk_protocol = protocol as u16 };
        socket.ops = &Self::OPS.0;
        match T::create(sk.clone(), version) {
            Ok(front) => {
                // SAFETY: The kernel has not shown the socket to anybody yet.
                unsafe { ProtoOpsVTable::<T>::attach(&sk, front) };
                socket.flags |= 1 << bindings::socket_flags_SOCK_CUSTOM_SOCKOPT;
                // The reference is the socket's now.
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

impl<T> Drop for FamilyRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`. No socket of the family is left, since each of them keeps the
        // module.
        unsafe {
            bindings::sock_unregister(FAMILY_NUMBER);
            bindings::proto_unregister(PROTOS.get(IpVersion::V6));
            bindings::proto_unregister(PROTOS.get(IpVersion::V4));
        }
        REGISTERED.store(false, Relaxed);
    }
}

/// The one family number that this crate is for.
const FAMILY_NUMBER: i32 = bindings::AF_SMC as i32;

/// Makes a `sk`, attached to `socket` if that is not null.
///
/// # Safety
///
/// `net` must be a living namespace, `proto` a registered protocol of ours, `socket` null or new.
unsafe fn alloc(
    net: *mut bindings::net,
    family: u16,
    proto: *mut bindings::proto,
    kern: i32,
    socket: *mut bindings::socket,
) -> Result<ARef<Sk>> {
    let gfp = bindings::GFP_KERNEL;
    // SAFETY: By the caller's promise.
    let sk = unsafe { bindings::sk_alloc(net, i32::from(family), gfp, proto, kern) };
    let sk = NonNull::new(sk).ok_or(ENOBUFS)?;
    let front = sk.as_ptr().cast::<FrontSock>();
    // SAFETY: The protocol's objects are `FrontSock`s, zeroed by `sk_alloc`.
    unsafe { bindings::init_waitqueue_head(&raw mut (*front).waiters) };
    // SAFETY: A new `sk`, and a socket by the caller's promise.
    unsafe { bindings::sock_init_data(socket, sk.as_ptr()) };
    // SAFETY: Nobody else uses it yet.
    unsafe { (*sk.as_ptr()).sk_destruct = Some(destruct) };
    // SAFETY: As above.
    unsafe { bindings::sock_prot_inuse_add(sk.as_ptr(), 1) };
    // SAFETY: A `FrontSock` with an initialised queue; the first reference is ours.
    Ok(unsafe { Sk::from_owned(sk) })
}

/// Undoes what [`alloc`] did beyond `sk_alloc`. Any context.
unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
    // SAFETY: The kernel passes a socket that is about to be freed.
    unsafe { bindings::sock_prot_inuse_add(sk, -1) };
}

impl Sk {
    /// Makes a socket for a connection to this listener, with the listener's options. It belongs to
    /// no application until it is accepted.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` when out of memory.
    pub fn new_child(&self) -> Result<ARef<Self>> {
        let sk = self.as_ptr();
        // SAFETY: The listener is alive.
        let proto = unsafe { (*sk).sk_prot_creator };
        // SAFETY: As above.
        let family = unsafe { (*sk).__sk_common.skc_family };
        // SAFETY: The listener keeps its namespace and its protocol.
        let child = unsafe { alloc(self.net_ptr(), family, proto, 0, ptr::null_mut())? };
        // SAFETY: Nobody else uses the child yet.
        unsafe { (*child.as_ptr()).sk_protocol = (*sk).sk_protocol };
        // SAFETY: As above.
        unsafe { (*child.as_ptr()).sk_type = (*sk).sk_type };
        child.inherit(self);
        Ok(child)
    }
}
