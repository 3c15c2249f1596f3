// SPDX-License-Identifier: GPL-2.0

//! Subnets of the network device that a TCP connection uses.
//!
//! C headers: [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/net/if_inet6.h`](srctree/include/net/if_inet6.h)

use core::{
    net::{
        IpAddr,
        Ipv4Addr, //
    },
    ops::ControlFlow,
    ptr::NonNull, //
};

#[cfg(CONFIG_IPV6)]
use core::net::Ipv6Addr;

use kernel::sync::rcu;

use crate::{
    bindings,
    net::TcpSocket,
    route, //
};

/// An address of a network device, and the length of its subnet's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The address; of a point-to-point connection, that of the other end.
    pub address: IpAddr,
    /// Length of the mask, bits.
    pub len: u8,
}

impl Subnet {
    /// Whether an IPv4 address is in the subnet.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        let IpAddr::V4(own) = self.address else {
            return false;
        };
        let mask = u32::MAX
            .checked_shl(u32::BITS - u32::from(self.len))
            .unwrap_or(0);
        (own.to_bits() ^ address.to_bits()) & mask == 0
    }
}

impl TcpSocket {
    /// Calls `visit` with each IPv4 address of the network device through which the connection's packets are sent,
    /// until it breaks. `visit` runs in an RCU read section: it must not sleep.
    /// Context: any.
    pub fn ipv4_subnets<B>(
        &self,
        mut visit: impl FnMut(Subnet) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let rcu = rcu::read_lock();
        let Some(dev) = self.route_netdev(&rcu) else {
            return ControlFlow::Continue(());
        };
        // SAFETY: The device is valid in this RCU read section.
        let in_dev = unsafe { bindings::in_dev_get_rcu(dev.as_ptr()) };
        if in_dev.is_null() {
            return ControlFlow::Continue(());
        }
        // SAFETY: As above.
        let mut ifa = unsafe { bindings::ifa_first_rcu(in_dev) };
        while let Some(entry) = NonNull::new(ifa.cast_mut()) {
            // SAFETY: As above; neither changes once the address is in the list.
            let (address, len) = unsafe {
                (
                    (*entry.as_ptr()).ifa_address,
                    (*entry.as_ptr()).ifa_prefixlen,
                )
            };
            visit(Subnet {
                address: Ipv4Addr::from(address.to_ne_bytes()).into(),
                len,
            })?;
            // SAFETY: As above.
            ifa = unsafe { bindings::ifa_next_rcu(entry.as_ptr()) };
        }
        ControlFlow::Continue(())
    }

    /// The same for IPv6 addresses, without link-local ones.
    /// Context: any.
    #[cfg(CONFIG_IPV6)]
    pub fn ipv6_subnets<B>(
        &self,
        mut visit: impl FnMut(Subnet) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let rcu = rcu::read_lock();
        let Some(dev) = self.route_netdev(&rcu) else {
            return ControlFlow::Continue(());
        };
        // SAFETY: The device is valid in this RCU read section.
        let in6_dev = unsafe { bindings::in6_dev_get_rcu(dev.as_ptr()) };
        if in6_dev.is_null() {
            return ControlFlow::Continue(());
        }
        // SAFETY: As above.
        let mut ifa = unsafe { bindings::if6_first_rcu(in6_dev) };
        while let Some(entry) = NonNull::new(ifa.cast_mut()) {
            // SAFETY: As above; the address does not change, and the length is read whole.
            let (bytes, len) = unsafe {
                (
                    (*entry.as_ptr()).addr.in6_u.u6_addr8,
                    (&raw const (*entry.as_ptr()).prefix_len).read_volatile(),
                )
            };
            let address = Ipv6Addr::from(bytes);
            if !address.is_unicast_link_local() {
                visit(Subnet {
                    address: address.into(),
                    len: u8::try_from(len).unwrap_or(u8::MAX),
                })?;
            }
            // SAFETY: As above.
            ifa = unsafe { bindings::if6_next_rcu(in6_dev, entry.as_ptr()) };
        }
        ControlFlow::Continue(())
    }

    /// A kernel without IPv6 has no such addresses.
    /// Context: any.
    #[cfg(not(CONFIG_IPV6))]
    pub fn ipv6_subnets<B>(&self, _: impl FnMut(Subnet) -> ControlFlow<B>) -> ControlFlow<B> {
        ControlFlow::Continue(())
    }

    /// The network device of the connection's route, valid as long as the RCU read section `_rcu`.
    fn route_netdev(&self, _rcu: &rcu::Guard) -> Option<NonNull<bindings::net_device>> {
        // SAFETY: The socket is alive, and this is an RCU read section.
        unsafe { route::netdev_of(self.sk_ptr()) }
    }
}
