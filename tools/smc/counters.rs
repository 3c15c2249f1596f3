// SPDX-License-Identifier: GPL-2.0

//! `smc stats`: the counters of this network namespace.

use std::io;

use smc_tools::stats::Direction;
use smc_tools::stats::Stats;
use smc_tools::stats::Technology;
use smc_tools::view::Module;

use crate::listen;
use crate::metrics;
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

/// Prints the counters of connections over RDMA, and the reasons of fallbacks.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    if let Some(address) = &arguments.listen {
        return listen::serve(address);
    }
    let mut module = Module::open().map_err(not_loaded)?;
    if arguments.prometheus {
        print!("{}", metrics::text(&mut module)?);
        return Ok(());
    }
    let stats = module.stats()?;
    if arguments.json {
        return json(&stats);
    }
    show(&stats, &stats.smcr, "SMC-R")
}

/// Prints the counters of one technology, and the reasons of fallbacks.
fn show(stats: &Stats, technology: &Technology, name: &str) -> io::Result<()> {
    let tcp = &stats.fallbacks;
    println!(
        "{:<20}{} as client, {} as server",
        format!("{name} connections"),
        technology.client_v1 + technology.client_v2,
        technology.server_v1 + technology.server_v2
    );
    println!(
        "TCP after fallback  {} as client, {} as server",
        tcp.client, tcp.server
    );
    println!(
        "Failed handshakes   {} as client, {} as server\n",
        stats.client_errors, stats.server_errors
    );
    traffic(technology, name)?;
    if !tcp.reasons.is_empty() {
        println!();
        reasons(stats)?;
    }
    Ok(())
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
