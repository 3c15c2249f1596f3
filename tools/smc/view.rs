// SPDX-License-Identifier: GPL-2.0

//! Link groups, links, devices and what this machine can do (`SMC_GEN_NETLINK`), as records.

use std::io;

use serde::Serialize;
use smc_uapi::*;

use crate::genl::Family;
use crate::genl::Message;
use crate::genl::SMC_FAMILY;
use crate::netlink::attribute;
use crate::netlink::get;
use crate::netlink::text;

/// The attributes of a message or a nest.
#[derive(Clone, Copy)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The nest that a message consists of, which has the number of its command.
    pub fn of(message: &'a Message) -> Option<Self> {
        Self(&message.attributes).nest(message.command.into())
    }

    /// A nest.
    pub fn nest(self, kind: u16) -> Option<Self> {
        attribute(self.0, kind).map(Self)
    }

    /// A number of one to eight bytes; 0 if it is not there.
    pub fn number(self, kind: u16) -> u64 {
        let Some(value) = attribute(self.0, kind) else {
            return 0;
        };
        match value.len() {
            1 => get::<u8>(value, 0).map(u64::from),
            2 => get::<u16>(value, 0).map(u64::from),
            4 => get::<u32>(value, 0).map(u64::from),
            _ => get(value, 0),
        }
        .unwrap_or(0)
    }

    /// A text without the blanks at its end; empty if it is not there.
    pub fn text(self, kind: u16) -> String {
        let value = attribute(self.0, kind).map(text);
        value.unwrap_or_default().trim_end().to_string()
    }
}

/// A link group.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its number on this machine.
    pub id: u32,
    /// `client` or `server`: which end this machine is.
    pub role: &'static str,
    /// How redundant its links are.
    pub kind: &'static str,
    /// VLAN, 0 for none.
    pub vlan: u64,
    /// The physical network.
    pub pnetid: String,
    /// Connections.
    pub connections: u64,
    /// Bytes of send buffers.
    pub send_bytes: u64,
    /// Bytes of receive buffers.
    pub receive_bytes: u64,
    /// What version 2 adds.
    pub v2: Option<GroupV2>,
}

/// What is known of a link group of version 2.
#[derive(Clone, Debug, Serialize)]
pub struct GroupV2 {
    /// Version and release, such as `2.1`.
    pub version: String,
    /// The peer's name.
    pub peer: String,
    /// The peer's system.
    pub os: &'static str,
    /// The enterprise ID in common.
    pub eid: String,
    /// No gateway is between the two.
    pub direct: bool,
    /// Connections at most.
    pub max_connections: u64,
    /// Links at most.
    pub max_links: u64,
}

impl Group {
    fn of(message: &Message) -> Option<Self> {
        let attributes = Attributes::of(message)?;
        Some(Self {
            // CAST: the attribute has four bytes.
            id: attributes.number(SMC_NLA_LGR_R_ID) as u32,
            role: ["client", "server"][usize::from(attributes.number(SMC_NLA_LGR_R_ROLE) == 1)],
            kind: match attributes.number(SMC_NLA_LGR_R_TYPE) {
                0 => "none",
                1 => "single",
                2 => "symmetric",
                3 => "asymmetric peer",
                4 => "asymmetric local",
                _ => "unknown",
            },
            vlan: attributes.number(SMC_NLA_LGR_R_VLAN_ID),
            pnetid: attributes.text(SMC_NLA_LGR_R_PNETID),
            connections: attributes.number(SMC_NLA_LGR_R_CONNS_NUM),
            send_bytes: attributes.number(SMC_NLA_LGR_R_SNDBUF_ALLOC),
            receive_bytes: attributes.number(SMC_NLA_LGR_R_RMB_ALLOC),
            v2: GroupV2::of(attributes),
        })
    }
}

impl GroupV2 {
    fn of(attributes: Attributes<'_>) -> Option<Self> {
        let (common, own) = (
            attributes.nest(SMC_NLA_LGR_R_V2_COMMON)?,
            attributes.nest(SMC_NLA_LGR_R_V2)?,
        );
        Some(Self {
            version: format!(
                "{}.{}",
                common.number(SMC_NLA_LGR_V2_VER),
                common.number(SMC_NLA_LGR_V2_REL)
            ),
            peer: common.text(SMC_NLA_LGR_V2_PEER_HOST),
            os: match common.number(SMC_NLA_LGR_V2_OS) {
                1 => "z/OS",
                2 => "Linux",
                3 => "AIX",
                _ => "unknown",
            },
            eid: common.text(SMC_NLA_LGR_V2_NEG_EID),
            direct: own.number(SMC_NLA_LGR_R_V2_DIRECT) != 0,
            max_connections: own.number(SMC_NLA_LGR_R_V2_MAX_CONNS),
            max_links: own.number(SMC_NLA_LGR_R_V2_MAX_LINKS),
        })
    }
}

/// A link.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// The group that it is in.
    pub group: u32,
    /// Its number there.
    pub id: u64,
    /// What it is doing.
    pub state: &'static str,
    /// Connections that use it.
    pub connections: u64,
    /// Index of the network device; 0 for none.
    pub ifindex: u64,
    /// The RDMA device.
    pub device: String,
    /// Its port.
    pub port: u64,
    /// The four bytes by which this machine calls it, in hexadecimal digits.
    pub uid: String,
    /// Those of the peer.
    pub peer_uid: String,
    /// The port's address.
    pub gid: String,
    /// The peer's.
    pub peer_gid: String,
}

impl Link {
    fn of(group: u32, message: &Message) -> Option<Self> {
        let attributes = Attributes::of(message)?;
        Some(Self {
            group,
            id: attributes.number(SMC_NLA_LINK_ID),
            state: match attributes.number(SMC_NLA_LINK_STATE) {
                0 => "unused",
                1 => "inactive",
                2 => "activating",
                3 => "active",
                _ => "unknown",
            },
            connections: attributes.number(SMC_NLA_LINK_CONN_CNT),
            ifindex: attributes.number(SMC_NLA_LINK_NET_DEV),
            device: attributes.text(SMC_NLA_LINK_IB_DEV),
            port: attributes.number(SMC_NLA_LINK_IB_PORT),
            uid: format!("{:08x}", attributes.number(SMC_NLA_LINK_UID)),
            peer_uid: format!("{:08x}", attributes.number(SMC_NLA_LINK_PEER_UID)),
            gid: attributes.text(SMC_NLA_LINK_GID),
            peer_gid: attributes.text(SMC_NLA_LINK_PEER_GID),
        })
    }
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// The device.
    pub device: String,
    /// Its PCI function.
    pub pci: Option<Pci>,
    /// A link group would be without a link if the device went.
    pub critical: bool,
    /// The port's number.
    pub port: u64,
    /// It can carry data.
    pub active: bool,
    /// Index of the network device; 0 for none.
    pub ifindex: u64,
    /// Links.
    pub links: u64,
    /// The physical network.
    pub pnetid: String,
    /// Its name comes from an administrator.
    pub pnetid_by_user: bool,
}

/// The PCI function of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Pci {
    /// Its address.
    pub address: String,
    /// The vendor's number for the device.
    pub device: u64,
    /// Numbers that only s390 has.
    pub fid: u64,
    /// As above.
    pub pchid: u64,
}

impl Port {
    fn of(message: &Message) -> Vec<Self> {
        let Some(device) = Attributes::of(message) else {
            return Vec::new();
        };
        let pci = attribute(device.0, SMC_NLA_DEV_PCI_ID).map(|_| Pci {
            address: device.text(SMC_NLA_DEV_PCI_ID),
            device: device.number(SMC_NLA_DEV_PCI_DEVICE),
            fid: device.number(SMC_NLA_DEV_PCI_FID),
            pchid: device.number(SMC_NLA_DEV_PCI_CHID),
        });
        let ports = [(1, SMC_NLA_DEV_PORT), (2, SMC_NLA_DEV_PORT2)]
            .into_iter()
            .filter_map(|(number, nest)| {
                let port = device.nest(nest)?;
                Some(Self {
                    device: device.text(SMC_NLA_DEV_IB_NAME),
                    pci: pci.clone(),
                    critical: device.number(SMC_NLA_DEV_IS_CRIT) != 0,
                    port: number,
                    active: port.number(SMC_NLA_DEV_PORT_STATE) == 1,
                    ifindex: port.number(SMC_NLA_DEV_PORT_NETDEV),
                    links: port.number(SMC_NLA_DEV_PORT_LNK_CNT),
                    pnetid: port.text(SMC_NLA_DEV_PORT_PNETID),
                    pnetid_by_user: port.number(SMC_NLA_DEV_PORT_PNET_USR) != 0,
                })
            });
        ports.collect()
    }
}

/// What this machine can do.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Version and release, such as `2.1`.
    pub version: String,
    /// The name by which peers know this machine.
    pub host: String,
    /// Version 2 of SMC-D.
    pub smcd_v2: bool,
    /// Version 2 of SMC-R.
    pub smcr_v2: bool,
    /// The system's enterprise ID; empty where there is none.
    pub seid: String,
}

/// A connection to the module.
pub struct Module(Family);

impl Module {
    /// Finds it; `NotFound` when no SMC module is loaded.
    pub fn open() -> io::Result<Self> {
        Family::open(SMC_FAMILY).map(Self)
    }

    /// All link groups over RDMA.
    pub fn groups(&mut self) -> io::Result<Vec<Group>> {
        Ok(self
            .0
            .dump(SMC_NETLINK_GET_LGR_SMCR)?
            .iter()
            .filter_map(Group::of)
            .collect())
    }

    /// All links, each with its group.
    pub fn links(&mut self) -> io::Result<Vec<(Group, Link)>> {
        let mut group = None;
        let mut links = Vec::new();
        for message in &self.0.dump(SMC_NETLINK_GET_LINK_SMCR)? {
            if message.command == SMC_NETLINK_GET_LGR_SMCR {
                group = Group::of(message);
            } else if let Some(group) = &group {
                links.extend(Link::of(group.id, message).map(|link| (group.clone(), link)));
            }
        }
        Ok(links)
    }

    /// All ports of RDMA devices.
    pub fn ports(&mut self) -> io::Result<Vec<Port>> {
        Ok(self
            .0
            .dump(SMC_NETLINK_GET_DEV_SMCR)?
            .iter()
            .flat_map(Port::of)
            .collect())
    }

    /// What this machine can do.
    pub fn info(&mut self) -> io::Result<Info> {
        let messages = self.0.dump(SMC_NETLINK_GET_SYS_INFO)?;
        let attributes = messages.first().and_then(Attributes::of);
        let attributes = attributes.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Info {
            version: format!(
                "{}.{}",
                attributes.number(SMC_NLA_SYS_VER),
                attributes.number(SMC_NLA_SYS_REL)
            ),
            host: attributes.text(SMC_NLA_SYS_LOCAL_HOST),
            smcd_v2: attributes.number(SMC_NLA_SYS_IS_ISM_V2) != 0,
            smcr_v2: attributes.number(SMC_NLA_SYS_IS_SMCR_V2) != 0,
            seid: attributes.text(SMC_NLA_SYS_SEID),
        })
    }

    /// The system's enterprise ID, and whether it is in use; `None` where there is none.
    pub fn seid(&mut self) -> io::Result<Option<(String, bool)>> {
        let messages = self.0.dump(SMC_NETLINK_DUMP_SEID)?;
        let attributes = messages.first().map(|m| Attributes(&m.attributes));
        let attributes =
            attributes.filter(|attributes| !attributes.text(SMC_NLA_SEID_ENTRY).is_empty());
        Ok(attributes.map(|attributes| {
            (
                attributes.text(SMC_NLA_SEID_ENTRY),
                attributes.number(SMC_NLA_SEID_ENABLED) != 0,
            )
        }))
    }

    /// Has something done that takes no attributes.
    pub fn call(&mut self, command: u8) -> io::Result<()> {
        self.0.call(command, &[]).map(drop)
    }

    /// The messages of a list.
    pub fn dump(&mut self, command: u8) -> io::Result<Vec<Message>> {
        self.0.dump(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;
    use crate::netlink::NLA_F_NESTED;

    #[test]
    fn numbers_of_all_lengths_are_read() {
        let mut bytes = Vec::new();
        put_attribute(&mut bytes, 1, &[7]);
        put_attribute(&mut bytes, 2, &700u16.to_ne_bytes());
        put_attribute(&mut bytes, 3, &70_000u32.to_ne_bytes());
        put_attribute(&mut bytes, 4, &(1u64 << 40).to_ne_bytes());
        let numbers = [1, 2, 3, 4, 5].map(|kind| Attributes(&bytes).number(kind));
        assert_eq!(numbers, [7, 700, 70_000, 1 << 40, 0]);
    }

    #[test]
    fn a_device_gives_a_record_for_each_port() {
        let mut port = Vec::new();
        put_attribute(&mut port, 2, b"NET1\0");
        put_attribute(&mut port, 4, &[1]);
        let mut device = Vec::new();
        put_attribute(&mut device, 10, b"mlx5_0\0");
        put_attribute(&mut device, 8 | NLA_F_NESTED, &port);
        put_attribute(&mut device, 9 | NLA_F_NESTED, &[]);
        let mut attributes = Vec::new();
        put_attribute(&mut attributes, 6 | NLA_F_NESTED, &device);
        let ports = Port::of(&Message {
            command: SMC_NETLINK_GET_DEV_SMCR,
            attributes,
        });
        let [first, second] = &ports[..] else {
            panic!("{ports:?}");
        };
        assert!(first.active && first.pnetid == "NET1" && first.port == 1);
        assert!(!second.active && second.pnetid.is_empty() && second.port == 2);
        assert_eq!(first.device, "mlx5_0");
    }
}
