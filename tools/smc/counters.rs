// SPDX-License-Identifier: GPL-2.0

//! `smc stats`: the counters of this network namespace.

use std::io;

use smc_tools::stats::Direction;
use smc_tools::stats::Stats;
use smc_tools::stats::Technology;
use smc_tools::view::Module;

use crate::listen;
use crate::metrics;
use crate::out;
use crate::table::json;
use crate::table::not_loaded;
use crate::table::table;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print metrics for Prometheus, such as for the textfile collector of its node exporter
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,

    /// Serve these metrics by HTTP there, until ended
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["json", "prometheus"])]
    listen: Option<String>,
}

/// Prints the counters of connections over RDMA and over shared memory, and the reasons of fallbacks.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    if let Some(address) = &arguments.listen {
        return listen::serve(address);
    }
    let mut module = Module::open().map_err(not_loaded)?;
    if arguments.prometheus {
        return out::text(&metrics::text(&mut module)?);
    }
    let stats = module.stats()?;
    if arguments.json {
        return json(&stats);
    }
    out::lines(summary(&stats))?;
    out::line("")?;
    traffic(&stats.smcr, "SMC-R")?;
    if stats.smcd.is_used() {
        out::line("")?;
        traffic(&stats.smcd, "SMC-D")?;
    }
    if !stats.fallbacks.reasons.is_empty() {
        out::line("")?;
        reasons(&stats)?;
    }
    Ok(())
}

/// Returns the lines about connections.
fn summary(stats: &Stats) -> [String; 4] {
    let line = |name: &str, client: u64, server: u64| {
        format!("{name:<20}{client} as client, {server} as server")
    };
    let of = |name: &str, t: &Technology| {
        let name = format!("{name} connections");
        line(&name, t.client_connections(), t.server_connections())
    };
    let tcp = &stats.fallbacks;
    [
        of("SMC-R", &stats.smcr),
        of("SMC-D", &stats.smcd),
        line("TCP after fallback", tcp.client, tcp.server),
        line(
            "Failed handshakes",
            stats.client_errors,
            stats.server_errors,
        ),
    ]
}

/// A line of the table: its name and the function that returns the value for one direction.
type Field = (&'static str, fn(&Direction) -> u64);

const FIELDS: [Field; 10] = [
    ("Bytes", |d| d.bytes),
    ("Calls", |d| d.calls),
    ("Buffer bytes in use", |d| d.buffer_bytes),
    ("Buffers made", |d| d.buffers_made),
    ("Buffers used again", |d| d.buffers_reused),
    ("Buffers smaller than wanted", |d| d.buffers_downgraded),
    ("Found full", |d| d.full),
    ("Found full at the peer", |d| d.peer_full),
    ("Calls beyond the buffer", |d| d.too_small),
    ("Calls beyond the peer's", |d| d.peer_too_small),
];

fn traffic(technology: &Technology, name: &str) -> io::Result<()> {
    let (sent, received) = (&technology.sent, &technology.received);
    let row = |(name, of): &Field| {
        vec![
            name.to_string(),
            of(sent).to_string(),
            of(received).to_string(),
        ]
    };
    let rows: Vec<_> = FIELDS.iter().map(row).collect();
    table(&[name, "Sent", "Received"], &rows)
}

fn reasons(stats: &Stats) -> io::Result<()> {
    let rows = stats.fallbacks.reasons.iter().map(|fallback| {
        vec![
            fallback.count.to_string(),
            fallback.end.clone(),
            fallback.reason.clone(),
        ]
    });
    table(&["TCP", "As", "Reason"], &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_technology_and_role() {
        let mut stats = Stats::default();
        (stats.smcr.client_v1, stats.smcr.client_v2) = (1, 2);
        stats.smcd.server_v2 = 4;
        stats.fallbacks.client = 5;
        assert_eq!(
            summary(&stats),
            [
                "SMC-R connections   3 as client, 0 as server",
                "SMC-D connections   0 as client, 4 as server",
                "TCP after fallback  5 as client, 0 as server",
                "Failed handshakes   0 as client, 0 as server",
            ]
        );
        assert!(stats.smcd.is_used() && !Technology::default().is_used());
    }
}
