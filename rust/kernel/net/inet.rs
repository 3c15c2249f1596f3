// SPDX-License-Identifier: GPL-2.0

//! Sockets of AF_INET and AF_INET6 with a separate protocol number.
//!
//! C header: [`include/net/protocol.h`](srctree/include/net/protocol.h)

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr, //
};

use super::{
    proto::ProtoRegistration,
    proto_ops::{
        ProtoOps,
        ProtoOpsVTable, //
    },
    sock_alloc::SockKind,
    stream_socket::StreamSocket,
    tcp,
    ulp, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// The registered protocol, over IPv4 and, if the kernel has it, IPv6; by its number, and on top of a TCP socket.
pub struct InetRegistration<T: StreamSocket> {
    _ulp: ulp::UlpEntry<T>,
    _v4: Registered4<T>,
    #[cfg(CONFIG_IPV6)]
    _v6: Registered6<T>,
    _protos: [ProtoRegistration<T>; 2],
}

impl<T: StreamSocket> InetRegistration<T> {
    /// Registers the protocol; its sockets can be created from then on.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if one is registered here already, `EEXIST` if the name for TCP_ULP is taken, `ENOMEM`.
    pub fn new() -> Result<Self> {
        tcp::learn_defaults()?;
        let protos = [
            ProtoRegistration::new(SockKind::InetSmc)?,
            ProtoRegistration::new(SockKind::Inet6Smc)?,
        ];
        let v4 = Registered4::new();
        #[cfg(CONFIG_IPV6)]
        let v6 = Registered6::new()?;
        Ok(Self {
            // SAFETY: The kinds were registered above, which happens once at a time.
            _ulp: unsafe { ulp::UlpEntry::new()? },
            _v4: v4,
            #[cfg(CONFIG_IPV6)]
            _v6: v6,
            _protos: protos,
        })
    }
}

/// The kernel's record of the protocol. It is written before it is registered; the registration of the socket kind
/// ensures that this happens once at a time.
struct ProtoSw(UnsafeCell<MaybeUninit<bindings::inet_protosw>>);

// SAFETY: See above; the kernel synchronises its own use.
unsafe impl Sync for ProtoSw {}

impl ProtoSw {
    const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    /// # Safety
    ///
    /// The record must not be registered, and nothing else may write it.
    unsafe fn fill<T: StreamSocket>(
        &self,
        kind: SockKind,
        ops: &'static ProtoOps,
    ) -> *mut bindings::inet_protosw {
        let record = self.0.get().cast::<bindings::inet_protosw>();
        // SAFETY: By the caller's promise; zeroes are a valid record.
        let sw = unsafe {
            ptr::write_bytes(record, 0, 1);
            &mut *record
        };
        // Not INET_PROTOSW_ICSK: to the kernel our sockets are not connection sockets.
        sw.type_ = bindings::sock_type_SOCK_STREAM as u16;
        sw.protocol = T::PROTOCOL;
        sw.prot = kind.proto();
        sw.ops = &ops.0;
        record
    }
}

static PROTOSW4: ProtoSw = ProtoSw::new();
#[cfg(CONFIG_IPV6)]
static PROTOSW6: ProtoSw = ProtoSw::new();

struct Registered4<T>(PhantomData<fn(T)>);

impl<T: StreamSocket> Registered4<T> {
    const OPS: &'static ProtoOps = &ProtoOpsVTable::<T>::INET;

    fn new() -> Self {
        // SAFETY: The registration of the kind made sure that this happens once at a time.
        let record = unsafe { PROTOSW4.fill::<T>(SockKind::InetSmc, Self::OPS) };
        // SAFETY: A static record of a registered kind.
        unsafe { bindings::inet_register_protosw(record) };
        Self(PhantomData)
    }
}

impl<T> Drop for Registered4<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::inet_unregister_protosw(PROTOSW4.0.get().cast()) };
    }
}

#[cfg(CONFIG_IPV6)]
struct Registered6<T>(PhantomData<fn(T)>);

#[cfg(CONFIG_IPV6)]
impl<T: StreamSocket> Registered6<T> {
    const OPS: &'static ProtoOps = &ProtoOpsVTable::<T>::INET6;

    fn new() -> Result<Self> {
        // SAFETY: The registration of the kind made sure that this happens once at a time.
        let record = unsafe { PROTOSW6.fill::<T>(SockKind::Inet6Smc, Self::OPS) };
        // SAFETY: A static record of a registered kind.
        kernel::error::to_result(unsafe { bindings::inet6_register_protosw(record) })?;
        Ok(Self(PhantomData))
    }
}

#[cfg(CONFIG_IPV6)]
impl<T> Drop for Registered6<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::inet6_unregister_protosw(PROTOSW6.0.get().cast()) };
    }
}
