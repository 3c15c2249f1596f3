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

use crate::table::netdev;
use crate::table::table;

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

fn role(group: &Group) -> String {
    match group.role {
        "client" => "CLNT",
        _ => "SERV",
    }
    .to_string()
}

fn kind(group: &Group) -> String {
    match group.kind {
        "none" => "NONE",
        "single" => "SINGLE",
        "symmetric" => "SYM",
        "asymmetric peer" => "ASYM_PEER",
        "asymmetric local" => "ASYM_LOCAL",
        _ => "UNKNOWN",
    }
    .to_string()
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
    let groups = module.groups()?.into_iter().filter(|group| {
        filter.group.is_none_or(|id| id == group.id)
            && (!filter.is_by_device() || with_link.contains(&group.id))
    });
    if layout > Layout::Short {
        groups.for_each(|group| long_group(&group));
        return Ok(());
    }
    let row = |group: Group| {
        vec![
            format!("{:08x}", group.id),
            role(&group),
            kind(&group),
            format!("{:#x}", group.vlan),
            group.connections.to_string(),
            group.pnetid,
        ]
    };
    table(
        &["LG-ID", "LG-Role", "LG-Type", "VLAN", "#Conns", "PNET-ID"],
        &groups.map(row).collect::<Vec<_>>(),
    )
}

fn long_group(group: &Group) {
    let line = |name: &str, value: &str| println!("{name:<10}: {value}");
    line("LG-ID", &format!("{:08x}", group.id));
    line("LG-Role", &role(group));
    line("LG-Type", &kind(group));
    line("VLAN", &format!("{:#x}", group.vlan));
    line("PNET-ID", &group.pnetid);
    match &group.v2 {
        None => line("Version", "1"),
        Some(v2) => {
            let (version, release) = v2.version.split_once('.').unwrap_or((&v2.version, "0"));
            line("Version", version);
            line("Peer-Rel", release);
            line("Peer-Host", &v2.peer);
            line("Peer-OS", v2.os);
            line("Direct", ["No", "Yes"][usize::from(v2.direct)]);
            line("EID", &v2.eid);
        }
    }
    line("#Conns", &group.connections.to_string());
    line("Sndbuf", &format!("{} B", group.send_bytes));
    line("RMB", &format!("{} B", group.receive_bytes));
    println!();
}

pub(super) fn links(module: &mut Module, filter: &Filter, layout: Layout) -> io::Result<()> {
    let mut heads = vec![
        "LG-ID",
        "LG-Role",
        "LG-Type",
        "Net-Dev",
        "Link-State",
        "#Conns",
    ];
    if layout >= Layout::Long {
        heads.extend(["Link-UID", "Peer-UID", "IB-Dev", "IB-P"]);
    }
    if layout >= Layout::Longest {
        heads.extend(["Local-GID", "Peer-GID"]);
    }
    let links = module.links()?.into_iter();
    let links = links.filter(|(_, link)| filter.takes_link(link));
    let row = |(group, link): (Group, Link)| {
        let mut row = vec![
            format!("{:08x}", group.id),
            role(&group),
            kind(&group),
            netdev(link.ifindex),
            link.state.to_uppercase(),
            link.connections.to_string(),
        ];
        let (uid, peer_uid) = (link.uid, link.peer_uid);
        row.extend([uid, peer_uid, link.device, link.port.to_string()]);
        row.extend([link.gid, link.peer_gid]);
        row.truncate(heads.len());
        row
    };
    let rows: Vec<_> = links.map(row).collect();
    table(&heads, &rows)
}

pub(super) fn devices(module: &mut Module, filter: &Filter) -> io::Result<()> {
    let ports = module.ports()?.into_iter();
    let ports = ports.filter(|port| filter.takes_device(&port.device, port.ifindex));
    let row = |port: Port| {
        let mark = ["", "*"][usize::from(port.pnetid_by_user)];
        let pci = |of: fn(&smc_tools::view::Pci) -> String| port.pci.as_ref().map(of);
        vec![
            netdev(port.ifindex),
            port.device.clone(),
            port.port.to_string(),
            ["INACTIVE", "ACTIVE"][usize::from(port.active)].to_string(),
            pci(|pci| kind_of(pci.device)).unwrap_or_else(|| "n/a".to_string()),
            ["No", "Yes"][usize::from(port.critical)].to_string(),
            pci(|pci| pci.address.clone()).unwrap_or_else(|| "n/a".to_string()),
            port.links.to_string(),
            format!("{mark}{}", port.pnetid),
        ]
    };
    table(
        &[
            "Net-Dev", "IB-Dev", "IB-P", "IB-State", "Type", "Crit", "PCI-ID", "#Links", "PNET-ID",
        ],
        &ports.map(row).collect::<Vec<_>>(),
    )
}

/// Returns the name of the adapter type with that PCI device ID.
fn kind_of(device: u64) -> String {
    match device {
        0x1004 => "RoCE_Express".to_string(),
        0x1016 => "RoCE_Express2".to_string(),
        0x101e => "RoCE_Express3".to_string(),
        0x04ed => "ISM".to_string(),
        device => format!("{device:#x}"),
    }
}

pub(super) fn smcd_groups(module: &mut Module, filter: &Filter, layout: Layout) -> io::Result<()> {
    let groups = module.smcd_groups()?.into_iter();
    let groups: Vec<_> = groups
        .filter(|group| filter.group.is_none_or(|id| id == group.id))
        .collect();
    if layout > Layout::Short {
        let blocks: Vec<_> = groups.iter().map(long_smcd_group).collect();
        print!("{}", blocks.join("\n"));
        return Ok(());
    }
    let row = |group: &SmcdGroup| {
        vec![
            format!("{:08x}", group.id),
            format!("{:#x}", group.vlan),
            group.connections.to_string(),
            group.pnetid.clone(),
        ]
    };
    table(
        &["LG-ID", "VLAN", "#Conns", "PNET-ID"],
        &groups.iter().map(row).collect::<Vec<_>>(),
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
            let (version, release) = v2.version.split_once('.').unwrap_or((&v2.version, "0"));
            fields.extend([
                ("Version", version.to_string()),
                ("Peer-Rel", release.to_string()),
                ("Peer-Host", v2.peer.clone()),
                ("Peer-OS", os(v2.os).to_string()),
                ("EID", v2.eid.clone()),
            ]);
        }
    }
    fields.extend([
        ("#Conns", group.connections.to_string()),
        ("Sndbuf", format!("{} B", group.send_bytes)),
        ("DMB", format!("{} B", group.receive_bytes)),
    ]);
    let line = |(name, value)| format!("{name:<9}: {value}\n");
    fields.into_iter().map(line).collect()
}

/// Returns the name that smc-tools has for an operating system.
fn os(name: &str) -> &str {
    match name {
        "z/OS" => "ZOS",
        "Linux" => "LINUX",
        name => name,
    }
}

pub(super) fn smcd_devices(module: &mut Module) -> io::Result<()> {
    let messages = module.dump(SMC_NETLINK_GET_DEV_SMCD)?;
    let devices = messages.iter().filter_map(Attributes::of);
    let row = |device: Attributes<'_>| {
        let port = device.nest(SMC_NLA_DEV_PORT);
        let is_by_user = port.is_some_and(|port| port.number(SMC_NLA_DEV_PORT_PNET_USR) != 0);
        let pnetid = port
            .map(|port| port.text(SMC_NLA_DEV_PORT_PNETID))
            .unwrap_or_default();
        vec![
            format!("{:04x}", device.number(SMC_NLA_DEV_PCI_FID)),
            kind_of(device.number(SMC_NLA_DEV_PCI_DEVICE)),
            device.text(SMC_NLA_DEV_PCI_ID),
            format!("{:04x}", device.number(SMC_NLA_DEV_PCI_CHID)),
            ["No", "Yes"][usize::from(device.number(SMC_NLA_DEV_IS_CRIT) != 0)].to_string(),
            device.number(SMC_NLA_DEV_USE_CNT).to_string(),
            format!("{}{pnetid}", ["", "*"][usize::from(is_by_user)]),
        ]
    };
    let rows: Vec<_> = devices.map(row).collect();
    table(
        &["FID", "Type", "PCI-ID", "PCHID", "InUse", "#LGs", "PNET-ID"],
        &rows,
    )
}

pub(super) fn info(module: &mut Module) -> io::Result<()> {
    let info = module.info()?;
    let v2 = |has: bool| ["v1", "v1 v2"][usize::from(has)];
    println!("Kernel Capabilities");
    println!("SMC Version:      {}", info.version);
    println!("SMC Hostname:     {}", info.host);
    println!("SMC-D Features:   {}", v2(info.smcd_v2));
    println!("SMC-R Features:   {}", v2(info.smcr_v2));
    println!();
    println!("Hardware Capabilities");
    let seid = Some(info.seid).filter(|seid| !seid.is_empty());
    println!("SEID:             {}", seid.as_deref().unwrap_or("n/a"));
    println!("ISM:              n/a");
    println!("RoCE:             n/a");
    Ok(())
}

#[cfg(test)]
mod tests {
    use smc_tools::smcd::SmcdGroupV2;

    use super::*;

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
        group.v2 = None;
        assert!(long_smcd_group(&group).contains("PNET-ID  : \nVersion  : 1\n#Conns   : 2\n"));
    }
}
