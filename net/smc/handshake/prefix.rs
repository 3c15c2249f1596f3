// SPDX-License-Identifier: GPL-2.0

//! Subnets of the network device of a TCP connection. In version 1 the client sends them, and the server must be in one
//! of them (RFC 7609 section 3.5.1; C functions `smc_clc_prfx_set`, `smc_clc_prfx_match`).

use core::{
    net::{
        IpAddr,
        Ipv4Addr, //
    },
    ops::ControlFlow, //
};

use kernel_ext::net::TcpSocket;
use smc_proto::{
    handshake::select::Address,
    id::Ipv4,
    wire::{
        clc::{
            IpPrefix,
            Ipv6Prefix, //
        },
        List, //
    }, //
};

/// The number of IPv6 prefixes that a PROPOSAL has room for.
pub(super) const MAX_PREFIXES: usize = 8;

/// Returns what the client sends: the subnet of its own IPv4 address, or the prefixes of the network device's IPv6
/// addresses, the first of them, for which `room` is used. `None` if there is none.
/// Context: any.
pub(super) fn of<'a>(
    tcp: &TcpSocket,
    room: &'a mut [Ipv6Prefix; MAX_PREFIXES],
) -> Option<IpPrefix<'a>> {
    match tcp.local().ok()?.ip {
        IpAddr::V4(own) => of_ipv4(tcp, own),
        IpAddr::V6(_) => of_ipv6(tcp, room),
    }
}

fn of_ipv4<'a>(tcp: &TcpSocket, own: Ipv4Addr) -> Option<IpPrefix<'a>> {
    let own = Ipv4(own.octets());
    tcp.ipv4_subnets(|address, len| {
        let subnet = Ipv4(address.octets()).masked(len);
        match subnet == own.masked(len) {
            true => ControlFlow::Break(IpPrefix::V4 { subnet, len }),
            false => ControlFlow::Continue(()),
        }
    })
}

fn of_ipv6<'a>(tcp: &TcpSocket, room: &'a mut [Ipv6Prefix; MAX_PREFIXES]) -> Option<IpPrefix<'a>> {
    let mut count = 0;
    tcp.ipv6_subnets(|address, len| match room.get_mut(count) {
        Some(place) => {
            *place = Ipv6Prefix::of(address.octets(), len);
            count += 1;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    });
    let prefixes = List::new(room.get(..count)?)?;
    (!prefixes.is_empty()).then_some(IpPrefix::V6(prefixes))
}

/// Returns whether the network device has an address in a subnet of the client's.
/// Context: any.
pub(super) fn is_common(tcp: &TcpSocket, offered: &IpPrefix<'_>) -> bool {
    let is_in = |own: Address| match own.is_in(offered) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let found = match offered {
        IpPrefix::V4 { .. } => tcp.ipv4_subnets(|address, len| {
            let address = Ipv4(address.octets());
            is_in(Address::V4 { address, len })
        }),
        IpPrefix::V6(_) => tcp.ipv6_subnets(|address, len| {
            let address = address.octets();
            is_in(Address::V6 { address, len })
        }),
    };
    found.is_some()
}
