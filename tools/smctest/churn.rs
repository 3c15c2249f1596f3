// SPDX-License-Identifier: GPL-2.0

//! `smctest churn`: processes that open connections and close them in every possible way.

use std::env;
use std::io::Read;
use std::io::Write;
use std::process::Command;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::job::Job;
use crate::netns;
use crate::server;
use crate::server::Mode;
use crate::server::Server;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Processes
    #[arg(long, default_value_t = 4)]
    processes: u64,

    /// Connections that each process opens, one after another
    #[arg(long, default_value_t = 100)]
    opens: u64,

    /// The only way in which they are ended, as `leave` numbers them
    #[arg(long, value_parser = clap::value_parser!(u64).range(..WAYS))]
    way: Option<u64>,

    /// Seed; a random one is taken and printed otherwise
    #[arg(long)]
    seed: Option<u64>,

    /// Be one of the processes
    #[arg(long, hide = true)]
    worker: bool,
}

/// Starts the processes; with `worker`, is one of them.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(Random::fresh_seed);
    if arguments.worker {
        return work(context, arguments, seed);
    }
    let server = Server::start(context, Mode::Spawn)?;
    println!("# churn: seed {seed}, {} processes", arguments.processes);

    let start = |number: u64| {
        Command::new(env::current_exe()?)
            .args(context.to_options())
            .args(["churn", "--worker"])
            .arg(format!("--opens={}", arguments.opens))
            .args(arguments.way.map(|way| format!("--way={way}")))
            .arg(format!("--seed={}", seed.wrapping_add(number)))
            .spawn()
            .context("starting a process")
    };
    let children: Vec<_> = (0..arguments.processes).map(start).collect::<Result<_>>()?;

    let mut failed = 0;
    for mut child in children {
        failed += u64::from(!child.wait()?.success());
    }
    ensure!(failed == 0, "{failed} processes failed");
    if let Some(server) = &server {
        let count = |way| {
            let workers = 0..arguments.processes;
            workers.map(move |n| arguments.count_of(way, seed.wrapping_add(n)))
        };
        check_server(server, count(UNSENT).sum(), count(RESET).sum())?;
    }

    // A new connection must still work.
    netns::enter(context.client_netns.as_deref())?;
    ask_one(&context.connect()?).context("a connection after the churn")
}

/// Checks that the server received the data of all `unsent` connections that it only counts. Of the `resets` it may not
/// have learned what the connection was for; none else may have failed.
fn check_server(server: &Server, unsent: u64, resets: u64) -> Result<()> {
    server.await_bytes(unsent * UNSENT_LEN as u64)?;
    let failed = server.failures();
    ensure!(
        failed <= resets,
        "{failed} connections failed at the server, of which {resets} were reset"
    );
    Ok(())
}

impl Arguments {
    /// Returns the ways in which a worker with this seed ends its connections.
    fn ways(&self, seed: u64) -> impl Iterator<Item = u64> {
        let (mut random, only) = (Random::new(seed), self.way);
        (0..self.opens).map(move |_| only.unwrap_or_else(|| random.next() % WAYS))
    }

    /// Returns how many connections a worker with this seed ends in this way.
    fn count_of(&self, way: u64, seed: u64) -> u64 {
        self.ways(seed).filter(|other| *other == way).count() as u64
    }
}

fn work(context: &Context, arguments: &Arguments, seed: u64) -> Result<()> {
    netns::enter(context.client_netns.as_deref())?;
    for (number, way) in arguments.ways(seed).enumerate() {
        let socket = context.connect()?;
        leave(&socket, way).with_context(|| format!("open {number}, way {way}, seed {seed}"))?;
    }
    Ok(())
}

/// Number of ways in which [`leave`] ends a connection.
const WAYS: u64 = 6;

/// The way with a reset.
const RESET: u64 = 2;

/// The way with data that may not be sent yet, and their size in bytes.
const UNSENT: u64 = 4;
const UNSENT_LEN: usize = 10_000;

/// Ends a connection in the way numbered `way`.
fn leave(mut socket: &Socket, way: u64) -> Result<()> {
    match way {
        // Without any data.
        0 => Ok(()),
        // Orderly, after one byte.
        1 => ask_one(socket),
        // With a reset.
        RESET => {
            Job::Hold.send(socket)?;
            Ok(socket.set_linger(true, 0)?)
        }
        // With unread data from the server.
        3 => {
            Job::Source.send(socket)?;
            let mut first = [0; 100];
            socket.read_exact(&mut first)?;
            server::check_source(&first)
        }
        // With unsent data to the server.
        UNSENT => {
            Job::Sink.send(socket)?;
            Ok(socket.write_all(&[0; UNSENT_LEN])?)
        }
        // With a half-close first.
        _ => {
            Job::One.send(socket)?;
            socket.shutdown(libc::SHUT_WR).context("shutdown")?;
            socket.read_exact(&mut [0]).context("read")?;
            let error = socket.option_int(libc::SOL_SOCKET, libc::SO_ERROR)?;
            ensure!(error == 0, "SO_ERROR is {error}");
            Ok(())
        }
    }
}

fn ask_one(mut socket: &Socket) -> Result<()> {
    Job::One.send(socket)?;
    socket.read_exact(&mut [0])?;
    ensure!(socket.read(&mut [0])? == 0, "data after the end");
    Ok(())
}
