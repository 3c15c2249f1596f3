// SPDX-License-Identifier: GPL-2.0

//! Which network device has an address (`NETLINK_ROUTE`, `include/uapi/linux/if_addr.h`).

use std::io;
use std::net::IpAddr;

use crate::netlink::attribute;
use crate::netlink::get_u32;
use crate::netlink::text;
use crate::netlink::Netlink;

const NETLINK_ROUTE: i32 = 0;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;

/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const ADDR_HEADER_LEN: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// `struct ifinfomsg`; the index is its second word.
const LINK_HEADER_LEN: usize = 16;
const IFLA_IFNAME: u16 = 3;

/// The name of the network device of the caller's namespace that has this address.
pub fn device_of(ip: IpAddr) -> io::Result<Option<String>> {
    let mut netlink = Netlink::open(NETLINK_ROUTE)?;
    let addresses = netlink.dump(RTM_GETADDR, &[0; ADDR_HEADER_LEN])?;
    let index = addresses
        .iter()
        .find_map(|reply| index_with(&reply.payload, ip));
    let Some(index) = index else {
        return Ok(None);
    };
    let links = netlink.dump(RTM_GETLINK, &[0; LINK_HEADER_LEN])?;
    Ok(links.iter().find_map(|reply| {
        let is_it = get_u32(&reply.payload, 4)? == index;
        let name = attribute(reply.payload.get(LINK_HEADER_LEN..)?, IFLA_IFNAME)?;
        is_it.then(|| text(name))
    }))
}

/// The index of the device of an address message, if it is about this address.
fn index_with(message: &[u8], ip: IpAddr) -> Option<u32> {
    let attributes = message.get(ADDR_HEADER_LEN..)?;
    let own = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    let is_it = match ip {
        IpAddr::V4(ip) => own == ip.octets(),
        IpAddr::V6(ip) => own == ip.octets(),
    };
    is_it.then(|| get_u32(message, 4))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;

    #[test]
    fn an_address_is_found_by_its_own_end() {
        let mut message = vec![2, 24, 0, 0];
        message.extend(7u32.to_ne_bytes());
        put_attribute(&mut message, IFA_ADDRESS, &[10, 0, 0, 9]);
        put_attribute(&mut message, IFA_LOCAL, &[10, 0, 0, 1]);
        let find = |ip: &str| index_with(&message, ip.parse().unwrap());
        assert_eq!(find("10.0.0.1"), Some(7));
        assert_eq!(find("10.0.0.9"), None);
        assert_eq!(find("::1"), None);
    }

    #[test]
    fn the_loopback_device_has_the_loopback_address() {
        let found = device_of("127.0.0.1".parse().unwrap());
        // Not everywhere may a test ask the kernel.
        if let Ok(found) = found {
            assert_eq!(found.as_deref(), Some("lo"));
        }
    }
}
