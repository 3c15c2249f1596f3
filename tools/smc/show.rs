// SPDX-License-Identifier: GPL-2.0

//! `smc lgr`, `smc link`, `smc dev`, `smc info`: the state of the module.

use std::io;

use serde::Serialize;
use smc_tools::memory::Memory;
use smc_tools::view::Group;
use smc_tools::view::Info;
use smc_tools::view::Link;
use smc_tools::view::Module;
use smc_tools::view::Port;

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

/// Prints the link groups.
pub(crate) fn groups(arguments: &Arguments) -> io::Result<()> {
    let groups = module()?.groups()?;
    if arguments.json {
        return json(&groups);
    }
    let row = |group: &Group| {
        let v2 = group.v2.as_ref();
        vec![
            format!("{:08x}", group.id),
            group.role.to_string(),
            group.kind.to_string(),
            v2.map_or("1".to_string(), |v2| v2.version.clone()),
            group.connections.to_string(),
            (group.send_bytes >> 10).to_string(),
            (group.receive_bytes >> 10).to_string(),
            match group.vlan {
                0 => "-".to_string(),
                vlan => vlan.to_string(),
            },
            or_dash(&group.pnetid),
            v2.map_or("-".to_string(), |v2| or_dash(&v2.peer)),
            v2.map_or("-".to_string(), |v2| or_dash(&v2.eid)),
        ]
    };
    table(
        &[
            "ID", "Role", "Links", "Version", "Conns", "SndKiB", "RcvKiB", "VLAN", "PNETID",
            "Peer", "EID",
        ],
        &groups.iter().map(row).collect::<Vec<_>>(),
    )
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
        ]
    };
    table(
        &[
            "Group", "Link", "State", "Conns", "Device", "Netdev", "GID", "Peer GID",
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
    memory: Option<Memory>,
}

/// Prints the capabilities of this machine, and the memory of its sockets.
pub(crate) fn info(arguments: &Arguments) -> io::Result<()> {
    let info = module()?.info()?;
    let memory = Memory::read();
    if arguments.json {
        return json(&Shown { info, memory });
    }
    println!("Version     {}", info.version);
    println!("Host        {}", info.host);
    println!(
        "SMC-R       v1{}",
        [" only", " v2"][usize::from(info.smcr_v2)]
    );
    println!("SMC-D       {}", ["no", "v2"][usize::from(info.smcd_v2)]);
    println!("System EID  {}", or_dash(&info.seid));
    println!("SYN option  by {}", info.syn_option);
    if let Some(memory) = memory {
        let limits = memory.limits.map_or(String::new(), |[low, middle, high]| {
            format!(", limits {low} {middle} {high}")
        });
        println!("Memory      {} pages{limits}", memory.pages);
    }
    Ok(())
}
