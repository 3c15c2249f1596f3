// SPDX-License-Identifier: GPL-2.0

//! Requests for a connection to a listener.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

use crate::{
    bindings,
    net::InetAddr, //
};

/// What is known of the ends of a connection that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnds {
    /// This host's end; without the peer's it is that of the listener, whose address may be unspecified.
    pub local: InetAddr,
    /// The peer's end, if it is known.
    pub peer: Option<InetAddr>,
}

impl RequestEnds {
    /// What a listener knows of any request.
    ///
    /// # Safety
    ///
    /// `listener` must be a live TCP socket.
    #[cfg(CONFIG_SMC)]
    pub(in crate::net::tcp) unsafe fn of_listener(listener: *const bindings::sock) -> Self {
        Self {
            // SAFETY: By the caller's promise.
            local: unsafe { local(listener) },
            peer: None,
        }
    }

    /// The ends of a request.
    ///
    /// # Safety
    ///
    /// `request` must be a live request of a TCP listener.
    #[cfg(not(CONFIG_SMC))]
    pub(in crate::net::tcp) unsafe fn of_request(request: *const bindings::sock) -> Self {
        Self {
            // SAFETY: By the caller's promise.
            local: unsafe { local(request) },
            // SAFETY: As above.
            peer: Some(unsafe { peer(request) }),
        }
    }
}

/// # Safety
///
/// `sk` must be a live TCP socket, or a live request, which has the addresses in the same place.
unsafe fn local(sk: *const bindings::sock) -> InetAddr {
    // SAFETY: By the caller's promise.
    let (v4, v6, port) = unsafe {
        (
            bindings::sk_rcv_saddr(sk),
            bindings::sk_v6_rcv_saddr(sk),
            bindings::sk_num(sk),
        )
    };
    // SAFETY: By the caller's promise; the address is part of the socket.
    unsafe { inet_addr(sk, v4, v6, port) }
}

/// # Safety
///
/// As [`local`].
#[cfg(not(CONFIG_SMC))]
unsafe fn peer(sk: *const bindings::sock) -> InetAddr {
    // SAFETY: By the caller's promise.
    let (v4, v6, port) = unsafe {
        (
            bindings::sk_daddr(sk),
            bindings::sk_v6_daddr(sk),
            bindings::sk_dport(sk),
        )
    };
    // SAFETY: By the caller's promise; the address is part of the socket.
    unsafe { inet_addr(sk, v4, v6, u16::from_be(port)) }
}

/// # Safety
///
/// As [`local`]; `v6` must be valid for reading if it is not null.
unsafe fn inet_addr(
    sk: *const bindings::sock,
    v4: u32,
    v6: *const bindings::in6_addr,
    port: u16,
) -> InetAddr {
    // SAFETY: By the caller's promise.
    let family = unsafe { (&raw const (*sk).__sk_common.skc_family).read_volatile() };
    let ip = match u32::from(family) {
        bindings::AF_INET6 if !v6.is_null() => {
            // SAFETY: By the caller's promise; all views of an IPv6 address are plain bytes.
            let octets = unsafe { (*v6).in6_u.u6_addr8 };
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(v4))),
    };
    InetAddr {
        ip,
        port,
        scope_id: 0,
    }
}
