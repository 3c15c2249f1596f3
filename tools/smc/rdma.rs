// SPDX-License-Identifier: GPL-2.0

//! RDMA devices and their ports as the RDMA core lists them in the caller's network namespace
//! (`NETLINK_RDMA`), and the GIDs of a port, which only sysfs has.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::path::PathBuf;

use crate::netlink::attribute;
use crate::netlink::get;
use crate::netlink::put_attribute;
use crate::netlink::text;
use crate::netlink::Netlink;
use crate::netlink::Reply;
use crate::netlink::NLM_F_ACK;

/// `NETLINK_RDMA`.
const NETLINK_RDMA: i32 = 20;

/// `RDMA_NL_NLDEV`, which is the upper part of a message's type, and the commands.
const NLDEV: u16 = 5 << 10;
const GET: u16 = NLDEV | 1;
const PORT_GET: u16 = NLDEV | 5;
const SYS_GET: u16 = NLDEV | 6;

/// Attributes: `RDMA_NLDEV_ATTR_*`.
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const PORT_STATE: u16 = 12;
const NDEV_INDEX: u16 = 50;
const NDEV_NAME: u16 = 51;
const SYS_NETNS_MODE: u16 = 66;
const DEV_PROTOCOL: u16 = 67;

/// `IB_PORT_ACTIVE`.
const ACTIVE: u8 = 4;

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// `roce`, `iw`, `ib` or another one; empty if unknown.
    pub protocol: String,
    /// Whether it is made of software: nothing on a bus is behind it.
    pub is_soft: bool,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// Whether it is active.
    pub is_active: bool,
    /// Its network device: index and name; `None` if that is in another namespace, or there is none.
    pub netdev: Option<(u32, String)>,
    /// Its GIDs.
    pub gids: Vec<Gid>,
}

/// An entry of the GID table of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The GID.
    pub gid: Ipv6Addr,
    /// Whether it is one of RoCE v2.
    pub is_v2: bool,
    /// The name of its network device, which may be in another namespace.
    pub netdev: String,
}

/// Returns the devices that are visible in the namespace.
pub fn devices() -> io::Result<Vec<Device>> {
    let mut netlink = Netlink::open(NETLINK_RDMA)?;
    let listed = netlink.dump(GET, &[])?;
    let mut devices = Vec::new();
    for reply in &listed {
        let Some((index, mut device)) = Device::of(reply) else {
            continue;
        };
        let mut request = Vec::new();
        put_attribute(&mut request, DEV_INDEX, &index.to_ne_bytes());
        let ports = netlink.dump(PORT_GET, &request)?;
        device.ports = ports.iter().filter_map(Port::of).collect();
        for port in &mut device.ports {
            port.gids = gids(&device.name, port.number);
        }
        devices.push(device);
    }
    Ok(devices)
}

/// Returns whether each device belongs to one namespace (mode `exclusive`), instead of being shared by all.
pub fn is_exclusive() -> io::Result<bool> {
    let replies = Netlink::open(NETLINK_RDMA)?.ask(SYS_GET, NLM_F_ACK, &[])?;
    let mode = replies
        .first()
        .and_then(|reply| attribute(&reply.payload, SYS_NETNS_MODE));
    match mode {
        Some([0, ..]) => Ok(true),
        Some(_) => Ok(false),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl Device {
    /// Returns the index and the device, without its ports.
    fn of(reply: &Reply) -> Option<(u32, Self)> {
        let name = text(attribute(&reply.payload, DEV_NAME)?);
        let protocol = attribute(&reply.payload, DEV_PROTOCOL).map(text);
        let device = Self {
            is_soft: !folder(&name).join("device").exists(),
            name,
            protocol: protocol.unwrap_or_default(),
            ports: Vec::new(),
        };
        Some((get(attribute(&reply.payload, DEV_INDEX)?, 0)?, device))
    }
}

impl Port {
    /// Returns the port, without its GIDs.
    fn of(reply: &Reply) -> Option<Self> {
        let find = |kind| attribute(&reply.payload, kind);
        let index = find(NDEV_INDEX).and_then(|value| get(value, 0));
        Some(Self {
            number: get(find(PORT_INDEX)?, 0)?,
            is_active: find(PORT_STATE)?.first() == Some(&ACTIVE),
            netdev: index.zip(find(NDEV_NAME).map(text)),
            gids: Vec::new(),
        })
    }
}

fn folder(device: &str) -> PathBuf {
    Path::new("/sys/class/infiniband").join(device)
}

/// Returns the GIDs of a port in the order of their indices; none if sysfs does not have the device.
fn gids(device: &str, port: u32) -> Vec<Gid> {
    let port = folder(device).join("ports").join(port.to_string());
    let names = fs::read_dir(port.join("gids")).into_iter().flatten();
    let mut indices: Vec<u32> = names
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    indices.sort_unstable();
    let read = |what: &str, index: u32| {
        let text = fs::read_to_string(port.join(what).join(index.to_string())).ok()?;
        Some(text.trim().to_string())
    };
    let gid = |index| {
        let gid: Ipv6Addr = read("gids", index)?.parse().ok()?;
        // Entries that are not in use have no type.
        let kind = read("gid_attrs/types", index)?;
        Some(Gid {
            gid,
            is_v2: kind == "RoCE v2",
            netdev: read("gid_attrs/ndevs", index).unwrap_or_default(),
        })
    };
    indices.into_iter().filter_map(gid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_text;

    fn port(with_netdev: bool) -> Option<Port> {
        let mut payload = Vec::new();
        put_attribute(&mut payload, DEV_INDEX, &3u32.to_ne_bytes());
        put_text(&mut payload, DEV_NAME, "rxe0");
        put_attribute(&mut payload, PORT_INDEX, &1u32.to_ne_bytes());
        put_attribute(&mut payload, PORT_STATE, &[4]);
        if with_netdev {
            put_attribute(&mut payload, NDEV_INDEX, &7u32.to_ne_bytes());
            put_text(&mut payload, NDEV_NAME, "eth0");
        }
        let kind = PORT_GET;
        Port::of(&Reply { kind, payload })
    }

    #[test]
    fn a_port_whose_network_device_is_elsewhere_has_none() {
        let here = port(true).unwrap();
        assert_eq!(here.netdev, Some((7, "eth0".to_string())));
        assert!(here.is_active && here.number == 1);
        assert_eq!(port(false).unwrap().netdev, None);
    }
}
