// SPDX-License-Identifier: GPL-2.0

//! `smc lgr`, `smc link`, `smc dev`, `smc info`: the state of the module.

use std::io;

use serde::Serialize;
use smc_tools::memory::Memory;
use smc_tools::smcd::Loopback;
use smc_tools::smcd::SmcdGroup;
use smc_tools::view::Group;
use smc_tools::view::Info;
use smc_tools::view::Link;
use smc_tools::view::Module;
use smc_tools::view::Port;

use crate::out;
use crate::table::json;
use crate::table::netdev;
use crate::table::not_loaded;
use crate::table::or_dash;
use crate::table::table;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn module() -> io::Result<Module> {
    Module::open().map_err(not_loaded)
}

/// A link group in the JSON output of `smc lgr`.
#[derive(Serialize)]
#[serde(tag = "technology")]
enum AnyGroup<'a> {
    #[serde(rename = "SMC-R")]
    SmcR(&'a Group),
    #[serde(rename = "SMC-D")]
    SmcD(&'a SmcdGroup),
}

/// Prints the link groups, those of SMC-R first.
pub(crate) fn groups(arguments: &Arguments) -> io::Result<()> {
    let mut module = module()?;
    let (groups, smcd_groups) = (module.groups()?, module.smcd_groups()?);
    if arguments.json {
        let groups = groups.iter().map(AnyGroup::SmcR);
        let all = groups.chain(smcd_groups.iter().map(AnyGroup::SmcD));
        return json(&all.collect::<Vec<_>>());
    }
    let rows = groups.iter().map(group_row);
    let rows = rows.chain(smcd_groups.iter().map(smcd_group_row));
    table(&GROUP_HEADS, &rows.collect::<Vec<_>>())
}

const GROUP_HEADS: [&str; 11] = [
    "ID", "Role", "Links", "Version", "Conns", "SndKiB", "RcvKiB", "VLAN", "PNETID", "Peer", "EID",
];

fn group_row(group: &Group) -> Vec<String> {
    let v2 = group.v2.as_ref();
    vec![
        format!("{:08x}", group.id),
        group.role.to_string(),
        group.kind.to_string(),
        v2.map_or("1".to_string(), |v2| v2.version.clone()),
        group.connections.to_string(),
        (group.send_bytes >> 10).to_string(),
        (group.receive_bytes >> 10).to_string(),
        vlan(group.vlan),
        or_dash(&group.pnetid),
        v2.map_or("-".to_string(), |v2| or_dash(&v2.peer)),
        v2.map_or("-".to_string(), |v2| or_dash(&v2.eid)),
    ]
}

/// A group of SMC-D has no links, and this machine is both client and server.
fn smcd_group_row(group: &SmcdGroup) -> Vec<String> {
    let v2 = group.v2.as_ref();
    vec![
        format!("{:08x}", group.id),
        "-".to_string(),
        "SMC-D".to_string(),
        v2.map_or("1".to_string(), |v2| v2.version.clone()),
        group.connections.to_string(),
        (group.send_bytes >> 10).to_string(),
        (group.receive_bytes >> 10).to_string(),
        vlan(group.vlan),
        or_dash(&group.pnetid),
        v2.map_or("-".to_string(), |v2| or_dash(&v2.peer)),
        v2.map_or("-".to_string(), |v2| or_dash(&v2.eid)),
    ]
}

fn vlan(id: u64) -> String {
    match id {
        0 => "-".to_string(),
        id => id.to_string(),
    }
}

/// Prints the links.
pub(crate) fn links(arguments: &Arguments) -> io::Result<()> {
    let links = module()?.links()?;
    let links: Vec<_> = links.into_iter().map(|(_, link)| link).collect();
    if arguments.json {
        return json(&links);
    }
    let row = |link: &Link| {
        vec![
            format!("{:08x}", link.group),
            link.id.to_string(),
            link.state.to_string(),
            link.connections.to_string(),
            format!("{}/{}", link.device, link.port),
            netdev(link.ifindex),
            link.gid.clone(),
            link.peer_gid.clone(),
            link.traffic_class.to_string(),
        ]
    };
    table(
        &[
            "Group", "Link", "State", "Conns", "Device", "Netdev", "GID", "Peer GID", "Class",
        ],
        &links.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Prints the RDMA devices.
pub(crate) fn devices(arguments: &Arguments) -> io::Result<()> {
    let ports = module()?.ports()?;
    if arguments.json {
        return json(&ports);
    }
    let row = |port: &Port| {
        vec![
            format!("{}/{}", port.device, port.port),
            netdev(port.ifindex),
            ["down", "active"][usize::from(port.active)].to_string(),
            port.mtu.map_or("-".to_string(), |mtu| mtu.to_string()),
            port.links.to_string(),
            ["no", "yes"][usize::from(port.critical)].to_string(),
            or_dash(port.pci.as_ref().map_or("", |pci| &pci.address)),
            or_dash(&port.pnetid),
        ]
    };
    table(
        &[
            "Device", "Netdev", "State", "MTU", "Links", "Critical", "PCI", "PNETID",
        ],
        &ports.iter().map(row).collect::<Vec<_>>(),
    )
}

/// The JSON output of `smc info`.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    info: Info,
    /// Shared memory within this machine; `None` if the module does not say.
    smcd_loopback: Option<Loopback>,
    memory: Option<Memory>,
}

/// Returns the line about SMC-D: over devices, and within this machine.
fn smcd(info: &Info, loopback: Option<Loopback>) -> String {
    let device = info.smcd_v2.then(|| "v2".to_string());
    let within = loopback.map(|loopback| format!("within this machine: {loopback}"));
    let parts: Vec<_> = device.into_iter().chain(within).collect();
    match parts.is_empty() {
        true => "no".to_string(),
        false => parts.join(", "),
    }
}

/// Prints the capabilities of this machine, and the memory of its sockets.
pub(crate) fn info(arguments: &Arguments) -> io::Result<()> {
    let info = module()?.info()?;
    let (smcd_loopback, memory) = (Loopback::read(), Memory::read());
    if arguments.json {
        return json(&Shown {
            info,
            smcd_loopback,
            memory,
        });
    }
    let mut lines = vec![
        format!("Version     {}", info.version),
        format!("Host        {}", info.host),
        format!(
            "SMC-R       v1{}",
            [" only", " v2"][usize::from(info.smcr_v2)]
        ),
        format!("SMC-D       {}", smcd(&info, smcd_loopback)),
        format!("System EID  {}", or_dash(&info.seid)),
        format!("SYN option  by {}", info.syn_option),
    ];
    if let Some(memory) = memory {
        let limits = memory.limits.map_or(String::new(), |[low, middle, high]| {
            format!(", limits {low} {middle} {high}")
        });
        lines.push(format!("Memory      {} pages{limits}", memory.pages));
    }
    out::lines(lines)
}

#[cfg(test)]
mod tests {
    use smc_tools::smcd::SmcdGroupV2;

    use super::*;

    fn smcd_group() -> SmcdGroup {
        SmcdGroup {
            id: 0x100,
            vlan: 0,
            pnetid: String::new(),
            connections: 3,
            send_bytes: 0,
            receive_bytes: 48 << 10,
            gid: "a1".to_string(),
            peer_gid: "a1".to_string(),
            chid: 0xffff,
            v2: Some(SmcdGroupV2 {
                version: "2.1".to_string(),
                peer: "host".to_string(),
                os: "Linux",
                eid: String::new(),
            }),
        }
    }

    #[test]
    fn a_group_of_shared_memory_has_the_columns_of_the_others() {
        let row = smcd_group_row(&smcd_group());
        let expected = [
            "00000100", "-", "SMC-D", "2.1", "3", "0", "48", "-", "-", "host", "-",
        ];
        assert_eq!(row, expected);
        assert_eq!(row.len(), GROUP_HEADS.len());
    }

    #[test]
    fn json_names_the_technology() {
        let json = serde_json::to_value([AnyGroup::SmcD(&smcd_group())]).unwrap();
        assert_eq!(json[0]["technology"], "SMC-D");
        assert_eq!(json[0]["connections"], 3);
        assert_eq!(json[0]["v2"]["version"], "2.1");
    }

    #[test]
    fn shared_memory_within_the_machine_needs_no_device() {
        let info = |smcd_v2| Info {
            version: "2.1".to_string(),
            host: String::new(),
            smcd_v2,
            smcr_v2: true,
            seid: String::new(),
            syn_option: "TCP",
        };
        let on = Some(Loopback {
            here: true,
            initial: Some(true),
        });
        assert_eq!(smcd(&info(false), None), "no");
        assert_eq!(smcd(&info(true), None), "v2");
        assert_eq!(smcd(&info(false), on), "within this machine: on");
        assert_eq!(smcd(&info(true), on), "v2, within this machine: on");
    }
}
