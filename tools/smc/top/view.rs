// SPDX-License-Identifier: GPL-2.0

//! The differences between two snapshots, as records and as text.

use serde::Serialize;
use smc_tools::smcd::SmcdGroup;
use smc_tools::stats::Fallback;
use smc_tools::stats::Stats;
use smc_tools::stats::Technology;
use smc_tools::view::Group;
use smc_tools::view::Link;

use super::sample::Sample;
use super::sample::Sockets;
use crate::table::lines;
use crate::table::netdev;
use crate::table::or_dash;

/// The differences; rates are per second.
#[derive(Serialize)]
pub(super) struct View {
    seconds: f64,
    sockets: Sockets,
    /// Of all connections.
    rates: Rates,
    /// Of those over SMC-D alone.
    smcd_rates: DataRates,
    groups: Vec<Group>,
    smcd_groups: Vec<SmcdGroup>,
    links: Vec<Link>,
    ports: Vec<PortRate>,
    /// Reasons of fallbacks, currently most frequent first.
    reasons: Vec<Rated>,
}

#[derive(Serialize)]
struct Rates {
    fallbacks: f64,
    handshake_errors: f64,
    #[serde(flatten)]
    data: DataRates,
}

/// Rates of new connections and of data.
#[derive(Serialize)]
struct DataRates {
    connections: f64,
    sent_bytes: f64,
    received_bytes: f64,
    sent_calls: f64,
    received_calls: f64,
}

#[derive(Serialize)]
struct PortRate {
    device: String,
    port: u64,
    netdev: String,
    active: bool,
    links: u64,
    /// Bytes; `None` for a port that does not count them.
    sent_bytes: Option<f64>,
    received_bytes: Option<f64>,
}

#[derive(Serialize)]
struct Rated {
    #[serde(flatten)]
    fallback: Fallback,
    rate: f64,
}

impl DataRates {
    /// Computes the rates of all technologies that `of` returns, together.
    fn new<const N: usize>(
        before: &Stats,
        now: &Stats,
        of: fn(&Stats) -> [&Technology; N],
        rate: impl Fn(u64, u64) -> f64,
    ) -> Self {
        let rate = |count: fn(&Technology) -> u64| {
            let sum = |stats| of(stats).into_iter().map(count).sum();
            rate(sum(before), sum(now))
        };
        Self {
            connections: rate(Technology::connections),
            sent_bytes: rate(|t| t.sent.bytes),
            received_bytes: rate(|t| t.received.bytes),
            sent_calls: rate(|t| t.sent.calls),
            received_calls: rate(|t| t.received.calls),
        }
    }

    /// Formats the rates of data.
    fn data(&self) -> String {
        format!(
            "{}B/s in {}/s calls sent, {}B/s in {}/s calls received",
            short(self.sent_bytes),
            short(self.sent_calls),
            short(self.received_bytes),
            short(self.received_calls)
        )
    }
}

impl View {
    /// Computes the differences.
    pub(super) fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = (now.at - before.at).as_secs_f64().max(f64::EPSILON);
        // A counter decreases only if the module was reloaded.
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let of = |count: fn(&Sample) -> u64| rate(count(before), count(now));
        let mut reasons: Vec<_> = now
            .stats
            .fallbacks
            .reasons
            .iter()
            .map(|fallback| {
                let earlier = before.stats.fallbacks.reasons.iter();
                let mut same = earlier.filter(|f| f.code == fallback.code && f.end == fallback.end);
                Rated {
                    fallback: fallback.clone(),
                    rate: rate(same.next().map_or(0, |f| f.count), fallback.count),
                }
            })
            .collect();
        reasons.sort_by(|a, b| {
            b.rate
                .total_cmp(&a.rate)
                .then(b.fallback.count.cmp(&a.fallback.count))
        });
        Self {
            seconds,
            sockets: now.sockets,
            rates: Rates {
                fallbacks: of(|s| s.stats.fallbacks.client + s.stats.fallbacks.server),
                handshake_errors: of(|s| s.stats.client_errors + s.stats.server_errors),
                data: DataRates::new(&before.stats, &now.stats, |s| [&s.smcr, &s.smcd], rate),
            },
            smcd_rates: DataRates::new(&before.stats, &now.stats, |s| [&s.smcd], rate),
            groups: now.groups.clone(),
            smcd_groups: now.smcd_groups.clone(),
            links: now.links.clone(),
            ports: port_rates(before, now, rate),
            reasons,
        }
    }

    /// Formats it as text.
    pub(super) fn lines(&self) -> Vec<String> {
        let (sockets, rates) = (self.sockets, &self.rates);
        let mut all = vec![
            format!(
                "Sockets   {} by SMC, {} by TCP, {} listening; {} of SMC by SMC-D",
                sockets.smc, sockets.tcp, sockets.listening, sockets.smcd
            ),
            format!(
                "New       {:.1}/s by SMC, {:.1}/s by TCP, {:.1}/s failed; {:.1}/s of SMC by SMC-D",
                rates.data.connections,
                rates.fallbacks,
                rates.handshake_errors,
                self.smcd_rates.connections
            ),
            format!("SMC data  {}", rates.data.data()),
            format!("of SMC-D  {}", self.smcd_rates.data()),
        ];
        let mut part = |heads: &[&str], rows: Vec<Vec<String>>| {
            if !rows.is_empty() {
                all.push(String::new());
                all.extend(lines(heads, &rows));
            }
        };
        let groups = self.groups.iter().map(group_row);
        let groups = groups
            .chain(self.smcd_groups.iter().map(smcd_group_row))
            .collect();
        part(
            &[
                "Group", "Role", "Links", "Conns", "SndKiB", "RcvKiB", "Peer",
            ],
            groups,
        );
        let links = self.links.iter().map(link_row).collect();
        part(
            &["Group", "Link", "State", "Conns", "Device", "Peer GID"],
            links,
        );
        let ports = self.ports.iter().map(PortRate::row).collect();
        part(
            &["Device", "Netdev", "State", "Links", "Sent", "Received"],
            ports,
        );
        let reasons = self.reasons.iter().map(Rated::row).collect();
        part(&["TCP", "Now", "As", "Reason"], reasons);
        all
    }
}

fn port_rates(before: &Sample, now: &Sample, rate: impl Fn(u64, u64) -> f64) -> Vec<PortRate> {
    let of = |(port, bytes): &(smc_tools::view::Port, Option<[u64; 2]>)| {
        let mut same = before
            .ports
            .iter()
            .filter(|(other, _)| (&other.device, other.port) == (&port.device, port.port));
        let earlier = same.next().and_then(|(_, bytes)| *bytes);
        let rates = earlier
            .zip(*bytes)
            .map(|([sent, received], [sent_now, received_now])| {
                (rate(sent, sent_now), rate(received, received_now))
            });
        PortRate {
            device: port.device.clone(),
            port: port.port,
            netdev: netdev(port.ifindex),
            active: port.active,
            links: port.links,
            sent_bytes: rates.map(|(sent, _)| sent),
            received_bytes: rates.map(|(_, received)| received),
        }
    };
    now.ports.iter().map(of).collect()
}

fn group_row(group: &Group) -> Vec<String> {
    vec![
        format!("{:08x}", group.id),
        group.role.to_string(),
        group.kind.to_string(),
        group.connections.to_string(),
        (group.send_bytes >> 10).to_string(),
        (group.receive_bytes >> 10).to_string(),
        or_dash(group.v2.as_ref().map_or("", |v2| &v2.peer)),
    ]
}

/// As in `smc lgr`.
fn smcd_group_row(group: &SmcdGroup) -> Vec<String> {
    vec![
        format!("{:08x}", group.id),
        "-".to_string(),
        "SMC-D".to_string(),
        group.connections.to_string(),
        (group.send_bytes >> 10).to_string(),
        (group.receive_bytes >> 10).to_string(),
        or_dash(group.v2.as_ref().map_or("", |v2| &v2.peer)),
    ]
}

fn link_row(link: &Link) -> Vec<String> {
    vec![
        format!("{:08x}", link.group),
        link.id.to_string(),
        link.state.to_string(),
        link.connections.to_string(),
        format!("{}/{}", link.device, link.port),
        link.peer_gid.clone(),
    ]
}

impl PortRate {
    fn row(&self) -> Vec<String> {
        let rate =
            |rate: Option<f64>| rate.map_or("-".to_string(), |rate| format!("{}B/s", short(rate)));
        vec![
            format!("{}/{}", self.device, self.port),
            self.netdev.clone(),
            ["down", "active"][usize::from(self.active)].to_string(),
            self.links.to_string(),
            rate(self.sent_bytes),
            rate(self.received_bytes),
        ]
    }
}

impl Rated {
    fn row(&self) -> Vec<String> {
        vec![
            self.fallback.count.to_string(),
            format!("{:.1}/s", self.rate),
            self.fallback.end.clone(),
            self.fallback.reason.clone(),
        ]
    }
}

/// Formats a number with three digits and a unit.
fn short(number: f64) -> String {
    let mut number = number;
    for unit in ["", "k", "M", "G"] {
        if number < 999.5 {
            let digits = usize::from(number < 99.95 && !unit.is_empty());
            return format!("{number:.digits$} {unit}");
        }
        number /= 1000.0;
    }
    format!("{number:.0} T")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use std::time::Instant;

    fn sample(at: Instant, bytes: u64, count: u64) -> Sample {
        let mut stats = Stats::default();
        stats.smcr.sent.bytes = bytes;
        stats.smcd.sent.bytes = bytes / 5;
        stats.smcd.client_v2 = count;
        let reason = |code, count| Fallback {
            end: "client".to_string(),
            code,
            reason: "why".to_string(),
            count,
        };
        stats.fallbacks.reasons = vec![reason(1, 100), reason(2, count)];
        Sample {
            at,
            stats,
            sockets: Sockets::default(),
            groups: Vec::new(),
            smcd_groups: vec![SmcdGroup {
                id: 0x100,
                connections: 3,
                receive_bytes: 64 << 10,
                ..SmcdGroup::default()
            }],
            links: Vec::new(),
            ports: Vec::new(),
        }
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let begin = Instant::now();
        let (before, now) = (
            sample(begin, 1000, 1),
            sample(begin + Duration::from_secs(2), 5000, 7),
        );
        let view = View::between(&before, &now);
        assert_eq!(view.rates.data.sent_bytes, 2400.0);
        assert_eq!(view.rates.data.connections, 3.0);
        assert_eq!(view.smcd_rates.sent_bytes, 400.0);
        let first = view.reasons.first().unwrap();
        assert_eq!((first.fallback.code, first.rate), (2, 3.0));
        assert!(
            view.lines()
                .iter()
                .any(|line| line == "7    3.0/s  client  why"),
            "{:?}",
            view.lines()
        );
    }

    #[test]
    fn shared_memory_is_part_of_the_sum_and_shown_alone() {
        let begin = Instant::now();
        let (before, now) = (
            sample(begin, 0, 0),
            sample(begin + Duration::from_secs(1), 5000, 2),
        );
        let view = View::between(&before, &now);
        let lines = view.lines();
        let has = |line: &str| assert!(lines.iter().any(|l| l == line), "{line}\n{lines:#?}");
        has("Sockets   0 by SMC, 0 by TCP, 0 listening; 0 of SMC by SMC-D");
        has("New       2.0/s by SMC, 0.0/s by TCP, 0.0/s failed; 2.0/s of SMC by SMC-D");
        has("of SMC-D  1.0 kB/s in 0 /s calls sent, 0 B/s in 0 /s calls received");
        has("00000100  -     SMC-D  3      0       64      -");
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["rates"]["sent_bytes"], 6000.0);
        assert_eq!(json["smcd_rates"]["sent_bytes"], 1000.0);
        assert_eq!(json["smcd_groups"][0]["connections"], 3);
    }

    #[test]
    fn a_counter_that_fell_is_no_rate() {
        let begin = Instant::now();
        let (before, now) = (
            sample(begin, 5000, 7),
            sample(begin + Duration::from_secs(1), 0, 0),
        );
        assert_eq!(View::between(&before, &now).rates.data.sent_bytes, 0.0);
    }

    #[test]
    fn numbers_are_short() {
        let shorts = [0.0, 7.4, 999.0, 1234.0, 99_960.0, 1e9, 4e15].map(short);
        assert_eq!(
            shorts,
            ["0 ", "7 ", "999 ", "1.2 k", "100 k", "1.0 G", "4000 T"]
        );
    }
}
