// SPDX-License-Identifier: GPL-2.0

//! `smctest left`: unsent data of a closed socket that the peer does not read (an orphan).

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
    /// Seconds until they are discarded: `net.ipv4.tcp_fin_timeout` of the client
    #[arg(long)]
    seconds: u64,
}

/// The client closes with more data than the server has buffer space for, and the server does not
/// read.
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
    // POLLERR and POLLHUP are reported without being requested.
    let events = poll_fd(&server, 0, patience * 5)?;
    let took = start.elapsed();
    println!("# left: {sent} bytes sent, events {events:#x} after {took:.1?}");
    ensure!(events != 0, "the data are not given up");
    ensure!(took >= patience, "the data are given up too soon");
    let error = server.take_error()?;
    ensure!(error == Some(Errno::ECONNRESET), "the server has {error:?}");
    Ok(())
}
