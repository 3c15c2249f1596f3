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

use kernel_ext::{
    net::TcpSocket,
    subnet::Subnet, //
};
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
    let found = tcp.ipv4_subnets(|subnet| match subnet.has(own) {
        true => ControlFlow::Break(subnet),
        false => ControlFlow::Continue(()),
    });
    match address(found.break_value()?) {
        Address::V4 { address, len } => Some(IpPrefix::V4 {
            subnet: address.masked(len),
            len,
        }),
        Address::V6 { .. } => None,
    }
}

fn of_ipv6<'a>(tcp: &TcpSocket, room: &'a mut [Ipv6Prefix; MAX_PREFIXES]) -> Option<IpPrefix<'a>> {
    let mut count = 0;
    let _ = tcp.ipv6_subnets(|subnet| {
        let Some(place) = room.get_mut(count) else {
            return ControlFlow::Break(());
        };
        if let Address::V6 { address, len } = address(subnet) {
            *place = Ipv6Prefix::of(address, len);
            count += 1;
        }
        ControlFlow::Continue(())
    });
    let prefixes = List::new(room.get(..count)?)?;
    (!prefixes.is_empty()).then_some(IpPrefix::V6(prefixes))
}

/// Returns whether the network device has an address in a subnet of the client's.
/// Context: any.
pub(super) fn is_common(tcp: &TcpSocket, offered: &IpPrefix<'_>) -> bool {
    let is_in = |subnet| match address(subnet).is_in(offered) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let found = match offered {
        IpPrefix::V4 { .. } => tcp.ipv4_subnets(is_in),
        IpPrefix::V6(_) => tcp.ipv6_subnets(is_in),
    };
    found.is_break()
}

fn address(subnet: Subnet) -> Address {
    let Subnet { address, len } = subnet;
    match address {
        IpAddr::V4(address) => Address::V4 {
            address: Ipv4(address.octets()),
            len,
        },
        IpAddr::V6(address) => Address::V6 {
            address: address.octets(),
            len,
        },
    }
}
