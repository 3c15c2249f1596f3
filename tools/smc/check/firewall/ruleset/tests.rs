// SPDX-License-Identifier: GPL-2.0

//! Rules as nft 1.0.6 prints them, and what becomes of a packet of RoCE.

use serde_json::json;

use super::*;

fn chain(name: &str, hook: &str, policy: &str) -> Value {
    json!({"chain": {"family": "inet", "table": "f", "name": name, "handle": 1, "type": "filter",
        "hook": hook, "prio": 0, "policy": policy}})
}

fn rule(chain: &str, handle: u64, expr: Value) -> Value {
    json!({"rule": {"family": "inet", "table": "f", "chain": chain, "handle": handle, "expr": expr}})
}

fn is(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

fn dport() -> Value {
    json!({"payload": {"protocol": "udp", "field": "dport"}})
}

/// What becomes of a packet from 10.0.0.2 that comes in by eth0.
fn verdict(objects: Vec<Value>) -> Verdict {
    let ruleset = json!({"nftables": objects});
    let packet = Packet {
        direction: Direction::In,
        netdev: "eth0",
        peer: Some([10, 0, 0, 2].into()),
        port: 4791,
    };
    Ruleset::of(&ruleset).verdict(&packet)
}

fn drops(chain: &str, rule: Option<u64>) -> Place {
    Place {
        chain: format!("inet f {chain}"),
        rule,
    }
}

/// What becomes of the packet with these expressions in rules 1, 2, ... of a chain with that policy.
fn with(policy: &str, rules: &[Value]) -> Verdict {
    let mut objects = vec![chain("in", "input", policy)];
    objects.extend(
        (1..)
            .zip(rules)
            .map(|(handle, expr)| rule("in", handle, expr.clone())),
    );
    verdict(objects)
}

#[test]
fn the_first_verdict_counts() {
    let accept = json!([is(dport(), json!(4791)), {"counter": {"packets": 0, "bytes": 0}}, {"accept": null}]);
    let drop = json!([is(dport(), json!(4791)), {"drop": null}]);
    let reject = json!([is(dport(), json!(4791)), {"reject": {"type": "icmpx", "expr": "port-unreachable"}}]);
    assert_eq!(with("accept", &[]), Verdict::Passes);
    assert_eq!(with("drop", &[]), Verdict::Drops(drops("in", None)));
    assert_eq!(with("drop", std::slice::from_ref(&accept)), Verdict::Passes);
    assert_eq!(
        with("accept", &[accept.clone(), drop.clone()]),
        Verdict::Passes
    );
    assert_eq!(
        with("accept", &[drop, accept]),
        Verdict::Drops(drops("in", Some(1)))
    );
    assert_eq!(
        with("accept", &[reject]),
        Verdict::Drops(drops("in", Some(1)))
    );
    assert_eq!(
        with(
            "accept",
            &[json!([{"log": {"prefix": "x"}}, {"drop": null}])]
        ),
        Verdict::Drops(drops("in", Some(1)))
    );
}

#[test]
fn other_packets_are_others() {
    let others = [
        is(dport(), json!(53)),
        is(dport(), json!({"set": [53, {"range": [4000, 4790]}]})),
        is(
            json!({"payload": {"protocol": "tcp", "field": "dport"}}),
            json!(4791),
        ),
        is(json!({"meta": {"key": "l4proto"}}), json!("tcp")),
        is(json!({"meta": {"key": "iifname"}}), json!("lo")),
        is(json!({"meta": {"key": "oifname"}}), json!("eth0")),
        is(json!({"meta": {"key": "nfproto"}}), json!("ipv6")),
        is(
            json!({"payload": {"protocol": "ip", "field": "saddr"}}),
            json!({"prefix": {"addr": "10.0.1.0", "len": 24}}),
        ),
        is(
            json!({"payload": {"protocol": "ip", "field": "saddr"}}),
            json!("10.0.0.3"),
        ),
        json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}),
        json!({"match": {"op": "!=", "left": {"ct": {"key": "state"}}, "right": "new"}}),
        is(json!({"tcp option": {"name": "fastopen"}}), json!(true)),
    ];
    for other in others {
        assert_eq!(
            with("accept", &[json!([other, {"drop": null}])]),
            Verdict::Passes,
            "{other}"
        );
        assert_eq!(
            with("drop", &[json!([other, {"accept": null}])]),
            Verdict::Drops(drops("in", None)),
            "{other}"
        );
    }
}

#[test]
fn this_packet_is_known_by_many_matches() {
    let these = [
        is(dport(), json!({"set": [53, {"range": [4000, 4800]}]})),
        is(
            json!({"payload": {"protocol": "th", "field": "dport"}}),
            json!(4791),
        ),
        is(
            json!({"meta": {"key": "l4proto"}}),
            json!({"set": ["tcp", "udp"]}),
        ),
        is(
            json!({"payload": {"protocol": "ip", "field": "protocol"}}),
            json!("udp"),
        ),
        is(json!({"meta": {"key": "iifname"}}), json!("eth*")),
        is(
            json!({"payload": {"protocol": "ip", "field": "saddr"}}),
            json!({"prefix": {"addr": "10.0.0.0", "len": 8}}),
        ),
        is(
            json!({"payload": {"protocol": "ip", "field": "saddr"}}),
            json!({"range": ["10.0.0.1", "10.0.0.9"]}),
        ),
        is(json!({"ct": {"key": "state"}}), json!("new")),
        json!({"match": {"op": "!=", "left": dport(), "right": 53}}),
    ];
    for this in these {
        assert_eq!(
            with("accept", &[json!([this, {"drop": null}])]),
            Verdict::Drops(drops("in", Some(1))),
            "{this}"
        );
    }
}

#[test]
fn what_is_not_known_may_be() {
    let marked = is(json!({"meta": {"key": "mark"}}), json!(5));
    let limit = json!({"limit": {"rate": 10, "burst": 5, "per": "second"}});
    for unknown in [
        marked,
        limit,
        json!({"xt": {"type": "match", "name": "u32"}}),
    ] {
        assert_eq!(
            with("accept", &[json!([unknown, {"drop": null}])]),
            Verdict::MayDrop(drops("in", Some(1))),
            "{unknown}"
        );
        assert_eq!(
            with("drop", &[json!([unknown, {"accept": null}])]),
            Verdict::MayDrop(drops("in", None)),
            "{unknown}"
        );
        // What certainly does not apply is not reached.
        let other = json!([unknown, is(dport(), json!(53)), {"drop": null}]);
        assert_eq!(with("accept", &[other]), Verdict::Passes, "{unknown}");
    }
}

#[test]
fn chains_call_one_another() {
    let jump = json!([{"jump": {"target": "other"}}]);
    let goto = json!([{"goto": {"target": "other"}}]);
    let accept = json!([{"accept": null}]);
    let call = |how: &Value, inner: Value| {
        verdict(vec![
            chain("in", "input", "drop"),
            json!({"chain": {"family": "inet", "table": "f", "name": "other", "handle": 2}}),
            rule("in", 1, how.clone()),
            rule("in", 2, accept.clone()),
            rule("other", 3, inner),
        ])
    };
    assert_eq!(
        call(&jump, json!([{"drop": null}])),
        Verdict::Drops(drops("other", Some(3)))
    );
    assert_eq!(call(&jump, json!([{"return": null}])), Verdict::Passes);
    // Behind goto the policy counts.
    assert_eq!(
        call(&goto, json!([{"return": null}])),
        Verdict::Drops(drops("in", None))
    );
    // A circle, which nft refuses, ends.
    assert_eq!(call(&jump, jump.clone()), Verdict::Passes);
}

#[test]
fn sets_and_maps_have_names() {
    let set = |elements: Value| json!({"set": {"family": "inet", "table": "f", "name": "ports", "elem": elements}});
    let map = |elements: Value| json!({"map": {"family": "inet", "table": "f", "name": "m", "map": "verdict", "elem": elements}});
    let by_set = |elements| {
        let drop = json!([is(dport(), json!("@ports")), {"drop": null}]);
        verdict(vec![
            set(elements),
            chain("in", "input", "accept"),
            rule("in", 1, drop),
        ])
    };
    assert_eq!(
        by_set(json!([22, {"range": [4790, 4792]}])),
        Verdict::Drops(drops("in", Some(1)))
    );
    assert_eq!(
        by_set(json!([{"elem": {"val": 4791, "timeout": 60}}])),
        Verdict::Drops(drops("in", Some(1)))
    );
    assert_eq!(by_set(json!([22])), Verdict::Passes);
    let by_map = |elements| {
        let vmap = json!([{"vmap": {"key": dport(), "data": "@m"}}]);
        verdict(vec![
            map(elements),
            chain("in", "input", "accept"),
            rule("in", 1, vmap),
        ])
    };
    assert_eq!(
        by_map(json!([[4791, {"drop": null}]])),
        Verdict::Drops(drops("in", Some(1)))
    );
    assert_eq!(by_map(json!([[53, {"drop": null}]])), Verdict::Passes);
    let states = json!([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set":
        [["invalid", {"drop": null}], ["established", {"accept": null}]]}}}]);
    assert_eq!(with("accept", &[states]), Verdict::Passes);
    let marks = json!([{"vmap": {"key": {"meta": {"key": "mark"}}, "data": {"set": [[1, {"drop": null}]]}}}]);
    assert_eq!(
        with("accept", &[marks]),
        Verdict::MayDrop(drops("in", Some(1)))
    );
}

#[test]
fn only_chains_on_the_way_count() {
    let mut objects = vec![
        chain("out", "output", "drop"),
        chain("through", "forward", "drop"),
    ];
    let nat = json!({"chain": {"family": "ip", "table": "n", "name": "nat", "type": "nat", "hook": "prerouting", "policy": "drop"}});
    let v6 = json!({"chain": {"family": "ip6", "table": "n", "name": "in", "type": "filter", "hook": "input", "policy": "drop"}});
    let other = json!({"chain": {"family": "netdev", "table": "n", "name": "i", "type": "filter", "hook": "ingress", "dev": "eth1", "policy": "drop"}});
    objects.extend([nat, v6, other]);
    assert_eq!(verdict(objects.clone()), Verdict::Passes);
    objects.push(json!({"chain": {"family": "netdev", "table": "n", "name": "j", "type": "filter", "hook": "ingress", "dev": "eth0", "policy": "drop"}}));
    let Verdict::Drops(place) = verdict(objects) else {
        panic!("it passes");
    };
    assert_eq!(place.to_string(), "the policy of chain netdev n j");
}

#[test]
fn rules_about_the_option_are_found() {
    let option = json!({"tcp option": {"base": 254, "offset": 0, "len": 8}});
    let takes = |expr: Value| {
        let ruleset = json!({"nftables": [rule("in", 7, expr)]});
        Ruleset::of(&ruleset).takes_option(254)
    };
    let found = Some(drops("in", Some(7)));
    assert_eq!(
        takes(json!([is(option.clone(), json!(true)), {"drop": null}])),
        found
    );
    assert_eq!(takes(json!([{"reset": option}])), found);
    assert_eq!(
        takes(json!([is(option.clone(), json!(true)), {"accept": null}])),
        None
    );
    assert_eq!(
        takes(json!([is(option, json!(false)), {"drop": null}])),
        None
    );
    assert_eq!(
        takes(json!([{"reset": {"tcp option": {"name": "fastopen"}}}])),
        None
    );
}
