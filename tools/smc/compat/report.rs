// SPDX-License-Identifier: GPL-2.0

//! The output of `smcr` and `smcd`, in the columns of smc-tools.

use std::io;

use smc_tools::smcd::SmcdGroup;
use smc_tools::view::Attributes;
use smc_tools::view::Group;
use smc_tools::view::Link;
use smc_tools::view::Module;
use smc_tools::view::Port;
use smc_uapi::*;

use crate::out;
use crate::table::netdev;

/// The level of detail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Layout {
    Short,
    Long,
    Longest,
}

/// Selects what to print.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) group: Option<u32>,
    pub(super) device: Option<String>,
    pub(super) netdev: Option<String>,
}

impl Filter {
    fn takes_link(&self, link: &Link) -> bool {
        self.group.is_none_or(|group| group == link.group)
            && self.takes_device(&link.device, link.ifindex)
    }

    fn takes_device(&self, device: &str, ifindex: u64) -> bool {
        self.device.as_deref().is_none_or(|name| name == device)
            && self
                .netdev
                .as_ref()
                .is_none_or(|name| *name == netdev(ifindex))
    }

    fn is_by_device(&self) -> bool {
        self.device.is_some() || self.netdev.is_some()
    }
}

/// Prints `lines` below `head`, without the blanks at their ends; nothing if the kernel lists nothing.
fn columns(has_any: bool, head: &str, mut lines: impl Iterator<Item = String>) -> io::Result<()> {
    if has_any {
        out::line(head.trim_end())?;
        lines.try_for_each(|line| out::line(line.trim_end()))?;
    }
    Ok(())
}

fn role(group: &Group) -> &'static str {
    match group.role {
        "client" => "CLNT",
        _ => "SERV",
    }
}

fn kind(group: &Group) -> &'static str {
    match group.kind {
        "none" => "NONE",
        "single" => "SINGLE",
        "symmetric" => "SYM",
        "asymmetric peer" => "ASYMP",
        "asymmetric local" => "ASYML",
        _ => "UNKNOWN",
    }
}

/// Formats a VLAN id in a table: as C's `%#x`.
fn vlan(id: u64) -> String {
    match id {
        0 => "0".to_string(),
        id => format!("{id:#x}"),
    }
}

pub(super) fn groups(module: &mut Module, filter: &Filter, layout: Layout) -> io::Result<()> {
    let with_link: Vec<_> = match filter.is_by_device() {
        true => {
            let links = module.links()?.into_iter();
            let links = links.filter(|(_, link)| filter.takes_link(link));
            links.map(|(group, _)| group.id).collect()
        }
        false => Vec::new(),
    };
    let listed = module.groups()?;
    let has_any = !listed.is_empty();
    let groups = listed.iter().filter(|group| {
        filter.group.is_none_or(|id| id == group.id)
            && (!filter.is_by_device() || with_link.contains(&group.id))
    });
    if layout > Layout::Short {
        let blocks: Vec<_> = groups.map(long_group).collect();
        return out::text(&blocks.join("\n"));
    }
    columns(has_any, GROUPS_HEAD, groups.map(group_line))
}

const GROUPS_HEAD: &str = "LG-ID    LG-Role  LG-Type  VLAN  #Conns  PNET-ID";

fn group_line(group: &Group) -> String {
    format!(
        "{:08x} {:<8} {:<8} {:>4}  {:>6}  {}",
        group.id,
        role(group),
        kind(group),
        vlan(group.vlan),
        group.connections,
        group.pnetid
    )
}

type Field = (&'static str, String);

fn long_group(group: &Group) -> String {
    let mut fields = vec![
        ("LG-ID", format!("{:08x}", group.id)),
        ("LG-Role", role(group).to_string()),
        ("LG-Type", kind(group).to_string()),
        ("VLAN", format!("{:x}", group.vlan)),
        ("PNET-ID", group.pnetid.clone()),
    ];
    match &group.v2 {
        None => fields.push(("Version", "1".to_string())),
        Some(v2) => {
            fields.extend(peer(&v2.version, &v2.peer, v2.os));
            let direct = ["No", "Yes"][usize::from(v2.direct)];
            fields.extend([("Direct", direct.to_string()), ("EID", v2.eid.clone())]);
        }
    }
    fields.extend([
        ("#Conns", group.connections.to_string()),
        ("Sndbuf", format!("{} B", group.send_bytes)),
        ("RMB", format!("{} B", group.receive_bytes)),
    ]);
    block(fields)
}

/// Returns the fields about the peer of a group of version 2.
fn peer(version: &str, host: &str, os: &str) -> [Field; 4] {
    let (version, release) = version.split_once('.').unwrap_or((version, "0"));
    let os = match os {
        "z/OS" => "ZOS",
        "Linux" => "LINUX",
        name => name,
    };
    [
        ("Version", version),
        ("Peer-Rel", release),
        ("Peer-Host", host),
        ("Peer-OS", os),
    ]
    .map(|(name, value)| (name, value.to_string()))
}

fn block(fields: Vec<Field>) -> String {
    let line = |(name, value)| format!("{name:<9}: {value}\n");
    fields.into_iter().map(line).collect()
}

pub(super) fn links(module: &mut Module, filter: &Filter, layout: Layout) -> io::Result<()> {
    let listed = module.links()?;
    let has_any = !listed.is_empty();
    let links = listed.iter().filter(|(_, link)| filter.takes_link(link));
    let line = |(group, link): &(Group, Link)| link_line(group, link, layout);
    columns(has_any, &links_head(layout), links.map(line))
}

fn links_head(layout: Layout) -> String {
    let mut head =
        "LG-ID    LG-Role  LG-Type  Net-Dev         Link-State      #Conns  ".to_string();
    if layout >= Layout::Long {
        head.push_str("Link-UID  Peer-UID  IB-Dev    IB-P  ");
    }
    if layout >= Layout::Longest {
        head.push_str("Local-GID                                 Peer-GID");
    }
    head
}

fn link_line(group: &Group, link: &Link, layout: Layout) -> String {
    let mut line = format!(
        "{:08x} {:<8} {:<8} {:<15} {:<15} {:>6}  ",
        group.id,
        role(group),
        kind(group),
        netdev(link.ifindex),
        format!("LINK_{}", link.state.to_uppercase()),
        link.connections
    );
    if layout >= Layout::Long {
        line.push_str(&format!(
            "{:<8}  {:<8}  {:<8}  {:>4}  ",
            link.uid, link.peer_uid, link.device, link.port
        ));
    }
    if layout >= Layout::Longest {
        line.push_str(&format!("{:<40}  {}", link.gid, link.peer_gid));
    }
    line
}

pub(super) fn devices(module: &mut Module, filter: &Filter, layout: Layout) -> io::Result<()> {
    let listed = module.ports()?;
    let has_any = !listed.is_empty();
    let ports = listed
        .iter()
        .filter(|port| filter.takes_device(&port.device, port.ifindex));
    let line = |port: &Port| device_line(port, layout);
    columns(has_any, &devices_head(layout), ports.map(line))
}

fn devices_head(layout: Layout) -> String {
    let mut head = "Net-Dev         IB-Dev   IB-P  IB-State  Type          Crit  ".to_string();
    if layout >= Layout::Long {
        head.push_str(" FID   PCI-ID        PCHID  ");
    }
    head.push_str("#Links  PNET-ID");
    head
}

fn device_line(port: &Port, layout: Layout) -> String {
    let pci = port.pci.as_ref();
    let mut line = format!(
        "{:<15} {:<8} {:>4}  {:>8}  {:<13}  {:>3}   ",
        netdev(port.ifindex),
        port.device,
        port.port,
        ["INACTIVE", "ACTIVE"][usize::from(port.active)],
        kind_of(pci.map_or(0, |pci| pci.device)),
        ["No", "Yes"][usize::from(port.critical)],
    );
    if layout >= Layout::Long {
        line.push_str(&format!(
            "{:04x}  {:<12}  {:04x}    ",
            pci.map_or(0, |pci| pci.fid),
            pci.map_or("", |pci| pci.address.as_str()),
            pci.map_or(0, |pci| pci.pchid),
        ));
    }
    let mark = ["", "*"][usize::from(port.pnetid_by_user)];
    line.push_str(&format!("{:>5}  {mark}{}", port.links, port.pnetid));
    line
}

/// PCI device IDs of the adapters that smc-tools knows by name.
const ROCE_EXPRESS: u64 = 0x1004;
const ROCE_EXPRESS2: u64 = 0x1016;
const ROCE_EXPRESS3: u64 = 0x101e;
const ISM: u64 = 0x04ed;

/// Returns the name of the adapter type with that PCI device ID.
fn kind_of(device: u64) -> String {
    match device {
        ROCE_EXPRESS => "RoCE_Express".to_string(),
        ROCE_EXPRESS2 => "RoCE_Express2".to_string(),
        ROCE_EXPRESS3 => "RoCE_Express3".to_string(),
        ISM => "ISM".to_string(),
        0 => "0".to_string(),
        device => format!("{device:#x}"),
    }
}

/// Returns the versions of RoCE that adapters with these PCI device IDs have, of those that smc-tools
/// knows.
fn roce_versions(devices: impl Iterator<Item = u64>) -> &'static str {
    let mut versions = "n/a";
    for device in devices {
        match device {
            ROCE_EXPRESS2 | ROCE_EXPRESS3 => return "v1 v2",
            ROCE_EXPRESS => versions = "v1",
            _ => {}
        }
    }
    versions
}

pub(super) fn smcd_groups(module: &mut Module, filter: &Filter, layout: Layout) -> io::Result<()> {
    let listed = module.smcd_groups()?;
    let has_any = !listed.is_empty();
    let groups = listed
        .iter()
        .filter(|group| filter.group.is_none_or(|id| id == group.id));
    if layout > Layout::Short {
        let blocks: Vec<_> = groups.map(long_smcd_group).collect();
        return out::text(&blocks.join("\n"));
    }
    let head = "LG-ID    VLAN  #Conns  PNET-ID";
    columns(has_any, head, groups.map(smcd_group))
}

fn smcd_group(group: &SmcdGroup) -> String {
    format!(
        "{:08x} {:>4}  {:>6}  {}",
        group.id,
        vlan(group.vlan),
        group.connections,
        group.pnetid
    )
}

fn long_smcd_group(group: &SmcdGroup) -> String {
    let mut fields = vec![
        ("LG-ID", format!("{:08x}", group.id)),
        ("VLAN", format!("{:x}", group.vlan)),
        ("PNET-ID", group.pnetid.clone()),
    ];
    match &group.v2 {
        None => fields.push(("Version", "1".to_string())),
        Some(v2) => {
            fields.extend(peer(&v2.version, &v2.peer, v2.os));
            fields.push(("EID", v2.eid.clone()));
        }
    }
    fields.extend([
        ("#Conns", group.connections.to_string()),
        ("Sndbuf", format!("{} B", group.send_bytes)),
        ("DMB", format!("{} B", group.receive_bytes)),
    ]);
    block(fields)
}

pub(super) fn smcd_devices(module: &mut Module) -> io::Result<()> {
    let messages = module.dump(SMC_NETLINK_GET_DEV_SMCD)?;
    let devices: Vec<_> = messages.iter().filter_map(Attributes::of).collect();
    let line = |device: &Attributes<'_>| {
        let port = device.nest(SMC_NLA_DEV_PORT);
        let is_by_user = port.is_some_and(|port| port.number(SMC_NLA_DEV_PORT_PNET_USR) != 0);
        let pnetid = port
            .map(|port| port.text(SMC_NLA_DEV_PORT_PNETID))
            .unwrap_or_default();
        format!(
            "{:04x} {:<4}  {:<12}  {:04x}   {:<4}  {:>5}  {}{pnetid}",
            device.number(SMC_NLA_DEV_PCI_FID),
            kind_of(device.number(SMC_NLA_DEV_PCI_DEVICE)),
            device.text(SMC_NLA_DEV_PCI_ID),
            device.number(SMC_NLA_DEV_PCI_CHID),
            ["No", "Yes"][usize::from(device.number(SMC_NLA_DEV_IS_CRIT) != 0)],
            device.number(SMC_NLA_DEV_USE_CNT),
            ["", "*"][usize::from(is_by_user)],
        )
    };
    let head = "FID  Type  PCI-ID        PCHID  InUse  #LGs  PNET-ID";
    columns(!devices.is_empty(), head, devices.iter().map(line))
}

pub(super) fn info(module: &mut Module) -> io::Result<()> {
    let info = module.info()?;
    let ports = module.ports()?;
    let devices = ports
        .iter()
        .filter_map(|port| Some(port.pci.as_ref()?.device));
    let v2 = |has: bool| ["v1", "v1 v2"][usize::from(has)];
    // As smc-tools: what the protocol has, whatever devices there are.
    let has_v2 = !info.version.starts_with("1.");
    let seid = Some(info.seid).filter(|seid| !seid.is_empty());
    out::lines([
        "Kernel Capabilities".to_string(),
        format!("SMC Version:      {}", info.version),
        format!("SMC Hostname:     {}", info.host),
        format!("SMC-D Features:   {}", v2(has_v2)),
        format!("SMC-R Features:   {}", v2(info.smcr_v2)),
        String::new(),
        "Hardware Capabilities".to_string(),
        format!("SEID:             {}", seid.as_deref().unwrap_or("n/a")),
        "ISM:              n/a".to_string(),
        format!("RoCE:             {}", roce_versions(devices)),
    ])
}

#[cfg(test)]
mod tests {
    use smc_tools::smcd::SmcdGroupV2;
    use smc_tools::view::GroupV2;
    use smc_tools::view::Pci;

    use super::*;

    fn group() -> Group {
        Group {
            id: 0x200,
            role: "client",
            kind: "symmetric",
            vlan: 7,
            pnetid: "NET1".to_string(),
            connections: 3,
            buffers: "contiguous",
            send_bytes: 262_144,
            receive_bytes: 65_536,
            v2: Some(GroupV2 {
                version: "2.1".to_string(),
                peer: "host".to_string(),
                os: "z/OS",
                eid: "EID-1".to_string(),
                direct: true,
                max_connections: 255,
                max_links: 2,
            }),
        }
    }

    #[test]
    fn a_group_has_the_lines_of_smc_tools() {
        let mut group = group();
        assert_eq!(
            [GROUPS_HEAD, &group_line(&group)].join("\n"),
            "LG-ID    LG-Role  LG-Type  VLAN  #Conns  PNET-ID\n\
             00000200 CLNT     SYM       0x7       3  NET1"
        );
        assert_eq!(
            long_group(&group),
            "LG-ID    : 00000200\nLG-Role  : CLNT\nLG-Type  : SYM\nVLAN     : 7\nPNET-ID  : NET1\n\
             Version  : 2\nPeer-Rel : 1\nPeer-Host: host\nPeer-OS  : ZOS\nDirect   : Yes\n\
             EID      : EID-1\n#Conns   : 3\nSndbuf   : 262144 B\nRMB      : 65536 B\n"
        );
        (group.v2, group.vlan) = (None, 0);
        (group.role, group.kind) = ("server", "asymmetric local");
        assert_eq!(
            group_line(&group),
            "00000200 SERV     ASYML       0       3  NET1"
        );
        assert!(long_group(&group).contains("PNET-ID  : NET1\nVersion  : 1\n#Conns   : 3\n"));
    }

    #[test]
    fn a_link_has_the_columns_of_smc_tools() {
        let link = Link {
            group: 0x200,
            id: 1,
            state: "activating",
            connections: 12,
            ifindex: 0,
            device: "mlx5_0".to_string(),
            port: 2,
            uid: "00000201".to_string(),
            peer_uid: "00000101".to_string(),
            gid: "fe80:0000:0000:0000:0000:0000:0000:0001".to_string(),
            peer_gid: "fe80:0000:0000:0000:0000:0000:0000:0002".to_string(),
            traffic_class: 0,
        };
        let text = |layout| [links_head(layout), link_line(&group(), &link, layout)].join("\n");
        let head = "LG-ID    LG-Role  LG-Type  Net-Dev         Link-State      #Conns  ";
        let line = "00000200 CLNT     SYM      -               LINK_ACTIVATING     12  ";
        let (more_head, more) = (
            "Link-UID  Peer-UID  IB-Dev    IB-P  ",
            "00000201  00000101  mlx5_0       2  ",
        );
        let (most_head, most) = (
            "Local-GID                                 Peer-GID",
            "fe80:0000:0000:0000:0000:0000:0000:0001   fe80:0000:0000:0000:0000:0000:0000:0002",
        );
        assert_eq!(text(Layout::Short), format!("{head}\n{line}"));
        assert_eq!(
            text(Layout::Long),
            format!("{head}{more_head}\n{line}{more}")
        );
        assert_eq!(
            text(Layout::Longest),
            format!("{head}{more_head}{most_head}\n{line}{more}{most}")
        );
    }

    #[test]
    fn a_device_has_the_columns_of_smc_tools() {
        let mut port = Port {
            device: "mlx5_0".to_string(),
            pci: Some(Pci {
                address: "0000:00:05.0".to_string(),
                device: ROCE_EXPRESS2,
                fid: 0,
                pchid: 0,
            }),
            critical: true,
            port: 1,
            active: true,
            ifindex: 0,
            mtu: None,
            links: 2,
            pnetid: "NET1".to_string(),
            pnetid_by_user: true,
        };
        let text =
            |port: &Port, layout| [devices_head(layout), device_line(port, layout)].join("\n");
        assert_eq!(
            text(&port, Layout::Short),
            "Net-Dev         IB-Dev   IB-P  IB-State  Type          Crit  #Links  PNET-ID\n\
             -               mlx5_0      1    ACTIVE  RoCE_Express2  Yes       2  *NET1"
        );
        (port.active, port.critical, port.pnetid_by_user) = (false, false, false);
        assert_eq!(
            text(&port, Layout::Long),
            "Net-Dev         IB-Dev   IB-P  IB-State  Type          Crit   FID   PCI-ID        PCHID  #Links  PNET-ID\n\
             -               mlx5_0      1  INACTIVE  RoCE_Express2   No   0000  0000:00:05.0  0000        2  NET1"
        );
    }

    #[test]
    fn the_versions_of_roce_are_those_of_adapters_with_a_name() {
        let versions = |devices: &[u64]| roce_versions(devices.iter().copied());
        assert_eq!(versions(&[]), "n/a");
        assert_eq!(versions(&[0, 0x1017]), "n/a");
        assert_eq!(versions(&[0x1017, ROCE_EXPRESS]), "v1");
        assert_eq!(versions(&[ROCE_EXPRESS, ROCE_EXPRESS2]), "v1 v2");
        assert_eq!(versions(&[ROCE_EXPRESS3]), "v1 v2");
    }

    #[test]
    fn a_group_of_shared_memory_has_the_lines_of_smc_tools() {
        let mut group = SmcdGroup {
            id: 0x100,
            connections: 2,
            receive_bytes: 16384,
            v2: Some(SmcdGroupV2 {
                version: "2.1".to_string(),
                peer: "host".to_string(),
                os: "Linux",
                eid: String::new(),
            }),
            ..SmcdGroup::default()
        };
        assert_eq!(
            long_smcd_group(&group),
            "LG-ID    : 00000100\nVLAN     : 0\nPNET-ID  : \nVersion  : 2\nPeer-Rel : 1\n\
             Peer-Host: host\nPeer-OS  : LINUX\nEID      : \n#Conns   : 2\nSndbuf   : 0 B\n\
             DMB      : 16384 B\n"
        );
        assert_eq!(smcd_group(&group), "00000100    0       2  ");
        group.v2 = None;
        assert!(long_smcd_group(&group).contains("PNET-ID  : \nVersion  : 1\n#Conns   : 2\n"));
    }
}
