// SPDX-License-Identifier: GPL-2.0

//! Socket addresses.
//!
//! C header: [`include/linux/socket.h`](srctree/include/linux/socket.h)

use core::{
    marker::PhantomData,
    mem::size_of,
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    },
    ptr, //
};

use kernel::fmt;

use crate::{
    bindings,
    prelude::*, //
};

/// The IP version of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// AF_INET.
    V4,
    /// AF_INET6.
    V6,
}

impl IpVersion {
    /// The address family number.
    pub const fn family(self) -> u16 {
        match self {
            // CAST: Both are small.
            Self::V4 => bindings::AF_INET as u16,
            Self::V6 => bindings::AF_INET6 as u16,
        }
    }
}

/// An address given to bind(2) or connect(2): copied from the application by the kernel, its contents not yet
/// validated.
///
/// # Invariants
///
/// `ptr` is valid for reading `len` bytes for `'a`.
#[derive(Clone, Copy)]
pub struct SockAddr<'a> {
    ptr: *mut bindings::sockaddr_unsized,
    len: i32,
    _addr: PhantomData<&'a ()>,
}

impl SockAddr<'_> {
    /// # Safety
    ///
    /// `ptr` must be valid for reading `len` bytes for the lifetime of the result.
    pub(super) unsafe fn new(ptr: *mut bindings::sockaddr_unsized, len: i32) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            ptr,
            len,
            _addr: PhantomData,
        }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::sockaddr_unsized {
        self.ptr
    }

    /// The length in bytes; the kernel rejects negative lengths before.
    pub(crate) fn len_bytes(&self) -> i32 {
        self.len
    }

    /// The address family, if the address is long enough to have one.
    pub fn family(&self) -> Option<u16> {
        if self.len < size_of::<bindings::sa_family_t>() as i32 {
            return None;
        }
        // SAFETY: By the type invariant and the check above the family can be read.
        Some(unsafe { (*self.ptr).sa_family })
    }

    /// The address and port, if it is one of IPv4 or IPv6 and whole.
    pub fn inet(&self) -> Option<InetAddr> {
        let whole = match u32::from(self.family()?) {
            bindings::AF_INET => size_of::<bindings::sockaddr_in>(),
            bindings::AF_INET6 => size_of::<bindings::sockaddr_in6>(),
            _ => return None,
        };
        let mut storage = bindings::__kernel_sockaddr_storage::default();
        if usize::try_from(self.len).ok()? < whole {
            return None;
        }
        // SAFETY: By the type invariant and the check above `whole` bytes can be read; the storage has room for every
        // socket address.
        unsafe {
            ptr::copy_nonoverlapping(self.ptr.cast::<u8>(), (&raw mut storage).cast(), whole)
        };
        InetAddr::parse(&storage).ok()
    }
}

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetAddr {
    /// The address; an IPv4 address mapped into IPv6 is given as IPv4.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
    /// The interface of a link-local address, or 0.
    pub scope_id: u32,
}

/// As in `10.0.0.1 port 80`.
impl fmt::Display for InetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.ip, f)?;
        f.write_str(" port ")?;
        core::fmt::Display::fmt(&self.port, f)
    }
}

impl InetAddr {
    /// Parses an address that `getname` or another part of the kernel wrote.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` for families other than IPv4 and IPv6.
    pub(crate) fn parse(storage: &bindings::__kernel_sockaddr_storage) -> Result<Self> {
        let ptr: *const bindings::__kernel_sockaddr_storage = storage;
        // SAFETY: The storage is large and aligned enough for every socket address.
        let v4 = unsafe { &*ptr.cast::<bindings::sockaddr_in>() };
        if u32::from(v4.sin_family) == bindings::AF_INET {
            return Ok(Self {
                ip: IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr))),
                port: u16::from_be(v4.sin_port),
                scope_id: 0,
            });
        }
        // SAFETY: As above.
        let v6 = unsafe { &*ptr.cast::<bindings::sockaddr_in6>() };
        if u32::from(v6.sin6_family) != bindings::AF_INET6 {
            return Err(EAFNOSUPPORT);
        }
        // SAFETY: All views of an IPv6 address are plain bytes.
        let octets = unsafe { v6.sin6_addr.in6_u.u6_addr8 };
        Ok(Self {
            ip: IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(),
            port: u16::from_be(v6.sin6_port),
            scope_id: v6.sin6_scope_id,
        })
    }
}
