// SPDX-License-Identifier: GPL-2.0

//! `smctest left`: data that an application left behind when it closed, and that the peer does not take.

use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;

use crate::charged;
use crate::context::Context;
use crate::netns;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds until they are given up: `net.ipv4.tcp_fin_timeout` of the client
    #[arg(long)]
    seconds: u64,
}

/// The client closes with more than the server has room for, and nobody reads.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(1)?;
    netns::enter(context.client_netns.as_deref())?;
    let client = context.connect()?;
    let server = listener.accept(0).context("accept")?;
    let sent = charged::fill(&client)?;
    let start = Instant::now();
    drop(client);
    let patience = Duration::from_secs(arguments.seconds);
    ensure!(start.elapsed() < patience / 2, "the close waited");
    // No event is asked for: an error and the end of both directions are told all the same.
    let events = poll_fd(&server, 0, patience * 5)?;
    let took = start.elapsed();
    println!("# left: {sent} bytes sent, events {events:#x} after {took:.1?}");
    ensure!(events != 0, "the data are not given up");
    ensure!(took >= patience, "the data are given up too soon");
    let error = server.take_error()?;
    ensure!(error == Some(Errno::ECONNRESET), "the server has {error:?}");
    Ok(())
}
