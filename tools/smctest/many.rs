// SPDX-License-Identifier: GPL-2.0

//! `smctest many`: many connections at once.

use std::sync::Barrier;
use std::thread;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::job::Bulk;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 100)]
    connections: u64,

    /// KiB that each sends in each direction
    #[arg(long, default_value_t = 64)]
    kib: u64,

    /// Seed; a random one is taken and printed otherwise
    #[arg(long)]
    seed: Option<u64>,
}

/// Opens all connections at once, then uses all at once.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let server = Server::start(context, Mode::Spawn)?;
    let seed = arguments.seed.unwrap_or_else(Random::fresh_seed);
    println!("# many: seed {seed}, {} connections", arguments.connections);

    let all_open = Barrier::new(usize::try_from(arguments.connections)?);
    let one = |number: u64| -> Result<()> {
        netns::enter(context.client_netns.as_deref())?;
        let socket = context.connect();
        all_open.wait();
        let len = arguments.kib << 10;
        let bulk = Bulk {
            seed: seed.wrapping_add(number),
            up: len,
            down: len,
            chunk: 20_000,
        };
        transfer(&socket?, bulk).with_context(|| format!("connection {number}, {bulk:?}"))
    };

    let failures = thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.connections)
            .map(|number| scope.spawn(move || one(number)))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| match thread.join() {
                Ok(result) => result.err().map(|error| format!("{error:#}")),
                Err(_) => Some("a thread panicked".to_string()),
            })
            .inspect(|failure| println!("# {failure}"))
            .count()
    });
    ensure!(failures == 0, "{failures} connections failed");

    let failures = server.map_or(0, |server| server.failures());
    ensure!(
        failures == 0,
        "{failures} conversations failed at the server"
    );
    Ok(())
}

fn transfer(socket: &Socket, bulk: Bulk) -> Result<()> {
    Job::Bulk(bulk).send(socket)?;
    bulk.run_client(socket)
}
