// SPDX-License-Identifier: GPL-2.0

//! Whether the firewall lets RoCE and TCP's SMC option pass.

mod ruleset;

use std::net::IpAddr;

use serde_json::Value;

use super::facts::Facts;
use super::facts::Firewall;
use super::line::Line;
use ruleset::Direction;
use ruleset::Packet;
use ruleset::Ruleset;
use ruleset::Verdict;

/// The UDP port of RoCE v2, and the kind of the TCP option.
const ROCE_PORT: u16 = 4791;
const OPTION: u64 = 254;

pub(super) fn judge(facts: &Facts) -> Vec<Line> {
    let (ruleset, is_legacy) = match &facts.firewall {
        Firewall::Absent => return vec![Line::ok("firewall", "This machine has no firewall.")],
        Firewall::Unread(error) => {
            return vec![Line::warn(
                "firewall/unread",
                format!("The rules of the firewall could not be read ({error})."),
                "Run this as root, with nft installed; UDP port 4791 has to pass in both directions, and TCP option 254.",
            )]
        }
        Firewall::Ruleset(ruleset, is_legacy) => (ruleset, *is_legacy),
    };
    let mut lines = Vec::from_iter(of_roce(facts, ruleset));
    lines.extend(of_option(ruleset));
    if is_legacy {
        lines.push(Line::warn(
            "firewall/iptables",
            "There are rules of the old iptables, which were not judged.",
            "iptables-legacy -S: UDP port 4791 has to pass in both directions, and TCP option 254 (--tcp-option 254).",
        ));
    }
    if lines.is_empty() {
        lines.push(Line::ok(
            "firewall",
            "The firewall lets RoCE (UDP port 4791) and TCP's SMC option pass.",
        ));
    }
    lines
}

/// Whether RoCE's packets pass: those of soft devices go through the firewall, those of adapters do not.
fn of_roce(facts: &Facts, ruleset: &Value) -> Option<Line> {
    let rules = Ruleset::of(ruleset);
    let peer = facts.target.as_ref().map(|target| target.address.ip());
    let ports = facts
        .devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let here = ports.filter(|(device, port)| device.protocol == "roce" && port.netdev.is_some());
    let mut found: Option<(bool, bool, String)> = None;
    for (device, port) in here {
        let netdev = port.netdev.as_ref().map_or("", |(_, name)| name);
        for (direction, way) in [
            (Direction::In, "that come in"),
            (Direction::Out, "that go out"),
        ] {
            let packet = Packet {
                direction,
                netdev,
                peer: peer.filter(IpAddr::is_ipv4),
                port: ROCE_PORT,
            };
            let (place, is_certain) = match rules.verdict(&packet) {
                Verdict::Passes => continue,
                Verdict::Drops(place) => (place, true),
                Verdict::MayDrop(place) => (place, false),
            };
            let said = format!("RoCE packets (UDP port 4791) {way} by {netdev}: {place}.");
            // The gravest counts.
            if found
                .as_ref()
                .is_none_or(|(soft, certain, _)| (*soft, *certain) < (device.is_soft, is_certain))
            {
                found = Some((device.is_soft, is_certain, said));
            }
        }
    }
    let (is_soft, is_certain, said) = found?;
    let hint = "Let them pass before that: nft insert rule FAMILY TABLE CHAIN udp dport 4791 accept; for firewalld: \
                firewall-cmd --permanent --add-port=4791/udp && firewall-cmd --reload; for ufw: ufw allow 4791/udp. The same at the peer.";
    Some(match (is_certain, is_soft) {
        (true, true) => Line::fail("firewall/roce", format!("The firewall drops {said}"), hint),
        (true, false) => Line::warn(
            "firewall/roce",
            format!("The firewall drops {said} An adapter's own packets do not go through it, but those of firewalls on the way do."),
            hint,
        ),
        (false, _) => Line::warn("firewall/roce-maybe", format!("The firewall may drop {said}"), hint),
    })
}

/// Whether a rule is about TCP's SMC option.
fn of_option(ruleset: &Value) -> Option<Line> {
    let place = Ruleset::of(ruleset).takes_option(OPTION)?;
    Some(Line::fail(
        "firewall/option",
        format!(
            "The firewall drops segments with TCP's SMC option (kind 254), or removes it: {place}."
        ),
        "Remove that rule (nft -a list ruleset; nft delete rule FAMILY TABLE CHAIN handle NUMBER).",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use smc_tools::rdma::Device;
    use smc_tools::rdma::Port;

    use super::super::line::Status;
    use super::*;

    fn facts(ruleset: Value, is_soft: bool) -> Facts {
        Facts {
            firewall: Firewall::Ruleset(ruleset, false),
            devices: vec![Device {
                name: "dev_0".to_string(),
                protocol: "roce".to_string(),
                is_soft,
                ports: vec![Port {
                    number: 1,
                    is_active: true,
                    netdev: Some((2, "eth0".to_string())),
                    gids: Vec::new(),
                }],
            }],
            ..Facts::default()
        }
    }

    fn dropping() -> Value {
        json!({"nftables": [
            {"chain": {"family": "inet", "table": "f", "name": "in", "hook": "input", "type": "filter", "policy": "drop"}},
        ]})
    }

    #[test]
    fn only_packets_of_soft_devices_go_through_the_firewall() {
        for (is_soft, status) in [(true, Status::Fail), (false, Status::Warn)] {
            let lines = judge(&facts(dropping(), is_soft));
            let [line] = &lines[..] else {
                panic!("{lines:?}")
            };
            assert_eq!((line.id.as_str(), line.status), ("firewall/roce", status));
            assert!(
                line.sentence.contains("the policy of chain inet f in"),
                "{line:?}"
            );
        }
        assert_eq!(
            judge(&facts(json!({"nftables": []}), true))[0].id,
            "firewall"
        );
        // Without an RDMA device here nothing has to pass.
        let mut none = facts(dropping(), true);
        none.devices[0].ports[0].netdev = None;
        assert_eq!(judge(&none)[0].id, "firewall");
    }
}
