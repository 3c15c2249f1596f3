// SPDX-License-Identifier: GPL-2.0

//! `smctest many`: many connections at once.

use std::sync::Barrier;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
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

    /// How many may be in the middle of their handshake: a kernel that has to be slow, since it
    /// checks itself, would run into the handshake's 6 s with all of them
    #[arg(long, default_value_t = 25)]
    connecting: u64,

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
    let connecting = Slots::new(arguments.connecting.max(1));
    let one = |number: u64| -> Result<()> {
        netns::enter(context.client_netns.as_deref())?;
        let socket = connecting.hold(|| context.connect());
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
            .map(|number| {
                let one = &one;
                scope.spawn(move || one(number))
            })
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

/// Limits how many threads do something at once.
struct Slots {
    free: Mutex<u64>,
    returned: Condvar,
}

impl Slots {
    fn new(count: u64) -> Self {
        Self {
            free: Mutex::new(count),
            returned: Condvar::new(),
        }
    }

    fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        self.change(|free| free.checked_sub(1));
        let value = work();
        self.change(|free| free.checked_add(1));
        self.returned.notify_one();
        value
    }

    /// Applies `change`, as soon as it is possible.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) {
        // A count stays valid whatever happened to the thread that held the lock.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(changed) = change(*free) {
                *free = changed;
                return;
            }
            free = self
                .returned
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
