// SPDX-License-Identifier: GPL-2.0

//! What the rules of `nft -j list ruleset` do with a packet. What depends on something that is not known of the packet
//! may be or not be; so may what this code does not know.

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;

use serde_json::Value;

/// How deep chains may call one another, as in the kernel.
const DEPTH: usize = 16;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// The first packet of a flow over UDP and IPv4: what is known of it.
pub(super) struct Packet<'a> {
    pub(super) direction: Direction,
    /// The network device.
    pub(super) netdev: &'a str,
    /// The address at the other end.
    pub(super) peer: Option<IpAddr>,
    /// The port that it goes to.
    pub(super) port: u16,
}

/// What becomes of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passes,
    Drops(Place),
    MayDrop(Place),
}

/// A rule, or the policy of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    chain: String,
    /// The handle of the rule; `None` for the policy.
    rule: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some(handle) => write!(f, "the rule with handle {handle} of chain {}", self.chain),
            None => write!(f, "the policy of chain {}", self.chain),
        }
    }
}

/// Whether a match applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    Maybe,
}

impl Match {
    fn of(known: Option<bool>) -> Self {
        match known {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Maybe,
        }
    }
}

/// What is known of a field of a packet.
enum Field {
    Number(u64),
    Word(&'static str),
    Name(String),
    Address(Ipv4Addr),
    /// The packet has no such field, so no match on it applies.
    Absent,
    Unknown,
}

/// What a chain does with a packet; `None` if it comes to its end.
enum End {
    Accepts,
    Drops(Place),
}

/// What is certain so far.
struct State {
    /// No rule before this one may have accepted the packet.
    is_certain: bool,
    /// The first rule that may drop it.
    may_drop: Option<Place>,
}

/// The rules.
pub(super) struct Ruleset<'a>(Vec<(&'a str, &'a Value)>);

impl<'a> Ruleset<'a> {
    /// Takes what `nft -j list ruleset` prints.
    pub(super) fn of(json: &'a Value) -> Self {
        let objects = json["nftables"].as_array().into_iter().flatten();
        let named = objects.filter_map(|object| object.as_object()?.iter().next());
        Self(
            named
                .map(|(kind, object)| (kind.as_str(), object))
                .collect(),
        )
    }

    fn all(&self, kind: &'a str) -> impl Iterator<Item = &'a Value> + '_ {
        let is_it = move |(found, _): &&(&str, &Value)| *found == kind;
        self.0.iter().filter(is_it).map(|(_, object)| *object)
    }

    /// Returns what becomes of the packet in all chains together.
    pub(super) fn verdict(&self, packet: &Packet<'_>) -> Verdict {
        let hooks: &[&str] = match packet.direction {
            Direction::In => &["ingress", "prerouting", "input"],
            Direction::Out => &["output", "postrouting", "egress"],
        };
        let mut may_drop = None;
        for chain in self.all("chain") {
            let is_hooked = chain["hook"]
                .as_str()
                .is_some_and(|hook| hooks.contains(&hook));
            let is_ours = ["inet", "ip", "netdev"].contains(&text(chain, "family"));
            let is_nat = text(chain, "type") == "nat";
            let of_other = chain["dev"]
                .as_str()
                .is_some_and(|dev| dev != packet.netdev);
            if !is_hooked || !is_ours || is_nat || of_other {
                continue;
            }
            let mut state = State {
                is_certain: true,
                may_drop: None,
            };
            let end = self.walk(chain, text(chain, "name"), packet, &mut state, 0);
            let end = end.or_else(|| {
                let place = Place {
                    chain: path(chain, text(chain, "name")),
                    rule: None,
                };
                (text(chain, "policy") == "drop").then_some(End::Drops(place))
            });
            match end {
                Some(End::Drops(place)) if state.is_certain => return Verdict::Drops(place),
                Some(End::Drops(place)) => may_drop = may_drop.or(state.may_drop).or(Some(place)),
                Some(End::Accepts) | None => may_drop = may_drop.or(state.may_drop),
            }
        }
        may_drop.map_or(Verdict::Passes, Verdict::MayDrop)
    }

    /// Walks through the chain `name` of the table of `from`.
    fn walk(
        &self,
        from: &Value,
        name: &str,
        packet: &Packet<'_>,
        state: &mut State,
        depth: usize,
    ) -> Option<End> {
        if depth > DEPTH {
            return None;
        }
        let in_table = |rule: &&Value| ["family", "table"].iter().all(|key| rule[key] == from[key]);
        for rule in self
            .all("rule")
            .filter(in_table)
            .filter(|rule| text(rule, "chain") == name)
        {
            let place = || Place {
                chain: path(rule, name),
                rule: rule["handle"].as_u64(),
            };
            let mut applies = Match::Yes;
            for statement in rule["expr"].as_array().into_iter().flatten() {
                let Some((kind, body)) = statement
                    .as_object()
                    .and_then(|object| object.iter().next())
                else {
                    continue;
                };
                let verdict = match kind.as_str() {
                    "match" => {
                        match self.matches(rule, body, packet) {
                            Match::No => applies = Match::No,
                            Match::Maybe => applies = Match::Maybe,
                            Match::Yes => {}
                        }
                        None
                    }
                    // How often, or whether a match that nft cannot show applies, is not known.
                    "limit" | "quota" | "xt" | "connlimit" | "ct count" => {
                        applies = Match::Maybe;
                        None
                    }
                    "vmap" => match self.mapped(rule, body, packet) {
                        Mapped::To(verdict) => Some(verdict),
                        Mapped::Nowhere => None,
                        Mapped::Unknown(verdicts) => {
                            for verdict in verdicts {
                                self.maybe(&verdict, rule, packet, state, depth, place());
                            }
                            None
                        }
                    },
                    _ => Some(statement.clone()),
                };
                if applies == Match::No {
                    break;
                }
                let Some(verdict) = verdict else {
                    continue;
                };
                if applies == Match::Maybe {
                    self.maybe(&verdict, rule, packet, state, depth, place());
                    continue;
                }
                match action(&verdict) {
                    Action::Accept => return Some(End::Accepts),
                    Action::Drop => return Some(End::Drops(place())),
                    Action::Return => return None,
                    Action::Jump(target) => {
                        if let Some(end) = self.walk(rule, &target, packet, state, depth + 1) {
                            return Some(end);
                        }
                    }
                    Action::Goto(target) => {
                        return self.walk(rule, &target, packet, state, depth + 1)
                    }
                    Action::Nothing => {}
                }
            }
        }
        None
    }

    /// A verdict that may be reached or not.
    fn maybe(
        &self,
        verdict: &Value,
        rule: &Value,
        packet: &Packet<'_>,
        state: &mut State,
        depth: usize,
        place: Place,
    ) {
        match action(verdict) {
            Action::Drop => {
                state.may_drop.get_or_insert(place);
            }
            Action::Accept | Action::Return => state.is_certain = false,
            Action::Jump(target) | Action::Goto(target) => {
                let end = self.walk(rule, &target, packet, state, depth + 1);
                if let Some(End::Drops(place)) = end {
                    state.may_drop.get_or_insert(place);
                }
                state.is_certain = false;
            }
            Action::Nothing => {}
        }
    }

    fn matches(&self, rule: &Value, body: &Value, packet: &Packet<'_>) -> Match {
        let (field, right) = (field(&body["left"], packet), &body["right"]);
        match (field, text(body, "op")) {
            (Field::Absent, _) => Match::No,
            (field, "==" | "in") => Match::of(self.is_in(rule, &field, right)),
            (field, "!=") => Match::of(self.is_in(rule, &field, right).map(|is| !is)),
            _ => Match::Maybe,
        }
    }

    /// Whether the field has the value, or one of the values; `None` if that is not known.
    fn is_in(&self, rule: &Value, field: &Field, value: &Value) -> Option<bool> {
        if let Field::Unknown | Field::Absent = field {
            return None;
        }
        if let Some(name) = value.as_str().and_then(|value| value.strip_prefix('@')) {
            let elements = &self.set(rule, name)?["elem"];
            return self.is_among(rule, field, elements.as_array().map_or(&[], Vec::as_slice));
        }
        match value {
            Value::Array(values) => self.is_among(rule, field, values),
            Value::Object(object) => {
                let (kind, body) = object.iter().next()?;
                match (kind.as_str(), body) {
                    ("set", Value::Array(values)) => self.is_among(rule, field, values),
                    ("set", one) => self.is_in(rule, field, one),
                    // With a timeout or a counter.
                    ("elem", one) => self.is_in(rule, field, &one["val"]),
                    ("range", Value::Array(bounds)) => {
                        is_between(field, bounds.first()?, bounds.get(1)?)
                    }
                    ("prefix", prefix) => has_prefix(field, prefix),
                    _ => None,
                }
            }
            one => is_equal(field, one),
        }
    }

    fn is_among(&self, rule: &Value, field: &Field, values: &[Value]) -> Option<bool> {
        let found: Vec<_> = values
            .iter()
            .map(|value| self.is_in(rule, field, value))
            .collect();
        match () {
            () if found.contains(&Some(true)) => Some(true),
            () if found.contains(&None) => None,
            () => Some(false),
        }
    }

    /// Returns a named set or map of the table of the rule.
    fn set(&self, rule: &Value, name: &str) -> Option<&'a Value> {
        let is_it = |set: &&Value| {
            ["family", "table"].iter().all(|key| set[key] == rule[key]) && text(set, "name") == name
        };
        self.all("set").chain(self.all("map")).find(is_it)
    }

    fn mapped(&self, rule: &Value, body: &Value, packet: &Packet<'_>) -> Mapped {
        let data = match body["data"]
            .as_str()
            .and_then(|name| name.strip_prefix('@'))
        {
            Some(name) => self
                .set(rule, name)
                .map_or(&Value::Null, |map| &map["elem"]),
            None => &body["data"]["set"],
        };
        let field = field(&body["key"], packet);
        let mut unknown = Vec::new();
        for pair in data.as_array().into_iter().flatten() {
            match self.is_in(rule, &field, &pair[0]) {
                Some(true) => return Mapped::To(pair[1].clone()),
                Some(false) => {}
                None => unknown.push(pair[1].clone()),
            }
        }
        match (field, unknown.is_empty()) {
            (Field::Absent, _) | (_, true) => Mapped::Nowhere,
            _ => Mapped::Unknown(unknown),
        }
    }

    /// Returns the first rule that drops segments for this TCP option, or removes it.
    pub(super) fn takes_option(&self, kind: u64) -> Option<Place> {
        let is_it = |option: &Value| option["tcp option"]["base"].as_u64() == Some(kind);
        let takes = |rule: &&Value| {
            let mut is_about = false;
            rule["expr"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|statement| {
                    is_about |=
                        is_it(&statement["match"]["left"]) && statement["match"]["right"] != false;
                    is_it(&statement["reset"])
                        || (is_about && matches!(action(statement), Action::Drop))
                })
        };
        self.all("rule").find(takes).map(|rule| Place {
            chain: path(rule, text(rule, "chain")),
            rule: rule["handle"].as_u64(),
        })
    }
}

/// The result of a verdict map.
enum Mapped {
    To(Value),
    Nowhere,
    /// One of these, or none.
    Unknown(Vec<Value>),
}

/// What a statement does.
enum Action {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    Nothing,
}

fn action(statement: &Value) -> Action {
    let Some((kind, body)) = statement
        .as_object()
        .and_then(|object| object.iter().next())
    else {
        return Action::Nothing;
    };
    let target = || text(body, "target").to_string();
    match kind.as_str() {
        "accept" | "queue" => Action::Accept,
        "drop" | "reject" => Action::Drop,
        "return" => Action::Return,
        "jump" => Action::Jump(target()),
        "goto" => Action::Goto(target()),
        _ => Action::Nothing,
    }
}

/// Returns what is known of a field.
fn field(left: &Value, packet: &Packet<'_>) -> Field {
    let is_in = packet.direction == Direction::In;
    let netdev = || Field::Name(packet.netdev.to_string());
    let peer = match packet.peer {
        Some(IpAddr::V4(peer)) => Field::Address(peer),
        _ => Field::Unknown,
    };
    let payload = (
        text(&left["payload"], "protocol"),
        text(&left["payload"], "field"),
    );
    match payload {
        ("udp" | "th", "dport") => return Field::Number(packet.port.into()),
        ("ip", "protocol") => return Field::Word("udp"),
        ("ip", "saddr") if is_in => return peer,
        ("ip", "daddr") if !is_in => return peer,
        ("tcp" | "icmp" | "icmpv6" | "ip6" | "sctp" | "dccp" | "udplite" | "esp" | "ah", _) => {
            return Field::Absent
        }
        _ => {}
    }
    match text(&left["meta"], "key") {
        "l4proto" => Field::Word("udp"),
        "nfproto" => Field::Word("ipv4"),
        "protocol" => Field::Word("ip"),
        "iif" | "iifname" if is_in => netdev(),
        "oif" | "oifname" if !is_in => netdev(),
        "iif" | "iifname" | "oif" | "oifname" => Field::Absent,
        _ if text(&left["ct"], "key") == "state" => Field::Word("new"),
        _ if !left["tcp option"].is_null() => Field::Absent,
        _ => Field::Unknown,
    }
}

fn is_equal(field: &Field, value: &Value) -> Option<bool> {
    match (field, value) {
        (Field::Number(number), Value::Number(other)) => Some(other.as_u64() == Some(*number)),
        (Field::Word(word), Value::String(other)) => Some(word == other),
        // Protocols may be numbers.
        (Field::Word("udp"), Value::Number(other)) => Some(other.as_u64() == Some(17)),
        (Field::Name(name), Value::String(other)) => Some(match other.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == other,
        }),
        (Field::Address(address), Value::String(other)) => Some(other.parse() == Ok(*address)),
        _ => None,
    }
}

fn is_between(field: &Field, first: &Value, last: &Value) -> Option<bool> {
    match field {
        Field::Number(number) => Some((first.as_u64()?..=last.as_u64()?).contains(number)),
        Field::Address(address) => {
            let bound = |value: &Value| value.as_str()?.parse::<Ipv4Addr>().ok();
            Some((bound(first)?..=bound(last)?).contains(address))
        }
        _ => None,
    }
}

fn has_prefix(field: &Field, prefix: &Value) -> Option<bool> {
    let Field::Address(address) = field else {
        return None;
    };
    let (of, len) = (
        prefix["addr"].as_str()?.parse::<Ipv4Addr>().ok()?,
        prefix["len"].as_u64()?,
    );
    let rest = 32_u32.checked_sub(u32::try_from(len).ok()?)?;
    let differing = address.to_bits() ^ of.to_bits();
    Some(differing.checked_shr(rest).unwrap_or(0) == 0)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// Names a chain as nft does.
fn path(object: &Value, chain: &str) -> String {
    format!(
        "{} {} {chain}",
        text(object, "family"),
        text(object, "table")
    )
}

#[cfg(test)]
mod tests;
