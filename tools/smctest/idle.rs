// SPDX-License-Identifier: GPL-2.0

//! `smctest idle`: kernel memory used by idle connections.

use std::fs;
use std::os::unix::net::UnixStream;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 1000)]
    connections: u64,

    /// The most that one may use, both ends together, KiB
    #[arg(long)]
    most: Option<f64>,

    /// Of UNIX stream sockets, whatever else is asked for
    #[arg(long)]
    unix: bool,
}

/// Opens the connections, both ends in this process, and prints one line of results.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let each = if arguments.unix {
        measure(arguments, || Ok(UnixStream::pair()?))?
    } else {
        let listener = context.listen(1024)?;
        netns::enter(context.client_netns.as_deref())?;
        measure(arguments, || open_pair(context, &listener))?
    };
    println!(
        "idle: {} connections: {each:.1} KiB each, both ends together",
        arguments.connections,
    );
    let is_within = arguments.most.is_none_or(|most| each <= most);
    ensure!(is_within, "more than {:?} KiB", arguments.most);
    Ok(())
}

/// Opens the connections; returns the memory that each uses, both ends together, in KiB.
fn measure<T>(arguments: &Arguments, open: impl Fn() -> Result<T>) -> Result<f64> {
    // The first connection allocates what all share.
    let _first = open()?;
    let before = used_kib()?;
    let mut pairs = Vec::new();
    for number in 0..arguments.connections {
        pairs.push(open().with_context(|| format!("number {number}"))?);
    }
    let used = used_kib()?.saturating_sub(before);
    Ok(used as f64 / arguments.connections.max(1) as f64)
}

fn open_pair(context: &Context, listener: &Socket) -> Result<(Socket, Socket)> {
    let client = context.connect()?;
    let server = listener.accept(0).context("accept")?;
    Ok((client, server))
}

/// Returns the memory in use except page cache and user memory, in KiB.
fn used_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| -> Result<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .with_context(|| format!("{name} in /proc/meminfo"))?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    let free = ["MemFree", "Buffers", "Cached", "AnonPages"];
    let not_kernel: u64 = free.into_iter().map(field).sum::<Result<u64>>()?;

    Ok(field("MemTotal")?.saturating_sub(not_kernel))
}
