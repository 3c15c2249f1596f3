// SPDX-License-Identifier: GPL-2.0

//! `smctest unread`: data that has arrived can be read after the connection has failed, before its
//! error.

use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Stream;
use crate::netns;

/// Bytes in the receive queue.
const WAITING: usize = 60_000;

/// Time for data to arrive, and for the end of the connection to be detected.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A shell command that takes the connection away
    #[arg(long, value_name = "COMMAND")]
    then: String,
}

/// The server sends, the connection fails, then the client reads.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(1)?;
    netns::enter(context.client_netns.as_deref())?;
    let client = context.connect()?;
    let server = listener.accept(0).context("accept")?;
    context.check_path(&client)?;
    let mut data = vec![0; WAITING];
    Stream::new(1).fill(&mut data);
    ensure!(server.send(&data, 0)? == WAITING, "a short send");
    let start = Instant::now();
    while queued(&client)? < WAITING {
        ensure!(start.elapsed() < PATIENCE, "the data do not arrive");
        thread::sleep(Duration::from_millis(10));
    }
    let status = Command::new("sh").args(["-c", &arguments.then]).status()?;
    ensure!(status.success(), "{}: {status}", arguments.then);
    let events = poll_fd(&client, 0, PATIENCE)?;
    ensure!(events != 0, "nothing is told of the end");
    ensure!(queued(&client)? == WAITING, "SIOCINQ has forgotten them");
    let error = read_all(&client, &data)?;
    println!("# unread: events {events:#x}, {WAITING} bytes read, then {error:?}");
    let again = client.read(&mut [0]);
    ensure!(again == Ok(0), "then {again:?}");
    Ok(())
}

fn queued(socket: &Socket) -> Result<usize> {
    Ok(usize::try_from(socket.ioctl_int(libc::FIONREAD)?)?)
}

/// Reads the queued data in several calls; returns the error that follows.
fn read_all(socket: &Socket, data: &[u8]) -> Result<Errno> {
    let mut buffer = vec![0; 7_000];
    let mut read = 0;
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => bail!("a clean end after {read} bytes"),
            Ok(len) => {
                let expected = data.get(read..read + len).context("more than was sent")?;
                ensure!(buffer[..len] == *expected, "other bytes behind {read}");
                read += len;
            }
            Err(error) => {
                ensure!(read == data.len(), "{error} after {read} bytes");
                return Ok(error);
            }
        }
    }
}
