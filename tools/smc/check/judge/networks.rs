// SPDX-License-Identifier: GPL-2.0

//! Names of physical networks (PNETIDs), and which port serves connections to a host.

use std::net::IpAddr;

use smc_tools::netdevs::Netdev;

use super::super::facts::Facts;
use super::super::line::Line;
use super::ports::Place;

pub(super) fn judge(facts: &Facts) -> Vec<Line> {
    let mut lines = missing(facts);
    if lines.is_empty() {
        lines.extend(portless(facts));
    }
    if lines.is_empty() {
        lines.push(match facts.networks.len() {
            0 => Line::ok("pnet", "No physical network has a name: connections use the RDMA device of their network device."),
            count => Line::ok("pnet", format!("The {count} entries of the table of physical networks name devices that are here.")),
        });
    }
    lines.extend(toward_target(facts));
    lines
}

/// Entries that name what is not there.
fn missing(facts: &Facts) -> Vec<Line> {
    let mut lines = Vec::new();
    for place in &facts.networks {
        let id = &place.pnetid;
        let remove = format!("smc pnet del {id} (smc_pnet -d {id}), then add what it should name");
        if let Some(name) = &place.netdev {
            if !facts.netdevs.iter().any(|netdev| netdev.name == *name) {
                lines.push(Line::fail(
                    "pnet/missing-netdev",
                    format!("Physical network {id} names network device {name}, which is not in this network namespace."),
                    format!("{remove}: smc pnet add {id} -I DEVICE."),
                ));
            }
        }
        if let Some(name) = &place.device {
            let is_it = |port: &&smc_tools::view::Port| {
                port.device == *name || port.pci.as_ref().is_some_and(|pci| pci.address == *name)
            };
            if !facts.ports.iter().any(|port| is_it(&port)) {
                lines.push(Line::fail(
                    "pnet/missing-device",
                    format!("Physical network {id} names RDMA device {name}, which this machine does not have."),
                    format!("{remove}: smc pnet add {id} -D DEVICE (rdma link show lists them)."),
                ));
            }
        }
    }
    lines
}

/// Networks of a network device here on which no RDMA port is.
fn portless(facts: &Facts) -> Vec<Line> {
    let has_port = |id: &str| facts.ports.iter().any(|port| port.pnetid == id);
    let of_netdevs = facts
        .networks
        .iter()
        .filter_map(|place| Some((&place.pnetid, place.netdev.as_ref()?)));
    let mut lines = Vec::new();
    for (id, netdev) in of_netdevs {
        if !has_port(id) {
            lines.push(Line::fail(
                "pnet/no-port",
                format!("{netdev} is named to be on physical network {id}, and no RDMA port is: connections by it are TCP."),
                format!("In the first network namespace: smc pnet add {id} -D DEVICE (rdma link show lists them); or smc pnet del {id}."),
            ));
        }
    }
    lines
}

/// Returns the network device that connections to the host in question leave by.
fn route(facts: &Facts) -> Option<&Netdev> {
    let local = facts.target.as_ref()?.local?;
    let mut netdevs = facts.netdevs.iter();
    netdevs.find(|netdev| netdev.addresses.contains(&local))
}

/// Returns whether the port serves connections to the host in question; `None` if none is, or its route is not known.
pub(super) fn serves_target(place: &Place<'_>, facts: &Facts) -> Option<bool> {
    let route = route(facts)?;
    let base = base_of(route, &facts.netdevs);
    let name_of = |netdev: &Netdev| {
        let mut places = facts.networks.iter();
        let is_it = |place: &&smc_tools::pnet::Place| place.netdev.as_ref() == Some(&netdev.name);
        places.find(is_it).map(|place| place.pnetid.as_str())
    };
    if let Some(pnetid) = name_of(base).or_else(|| name_of(route)) {
        let port = facts.of_module(&place.device.name, place.port.number);
        return Some(port.is_some_and(|port| port.pnetid == pnetid));
    }
    let is_of_stack = place.stack.iter().any(|netdev| netdev.index == route.index);
    let has_gid = place.port.gids.iter().any(|gid| {
        let address = gid.gid.to_ipv4_mapped().map(IpAddr::V4);
        gid.netdev == route.name && address.is_some_and(|ip| route.addresses.contains(&ip))
    });
    Some(is_of_stack || has_gid)
}

/// Returns the lowest device below `netdev`.
fn base_of<'a>(netdev: &'a Netdev, all: &'a [Netdev]) -> &'a Netdev {
    let mut base = netdev;
    // No stack has as many as all.
    for _ in all {
        let is_below =
            |other: &&Netdev| base.below == Some(other.index) || other.master == Some(base.index);
        match all.iter().find(is_below) {
            Some(below) => base = below,
            None => break,
        }
    }
    base
}

/// Whether a port serves connections to the host in question.
fn toward_target(facts: &Facts) -> Option<Line> {
    let target = facts.target.as_ref()?;
    let to = target.address.ip();
    let Some(local) = target.local else {
        return Some(Line::fail(
            "route/none",
            format!("There is no route to {to}."),
            format!("ip route get {to}; SMC needs the same route as TCP."),
        ));
    };
    let netdev = route(facts)?;
    let places = Place::all(facts);
    // What is wrong without any port was said already.
    if places.iter().all(|place| place.netdev.is_none()) {
        return None;
    }
    let device = &netdev.name;
    let serving = places
        .iter()
        .find(|place| serves_target(place, facts) == Some(true));
    Some(match serving {
        Some(place) => Line::ok(
            "route",
            format!("Connections to {to} leave by {device} from {local}, with RDMA port {}.", place.name()),
        ),
        None => Line::fail(
            "route/no-port",
            format!("Connections to {to} leave by {device} from {local}, to which no RDMA port belongs."),
            format!(
                "Use an address of the peer that is reached by an RDMA device's network device, or say that both are on one \
                 network: smc pnet add NET1 -I {device}, and in the first network namespace smc pnet add NET1 -D DEVICE."
            ),
        ),
    })
}
