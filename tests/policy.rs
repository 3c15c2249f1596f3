// SPDX-License-Identifier: GPL-2.0
//! Rules about which connections may use SMC: what matches, and in which order.

use core::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use smc_proto::lgr::Role;
use smc_proto::policy::{
    decide,
    parse,
    Decision,
    End,
    EndPattern,
    Ends,
    Invalid,
    PortRange,
    Prefix,
    RawRule,
    Rule,
    RuleAction,
    MAX_RULES, //
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(ip(address), len.parse().unwrap())
}

/// A rule for any role about the peer.
fn about_peer(action: RuleAction, prefix: Option<Prefix>, ports: (u16, u16)) -> Rule {
    Rule {
        action,
        role: None,
        local: EndPattern::ANY,
        peer: EndPattern {
            prefix,
            ports: PortRange::new(ports.0, ports.1).unwrap(),
        },
    }
}

fn peer(address: &str, port: u16) -> Ends {
    Ends {
        local: End::new(ip("10.1.1.1"), 40000),
        peer: End::new(ip(address), port),
    }
}

#[test]
fn a_prefix_matches_addresses_of_its_own_version() {
    let cases = [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.9.0.2/32", "10.9.0.2", true),
        ("10.9.0.2/32", "10.9.0.3", false),
        ("0.0.0.0/0", "192.0.2.1", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "192.0.2.1", false),
        ("::/0", "::ffff:192.0.2.1", false),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "::ffff:11.1.2.3", false),
        ("::ffff:0.0.0.0/96", "192.0.2.1", true),
        ("2001:db8::/33", "2001:db8:7fff::1", true),
        ("2001:db8::/33", "2001:db8:8000::1", false),
        ("fe80::1/128", "fe80::1", true),
        ("fe80::1/128", "fe80::2", false),
    ];
    for (text, address, is_match) in cases {
        let rules = [about_peer(
            RuleAction::Deny,
            Some(prefix(text).unwrap()),
            (0, u16::MAX),
        )];
        let decision = decide(&rules, Role::Client, &peer(address, 80));
        assert_eq!(decision.is_denied(), is_match, "{text} {address}");
    }
}

#[test]
fn a_prefix_has_no_bits_beyond_its_length() {
    for text in [
        "10.0.0.1/8",
        "10.0.0.0/33",
        "::1/127",
        "::/129",
        "128.0.0.0/0",
        "::ffff:10.0.0.1/104",
        // Neither IPv4 nor a prefix of IPv6.
        "::ffff:10.0.0.0/95",
    ] {
        assert_eq!(prefix(text), None, "{text}");
    }
    assert_eq!(prefix("::ffff:10.0.0.0/104"), prefix("10.0.0.0/8"));
    assert!(prefix("10.0.0.1/32").unwrap().is_host());
    assert!(!prefix("10.0.0.0/8").unwrap().is_host());
}

#[test]
fn both_ends_of_a_port_range_belong_to_it() {
    let rules = [about_peer(RuleAction::Deny, None, (80, 90))];
    for (port, is_match) in [(79, false), (80, true), (85, true), (90, true), (91, false)] {
        let decision = decide(&rules, Role::Server, &peer("10.0.0.1", port));
        assert_eq!(decision.is_denied(), is_match, "{port}");
    }
    assert_eq!(PortRange::new(2, 1), None);
    assert!(PortRange::new(7, 7).is_some());
}

#[test]
fn the_first_rule_that_matches_decides() {
    let net = prefix("10.0.0.0/8");
    let rules = [
        about_peer(RuleAction::Allow, net, (80, 80)),
        about_peer(RuleAction::Deny, net, (0, u16::MAX)),
        about_peer(RuleAction::Allow, None, (0, u16::MAX)),
    ];
    let by = |address, port| decide(&rules, Role::Client, &peer(address, port));
    assert_eq!(by("10.0.0.1", 80), Decision::By(0, RuleAction::Allow));
    assert_eq!(by("10.0.0.1", 81), Decision::By(1, RuleAction::Deny));
    assert_eq!(by("11.0.0.1", 81), Decision::By(2, RuleAction::Allow));
    assert_eq!(
        decide(&[], Role::Client, &peer("10.0.0.1", 80)),
        Decision::NoRule
    );
}

#[test]
fn a_rule_for_one_role_leaves_the_other_alone() {
    let of = |role| Rule {
        role,
        ..about_peer(RuleAction::Deny, None, (0, u16::MAX))
    };
    let denied = |rule, role| decide(&[rule], role, &peer("10.0.0.1", 80)).is_denied();
    assert!(denied(of(Some(Role::Client)), Role::Client));
    assert!(!denied(of(Some(Role::Client)), Role::Server));
    assert!(denied(of(Some(Role::Server)), Role::Server));
    assert!(denied(of(None), Role::Client) && denied(of(None), Role::Server));
}

#[test]
fn what_is_not_known_leaves_the_decision_open() {
    let rules = [
        Rule {
            local: EndPattern {
                prefix: prefix("10.9.0.0/16"),
                ports: PortRange::ALL,
            },
            ..about_peer(RuleAction::Deny, None, (80, 80))
        },
        about_peer(RuleAction::Deny, None, (0, u16::MAX)),
    ];
    let to = |port| Ends {
        // As a socket that is not bound.
        local: End::new(ip("::"), 0),
        peer: End::new(ip("10.0.0.1"), port),
    };
    assert_eq!(decide(&rules, Role::Client, &to(80)), Decision::Open);
    let by_second = Decision::By(1, RuleAction::Deny);
    assert_eq!(decide(&rules, Role::Client, &to(81)), by_second);
    let unknown = Ends {
        local: End::UNKNOWN,
        peer: End::UNKNOWN,
    };
    assert_eq!(
        decide(&rules[1..], Role::Server, &unknown),
        Decision::By(0, RuleAction::Deny)
    );
    assert!(!Decision::Open.is_denied() && !Decision::NoRule.is_denied());
    assert_eq!(End::new(ip("::ffff:0.0.0.0"), 0), End::UNKNOWN);
}

#[test]
fn bytes_that_are_no_rule_are_refused() {
    let good = RawRule::from(&about_peer(
        RuleAction::Deny,
        prefix("10.0.0.0/8"),
        (80, 90),
    ));
    let is_refused = |change: &dyn Fn(&mut RawRule)| {
        let mut raw = good;
        change(&mut raw);
        Rule::try_from(&raw) == Err(Invalid)
    };
    assert!(!is_refused(&|_| {}));
    assert!(is_refused(&|raw| raw.action = 0));
    assert!(is_refused(&|raw| raw.action = 3));
    assert!(is_refused(&|raw| raw.role = 3));
    assert!(is_refused(&|raw| raw.reserved = 1));
    assert!(is_refused(&|raw| raw.peer.reserved = 1));
    assert!(is_refused(&|raw| raw.peer.family = 3));
    assert!(is_refused(&|raw| raw.peer.family = 0));
    assert!(is_refused(&|raw| raw.peer.prefix_len = 6));
    assert!(is_refused(&|raw| raw.peer.prefix_len = 33));
    assert!(is_refused(&|raw| raw.peer.addr[4] = 1));
    assert!(is_refused(&|raw| raw.peer.port_first = 91));
    assert!(is_refused(&|raw| raw.local.prefix_len = 1));
    assert!(is_refused(&|raw| raw.local.addr[15] = 1));

    let bytes = [good.bytes(), good.bytes()].concat();
    assert_eq!(parse(&bytes).unwrap().filter(Result::is_ok).count(), 2);
    assert_eq!(parse(&[]).unwrap().count(), 0);
    assert!(parse(&bytes[1..]).is_err());
    assert!(
        MAX_RULES * size_of::<RawRule>() < usize::from(u16::MAX) - 4,
        "as many as may be fit into an attribute of netlink"
    );
}

/// Few addresses, so that rules and connections meet.
fn address() -> impl Strategy<Value = IpAddr> {
    let texts = [
        "10.0.0.1",
        "10.0.0.2",
        "10.128.0.1",
        "192.0.2.1",
        "fd00::1",
        "fd00:0:8000::1",
        "::1",
    ];
    proptest::sample::select(texts.map(ip).to_vec())
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    (address(), 0..=128_u8).prop_map(|(ip, len)| {
        // Clears the bits beyond.
        let (whole, len) = match ip {
            IpAddr::V4(ip) => {
                let len = len.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                (IpAddr::V4((ip.to_bits() & mask).into()), len)
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                (IpAddr::V6((ip.to_bits() & mask).into()), len)
            }
        };
        Prefix::new(whole, len).unwrap()
    })
}

fn pattern() -> impl Strategy<Value = EndPattern> {
    let ports = prop_oneof![
        Just(PortRange::ALL),
        (1..4_u16, 0..3_u16).prop_map(|(first, more)| PortRange::new(first, first + more).unwrap()),
    ];
    (option::of(any_prefix()), ports).prop_map(|(prefix, ports)| EndPattern { prefix, ports })
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Client), Just(Role::Server)]
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![Just(RuleAction::Allow), Just(RuleAction::Deny)];
    (action, option::of(role()), pattern(), pattern()).prop_map(|(action, role, local, peer)| {
        Rule {
            action,
            role,
            local,
            peer,
        }
    })
}

fn is_in(pattern: &EndPattern, ip: IpAddr, port: u16) -> bool {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let bit = |bytes: &[u8], n: usize| bytes[n / 8] >> (7 - n % 8) & 1;
    let has_prefix = pattern.prefix.is_none_or(|prefix| {
        let (ours, theirs) = (octets(prefix.ip()), octets(ip));
        ours.len() == theirs.len()
            && (0..prefix.len_bits().into()).all(|n| bit(&ours, n) == bit(&theirs, n))
    });
    let (first, last) = pattern.ports.bounds();
    has_prefix && first <= port && port <= last
}

proptest! {
    #[test]
    fn rules_survive_as_bytes(rules in vec(rule(), 0..5)) {
        let bytes: Vec<u8> = rules
            .iter()
            .flat_map(|rule| RawRule::from(rule).bytes().to_vec())
            .collect();
        let parsed: Vec<_> = parse(&bytes).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(parsed, rules);
    }

    #[test]
    fn decisions_are_those_of_a_bitwise_comparison_and_early_ones_last(
        rules in vec(rule(), 0..5),
        role in role(),
        (local, peer) in (address(), address()),
        ports in (1..5_u16, 1..5_u16),
        known in proptest::array::uniform4(any::<bool>()),
    ) {
        let first = rules.iter().position(|rule| {
            rule.role.is_none_or(|its| its == role)
                && is_in(&rule.local, local, ports.0)
                && is_in(&rule.peer, peer, ports.1)
        });
        let expected = match first {
            Some(index) => Decision::By(index, rules[index].action),
            None => Decision::NoRule,
        };
        let ends = Ends { local: End::new(local, ports.0), peer: End::new(peer, ports.1) };
        prop_assert_eq!(decide(&rules, role, &ends), expected);

        let zero = |ip: IpAddr, is_known| match (is_known, ip) {
            (true, ip) => ip,
            (false, IpAddr::V4(_)) => self::ip("0.0.0.0"),
            (false, IpAddr::V6(_)) => self::ip("::"),
        };
        let ends = Ends {
            local: End::new(zero(local, known[0]), if known[1] { ports.0 } else { 0 }),
            peer: End::new(zero(peer, known[2]), if known[3] { ports.1 } else { 0 }),
        };
        let early = decide(&rules, role, &ends);
        prop_assert!(early == expected || early == Decision::Open, "{early:?}, then {expected:?}");
    }
}
