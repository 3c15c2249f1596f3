// SPDX-License-Identifier: GPL-2.0

//! `smctest failover`: connections that transfer in both directions while links fail.
//!
//! Each sends a stream that the server echoes, and both ends compare it byte by byte: no data may
//! be lost, duplicated or reordered, and no connection may end. The caller provides the commands
//! that take links down and up.

mod transfer;

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Result;

use crate::context::Context;
use crate::context::CALL_TIMEOUT;
use crate::fabric::Fabric;
use crate::server::Mode;
use crate::server::Server;
use transfer::Style;
use transfer::Transfer;

/// Time for data that arrived before the link failure to be read, and for the failure to affect all
/// connections.
const SETTLE: Duration = Duration::from_millis(200);

/// Polling interval for the state of connections.
const LOOK: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 16)]
    connections: u64,

    /// How often a link is taken away
    #[arg(long, default_value_t = 4)]
    losses: usize,

    /// Milliseconds between two pieces that a connection sends, so that there is time for other things
    #[arg(long, default_value_t = 150)]
    pause: u64,

    /// Send without pauses: connections in turn read all the time, read in bursts so that all rings fill and both ends
    /// block, send urgent data (in line), and send by splice
    #[arg(long)]
    saturate: bool,

    /// A bash command that takes a link away; several are used in turn
    #[arg(long, value_name = "COMMAND", required = true)]
    lose: Vec<String>,

    /// The command that undoes the one of the same place
    #[arg(long, value_name = "COMMAND", required = true)]
    restore: Vec<String>,

    /// RDMA devices of one machine that have a link each when all is well
    #[arg(long, value_name = "DEVICES")]
    linked: Vec<String>,

    /// Seconds after a loss within which all connections transfer again, and the most that one may be without data
    #[arg(long, default_value_t = 15)]
    within: u64,

    /// Pieces of 8 KiB that come back on each connection at the end, while every device has to carry its connections
    #[arg(long, default_value_t = 0)]
    compare: u64,
}

/// Runs the transfers and the commands.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let turns = arguments.lose.iter().zip(&arguments.restore).cycle();
    ensure!(
        arguments.lose.len() == arguments.restore.len(),
        "each --lose needs its --restore"
    );
    let server = Server::start(context, Mode::Spawn)?;
    let transfers = (0..arguments.connections)
        .map(|number| Transfer::open(context, style(arguments, number)))
        .collect::<Result<Vec<_>>>()?;
    let fabric = Fabric::new(&arguments.linked);
    let is_over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let is_over = &is_over;
        for transfer in &transfers {
            scope.spawn(move || transfer.watch(transfer.send(is_over)));
            scope.spawn(move || transfer.watch(transfer.receive()));
        }
        let result = fabric.await_links().and_then(|()| {
            let times = turns
                .take(arguments.losses)
                .map(|(lose, restore)| {
                    let within = Duration::from_secs(arguments.within);
                    lose_once(&transfers, &fabric, within, lose, restore)
                })
                .collect::<Result<Vec<_>>>()?;
            if arguments.compare > 0 {
                fabric.compare(|| {
                    transfer_each(&transfers, arguments.compare * transfer::PIECE as u64)
                })?;
            }
            Ok(times)
        });
        is_over.store(true, Ordering::Relaxed);
        result
    });
    report(&transfers, &result?)?;
    let failures = server.map_or(0, |server| server.failures());
    ensure!(
        failures == 0,
        "{failures} conversations failed at the server"
    );
    Ok(())
}

/// Waits until `bytes` that are sent from now on came back on each connection; returns that number.
fn transfer_each(transfers: &[Transfer], bytes: u64) -> Result<u64> {
    let start = Instant::now();
    let goals: Vec<u64> = transfers
        .iter()
        .map(|transfer| transfer.sent() + bytes)
        .collect();
    for (transfer, goal) in transfers.iter().zip(goals) {
        while transfer.received() < goal {
            ensure!(
                !transfer.is_broken() && start.elapsed() < CALL_TIMEOUT,
                "{bytes} bytes do not come back on connection {}",
                transfer.seed()
            );
            thread::sleep(LOOK);
        }
    }
    Ok(bytes)
}

/// How a connection sends and reads.
fn style(arguments: &Arguments, number: u64) -> Style {
    match (arguments.saturate, number % 4) {
        (false, _) => Style::Paced(Duration::from_millis(arguments.pause)),
        (true, 0) => Style::Steady,
        (true, 1) => Style::Bursts,
        (true, 2) => Style::Urgent,
        (true, _) => Style::Splice,
    }
}

/// Durations after a link failure.
struct Times {
    /// The longest that a connection was without data.
    stall: Duration,
    /// Until all connections transferred data again.
    on: Duration,
    /// From the beginning of the repair until there was a link on each device again.
    back: Duration,
}

/// Takes a link down and up again; fails if a connection does not transfer again `within` that time.
fn lose_once(
    transfers: &[Transfer],
    fabric: &Fabric,
    within: Duration,
    lose: &str,
    restore: &str,
) -> Result<Times> {
    transfers.iter().for_each(Transfer::mark);
    let start = Instant::now();
    shell(lose)?;
    thread::sleep(SETTLE);
    let settled = Instant::now();
    while let Some(transfer) = transfers
        .iter()
        .find(|transfer| !transfer.has_heard_since(settled))
    {
        ensure!(
            settled.elapsed() < within,
            "nothing comes back on connection {} after: {lose}",
            transfer.seed()
        );
        thread::sleep(LOOK);
    }
    let longest = transfers
        .iter()
        .map(Transfer::pause)
        .max_by_key(|pause| pause.len);
    let longest = longest.unwrap_or_default();
    let end = longest.end.unwrap_or(start);
    ensure!(
        longest.len <= within,
        "a connection was without data for {} ms after: {lose}",
        longest.len.as_millis()
    );
    let restored = Instant::now();
    shell(restore)?;
    fabric.await_links()?;
    Ok(Times {
        stall: longest.len,
        on: end.saturating_duration_since(start),
        back: restored.elapsed(),
    })
}

fn shell(command: &str) -> Result<()> {
    let status = Command::new("bash").args(["-c", command]).status()?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}

fn report(transfers: &[Transfer], times: &[Times]) -> Result<()> {
    let checked: u64 = transfers.iter().map(Transfer::received).sum();
    let broken = transfers
        .iter()
        .filter(|transfer| transfer.is_broken())
        .count();
    println!(
        "# failover: {} losses, {} connections, {} KiB came back and were compared, {broken} broken",
        times.len(),
        transfers.len(),
        checked >> 10
    );
    summarize(
        "a loss to the first byte of the last connection",
        times.iter().map(|times| times.on),
    );
    summarize(
        "the last byte before it to the first byte of the connection that waited longest",
        times.iter().map(|times| times.stall),
    );
    summarize(
        "the end of its cause to a link on each device",
        times.iter().map(|times| times.back),
    );
    ensure!(broken == 0, "{broken} connections broke");
    Ok(())
}

fn summarize(what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<_> = times.collect();
    times.sort();
    if let (Some(median), Some(worst)) = (times.get(times.len() / 2), times.last()) {
        println!(
            "# failover: from {what}: median {} ms, worst {} ms",
            median.as_millis(),
            worst.as_millis()
        );
    }
}
