// SPDX-License-Identifier: GPL-2.0

//! The counters in the text format 0.0.4 of Prometheus: for the textfile collector of its node
//! exporter, or served by [`crate::listen`].
//!
//! No library is used, since their output would differ: prometheus-client writes only OpenMetrics,
//! whose `# TYPE` lines have other names for counters, so that readers of this format lose the
//! type; prometheus sorts labels by name and stores counters as floating-point numbers, which are
//! not exact above 2^53. A library would only replace [`Page`].

use std::fmt::Write;
use std::io;

use smc_proto::reason::Reason;
use smc_tools::smcd::SmcdGroup;
use smc_tools::stats::Direction;
use smc_tools::stats::Stats;
use smc_tools::stats::Technology;
use smc_tools::stats::SIZES;
use smc_tools::view::Module;
use smc_tools::view::Port;

/// A label and its value.
type Label<'a> = (&'a str, &'a str);

/// A page of metrics.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Begins a metric; all its samples follow.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: u64) {
        let label = |(name, value): &Label<'_>| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<_> = labels.iter().map(label).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")),
        };
    }
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

/// Returns all metrics. Link groups, links and ports are those of the whole machine; the rest
/// belongs to the caller's network namespace.
pub(crate) fn text(module: &mut Module) -> io::Result<String> {
    let mut page = Page::default();
    connections(&mut page, &module.stats()?);
    machine(&mut page, module)?;
    Ok(page.0)
}

fn connections(page: &mut Page, stats: &Stats) {
    let technologies = [("smcr", &stats.smcr), ("smcd", &stats.smcd)];
    let name = "smc_connections_total";
    page.metric(name, "counter", "Connections that came to use SMC.");
    for (technology, t) in technologies {
        let counts = [
            ("client", "1", t.client_v1),
            ("client", "2", t.client_v2),
            ("server", "1", t.server_v1),
            ("server", "2", t.server_v2),
        ];
        for (end, version, count) in counts {
            let labels = [
                ("technology", technology),
                ("end", end),
                ("version", version),
            ];
            page.sample(name, &labels, count);
        }
    }
    let name = "smc_handshake_errors_total";
    page.metric(
        name,
        "counter",
        "Handshakes that failed together with the connection.",
    );
    page.sample(name, &[("end", "client")], stats.client_errors);
    page.sample(name, &[("end", "server")], stats.server_errors);
    fallbacks(page, stats);
    for (technology, t) in technologies {
        // Omits SMC-D if it was never used.
        if technology == "smcr" || t.is_used() {
            traffic(page, technology, t);
        }
    }
}

fn fallbacks(page: &mut Page, stats: &Stats) {
    let name = "smc_fallbacks_total";
    page.metric(
        name,
        "counter",
        "Connections of SMC sockets that went over TCP.",
    );
    page.sample(name, &[("end", "client")], stats.fallbacks.client);
    page.sample(name, &[("end", "server")], stats.fallbacks.server);
    let name = "smc_fallback_reasons_total";
    page.metric(
        name,
        "counter",
        "The same by reason, as smcss and the C module name it.",
    );
    for fallback in &stats.fallbacks.reasons {
        let code = format!("0x{:08x}", fallback.code);
        let reason = Reason::from_code(fallback.code).map_or("unknown", Reason::name);
        let labels = [("end", &*fallback.end), ("reason", reason), ("code", &code)];
        page.sample(name, &labels, fallback.count);
    }
}

/// A counter of one direction: name, help text, and an additional label.
type Field = (
    &'static str,
    &'static str,
    Option<Label<'static>>,
    fn(&Direction) -> u64,
);

/// Counters with the same name are adjacent.
const FIELDS: [Field; 10] = [
    ("bytes_total", "Bytes of the applications.", None, |d| {
        d.bytes
    }),
    ("calls_total", "Calls to send or receive.", None, |d| {
        d.calls
    }),
    (
        "buffers_total",
        "Buffers given to connections.",
        Some(("how", "made")),
        |d| d.buffers_made,
    ),
    ("buffers_total", "", Some(("how", "reused")), |d| {
        d.buffers_reused
    }),
    (
        "buffers_downgraded_total",
        "Buffers smaller than wanted.",
        None,
        |d| d.buffers_downgraded,
    ),
    (
        "buffer_full_total",
        "Calls that found a buffer full.",
        Some(("at", "here")),
        |d| d.full,
    ),
    ("buffer_full_total", "", Some(("at", "peer")), |d| {
        d.peer_full
    }),
    (
        "buffer_too_small_total",
        "Calls with more than a buffer holds.",
        Some(("at", "here")),
        |d| d.too_small,
    ),
    ("buffer_too_small_total", "", Some(("at", "peer")), |d| {
        d.peer_too_small
    }),
    ("buffer_bytes", "Bytes of buffers in use now.", None, |d| {
        d.buffer_bytes
    }),
];

fn traffic(page: &mut Page, technology: &str, t: &Technology) {
    let directions = [("sent", &t.sent), ("received", &t.received)];
    for (name, help, label, of) in FIELDS {
        let name = format!("{}_{name}", technology);
        if !help.is_empty() {
            let kind = if name.ends_with("_total") {
                "counter"
            } else {
                "gauge"
            };
            page.metric(&name, kind, help);
        }
        for (direction, d) in directions {
            let labels: Vec<_> = std::iter::once(("direction", direction))
                .chain(label)
                .collect();
            page.sample(&name, &labels, of(d));
        }
    }
    let name = format!("{technology}_call_bytes");
    page.metric(&name, "histogram", "Bytes of a call that moved any.");
    for (direction, d) in directions {
        histogram(page, &name, direction, d);
    }
    let name = format!("{technology}_special_calls_total");
    page.metric(
        &name,
        "counter",
        "Calls and options that are treated specially.",
    );
    let calls = [
        ("cork", t.cork),
        ("nodelay", t.nodelay),
        ("splice", t.splice),
        ("urgent", t.urgent),
    ];
    for (call, count) in calls {
        page.sample(&name, &[("call", call)], count);
    }
}

/// Prints a histogram with the size classes of the kernel: up to 8 KiB, then each up to twice that;
/// the last one is unbounded.
fn histogram(page: &mut Page, name: &str, direction: &str, d: &Direction) {
    const SMALLEST: u64 = 8 << 10;
    let direction = ("direction", direction);
    let mut sum = 0;
    for (class, count) in d.call_sizes.iter().enumerate() {
        sum += count;
        let bound = match class + 1 < SIZES {
            true => (SMALLEST << class).to_string(),
            false => "+Inf".to_string(),
        };
        page.sample(&format!("{name}_bucket"), &[direction, ("le", &bound)], sum);
    }
    page.sample(&format!("{name}_sum"), &[direction], d.bytes);
    page.sample(&format!("{name}_count"), &[direction], sum);
}

/// A value of an SMC-D link group: name, help text, and the function that returns it.
type SmcdGroupField = (&'static str, &'static str, fn(&SmcdGroup) -> u64);

/// A value of a port: name, help text, and the function that returns it.
type PortField = (&'static str, &'static str, fn(&Port) -> u64);

/// Gauges of SMC-D link groups.
fn smcd_groups(page: &mut Page, groups: &[SmcdGroup]) {
    let metrics: [SmcdGroupField; 2] = [
        (
            "smcd_group_connections",
            "Connections of an SMC-D link group.",
            |g| g.connections,
        ),
        (
            "smcd_group_buffer_bytes",
            "Bytes of the rings of an SMC-D link group now.",
            |g| g.send_bytes + g.receive_bytes,
        ),
    ];
    for (name, help, of) in metrics {
        page.metric(name, "gauge", help);
        for group in groups {
            let id = format!("{:08x}", group.id);
            page.sample(name, &[("group", &id)], of(group));
        }
    }
}

fn machine(page: &mut Page, module: &mut Module) -> io::Result<()> {
    let (groups, links) = (module.groups()?, module.links()?);
    let name = "smcr_group_connections";
    page.metric(name, "gauge", "Connections of a link group.");
    for group in &groups {
        let peer = group.v2.as_ref().map_or("", |v2| &v2.peer);
        let id = format!("{:08x}", group.id);
        let labels = [("group", &*id), ("end", group.role), ("peer", peer)];
        page.sample(name, &labels, group.connections);
    }
    smcd_groups(page, &module.smcd_groups()?);
    let name = "smcr_links";
    page.metric(name, "gauge", "Links by what they are doing.");
    for state in ["active", "activating", "inactive"] {
        let count = links.iter().filter(|(_, link)| link.state == state).count();
        page.sample(name, &[("state", state)], count as u64);
    }
    let ports = module.ports()?;
    let metrics: [PortField; 2] = [
        (
            "smcr_port_active",
            "Whether a port of an RDMA device can carry data.",
            |p| p.active.into(),
        ),
        ("smcr_port_links", "Links that use a port.", |p| p.links),
    ];
    for (name, help, of) in metrics {
        page.metric(name, "gauge", help);
        for port in &ports {
            let number = port.port.to_string();
            let labels = [
                ("device", &*port.device),
                ("port", &number),
                ("pnetid", &port.pnetid),
            ];
            page.sample(name, &labels, of(port));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_label_cannot_break_out() {
        let mut page = Page::default();
        page.sample("x", &[("peer", "a\"} 1\n\\")], 7);
        assert_eq!(page.0, "x{peer=\"a\\\"} 1\\n\\\\\"} 7\n");
    }

    #[test]
    fn every_sample_belongs_to_the_metric_before_it() {
        let mut page = Page::default();
        let mut stats = Stats::default();
        stats.smcd.sent.calls = 1;
        connections(&mut page, &stats);
        smcd_groups(&mut page, &[SmcdGroup::default()]);
        let (mut current, mut seen) = (String::new(), BTreeSet::new());
        for line in page.0.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().unwrap().to_string();
                assert!(seen.insert(current.clone()), "{current} begins twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&current), "{line} is not of {current}");
            }
        }
        assert!(seen.contains("smcr_call_bytes") && seen.contains("smcd_bytes_total"));
        assert!(seen.contains("smcd_group_connections"));
    }

    #[test]
    fn a_group_of_shared_memory_has_two_gauges() {
        let mut page = Page::default();
        let group = SmcdGroup {
            id: 0x100,
            connections: 3,
            send_bytes: 1,
            receive_bytes: 16384,
            ..SmcdGroup::default()
        };
        smcd_groups(&mut page, &[group]);
        let lines: Vec<_> = page
            .0
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let expected = [
            "smcd_group_connections{group=\"00000100\"} 3",
            "smcd_group_buffer_bytes{group=\"00000100\"} 16385",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_histogram_counts_up_to_infinity() {
        let mut page = Page::default();
        let direction = Direction {
            bytes: 100,
            call_sizes: [1, 2, 0, 0, 0, 0, 0, 0, 3],
            ..Direction::default()
        };
        histogram(&mut page, "h", "sent", &direction);
        let lines: Vec<_> = page.0.lines().collect();
        assert_eq!(lines[0], "h_bucket{direction=\"sent\",le=\"8192\"} 1");
        assert_eq!(lines[7], "h_bucket{direction=\"sent\",le=\"1048576\"} 3");
        assert_eq!(lines[8], "h_bucket{direction=\"sent\",le=\"+Inf\"} 6");
        assert_eq!(lines[10], "h_count{direction=\"sent\"} 6");
    }
}
