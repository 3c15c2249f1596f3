// SPDX-License-Identifier: GPL-2.0

//! `smctest left`: unsent data of a closed socket (an orphan) that the peer does not read, or reads slowly.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::charged;
use crate::context::Context;
use crate::netns;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `net.ipv4.tcp_fin_timeout` of the client; they are discarded after four times that
    #[arg(long)]
    seconds: u64,

    /// The server reads, with pauses of twice that time
    #[arg(long)]
    slow: bool,
}

/// Data are kept for so many times `tcp_fin_timeout` if the peer takes none.
const DATA_WAIT: u32 = 4;

/// The client closes with more data than the server has buffer space for, and the server does not
/// read, or reads a part at a time.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(1)?;
    netns::enter(context.client_netns.as_deref())?;
    let client = context.connect()?;
    let server = listener.accept(0).context("accept")?;
    let sent = charged::fill(&client)?;
    let start = Instant::now();
    drop(client);
    let fin_timeout = Duration::from_secs(arguments.seconds);
    ensure!(start.elapsed() < fin_timeout / 2, "the close waited");
    if arguments.slow {
        return read_slowly(&server, sent, fin_timeout * 2);
    }
    let patience = fin_timeout * DATA_WAIT;
    // POLLERR and POLLHUP are reported without being requested.
    let events = poll_fd(&server, 0, patience * 2)?;
    let took = start.elapsed();
    println!("# left: {sent} bytes sent, events {events:#x} after {took:.1?}");
    ensure!(events != 0, "the data are not given up");
    ensure!(took >= patience, "the data are given up too soon");
    let error = server.take_error()?;
    ensure!(error == Some(Errno::ECONNRESET), "the server has {error:?}");
    Ok(())
}

/// Reads `sent` bytes in three parts, with a pause before each, and the end.
fn read_slowly(server: &Socket, sent: usize, pause: Duration) -> Result<()> {
    let part = sent / 3;
    for part in [part, part, sent - 2 * part] {
        thread::sleep(pause);
        charged::drain(server, part).with_context(|| format!("{part} bytes of {sent}"))?;
    }
    let more = server.read(&mut [0]).context("end")?;
    ensure!(more == 0, "more than was sent");
    println!("# left: {sent} bytes read");
    Ok(())
}
