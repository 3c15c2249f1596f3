// SPDX-License-Identifier: GPL-2.0

//! RDMA devices, their ports, and the network devices under them.

use std::net::IpAddr;
use std::net::Ipv4Addr;

use smc_tools::netdevs::Netdev;
use smc_tools::rdma::Device;
use smc_tools::rdma::Gid;
use smc_tools::rdma::Port;

use super::super::facts::Facts;
use super::super::line::is_good;
use super::super::line::Line;
use super::networks::serves_target;

/// What a RoCE packet has beside its payload, bytes (`iboe_get_mtu` of the kernel).
const HEADERS: u32 = 96;

/// The sizes that a payload may have, bytes.
const PAYLOADS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// The payload that an MTU of Ethernet's usual 1500 bytes has room for.
const USUAL: u32 = 1024;

/// Returns the payload of RDMA packets that a network device's MTU has room for, bytes; 0 for none.
fn payload_of(mtu: u32) -> u32 {
    let room = mtu.saturating_sub(HEADERS);
    PAYLOADS
        .into_iter()
        .find(|payload| *payload <= room)
        .unwrap_or(0)
}

/// A port, with all that belongs to it.
pub(super) struct Place<'a> {
    pub(super) device: &'a Device,
    pub(super) port: &'a Port,
    /// The port's network device, if that is in this namespace.
    pub(super) netdev: Option<&'a Netdev>,
    /// That, and what is on top of it or of its bond in this namespace.
    pub(super) stack: Vec<&'a Netdev>,
}

impl<'a> Place<'a> {
    pub(super) fn all(facts: &'a Facts) -> Vec<Self> {
        let of = |device: &'a Device| {
            device.ports.iter().map(move |port| {
                let index = port.netdev.as_ref().map(|(index, _)| *index);
                let netdev = index.and_then(|index| facts.netdev(index));
                Self {
                    device,
                    port,
                    netdev,
                    stack: netdev.map_or(Vec::new(), |netdev| stack_on(netdev, &facts.netdevs)),
                }
            })
        };
        facts.devices.iter().flat_map(of).collect()
    }

    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.device.name, self.port.number)
    }

    /// The GIDs whose network devices are in this namespace, with an address of theirs.
    fn gids_here<'b>(&'b self, facts: &'b Facts) -> impl Iterator<Item = (&'b Gid, Ipv4Addr)> {
        self.port.gids.iter().filter_map(|gid| {
            let address = gid.gid.to_ipv4_mapped()?;
            let mut netdevs = facts.netdevs.iter();
            let is_its = |netdev: &Netdev| netdev.name == gid.netdev;
            netdevs
                .any(|netdev| is_its(netdev) && netdev.addresses.contains(&IpAddr::V4(address)))
                .then_some((gid, address))
        })
    }

    /// Whether the port is of use in this namespace at all: its network device is here, or one on top of that.
    fn is_here(&self, facts: &Facts) -> bool {
        self.netdev.is_some() || self.gids_here(facts).next().is_some()
    }

    fn has_v1(&self) -> bool {
        self.port.gids.iter().any(|gid| !gid.is_v2)
    }

    fn has_v2(&self) -> bool {
        self.port.gids.iter().any(|gid| gid.is_v2)
    }
}

/// Returns a device, and all that are on top of it.
fn stack_on<'a>(base: &'a Netdev, all: &'a [Netdev]) -> Vec<&'a Netdev> {
    let mut stack = vec![base];
    let mut done = 0;
    while let Some(below) = stack.get(done).copied() {
        done += 1;
        let is_above = |other: &&Netdev| {
            let is_new = stack.iter().all(|known| known.index != other.index);
            is_new && (other.below == Some(below.index) || below.master == Some(other.index))
        };
        let above: Vec<_> = all.iter().filter(is_above).collect();
        stack.extend(above);
    }
    stack
}

/// Whether some port here has a RoCE v1 address and is active, with which version 1 is possible.
pub(super) fn has_v1_port(facts: &Facts) -> bool {
    let places = Place::all(facts);
    let mut here = places.iter().filter(|place| place.is_here(facts));
    here.any(|place| place.port.is_active && place.has_v1())
}

pub(super) fn rdma(facts: &Facts) -> Vec<Line> {
    let places = Place::all(facts);
    let (here, elsewhere): (Vec<_>, Vec<_>) = places.iter().partition(|place| place.is_here(facts));
    if here.is_empty() {
        return vec![no_port(facts, &elsewhere)];
    }
    let names: Vec<_> = here.iter().map(|place| place.name()).collect();
    let mode = match facts.is_exclusive {
        Some(true) => "each in one network namespace (mode exclusive)",
        Some(false) => "shared by all network namespaces (mode shared)",
        None => "the mode of network namespaces is not known",
    };
    let mut lines = vec![Line::ok(
        "rdma",
        format!("RDMA ports: {}; devices are {mode}.", names.join(", ")),
    )];
    let judged: Vec<_> = here
        .iter()
        .map(|place| (*place, of_port(place, facts)))
        .collect();
    // Faults of a port that is not needed are no more than warnings.
    let is_needed = |place: &Place<'_>| serves_target(place, facts).unwrap_or(true);
    let mut needed = judged.iter().filter(|(place, _)| is_needed(place));
    let is_served = needed.any(|(_, lines)| is_good(lines));
    for (place, of_port) in judged {
        let is_excused = is_served || !is_needed(place);
        lines.extend(of_port.into_iter().map(|line| match is_excused {
            true => line.at_most_warn(),
            false => line,
        }));
    }
    lines
}

/// No RDMA port is of use here.
fn no_port(facts: &Facts, elsewhere: &[&Place<'_>]) -> Line {
    let ether = facts
        .netdevs
        .iter()
        .find(|netdev| netdev.is_up && netdev.name != "lo");
    let ether = ether.map_or("DEVICE", |netdev| &netdev.name);
    if let Some(place) = elsewhere.first() {
        if place.port.gids.iter().all(|gid| gid.netdev.is_empty()) {
            return Line::fail(
                "rdma/no-netdev",
                format!("No network device belongs to RDMA port {}.", place.name()),
                "Load the Ethernet driver of the adapter, and see that it is set to Ethernet (rdma link show; devlink dev param show).",
            );
        }
        return Line::fail(
            "rdma/netdev-elsewhere",
            format!("The network device of RDMA port {} is in another network namespace.", place.name()),
            "Move it here (ip link set NETDEV netns NAMESPACE), or put a VLAN, macvlan or ipvlan of it here, with an IPv4 address.",
        );
    }
    if let Some(port) = facts.ports.first() {
        return Line::fail(
            "rdma/other-namespace",
            format!("This machine has RDMA devices ({}), but all are in other network namespaces (mode exclusive).", port.device),
            format!(
                "In the namespace where it is: rdma dev set {} netns NAME; or at boot, for all: rdma system set netns shared.",
                port.device
            ),
        );
    }
    Line::fail(
        "rdma/none",
        "There is no RDMA device: connections to other machines go over TCP.",
        format!(
            "Load the driver of the adapter (lspci | grep -i ethernet; modprobe mlx5_ib, irdma, bnxt_re, ...); to try without one: \
             rdma link add rxe0 type rxe netdev {ether}"
        ),
    )
}

/// Judges one port: the first fault in the order from below, as the others follow from it.
fn of_port(place: &Place<'_>, facts: &Facts) -> Vec<Line> {
    let name = place.name();
    if let Some(fault) = fault_of(place, facts) {
        return vec![fault];
    }
    let mut lines = vec![Line::ok(
        "port",
        format!("RDMA port {name}{} is active.", netdev_of(place)),
    )];
    let addresses: Vec<_> = place
        .gids_here(facts)
        .map(|(_, address)| address.to_string())
        .collect();
    if place.device.protocol != "iw" {
        lines.push(match place.has_v2() {
            true => Line::ok("gid", format!("RDMA port {name} has RoCE v2 addresses: {}.", addresses.join(", "))),
            false => Line::warn(
                "gid/v1-only",
                format!("RDMA port {name} has RoCE v1 addresses only: SMC-R version 1, within one subnet, and no version 2."),
                "See whether the adapter and its firmware can do RoCE v2, and whether it is turned on there.",
            ),
        });
        lines.push(mtu_of(place, facts));
        lines.extend(flow_of(place, facts));
        lines.extend(forgotten(place, facts));
    }
    lines
}

fn netdev_of(place: &Place<'_>) -> String {
    place
        .netdev
        .map_or(String::new(), |netdev| format!(" of {}", netdev.name))
}

/// Returns what keeps the port from SMC.
fn fault_of(place: &Place<'_>, facts: &Facts) -> Option<Line> {
    let (name, port) = (place.name(), place.port);
    let protocol = place.device.protocol.as_str();
    if matches!(protocol, "ib" | "opa") {
        return Some(Line::fail(
            "rdma/infiniband",
            format!("RDMA port {name} is InfiniBand: SMC-R needs Ethernet below (RoCE, or iWARP)."),
            "Set the port's link type to Ethernet, if the adapter can (mlxconfig -d DEVICE set LINK_TYPE_P1=ETH), and restart.",
        ));
    }
    if facts.has_ports && facts.of_module(&place.device.name, port.number).is_none() {
        return Some(Line::fail(
            "rdma/left-out",
            format!("SMC does not use RDMA port {name}: the device has less than a link needs, or the port is its third or a later one."),
            "See the kernel log for the device and its limit (dmesg | grep \"cannot be used\"). Use another RDMA device, or a newer driver or firmware.",
        ));
    }
    if let Some(netdev) = place.netdev {
        let device = &netdev.name;
        if !netdev.is_up {
            return Some(Line::fail(
                "netdev/down",
                format!("{device}, the network device of RDMA port {name}, is down."),
                format!("ip link set {device} up"),
            ));
        }
        if !netdev.has_carrier {
            return Some(Line::fail(
                "netdev/no-carrier",
                format!("{device}, the network device of RDMA port {name}, is up, but has no link."),
                format!("Look at the cable, the transceiver and the port of the switch (ethtool {device}; ip link show {device})."),
            ));
        }
    }
    if !port.is_active {
        return Some(Line::fail(
            "port/not-active",
            format!("RDMA port {name}{} is not active, though its network device is up.", netdev_of(place)),
            format!("rdma link show {name}; take the driver of the adapter out and load it again; see dmesg."),
        ));
    }
    let has_address = |is_wanted: fn(&IpAddr) -> bool| {
        let mut stack = place.stack.iter();
        stack.any(|netdev| netdev.addresses.iter().any(is_wanted))
    };
    if protocol == "iw" {
        return (!has_address(|_| true)).then(|| no_address(place));
    }
    if place.gids_here(facts).any(|(gid, _)| gid.is_v2) || (place.has_v1() && !place.has_v2()) {
        return None;
    }
    if !has_address(IpAddr::is_ipv4) {
        return Some(no_address(place));
    }
    Some(Line::fail(
        "gid/none",
        format!(
            "RDMA port {name} does not have the IPv4 address of its network device among its RoCE v2 addresses \
             (/sys/class/infiniband/{}/ports/{}/gids).",
            place.device.name, port.number
        ),
        "Remove the address and add it again (ip address del, ip address add); an address on a bridge is not known to soft RoCE.",
    ))
}

fn no_address(place: &Place<'_>) -> Line {
    let device = place.netdev.map_or("DEVICE", |netdev| &netdev.name);
    Line::fail(
        "address/none",
        format!("{device}, the network device of RDMA port {}, has no IPv4 address; SMC-R needs one, also for IPv6.", place.name()),
        format!("ip address add ADDRESS/LENGTH dev {device}"),
    )
}

fn mtu_of(place: &Place<'_>, facts: &Facts) -> Line {
    let name = place.name();
    let active = facts
        .of_module(&place.device.name, place.port.number)
        .and_then(|port| port.mtu);
    let active = active.and_then(|mtu| u32::try_from(mtu).ok());
    let Some(netdev) = place.netdev else {
        return Line::ok(
            "mtu",
            format!(
                "The MTU of RDMA port {name} is that of a device in another network namespace."
            ),
        );
    };
    let (device, mtu, room) = (&netdev.name, netdev.mtu, payload_of(netdev.mtu));
    match active.unwrap_or(room) {
        payload if payload < room => Line::warn(
            "mtu/below-netdev",
            format!(
                "Packets of RDMA port {name} carry {payload} bytes at most, though the MTU of {device}, {mtu}, has room for {room}."
            ),
            format!("ip link set {device} down, then up, so that the adapter takes the MTU over; see its driver's settings."),
        ),
        payload if payload < USUAL => Line::warn(
            "mtu/small",
            format!("Packets of RDMA port {name} carry {payload} bytes only: the MTU of {device} is {mtu}."),
            format!("ip link set {device} mtu 1500, or 9000 if the switch and the peer have it, too (then packets carry 4096)."),
        ),
        payload => Line::ok(
            "mtu",
            format!("Packets of RDMA port {name} carry {payload} bytes; the MTU of {device} is {mtu}."),
        ),
    }
}

/// Flow control, where the driver tells of it: RoCE gets slow where a switch drops packets.
fn flow_of(place: &Place<'_>, facts: &Facts) -> Option<Line> {
    let netdev = place.netdev?;
    let (_, flow) = facts
        .flow
        .iter()
        .find(|(index, _)| *index == netdev.index)?;
    let device = &netdev.name;
    Some(match (flow.is_off(), flow.pause.or(flow.pfc.map(|pfc| pfc != 0))) {
        (true, _) => Line::warn(
            "flow/off",
            format!("{device} has no flow control: RDMA gets slow when a switch drops packets, though nothing is lost."),
            format!(
                "If the switch has it, too: ethtool -A {device} rx on tx on; or PFC for the traffic class of RoCE (dcb pfc set dev {device} ...)."
            ),
        ),
        (false, Some(true)) => Line::ok("flow", format!("{device} has flow control.")),
        (false, _) => Line::ok("flow", format!("The driver of {device} does not tell whether it has flow control.")),
    })
}

/// Addresses of devices on top of the port's that it does not know, so that connections by them are TCP.
fn forgotten(place: &Place<'_>, facts: &Facts) -> Vec<Line> {
    let known: Vec<_> = place
        .gids_here(facts)
        .map(|(_, address)| IpAddr::V4(address))
        .collect();
    let above = place.stack.iter().skip(1).filter(|netdev| netdev.is_up);
    let of = |netdev: &&Netdev| {
        let name = place.name();
        let is_soft_bridge = place.device.is_soft && netdev.kind == "bridge";
        let mut addresses = netdev.addresses.iter().filter(|ip| ip.is_ipv4());
        let missing = addresses.find(|ip| is_soft_bridge || !known.contains(ip))?;
        Some(match netdev.vlan {
            Some(vlan) => Line::warn(
                "vlan/no-gid",
                format!("RDMA port {name} does not know {missing} of {} (VLAN {vlan}): connections from it are TCP.", netdev.name),
                format!("ip link set {} down, then up, and give it the address again.", netdev.name),
            ),
            None => Line::warn(
                "stack/no-gid",
                format!("RDMA port {name} does not serve {missing} of {}, which is on top of its device: connections from it are TCP.", netdev.name),
                match is_soft_bridge {
                    true => "Soft RoCE hears nothing that comes by a bridge: make it on a device that is not in one.".to_string(),
                    false => format!("Give the RDMA device's own network device an address, or see the adapter's documentation for {}.", netdev.kind),
                },
            ),
        })
    };
    above.filter_map(of).collect()
}
