// SPDX-License-Identifier: GPL-2.0

//! `smctest connrate`: connections per second; each is opened, transfers one byte in each
//! direction, and is closed.

use std::env;
use std::io::Read;
use std::process::Command;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::context::Context;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Processes
    #[arg(long, default_value_t = 1)]
    processes: u32,

    /// Connections in all
    #[arg(long, default_value_t = 1000)]
    count: u32,

    /// The fewest connections a second that pass
    #[arg(long)]
    least: Option<f64>,

    /// Be one of the processes
    #[arg(long, hide = true)]
    worker: bool,
}

/// Starts the processes and prints one line of results; with `worker`, is one of them.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.worker {
        return work(context, arguments.count);
    }
    let server = Server::start(context, Mode::Pool(arguments.processes))?;
    let share = arguments.count.div_ceil(arguments.processes.max(1));
    let start = |_| {
        Command::new(env::current_exe()?)
            .args(context.to_options())
            .args(["connrate", "--worker", &format!("--count={share}")])
            .spawn()
            .context("starting a process")
    };

    let started = Instant::now();
    let children: Vec<_> = (0..arguments.processes).map(start).collect::<Result<_>>()?;
    let mut failed = 0;
    for mut child in children {
        failed += u32::from(!child.wait()?.success());
    }
    let seconds = started.elapsed().as_secs_f64();
    ensure!(failed == 0, "{failed} processes failed");

    let at_server = server.as_ref().map_or(0, Server::failures);
    ensure!(
        at_server == 0,
        "{at_server} connections failed at the server"
    );

    let count = share * arguments.processes;
    let rate = f64::from(count) / seconds;
    println!(
        "connrate: {} processes, {count} connections: {rate:.0} a second",
        arguments.processes,
    );
    let least = arguments.least.unwrap_or_default();
    ensure!(rate >= least, "less than {least} a second");
    Ok(())
}

fn work(context: &Context, count: u32) -> Result<()> {
    netns::enter(context.client_netns.as_deref())?;
    for _ in 0..count {
        let socket = context.connect()?;
        Job::One.send(&socket)?;
        let mut stream = &socket;
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}
