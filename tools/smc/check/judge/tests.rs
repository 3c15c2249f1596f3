// SPDX-License-Identifier: GPL-2.0

//! A machine on which all is well, and what is said of each change to it.

use std::net::IpAddr;

use smc_proto::lgr::Role;
use smc_proto::policy::EndPattern;
use smc_proto::policy::Rule;
use smc_proto::policy::RuleAction;
use smc_tools::flow::FlowControl;
use smc_tools::memory::Memory;
use smc_tools::netdevs::Netdev;
use smc_tools::pnet;
use smc_tools::rdma;
use smc_tools::smcd::Loopback;
use smc_tools::view;

use super::super::facts::Facts;
use super::super::facts::Firewall;
use super::super::facts::Kernel;
use super::super::facts::Loaded;
use super::super::facts::Target;
use super::super::line::is_good;
use super::super::line::Status;
use super::judge;

fn netdev(index: u32, name: &str, address: &str) -> Netdev {
    Netdev {
        index,
        name: name.to_string(),
        mtu: 9000,
        is_up: true,
        has_carrier: true,
        kind: String::new(),
        vlan: None,
        below: None,
        master: None,
        addresses: Vec::from_iter(address.parse::<IpAddr>().ok()),
    }
}

fn gid(address: &str, netdev: &str, is_v2: bool) -> rdma::Gid {
    rdma::Gid {
        gid: format!("::ffff:{address}").parse().unwrap(),
        is_v2,
        netdev: netdev.to_string(),
    }
}

fn device(name: &str, netdev: &str, index: u32, address: &str) -> rdma::Device {
    rdma::Device {
        name: name.to_string(),
        protocol: "roce".to_string(),
        is_soft: false,
        ports: vec![rdma::Port {
            number: 1,
            is_active: true,
            netdev: Some((index, netdev.to_string())),
            gids: vec![gid(address, netdev, false), gid(address, netdev, true)],
        }],
    }
}

fn port(name: &str) -> view::Port {
    view::Port {
        device: name.to_string(),
        pci: None,
        critical: false,
        port: 1,
        active: true,
        ifindex: 2,
        mtu: Some(4096),
        links: 0,
        pnetid: String::new(),
        pnetid_by_user: false,
    }
}

fn name_of(pnetid: &str, netdev: Option<&str>, device: Option<&str>) -> pnet::Place {
    pnet::Place {
        pnetid: pnetid.to_string(),
        netdev: netdev.map(str::to_string),
        device: device.map(str::to_string),
        port: device.map(|_| 1),
    }
}

/// A machine with two adapters, each with RDMA.
fn healthy() -> Facts {
    Facts {
        kernel: Kernel {
            release: "7.3.4-amd64".to_string(),
            tainted: 1 << 12 | 1 << 13,
            is_installed: true,
        },
        module: Some(Loaded {
            is_ours: true,
            version: "2.1".to_string(),
            syn_option: "netfilter",
        }),
        eids: vec!["SMCV2-DEFAULT-UEID".to_string()],
        is_exclusive: Some(false),
        devices: vec![
            device("mlx5_0", "eth0", 2, "10.0.0.1"),
            device("mlx5_1", "eth1", 3, "10.1.0.1"),
        ],
        ports: vec![port("mlx5_0"), port("mlx5_1")],
        has_ports: true,
        netdevs: vec![
            netdev(1, "lo", "127.0.0.1"),
            netdev(2, "eth0", "10.0.0.1"),
            netdev(3, "eth1", "10.1.0.1"),
        ],
        ..Facts::default()
    }
}

/// The same with one adapter only.
fn with_one() -> Facts {
    let mut facts = healthy();
    facts.devices.truncate(1);
    facts.ports.truncate(1);
    facts.netdevs.truncate(2);
    facts
}

/// Returns what is not well after a change, the first letter of its status first.
fn after(mut facts: Facts, change: impl FnOnce(&mut Facts)) -> Vec<String> {
    change(&mut facts);
    let lines = judge(&facts);
    for line in &lines {
        assert_eq!(line.status == Status::Ok, line.hint.is_none(), "{line:?}");
        assert_eq!(
            line.status == Status::Ok,
            !line.id.contains('/'),
            "{line:?}"
        );
        assert!(line.sentence.ends_with(['.', ')']), "{line:?}");
    }
    let wrong = lines.iter().filter(|line| line.status != Status::Ok);
    let wrong: Vec<_> = wrong
        .map(|line| match line.status {
            Status::Fail => format!("FAIL {}", line.id),
            _ => format!("warn {}", line.id),
        })
        .collect();
    assert_eq!(
        is_good(&lines),
        !wrong.iter().any(|id| id.starts_with("FAIL"))
    );
    wrong
}

#[test]
fn nothing_is_said_of_a_machine_on_which_all_is_well() {
    assert!(after(healthy(), |_| {}).is_empty());
    assert!(after(with_one(), |_| {}).is_empty());
}

#[test]
fn each_fault_has_its_id() {
    type Change = fn(&mut Facts);
    let cases: &[(&str, Change)] = &[
        ("warn kernel/tainted", |f| f.kernel.tainted = 1 << 7),
        ("warn module/c-module", |f| {
            f.module.as_mut().unwrap().is_ours = false
        }),
        ("FAIL module/not-loaded", |f| f.module = None),
        ("FAIL module/refused", |f| {
            f.refusal = Some("EAFNOSUPPORT".to_string());
        }),
        ("warn module/unread", |f| {
            f.module = None;
            f.unasked = Some("EAFNOSUPPORT".to_string());
        }),
        ("FAIL module/refused", |f| {
            f.refusal = Some("EPERM".to_string());
            f.unasked = Some("EAFNOSUPPORT".to_string());
        }),
        ("warn handshake/limited", |f| {
            f.settings.limits_handshakes = true
        }),
        ("warn handshake/hs-ctrl", |f| {
            f.settings.hs_ctrl = Some("mine".to_string())
        }),
        ("warn handshake/small-buffers", |f| {
            f.settings.buffers = Some([65536, 16384])
        }),
        ("FAIL memory/full", |f| f.settings.smc = memory(31)),
        ("warn memory/short", |f| f.settings.smc = memory(30)),
        ("warn memory/short", |f| f.settings.tcp = memory(21)),
        ("FAIL eid/none", |f| {
            f.eids.clear();
            f.devices[0].ports[0].gids.remove(0);
        }),
        // Version 1 needs none.
        ("warn eid/none", |f| f.eids.clear()),
        ("FAIL rdma/none", |f| {
            f.devices.clear();
            f.ports.clear();
        }),
        ("FAIL rdma/other-namespace", |f| f.devices.clear()),
        ("FAIL rdma/netdev-elsewhere", |f| {
            f.netdevs.remove(1);
            f.devices[0].ports[0].netdev = None;
        }),
        ("FAIL rdma/no-netdev", |f| {
            f.devices[0].ports[0].netdev = None;
            f.devices[0].ports[0].gids.clear();
        }),
        ("FAIL rdma/infiniband", |f| {
            f.devices[0].protocol = "ib".to_string()
        }),
        ("FAIL rdma/left-out", |f| f.ports.clear()),
        ("FAIL netdev/down", |f| {
            f.netdevs[1].is_up = false;
            f.netdevs[1].has_carrier = false;
            f.devices[0].ports[0].is_active = false;
        }),
        ("FAIL netdev/no-carrier", |f| {
            f.netdevs[1].has_carrier = false;
            f.devices[0].ports[0].is_active = false;
        }),
        ("FAIL port/not-active", |f| {
            f.devices[0].ports[0].is_active = false
        }),
        ("FAIL address/none", |f| {
            f.netdevs[1].addresses = vec!["fe80::1".parse().unwrap()];
            f.devices[0].ports[0].gids.clear();
        }),
        ("FAIL gid/none", |f| f.devices[0].ports[0].gids.clear()),
        ("warn gid/v1-only", |f| {
            f.devices[0].ports[0].gids.truncate(1)
        }),
        ("warn mtu/below-netdev", |f| f.ports[0].mtu = Some(1024)),
        ("warn mtu/small", |f| {
            f.netdevs[1].mtu = 1000;
            f.ports[0].mtu = Some(512);
        }),
        ("warn flow/off", |f| f.flow = flow(Some(false), Some(0))),
        ("FAIL pnet/missing-netdev", |f| {
            f.networks = vec![name_of("NET1", Some("eth7"), None)]
        }),
        ("FAIL pnet/missing-device", |f| {
            f.networks = vec![name_of("NET1", None, Some("mlx5_7"))]
        }),
        ("FAIL pnet/no-port", |f| {
            f.networks = vec![name_of("NET1", Some("eth0"), None)]
        }),
        ("warn firewall/unread", |f| {
            f.firewall = Firewall::Unread("nft".to_string())
        }),
        ("warn firewall/iptables", |f| {
            f.firewall = Firewall::Ruleset(serde_json::json!({"nftables": []}), true);
        }),
        ("FAIL route/none", |f| f.target = target("192.0.2.1", None)),
        ("FAIL route/no-port", |f| {
            f.netdevs.push(netdev(9, "eth9", "192.0.2.9"));
            f.target = target("192.0.2.1", Some("192.0.2.9"));
        }),
    ];
    for (id, change) in cases {
        assert_eq!(after(with_one(), change), [*id]);
    }
}

#[test]
fn shared_memory_within_the_machine_is_mentioned() {
    let said = |loopback: Option<Loopback>| {
        let mut facts = with_one();
        facts.loopback = loopback;
        let lines = judge(&facts);
        let line = lines.iter().find(|line| line.id == "same-host")?;
        Some(line.sentence.clone())
    };
    let with = |here| Loopback {
        here,
        initial: Some(here),
    };
    assert!(said(Some(with(true))).unwrap().ends_with("(SMC-D): on."));
    assert!(said(Some(with(false))).unwrap().contains(": off for all"));
    assert_eq!(said(None), None);
}

fn flow(pause: Option<bool>, pfc: Option<u8>) -> Vec<(u32, FlowControl)> {
    vec![(2, FlowControl { pause, pfc })]
}

#[test]
fn flow_control_that_is_not_known_is_no_fault() {
    for (pause, pfc) in [
        (None, None),
        (None, Some(0)),
        (Some(true), None),
        (Some(false), Some(8)),
    ] {
        assert!(after(with_one(), |f| f.flow = flow(pause, pfc)).is_empty());
    }
}

fn memory(pages: u64) -> Option<Memory> {
    let limits = Some([10, 20, 30]);
    Some(Memory { pages, limits })
}

fn target(address: &str, local: Option<&str>) -> Option<Target> {
    Some(Target {
        address: (address.parse::<IpAddr>().unwrap(), 80).into(),
        local: local.map(|local| local.parse().unwrap()),
    })
}

#[test]
fn a_port_is_not_needed_while_another_one_serves() {
    let down = |facts: &mut Facts, number: usize| {
        facts.netdevs[1 + number].is_up = false;
        facts.devices[number].ports[0].is_active = false;
    };
    assert_eq!(after(healthy(), |f| down(f, 0)), ["warn netdev/down"]);
    let both = after(healthy(), |f| {
        down(f, 0);
        down(f, 1);
    });
    assert_eq!(both, ["FAIL netdev/down", "FAIL netdev/down"]);
    // With a host in question, the port on the way to it is needed.
    for (local, wrong) in [
        ("10.0.0.1", "FAIL netdev/down"),
        ("10.1.0.1", "warn netdev/down"),
    ] {
        let toward = after(healthy(), |f| {
            down(f, 0);
            f.target = target("10.9.9.9", Some(local));
        });
        assert_eq!(toward, [wrong], "from {local}");
    }
}

#[test]
fn names_of_networks_say_which_port_serves_a_host() {
    let named = |f: &mut Facts| {
        f.netdevs.push(netdev(9, "eth9", "192.0.2.9"));
        f.target = target("192.0.2.1", Some("192.0.2.9"));
        f.networks = vec![
            name_of("NET1", Some("eth9"), None),
            name_of("NET1", None, Some("mlx5_1")),
        ];
        f.ports[1].pnetid = "NET1".to_string();
    };
    assert!(after(healthy(), named).is_empty());
    let other = after(healthy(), |f| {
        named(f);
        f.devices[1].ports[0].is_active = false;
    });
    assert_eq!(other, ["FAIL port/not-active"]);
}

#[test]
fn an_address_above_the_port_has_to_be_known_to_it() {
    let vlan = |f: &mut Facts| {
        f.netdevs.push(Netdev {
            below: Some(2),
            vlan: Some(5),
            kind: "vlan".to_string(),
            ..netdev(7, "eth0.5", "10.5.0.1")
        });
    };
    assert_eq!(after(with_one(), vlan), ["warn vlan/no-gid"]);
    let known = |f: &mut Facts| {
        vlan(f);
        f.devices[0].ports[0]
            .gids
            .push(gid("10.5.0.1", "eth0.5", true));
    };
    assert!(after(with_one(), known).is_empty());
    // The port has no address of its own, but the VLAN's, and connections by that one.
    let alone = after(with_one(), |f| {
        known(f);
        f.netdevs[1].addresses.clear();
        f.devices[0].ports[0].gids.remove(0);
        f.devices[0].ports[0].gids.remove(0);
        f.target = target("10.5.0.2", Some("10.5.0.1"));
    });
    assert!(alone.is_empty(), "{alone:?}");
    // Soft RoCE does not hear what comes by a bridge.
    let bridge = |f: &mut Facts, is_soft| {
        f.netdevs.push(Netdev {
            kind: "bridge".to_string(),
            ..netdev(7, "br0", "10.5.0.1")
        });
        f.netdevs[1].master = Some(7);
        f.devices[0].is_soft = is_soft;
        f.devices[0].ports[0]
            .gids
            .push(gid("10.5.0.1", "br0", true));
    };
    assert_eq!(
        after(with_one(), |f| bridge(f, true)),
        ["warn stack/no-gid"]
    );
    assert!(after(with_one(), |f| bridge(f, false)).is_empty());
}

#[test]
fn rules_are_judged_for_the_host_in_question_or_for_all() {
    let deny = |role, peer: Option<&str>| Rule {
        action: RuleAction::Deny,
        role,
        local: EndPattern::ANY,
        peer: EndPattern {
            prefix: peer.map(|ip| smc_proto::policy::Prefix::new(ip.parse().unwrap(), 32).unwrap()),
            ..EndPattern::ANY
        },
    };
    let toward = |rules: Vec<Rule>, to: Option<&str>| {
        after(with_one(), |f| {
            f.rules = rules;
            f.target = to.and_then(|to| target(to, Some("10.0.0.1")));
        })
    };
    let one = || vec![deny(None, Some("10.0.0.9"))];
    assert_eq!(toward(one(), None), ["warn policy/some-denied"]);
    assert_eq!(toward(one(), Some("10.0.0.9")), ["FAIL policy/denied"]);
    assert!(toward(one(), Some("10.0.0.8")).is_empty());
    let server = || vec![deny(Some(Role::Server), None)];
    assert_eq!(toward(server(), None), ["FAIL policy/denied"]);
    assert!(toward(server(), Some("10.0.0.9")).is_empty());
}

#[test]
fn a_module_that_is_missing_is_explained_by_what_there_is() {
    let said = |release: &str, is_installed| {
        let mut facts = with_one();
        facts.module = None;
        facts.kernel.release = release.to_string();
        facts.kernel.is_installed = is_installed;
        let lines = judge(&facts);
        let mut lines = lines
            .into_iter()
            .filter(|line| line.id == "module/not-loaded");
        lines.next().and_then(|line| line.hint).unwrap()
    };
    assert!(said("7.3.4", true).starts_with("modprobe smc"));
    assert!(said("7.3.4", false).contains("smc-rs-dkms"));
    assert!(said("6.12.9", false).starts_with("Install a newer kernel"));
    assert!(said("7.2.0-rc1", false).starts_with("Install the package"));
}
