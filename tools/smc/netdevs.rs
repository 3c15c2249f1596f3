// SPDX-License-Identifier: GPL-2.0

//! The network devices of the caller's namespace (`NETLINK_ROUTE`), and their addresses.

use std::io;
use std::net::IpAddr;

use libc::NETLINK_ROUTE;
use nix::ifaddrs::getifaddrs;

use crate::netlink::attribute;
use crate::netlink::get;
use crate::netlink::text;
use crate::netlink::Netlink;
use crate::netlink::Reply;

/// Length of `struct ifinfomsg`, bytes, and where its fields are.
const HEADER_LEN: usize = 16;
const INDEX_AT: usize = 4;
const FLAGS_AT: usize = 8;

/// `IFF_LOWER_UP` of `linux/if.h`, which libc has as a signed number.
const IFF_LOWER_UP: u32 = 1 << 16;

/// `IFLA_VLAN_ID`.
const VLAN_ID: u16 = 1;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netdev {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Whether the administrator has set it up.
    pub is_up: bool,
    /// Whether it has a carrier.
    pub has_carrier: bool,
    /// Its kind, such as `veth` or `bridge`; empty for an adapter.
    pub kind: String,
    /// The VLAN id of one of kind `vlan`.
    pub vlan: Option<u16>,
    /// The index of the device that it is on top of, as a VLAN is; `None` if that is in another namespace.
    pub below: Option<u32>,
    /// The index of the bridge or bond that it is a part of.
    pub master: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Returns all of them.
pub fn netdevs() -> io::Result<Vec<Netdev>> {
    let mut netlink = Netlink::open(NETLINK_ROUTE)?;
    let listed = netlink.dump(libc::RTM_GETLINK, &[0; HEADER_LEN])?;
    let mut devices: Vec<_> = listed.iter().filter_map(Netdev::of).collect();
    for entry in getifaddrs()? {
        let Some(address) = entry.address else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|own| IpAddr::V4(own.ip()));
        let v6 = address.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip()));
        // For an address with a label, libc returns that: the device's name, a colon and more.
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        let device = devices.iter_mut().find(|device| device.name == name);
        if let (Some(device), Some(address)) = (device, v4.or(v6)) {
            device.addresses.push(address);
        }
    }
    Ok(devices)
}

impl Netdev {
    /// Returns the device without its addresses.
    fn of(reply: &Reply) -> Option<Self> {
        let attributes = reply.payload.get(HEADER_LEN..)?;
        let find = |kind| attribute(attributes, kind);
        let number = |kind| find(kind).and_then(|value| get::<u32>(value, 0));
        let info = find(libc::IFLA_LINKINFO);
        let kind = info.and_then(|info| attribute(info, libc::IFLA_INFO_KIND));
        let kind = kind.map(text).unwrap_or_default();
        let data = info.and_then(|info| attribute(info, libc::IFLA_INFO_DATA));
        let vlan = data.and_then(|data| get::<u16>(attribute(data, VLAN_ID)?, 0));
        let flags: u32 = get(&reply.payload, FLAGS_AT)?;
        // The other end of a veth is in the same place, but nothing is below it.
        let is_elsewhere = find(libc::IFLA_LINK_NETNSID).is_some();
        let below = number(libc::IFLA_LINK).filter(|_| !is_elsewhere && kind != "veth");
        Some(Self {
            index: get(&reply.payload, INDEX_AT)?,
            name: text(find(libc::IFLA_IFNAME)?),
            mtu: number(libc::IFLA_MTU)?,
            // CAST: a bit.
            is_up: flags & libc::IFF_UP as u32 != 0,
            has_carrier: flags & IFF_LOWER_UP != 0,
            vlan: vlan.filter(|_| kind == "vlan"),
            kind,
            below,
            master: number(libc::IFLA_MASTER),
            addresses: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;
    use crate::netlink::put_text;
    use crate::netlink::NLA_F_NESTED;

    #[test]
    fn a_vlan_is_on_top_of_another_device() {
        let mut payload = vec![0; HEADER_LEN];
        payload[INDEX_AT] = 9;
        payload[FLAGS_AT] = 1;
        put_text(&mut payload, libc::IFLA_IFNAME, "eth0.5");
        put_attribute(&mut payload, libc::IFLA_MTU, &1500u32.to_ne_bytes());
        put_attribute(&mut payload, libc::IFLA_LINK, &7u32.to_ne_bytes());
        let mut data = Vec::new();
        put_attribute(&mut data, VLAN_ID, &5u16.to_ne_bytes());
        let mut info = Vec::new();
        put_text(&mut info, libc::IFLA_INFO_KIND, "vlan");
        put_attribute(&mut info, libc::IFLA_INFO_DATA | NLA_F_NESTED, &data);
        put_attribute(&mut payload, libc::IFLA_LINKINFO | NLA_F_NESTED, &info);
        let kind = libc::RTM_NEWLINK;
        let device = Netdev::of(&Reply { kind, payload }).unwrap();
        assert_eq!((device.index, device.mtu, device.vlan), (9, 1500, Some(5)));
        assert_eq!((device.below, device.kind.as_str()), (Some(7), "vlan"));
        assert!(device.is_up && !device.has_carrier && device.master.is_none());
    }
}
