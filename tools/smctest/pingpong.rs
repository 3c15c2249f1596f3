// SPDX-License-Identifier: GPL-2.0

//! `smctest pingpong`: round-trip time.

use std::io::Read;
use std::io::Write;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Result;

use crate::context::Context;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Bytes of a message
    #[arg(long, default_value_t = 64)]
    size: usize,

    /// Round trips
    #[arg(long, default_value_t = 1000)]
    count: usize,
}

/// Measures, and prints one line of results.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.count > 0 && arguments.size > 0, "nothing to do");
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;

    let socket = context.connect()?;
    socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    Job::Echo(arguments.size as u64).send(&socket)?;

    let message = vec![0x33; arguments.size];
    let mut answer = vec![0; arguments.size];
    let mut times = Vec::with_capacity(arguments.count);
    let mut stream = &socket;
    for _ in 0..arguments.count {
        let start = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        times.push(start.elapsed());
    }
    ensure!(answer == message, "the answer is not the message");
    report(arguments.size, times);
    Ok(())
}

fn report(size: usize, mut times: Vec<Duration>) {
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |percent: usize| us(times[(times.len() - 1) * percent / 100]);

    println!(
        "pingpong: {size} B, {} round trips: mean {:.1} us, median {:.1} us, 99 % {:.1} us",
        times.len(),
        us(total) / times.len() as f64,
        at(50),
        at(99),
    );
}
