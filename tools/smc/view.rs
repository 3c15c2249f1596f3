// SPDX-License-Identifier: GPL-2.0

//! Link groups, links, devices and capabilities of this machine (`SMC_GEN_NETLINK`), as records.

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
    /// Returns the nest of a message, whose type is the number of the command.
    pub fn of(message: &'a Message) -> Option<Self> {
        Self(&message.attributes).nest(message.command.into())
    }

    /// Returns a nested attribute.
    pub fn nest(self, kind: u16) -> Option<Self> {
        attribute(self.0, kind).map(Self)
    }

    /// Returns a number of one to eight bytes; 0 if the attribute is absent.
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

    /// Returns a number that the C module has cut to less bytes, of another attribute.
    pub(crate) fn uncut(self, kind: u16, cut: u16) -> u64 {
        match attribute(self.0, kind) {
            Some(_) => self.number(kind),
            None => self.number(cut),
        }
    }

    /// Returns a text without trailing blanks; empty if the attribute is absent.
    pub fn text(self, kind: u16) -> String {
        let value = attribute(self.0, kind).map(text);
        value.unwrap_or_default().trim_end().to_string()
    }
}

/// A link group.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its id on this machine.
    pub id: u32,
    /// The role of this machine: `client` or `server`.
    pub role: &'static str,
    /// The redundancy of its links, such as `symmetric`.
    pub kind: &'static str,
    /// VLAN id, 0 for none; of the C module the low eight bits.
    pub vlan: u64,
    /// The PNETID.
    pub pnetid: String,
    /// Number of connections.
    pub connections: u64,
    /// How buffers lie in memory: `contiguous`, `virtual` or `mixed`.
    pub buffers: &'static str,
    /// Size of all send buffers, bytes.
    pub send_bytes: u64,
    /// Size of all RMBs, bytes.
    pub receive_bytes: u64,
    /// Properties that only version 2 has.
    pub v2: Option<GroupV2>,
}

/// Properties of a link group of version 2.
#[derive(Clone, Debug, Serialize)]
pub struct GroupV2 {
    /// Version and release, such as `2.1`.
    pub version: String,
    /// The peer's host name.
    pub peer: String,
    /// The peer's operating system.
    pub os: &'static str,
    /// The negotiated enterprise ID.
    pub eid: String,
    /// The peer is in the same subnet, without a gateway between.
    pub direct: bool,
    /// Maximum number of connections.
    pub max_connections: u64,
    /// Maximum number of links.
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
            vlan: attributes.uncut(SMC_NLA_LGR_R_VLAN, SMC_NLA_LGR_R_VLAN_ID),
            pnetid: attributes.text(SMC_NLA_LGR_R_PNETID),
            connections: attributes.number(SMC_NLA_LGR_R_CONNS_NUM),
            buffers: match attributes.number(SMC_NLA_LGR_R_BUF_TYPE) {
                0 => "contiguous",
                1 => "virtual",
                2 => "mixed",
                _ => "unknown",
            },
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
            version: version(common),
            peer: common.text(SMC_NLA_LGR_V2_PEER_HOST),
            os: os(common),
            eid: common.text(SMC_NLA_LGR_V2_NEG_EID),
            direct: own.number(SMC_NLA_LGR_R_V2_DIRECT) != 0,
            max_connections: own.number(SMC_NLA_LGR_R_V2_MAX_CONNS),
            max_links: own.number(SMC_NLA_LGR_R_V2_MAX_LINKS),
        })
    }
}

/// Returns version and release of a link group of version 2.
pub(crate) fn version(common: Attributes<'_>) -> String {
    let number = |kind| common.number(kind);
    format!(
        "{}.{}",
        number(SMC_NLA_LGR_V2_VER),
        number(SMC_NLA_LGR_V2_REL)
    )
}

/// Returns the operating system of the peer of such a group.
pub(crate) fn os(common: Attributes<'_>) -> &'static str {
    match common.number(SMC_NLA_LGR_V2_OS) {
        1 => "z/OS",
        2 => "Linux",
        3 => "AIX",
        _ => "unknown",
    }
}

/// A link.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// The id of its link group.
    pub group: u32,
    /// Its id in the link group.
    pub id: u64,
    /// Its state.
    pub state: &'static str,
    /// Number of connections that use it.
    pub connections: u64,
    /// Index of the network device; 0 for none.
    pub ifindex: u64,
    /// The RDMA device.
    pub device: String,
    /// The port number.
    pub port: u64,
    /// The link user id of this machine: four bytes in hexadecimal digits.
    pub uid: String,
    /// The link user id of the peer.
    pub peer_uid: String,
    /// The GID of the port.
    pub gid: String,
    /// The peer's GID.
    pub peer_gid: String,
    /// Traffic class of the packets that this machine sends.
    pub traffic_class: u64,
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
            uid: uid(attributes.number(SMC_NLA_LINK_UID)),
            peer_uid: uid(attributes.number(SMC_NLA_LINK_PEER_UID)),
            gid: attributes.text(SMC_NLA_LINK_GID),
            peer_gid: attributes.text(SMC_NLA_LINK_PEER_GID),
            // The C module does not say: it has no other one than 0.
            traffic_class: attributes.number(SMC_NLA_LINK_TRAFFIC_CLASS),
        })
    }
}

/// Formats a link user id: its bytes in the order in which they are sent.
fn uid(number: u64) -> String {
    // CAST: the attribute has four bytes.
    format!("{:08x}", u32::from_be(number as u32))
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// The name of the device.
    pub device: String,
    /// Its PCI function.
    pub pci: Option<Pci>,
    /// Whether a link group would have no link left without the device.
    pub critical: bool,
    /// The port number.
    pub port: u64,
    /// Whether the port is active.
    pub active: bool,
    /// Index of the network device; 0 for none.
    pub ifindex: u64,
    /// The active MTU: the largest payload of an RDMA packet, bytes; `None` with the C module.
    pub mtu: Option<u64>,
    /// Number of links.
    pub links: u64,
    /// The PNETID.
    pub pnetid: String,
    /// Whether the PNETID was configured by an administrator.
    pub pnetid_by_user: bool,
}

/// The PCI function of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Pci {
    /// The PCI address.
    pub address: String,
    /// The PCI device ID.
    pub device: u64,
    /// Function id; only on s390.
    pub fid: u64,
    /// Physical channel id; only on s390.
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
                    mtu: Some(port.number(SMC_NLA_DEV_PORT_MTU)).filter(|mtu| *mtu != 0),
                    links: port.number(SMC_NLA_DEV_PORT_LNK_CNT),
                    pnetid: port.text(SMC_NLA_DEV_PORT_PNETID),
                    pnetid_by_user: port.number(SMC_NLA_DEV_PORT_PNET_USR) != 0,
                })
            });
        ports.collect()
    }
}

/// The capabilities of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Version and release, such as `2.1`.
    pub version: String,
    /// The host name that is sent to peers.
    pub host: String,
    /// Whether version 2 of SMC-D is supported.
    pub smcd_v2: bool,
    /// Whether version 2 of SMC-R is supported.
    pub smcr_v2: bool,
    /// The system enterprise ID; empty if there is none.
    pub seid: String,
    /// Who adds the SMC option to TCP's SYN.
    pub syn_option: &'static str,
}

/// The netlink family of the module.
pub struct Module(Family);

impl Module {
    /// Opens it; `NotFound` if no SMC module is loaded.
    pub fn open() -> io::Result<Self> {
        Family::open(SMC_FAMILY).map(Self)
    }

    /// Returns all SMC-R link groups.
    pub fn groups(&mut self) -> io::Result<Vec<Group>> {
        Ok(self
            .0
            .dump(SMC_NETLINK_GET_LGR_SMCR)?
            .iter()
            .filter_map(Group::of)
            .collect())
    }

    /// Returns all links, each with its group.
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

    /// Returns all ports of RDMA devices.
    pub fn ports(&mut self) -> io::Result<Vec<Port>> {
        Ok(self
            .0
            .dump(SMC_NETLINK_GET_DEV_SMCR)?
            .iter()
            .flat_map(Port::of)
            .collect())
    }

    /// Returns the capabilities of this machine.
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
            // The C module does not say: it needs TCP for it.
            syn_option: match attributes.number(SMC_NLA_SYS_SYN_OPTION) {
                way if way == u64::from(SMC_SYN_OPTION_NETFILTER) => "netfilter",
                _ => "TCP",
            },
        })
    }

    /// Returns the system enterprise ID, and whether it is enabled; `None` if there is none.
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

    /// Sends a command without attributes.
    pub fn call(&mut self, command: u8) -> io::Result<()> {
        self.0.call(command, &[]).map(drop)
    }

    /// Returns the messages of a dump.
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
    fn a_group_has_all_bits_of_its_vlan() {
        let group = |attributes: &[u8]| {
            let mut nest = Vec::new();
            put_attribute(&mut nest, 2 | NLA_F_NESTED, attributes);
            Group::of(&Message {
                command: SMC_NETLINK_GET_LGR_SMCR,
                attributes: nest,
            })
        };
        let mut attributes = Vec::new();
        put_attribute(&mut attributes, SMC_NLA_LGR_R_VLAN_ID, &[44]);
        assert_eq!(group(&attributes).unwrap().vlan, 44);
        let vlan = 300_u16.to_ne_bytes();
        put_attribute(&mut attributes, SMC_NLA_LGR_R_VLAN, &vlan);
        assert_eq!(group(&attributes).unwrap().vlan, 300);
    }

    #[test]
    fn a_device_gives_a_record_for_each_port() {
        let mut port = Vec::new();
        put_attribute(&mut port, 2, b"NET1\0");
        put_attribute(&mut port, 4, &[1]);
        put_attribute(&mut port, 0x52, &1024u32.to_ne_bytes());
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
        assert_eq!([first.mtu, second.mtu], [Some(1024), None]);
    }
}
