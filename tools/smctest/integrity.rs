// SPDX-License-Identifier: GPL-2.0

//! `smctest integrity`: random data in both directions at once.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::context::Context;
use crate::data::Random;
use crate::job::Bulk;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// MiB to send in each direction
    #[arg(long, default_value_t = 8)]
    mib: u64,

    /// Largest chunk of one send or receive, in bytes
    #[arg(long, default_value_t = 100_000)]
    chunk: u64,

    /// Rounds, each with a new connection and seed
    #[arg(long, default_value_t = 1)]
    rounds: u64,

    /// Seed of the first round; a random one is taken and printed otherwise
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the rounds; fails at the first wrong byte.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;

    for round in 0..arguments.rounds {
        let seed = arguments
            .seed
            .map_or_else(Random::fresh_seed, |seed| seed.wrapping_add(round));
        let len = arguments.mib << 20;
        let bulk = Bulk {
            seed,
            up: len,
            down: len,
            chunk: arguments.chunk,
        };
        println!("# integrity: seed {seed}, {} MiB each way", arguments.mib);

        let socket = context.connect()?;
        let result = Job::Bulk(bulk)
            .send(&socket)
            .map_err(anyhow::Error::from)
            .and_then(|()| bulk.run_client(&socket));
        result.with_context(|| format!("seed {seed}"))?;
    }
    let failures = server.map_or(0, |server| server.failures());
    ensure!(
        failures == 0,
        "{failures} conversations failed at the server"
    );
    Ok(())
}
