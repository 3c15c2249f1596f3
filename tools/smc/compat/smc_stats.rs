// SPDX-License-Identifier: GPL-2.0

//! `smcr stats` and `smcd stats` in the layout of smc-tools, since the last `stats reset`.

mod baseline;

use std::io;

use smc_proto::reason::Reason;
use smc_tools::stats::Direction;
use smc_tools::stats::Fallback;
use smc_tools::stats::Stats;
use smc_tools::stats::Technology;
use smc_tools::stats::SIZES;
use smc_tools::view::Module;

use crate::out;

/// The command line.
pub(super) struct Call {
    pub(super) is_smcd: bool,
    /// Print more lines.
    pub(super) details: bool,
    /// Count from when the module was loaded, rather than from the last reset.
    pub(super) absolute: bool,
    pub(super) json: bool,
    /// Store the current counters as the new baseline.
    pub(super) reset: bool,
}

impl Call {
    pub(super) fn run(&self) -> io::Result<()> {
        let now = Module::open()?.stats()?;
        let shown = match self.absolute {
            true => now.clone(),
            false => baseline::since(&now),
        };
        let technology = match self.is_smcd {
            true => &shown.smcd,
            false => &shown.smcr,
        };
        match self.json {
            true => out::line(self.json(technology))?,
            false => out::lines(self.text(&shown, technology))?,
        }
        match self.reset {
            true => baseline::keep(&now),
            false => Ok(()),
        }
    }

    fn text(&self, stats: &Stats, t: &Technology) -> Vec<String> {
        let mut out = vec![format!(
            "SMC-{} Connections Summary",
            ["R", "D"][usize::from(self.is_smcd)]
        )];
        self.summary(&mut out, stats, t);
        out.extend([String::new(), "RX Stats".to_string()]);
        self.direction(&mut out, &t.received, false);
        out.extend([String::new(), "TX Stats".to_string()]);
        self.direction(&mut out, &t.sent, true);
        out.extend([String::new(), "Extras".to_string()]);
        let special = [t.cork, t.nodelay, t.sendpage, t.splice, t.urgent];
        out.push(line("  Special socket calls", special.iter().sum()));
        if self.details {
            let names = ["cork", "nodelay", "sendpage", "splice", "urgent data"];
            out.extend(
                names
                    .iter()
                    .zip(special)
                    .map(|(name, count)| line(&format!("    {name}"), count)),
            );
        }
        out
    }

    fn summary(&self, out: &mut Vec<String>, stats: &Stats, t: &Technology) {
        let (client, server) = (t.client_v1 + t.client_v2, t.server_v1 + t.server_v2);
        let (tcp, connections) = (&stats.fallbacks, client + server);
        let errors = stats.client_errors + stats.server_errors;
        let fallbacks = tcp.client + tcp.server;
        let of_both = |name: &str, client: u64, server: u64| match self.details {
            true => format!(
                "{} (client {client}, server {server})",
                line(name, client + server)
            ),
            false => line(name, client + server),
        };
        out.push(line(
            "  Total connections handled",
            connections + errors + fallbacks,
        ));
        out.push(of_both("  SMC connections", client, server));
        if self.details {
            out.push(line("    v1", t.client_v1 + t.server_v1));
            out.push(line("    v2", t.client_v2 + t.server_v2));
        }
        out.push(of_both(
            "  Handshake errors",
            stats.client_errors,
            stats.server_errors,
        ));
        let calls = t.received.calls + t.sent.calls;
        let average = if connections == 0 {
            0.0
        } else {
            calls as f64 / connections as f64
        };
        out.push(format!(
            "{:<29}{average:>14.1}",
            "  Avg requests per SMC conn"
        ));
        out.push(of_both("  TCP fallback", tcp.client, tcp.server));
        if self.details {
            most_frequent(out, &tcp.reasons);
        }
    }

    fn direction(&self, out: &mut Vec<String>, d: &Direction, is_sent: bool) {
        let part = |name: &str, count: u64| {
            let percent = if d.calls == 0 {
                0.0
            } else {
                count as f64 / d.calls as f64 * 100.0
            };
            format!("{} ({percent:.2}%)", line(name, count))
        };
        let bytes = |name: &str, count: u64, unit: &str| format!("{name:<27}{count:>14} ({unit})");
        out.push(bytes(
            "  Data transmitted (Bytes)",
            d.bytes,
            &short(d.bytes),
        ));
        out.push(line("  Total requests", d.calls));
        out.push(bytes(
            "  Buffer usage (Bytes)",
            d.buffer_bytes,
            &short(d.buffer_bytes),
        ));
        out.push(part("  Buffer full", d.full));
        if is_sent {
            out.push(part("  Buffer full (remote)", d.peer_full));
            out.push(part("  Buffer too small", d.too_small));
            out.push(part("  Buffer too small (remote)", d.peer_too_small));
        }
        if self.details {
            out.push(line("  Buffer downgrades", d.buffers_downgraded));
            out.push(line("  Buffer reuses", d.buffers_reused));
        }
        out.push(
            "            8KB    16KB    32KB    64KB   128KB   256KB   512KB  >512KB".to_string(),
        );
        out.push(sizes("Bufs", &d.buffer_sizes));
        out.push(sizes("Reqs", &d.call_sizes));
    }

    fn json(&self, t: &Technology) -> String {
        let name = ["SMCR", "SMCD"][usize::from(self.is_smcd)];
        let counters: Vec<_> = counters(t)
            .iter()
            .map(|(name, n)| format!("\"{name}\":{n}"))
            .collect();
        format!("{{\"{name}\": {{{}}}}}", counters.join(","))
    }
}

fn line(name: &str, count: u64) -> String {
    format!("{name:<29}{count:>12}")
}

/// Prints the three most frequent reasons for each role.
fn most_frequent(out: &mut Vec<String>, reasons: &[Fallback]) {
    for (end, title) in [("server", "    Server"), ("client", "    Client")] {
        let mut those: Vec<_> = reasons.iter().filter(|reason| reason.end == end).collect();
        those.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        if !those.is_empty() {
            out.push(title.to_string());
        }
        let row = |reason: &&Fallback| {
            format!(
                "     {:<12}            {:>12}",
                name(reason.code),
                reason.count
            )
        };
        out.extend(those.iter().take(3).map(row));
    }
}

fn name(code: u32) -> &'static str {
    match Reason::from_code(code) {
        Some(Reason::PeerNoSmc) => "PEER_NO_SMC",
        Some(Reason::Memory) => "MEMORY",
        Some(Reason::ConfigError) => "CNF_ERR",
        Some(reason) => reason.name(),
        None => "[unknown]",
    }
}

/// Formats a line of the table by sizes, which combines the largest two classes.
fn sizes(name: &str, counts: &[u64; SIZES]) -> String {
    let (small, large) = counts.split_at(SIZES - 2);
    let all = small.iter().copied().chain([large.iter().sum()]);
    let cells: Vec<_> = all.map(|count| format!("{:>6}", short(count))).collect();
    format!("  {name}   {}", cells.join("  "))
}

/// Formats a number in at most six characters: from 1000 on with a unit.
fn short(number: u64) -> String {
    const ROOM: usize = 4;
    if number < 1000 {
        return number.to_string();
    }
    let mut value = number as f64;
    let mut unit = ' ';
    for next in ['K', 'M', 'G', 'T', 'P', 'E'] {
        value /= 1000.0;
        unit = next;
        // Considers rounding: 999.96 would become 1000.0.
        if value < 999.95 {
            break;
        }
    }
    let whole = match value {
        value if value < 9.9995 => 1,
        value if value < 99.995 => 2,
        _ => 3,
    };
    format!("{value:.*}{unit}", ROOM.saturating_sub(whole))
}

/// Names of the size classes in the JSON output of smc-tools.
const CLASSES: [&str; SIZES] = [
    "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1024K", "G_1024K",
];

/// Returns all counters under the names of smc-tools, in their order.
fn counters(t: &Technology) -> Vec<(String, u64)> {
    let (tx, rx) = (&t.sent, &t.received);
    let classes = |kind: &str, counts: &[u64; SIZES]| {
        let named = CLASSES.iter().zip(counts);
        named
            .map(|(class, n)| (format!("SMC_{kind}_BUF_{class}"), *n))
            .collect::<Vec<_>>()
    };
    let buffers = |kind: &str, d: &Direction| {
        let named = [
            ("SIZE_SM_PEER", d.peer_too_small),
            ("SIZE_SM", d.too_small),
            ("FULL_PEER", d.peer_full),
            ("FULL", d.full),
            ("REUSE", d.buffers_reused),
            ("ALLOC", d.buffers_made),
            ("DGRADE", d.buffers_downgraded),
        ];
        named
            .map(|(name, n)| (format!("SMC_INT_{kind}_BUF_{name}_CNT"), n))
            .to_vec()
    };
    let rest = [
        ("CLNT_V1_SUCC_CNT", t.client_v1),
        ("CLNT_V2_SUCC_CNT", t.client_v2),
        ("SRV_V1_SUCC_CNT", t.server_v1),
        ("SRV_V2_SUCC_CNT", t.server_v2),
        ("SENDPAGE_CNT", t.sendpage),
        ("URG_DATA_CNT", t.urgent),
        ("SPLICE_CNT", t.splice),
        ("CORK_CNT", t.cork),
        ("NDLY_CNT", t.nodelay),
        ("RX_BYTES", rx.bytes),
        ("TX_BYTES", tx.bytes),
        ("RX_CNT", rx.calls),
        ("TX_CNT", tx.calls),
        ("RX_RMB_USAGE", rx.buffer_bytes),
        ("TX_RMB_USAGE", tx.buffer_bytes),
    ];
    [
        classes("INT_TX", &tx.buffer_sizes),
        classes("INT_RX", &rx.buffer_sizes),
        classes("USR_TX", &tx.call_sizes),
        classes("USR_RX", &rx.call_sizes),
        buffers("TX", tx),
        buffers("RX", rx),
        rest.map(|(name, n)| (format!("SMC_{name}"), n)).to_vec(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(details: bool) -> Call {
        Call {
            is_smcd: false,
            details,
            absolute: true,
            json: false,
            reset: false,
        }
    }

    fn stats() -> Stats {
        let mut stats = Stats::default();
        stats.smcr.client_v2 = 2;
        stats.smcr.sent.bytes = 869_225_943;
        stats.smcr.sent.calls = 8;
        stats.smcr.sent.full = 1;
        stats.smcr.sent.call_sizes = [7, 0, 0, 0, 0, 0, 0, 1, 2];
        stats.fallbacks.server = 3;
        stats.fallbacks.reasons = vec![Fallback {
            end: "server".to_string(),
            code: Reason::PeerNoSmc.code(),
            reason: String::new(),
            count: 3,
        }];
        stats
    }

    #[test]
    fn the_layout_is_that_of_smc_tools() {
        let (stats, call) = (stats(), call(true));
        let text = call.text(&stats, &stats.smcr);
        for expected in [
            "SMC-R Connections Summary",
            "  Total connections handled             5",
            "  SMC connections                       2 (client 2, server 0)",
            "  Avg requests per SMC conn             4.0",
            "  TCP fallback                          3 (client 0, server 3)",
            "    Server",
            "     PEER_NO_SMC                        3",
            "  Data transmitted (Bytes)      869225943 (869.2M)",
            "  Buffer full                           1 (12.50%)",
            "  Reqs        7       0       0       0       0       0       0       3",
            "    urgent data                         0",
        ] {
            assert!(
                text.iter().any(|line| line == expected),
                "{expected}\n{}",
                text.join("\n")
            );
        }
        let short = super::tests::call(false).text(&stats, &stats.smcr);
        assert!(short.contains(&"  SMC connections                       2".to_string()));
        assert!(!short.iter().any(|line| line.contains("cork")));
    }

    #[test]
    fn numbers_fit_into_six_characters() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1.000K"),
            (18_494_832, "18.49M"),
            (999_949, "999.9K"),
            (999_950, "1.000M"),
            (9_999_600, "10.00M"),
            (12_760_884_405, "12.76G"),
            (u64::MAX, "18.45E"),
        ];
        for (number, expected) in cases {
            assert_eq!(short(number), expected, "{number}");
        }
    }

    #[test]
    fn the_counters_have_the_names_of_smc_tools() {
        let stats = stats();
        let all = counters(&stats.smcr);
        assert_eq!(all.len(), 65);
        assert_eq!(all[0].0, "SMC_INT_TX_BUF_8K");
        assert_eq!(all[26], ("SMC_USR_TX_BUF_G_1024K".to_string(), 2));
        assert_eq!(all[36].0, "SMC_INT_TX_BUF_SIZE_SM_PEER_CNT");
        assert_eq!(all[50].0, "SMC_CLNT_V1_SUCC_CNT");
        let json: serde_json::Value = serde_json::from_str(&call(false).json(&stats.smcr)).unwrap();
        assert_eq!(json["SMCR"]["SMC_TX_BYTES"], 869_225_943);
    }
}
