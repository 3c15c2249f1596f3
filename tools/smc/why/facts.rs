// SPDX-License-Identifier: GPL-2.0

//! Facts about this machine and network namespace that affect the use of SMC.

use std::net::SocketAddr;
use std::path::Path;

use smc_proto::cause::Cause;
use smc_proto::lgr::Role;
use smc_proto::policy::decide;
use smc_proto::policy::Decision;
use smc_proto::policy::End;
use smc_proto::policy::Ends;
use smc_proto::policy::Rule;
use smc_proto::policy::RuleAction;
use smc_proto::reason::Reason;
use smc_tools::genl::Ueids;
use smc_tools::pnet;
use smc_tools::pnet::Place;
use smc_tools::route::device_of;
use smc_tools::rules;
use smc_tools::smcd::Loopback;
use smc_tools::view::Module;
use smc_tools::view::Port;

use super::finding::Finding;
use crate::policy::AsArguments;

/// The facts; those that cannot be determined are empty.
#[derive(Default)]
pub(crate) struct Facts {
    /// User-defined enterprise IDs.
    eids: Option<Vec<String>>,
    /// Ports of RDMA devices.
    ports: Option<Vec<Port>>,
    /// The table of physical networks.
    networks: Vec<Place>,
    /// Rules about who may use SMC.
    rules: Vec<Rule>,
    /// Whether listeners limit handshakes to the number that can be processed at once.
    pub(crate) limits_handshakes: bool,
    /// Whether connections within this machine may use shared memory.
    loopback: Option<Loopback>,
}

impl Facts {
    /// Collects the facts.
    pub(crate) fn look() -> Self {
        let limit = std::fs::read_to_string("/proc/sys/net/smc/limit_smc_hs");
        Self {
            eids: Ueids::open().and_then(|mut ueids| ueids.list()).ok(),
            ports: Module::open().and_then(|mut module| module.ports()).ok(),
            networks: pnet::Table::open()
                .and_then(|mut table| table.list())
                .unwrap_or_default(),
            rules: rules::Table::open()
                .and_then(|mut table| table.list())
                .map(|listed| listed.rules)
                .unwrap_or_default(),
            limits_handshakes: limit.is_ok_and(|limit| limit.trim() != "0"),
            loopback: Loopback::read(),
        }
    }

    /// Returns the probable cause if a client declined for this reason, but the cause is unknown,
    /// as with the C module.
    pub(crate) fn cause_of(&self, reason: Reason, end: u32) -> Option<Cause> {
        const UNKNOWN: u32 = 0;
        if reason != Reason::NoSmcDevice || end != UNKNOWN {
            return None;
        }
        let (eids, ports) = (self.eids.as_ref()?, self.ports.as_ref()?);
        match () {
            () if ports.is_empty() => Some(Cause::NoDevice),
            () if !ports.iter().any(|port| port.active) => Some(Cause::PortDown),
            () if eids.is_empty() => Some(Cause::NoOwnEid),
            () => None,
        }
    }

    /// Describes the facts that are relevant to a finding about a connection between `local` and `peer`.
    pub(crate) fn that_matter(
        &self,
        finding: &Finding,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) -> Vec<String> {
        let nearness = Nearness::of(local, peer);
        if finding.is_smcr {
            return self.say_loopback(nearness).into_iter().collect();
        }
        if finding.smc != Some(false) || finding.reason.is_none() {
            return Vec::new();
        }
        let is_about = |what: &[&str]| what.iter().any(|what| finding.id.contains(what));
        let mut facts = Vec::new();
        if let Some(role) = finding.denied_as {
            return vec![self.say_rule(role, local, peer)];
        }
        if is_about(&["eid", "EID"]) {
            facts.extend(self.eids.as_deref().map(say_eids));
        }
        if is_about(&[
            "NOSMCDEV",
            "NOSMCRDEV",
            "NOISM2SUPP",
            "CNFERR",
            "DIFFPREFIX",
            "_CL",
        ]) {
            facts.extend(self.say_device(local));
            facts.extend(self.ports.iter().flatten().map(say_port));
            facts.extend(self.say_loopback(nearness));
        }
        facts
    }

    /// Says whether shared memory may be used, if the connection may be one within this machine.
    fn say_loopback(&self, nearness: Nearness) -> Option<String> {
        let peer = match nearness {
            Nearness::Here => "The peer is on this machine",
            Nearness::Perhaps => "The peer may be on this machine",
            Nearness::Away => return None,
        };
        let loopback = self.loopback?;
        Some(format!(
            "{peer}; shared memory within it (SMC-D) is {loopback}."
        ))
    }

    /// Returns whether shared memory is switched off here for a connection that may be one within
    /// this machine.
    pub(super) fn is_smcd_off(&self, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> bool {
        self.loopback.is_some_and(|loopback| !loopback.here)
            && Nearness::of(local, peer) != Nearness::Away
    }

    /// Names the rule that denies a connection SMC.
    fn say_rule(&self, role: Role, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> String {
        let end = |addr: Option<SocketAddr>| {
            addr.map_or(End::UNKNOWN, |addr| End::new(addr.ip(), addr.port()))
        };
        let ends = Ends {
            local: end(local),
            peer: end(peer),
        };
        let found = match decide(&self.rules, role, &ends) {
            Decision::By(index, RuleAction::Deny) => {
                self.rules.get(index).map(|rule| (index, rule))
            }
            _ => None,
        };
        match found {
            Some((index, rule)) => format!("Rule {}: {}.", index + 1, AsArguments(rule)),
            None => "No rule denies it any more: they have changed since.".to_string(),
        }
    }

    fn say_device(&self, local: Option<SocketAddr>) -> Option<String> {
        let device = device_of(local?.ip()).ok()??;
        let is_it = |place: &&Place| place.netdev.as_ref() == Some(&device);
        Some(match self.networks.iter().find(is_it) {
            Some(place) => format!(
                "The connection is by {device}, which is named to be on {}.",
                place.pnetid
            ),
            None => format!("The connection is by {device}."),
        })
    }
}

/// Where the peer of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    /// Its address is one of this network namespace.
    Here,
    /// The connection leaves by a network device of software, so that it may stay on this machine.
    Perhaps,
    /// On another machine, or unknown.
    Away,
}

impl Nearness {
    fn of(local: Option<SocketAddr>, peer: Option<SocketAddr>) -> Self {
        let device = |end: Option<SocketAddr>| device_of(end?.ip()).ok()?;
        match (device(local), device(peer)) {
            (_, Some(_)) => Self::Here,
            (Some(device), None) if is_virtual(&device) => Self::Perhaps,
            _ => Self::Away,
        }
    }
}

/// Returns whether a network device is one of software.
fn is_virtual(netdev: &str) -> bool {
    Path::new("/sys/devices/virtual/net").join(netdev).exists()
}

fn say_eids(eids: &[String]) -> String {
    match eids {
        [] => "This machine has no enterprise IDs.".to_string(),
        eids => format!("This machine's enterprise IDs: {}.", eids.join(", ")),
    }
}

fn say_port(port: &Port) -> String {
    let of = netdev_of(port).map_or(String::new(), |name| format!(" of {name}"));
    let state = ["is not active", "is active"][usize::from(port.active)];
    let network = match port.pnetid.as_str() {
        "" => String::new(),
        name => format!(", on physical network {name}"),
    };
    format!(
        "RDMA port {}/{}{of} {state}{network}.",
        port.device, port.port
    )
}

/// Returns the name of the port's network device. Its index is not used, since the device may be in
/// another namespace, where indices differ.
fn netdev_of(port: &Port) -> Option<String> {
    let (device, number) = (&port.device, port.port);
    let path = format!("/sys/class/infiniband/{device}/ports/{number}/gid_attrs/ndevs/0");
    let name = std::fs::read_to_string(path).ok()?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use smc_proto::policy::EndPattern;

    use super::*;

    fn port(active: bool) -> Port {
        Port {
            device: "test_0".to_string(),
            pci: None,
            critical: false,
            port: 1,
            active,
            ifindex: 0,
            mtu: None,
            links: 0,
            pnetid: "NET1".to_string(),
            pnetid_by_user: true,
        }
    }

    impl Facts {
        /// The limit is enabled, and nothing else is known.
        pub(in super::super) fn with_limit() -> Self {
            Self {
                limits_handshakes: true,
                ..Self::default()
            }
        }
    }

    #[test]
    fn a_connection_within_the_machine_is_told_the_switch() {
        let on = Loopback {
            here: true,
            initial: Some(true),
        };
        let facts = |loopback| Facts {
            loopback,
            ..Facts::default()
        };
        assert_eq!(
            facts(Some(on)).say_loopback(Nearness::Perhaps).as_deref(),
            Some("The peer may be on this machine; shared memory within it (SMC-D) is on.")
        );
        assert_eq!(facts(Some(on)).say_loopback(Nearness::Away), None);
        assert_eq!(facts(None).say_loopback(Nearness::Here), None);
    }

    #[test]
    fn the_loopback_address_is_here() {
        let (lo, far) = ("127.0.0.1:7000".parse().ok(), "192.0.2.1:7000".parse().ok());
        assert_eq!(Nearness::of(None, far), Nearness::Away);
        assert!(!is_virtual("no-such-device"));
        // A sandbox may not permit the call.
        if device_of([127, 0, 0, 1].into()).is_ok() {
            assert_eq!(Nearness::of(lo, lo), Nearness::Here);
            let off = Some(Loopback {
                here: false,
                initial: None,
            });
            let facts = Facts {
                loopback: off,
                ..Facts::default()
            };
            assert!(facts.is_smcd_off(lo, lo) && !facts.is_smcd_off(None, far));
            assert!(!Facts::default().is_smcd_off(lo, lo));
        }
    }

    #[test]
    fn a_port_is_described() {
        let said = "RDMA port test_0/1 is not active, on physical network NET1.";
        assert_eq!(say_port(&port(false)), said);
    }

    #[test]
    fn the_rule_that_denies_a_connection_is_named() {
        let deny = Rule {
            action: RuleAction::Deny,
            role: Some(Role::Client),
            local: EndPattern::ANY,
            peer: EndPattern::ANY,
        };
        let allow = Rule {
            action: RuleAction::Allow,
            role: Some(Role::Server),
            ..deny
        };
        let facts = Facts {
            rules: vec![allow, deny],
            ..Facts::default()
        };
        let (local, peer) = ("10.0.0.1:40000", "10.0.0.2:80");
        let say = |role| {
            facts.say_rule(
                role,
                Some(local.parse().unwrap()),
                Some(peer.parse().unwrap()),
            )
        };
        assert_eq!(say(Role::Client), "Rule 2: deny --client.");
        assert!(say(Role::Server).starts_with("No rule denies it any more"));
    }

    #[test]
    fn without_the_kernels_word_the_nearest_lack_is_named() {
        let cause = |eids: &[&str], ports: &[bool]| {
            let facts = Facts {
                eids: Some(eids.iter().map(|eid| (*eid).to_string()).collect()),
                ports: Some(ports.iter().map(|active| port(*active)).collect()),
                ..Facts::default()
            };
            facts.cause_of(Reason::NoSmcDevice, 0)
        };
        assert_eq!(cause(&[], &[]), Some(Cause::NoDevice));
        assert_eq!(cause(&[], &[false]), Some(Cause::PortDown));
        assert_eq!(cause(&[], &[false, true]), Some(Cause::NoOwnEid));
        assert_eq!(cause(&["A"], &[true]), None);
        let facts = Facts::default();
        assert_eq!(facts.cause_of(Reason::NoSmcDevice, 0), None);
    }
}
