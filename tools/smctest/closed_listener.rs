// SPDX-License-Identifier: GPL-2.0

//! `smctest closed-listener`: listeners that are closed about when the handshake of a connection is over. The
//! connection must end whichever comes first.

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::netns;

/// Longest wait for the end of a connection.
const SOON: Duration = Duration::from_secs(10);

/// Connections that are timed first.
const TIMED: usize = 100;

/// Connections whose ends are awaited at once.
const BATCH: usize = 250;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 3000)]
    connections: usize,
}

/// Runs the test, both ends in this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    // A connection that stays keeps the link group.
    let listener = context.listen(1)?;
    let kept = netns::inside(context.client_netns.as_deref(), || context.connect())?;
    let _kept = (kept, listener.accept(0)?);
    let mut times = (0..TIMED)
        .map(|_| {
            let (client, start) = connect(context)?;
            let events = poll_fd(&listener, libc::POLLIN, SOON)?;
            ensure!(events != 0, "nothing to accept");
            let time = start.elapsed();
            let _both = (client, listener.accept(0)?);
            Ok(time)
        })
        .collect::<Result<Vec<_>>>()?;
    drop(listener);
    times.sort();
    let (least, most) = (times[TIMED / 50], times[TIMED * 9 / 10]);
    println!("# handshakes took {least:.1?} to {most:.1?}");

    let mut random = Random::new(Random::fresh_seed());
    let (mut reset, mut left) = (0, arguments.connections);
    while left > 0 {
        let count = left.min(BATCH);
        let clients = (0..count)
            .map(|_| {
                // CAST: some milliseconds.
                let spread = (most - least).as_nanos() as u64 + 1;
                let wait = least + Duration::from_nanos(random.below(spread));
                let listener = context.listen(1)?;
                let (client, start) = connect(context)?;
                while start.elapsed() < wait {
                    std::hint::spin_loop();
                }
                drop(listener);
                Ok(client)
            })
            .collect::<Result<Vec<_>>>()?;
        for client in &clients {
            reset += usize::from(has_ended(client)?);
        }
        left -= count;
    }
    println!(
        "# {reset} of {} connections were reset, the others refused",
        arguments.connections
    );
    Ok(())
}

/// Begins to connect.
fn connect(context: &Context) -> Result<(Socket, Instant)> {
    netns::inside(context.client_netns.as_deref(), || {
        let start = Instant::now();
        Ok((context.begin_connect(context.family)?, start))
    })
}

/// Waits for the end of a connection; returns whether it was there before.
fn has_ended(client: &Socket) -> Result<bool> {
    let events = poll_fd(client, libc::POLLIN, SOON)?;
    ensure!(
        events != 0,
        "a connection goes on whose listener was closed"
    );
    match client.recv(&mut [0], 0) {
        Ok(0) | Err(Errno::ECONNRESET | Errno::ECONNABORTED | Errno::EPIPE) => Ok(true),
        Err(Errno::ECONNREFUSED) => Ok(false),
        result => bail!("a connection whose listener was closed has {result:?}"),
    }
}
