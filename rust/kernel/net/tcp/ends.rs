// SPDX-License-Identifier: GPL-2.0

//! The two ends of a TCP socket, as TCP has them.
//!
//! `getname` would ask programs of the control group (`cgroup/getpeername4`): where a balancer has chosen the server at
//! connect(2), they give the address of the service, which all its servers share.
//!
//! C header: [`include/net/inet_sock.h`](srctree/include/net/inet_sock.h)

use core::net::IpAddr;

use super::TcpSocket;
use crate::{
    bindings,
    net::{
        converted::version_of,
        InetAddr,
        IpVersion, //
    },
    prelude::*, //
};

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Local,
    Peer,
}

impl TcpSocket {
    /// The local address. Where none was chosen yet, the address or the port is 0.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// None that a TCP socket has.
    pub fn local(&self) -> Result<InetAddr> {
        // SAFETY: The socket is alive, and locked.
        InetAddr::parse(&self.locked(|sk| unsafe { name(sk, End::Local) }))
    }

    /// The peer's address.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`.
    pub fn peer(&self) -> Result<InetAddr> {
        let name = self.locked(|sk| {
            let state = self.state();
            let has_peer = !state.is_closed() && !state.is_syn_sent();
            // SAFETY: The socket is alive, and locked.
            has_peer.then(|| unsafe { name(sk, End::Peer) })
        });
        let peer = InetAddr::parse(&name.ok_or(ENOTCONN)?)?;
        match peer.port {
            0 => Err(ENOTCONN),
            _ => Ok(peer),
        }
    }

    /// The address with which connect(2) reaches the peer again, also that of a connection that has ended or is only
    /// being made.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if there was none.
    pub(super) fn last_peer(&self) -> Result<bindings::__kernel_sockaddr_storage> {
        // SAFETY: The socket is alive, and locked.
        let name = self.locked(|sk| unsafe { name(sk, End::Peer) });
        match InetAddr::parse(&name)?.port {
            0 => Err(ENOTCONN),
            _ => Ok(name),
        }
    }

    /// IP_TOS or IPV6_TCLASS of the connection, by the version of IP that it uses. The two low bits are of TCP's ECN.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`.
    pub fn traffic_class(&self) -> Result<u8> {
        let sk = self.sk_ptr();
        Ok(match self.peer()?.ip {
            // SAFETY: The socket is alive and a TCP socket.
            IpAddr::V4(_) => unsafe { bindings::inet_tos(sk) },
            // SAFETY: As above.
            IpAddr::V6(_) => unsafe { bindings::inet6_tclass(sk) },
        })
    }
}

/// Returns the address of one end, of the socket's family.
///
/// # Safety
///
/// `sk` must be a live TCP socket, locked.
unsafe fn name(sk: *mut bindings::sock, end: End) -> bindings::__kernel_sockaddr_storage {
    let mut storage = bindings::__kernel_sockaddr_storage::default();
    let inet = sk.cast::<bindings::inet_sock>();
    // SAFETY: By the caller's promise; the addresses of a socket are plain data, and the storage is large and aligned
    // enough for every address.
    unsafe {
        let common = &raw const (*sk).__sk_common;
        let port = match end {
            End::Local => (*inet).inet_sport,
            End::Peer => (*common).__bindgen_anon_3.__bindgen_anon_1.skc_dport,
        };
        match version_of(sk) {
            IpVersion::V4 => {
                let v4 = (*common).__bindgen_anon_1.__bindgen_anon_1;
                let to = (&raw mut storage).cast::<bindings::sockaddr_in>();
                (*to).sin_family = (*common).skc_family;
                (*to).sin_port = port;
                (*to).sin_addr.s_addr = match end {
                    End::Local if v4.skc_rcv_saddr == 0 => (*inet).inet_saddr,
                    End::Local => v4.skc_rcv_saddr,
                    End::Peer => v4.skc_daddr,
                };
            }
            IpVersion::V6 => {
                let to = (&raw mut storage).cast::<bindings::sockaddr_in6>();
                (*to).sin6_family = (*common).skc_family;
                (*to).sin6_port = port;
                #[cfg(CONFIG_IPV6)]
                {
                    v6(sk, end, &mut *to);
                }
            }
        }
    }
    storage
}

/// Fills in what is IPv6's own.
///
/// # Safety
///
/// As [`name`], with a socket of IPv6.
#[cfg(CONFIG_IPV6)]
unsafe fn v6(sk: *mut bindings::sock, end: End, to: &mut bindings::sockaddr_in6) {
    use core::net::Ipv6Addr;

    let inet = sk.cast::<bindings::inet_sock>();
    let octets = |addr: bindings::in6_addr| {
        // SAFETY: All views of an IPv6 address are plain bytes.
        Ipv6Addr::from(unsafe { addr.in6_u.u6_addr8 })
    };
    // SAFETY: By the caller's promise.
    unsafe {
        let common = &raw const (*sk).__sk_common;
        let inet6 = (*inet).pinet6;
        to.sin6_addr = match end {
            End::Local if octets((*common).skc_v6_rcv_saddr).is_unspecified() => (*inet6).saddr,
            End::Local => (*common).skc_v6_rcv_saddr,
            End::Peer => (*common).skc_v6_daddr,
        };
        if end == End::Peer && (*inet).inet_flags & 1 << bindings::INET_FLAGS_SNDFLOW != 0 {
            to.sin6_flowinfo = (*inet6).flow_label;
        }
        if octets(to.sin6_addr).is_unicast_link_local() {
            to.sin6_scope_id = u32::try_from((*common).skc_bound_dev_if).unwrap_or(0);
        }
    }
}
