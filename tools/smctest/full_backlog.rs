// SPDX-License-Identifier: GPL-2.0

//! `smctest full-backlog`: a client connects to a listener whose queue is full, so that nobody answers its handshake.
//! As over TCP it waits until the server's application accepts others, and is served.

use std::io::Read;
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;

/// Of listen(2), which lets one connection more into the queue.
const BACKLOG: u8 = 1;

/// Connections until the queue is full, at most: handshakes whose end the server has not seen do not count.
const MOST: usize = 16;

/// Time for a connection that there is room for.
const SOON: Duration = Duration::from_secs(3);

/// Longer than a client waits for an answer to its handshake.
const LONG: Duration = Duration::from_secs(8);

/// Longer than TCP waits to retransmit a SYN that it has retransmitted for [`LONG`].
const RETRANSMITTED: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A shell command to run once the client has its connection
    #[arg(long, value_name = "COMMAND")]
    then: Option<String>,
}

/// Runs the test, both ends in this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(BACKLOG.into())?;
    listener.set_timeout(context.deadline())?;
    netns::enter(context.client_netns.as_deref())?;
    let mut clients = Vec::new();
    let (late, start) = loop {
        let start = Instant::now();
        let client = context.begin_connect(context.family)?;
        if poll_fd(&client, libc::POLLOUT, SOON)? == 0 {
            break (client, start);
        }
        context.check_path(&client)?;
        client.set_nonblocking(false)?;
        clients.push(client);
        ensure!(clients.len() < MOST, "the queue takes {MOST} connections");
    };
    let events = poll_fd(&late, libc::POLLOUT, LONG.saturating_sub(start.elapsed()))?;
    ensure!(events == 0, "{events:#x} came while the queue was full");
    clients
        .iter()
        .try_for_each(|client| serve(&listener, client))?;
    let events = poll_fd(&late, libc::POLLOUT, RETRANSMITTED)?;
    ensure!(events == libc::POLLOUT, "{events:#x} came after all");
    let path = Path::of(&late)?;
    ensure!(!path.is_smc(), "the path is {path}");
    if let Some(command) = &arguments.then {
        let status = Command::new("sh").args(["-c", command]).status()?;
        ensure!(status.success(), "{command}: {status}");
    }
    late.set_nonblocking(false)?;
    serve(&listener, &late)
}

/// Accepts the connection, and exchanges a byte.
fn serve(listener: &Socket, client: &Socket) -> Result<()> {
    send(client, b'q').context("client")?;
    let server = listener.accept(0).context("accept")?;
    receive(&server, b'q').context("server")?;
    send(&server, b'a').context("server")?;
    receive(client, b'a').context("client")
}

fn send(mut socket: &Socket, byte: u8) -> Result<()> {
    Ok(socket.write_all(&[byte])?)
}

fn receive(mut socket: &Socket, due: u8) -> Result<()> {
    let mut byte = [0];
    socket.read_exact(&mut byte)?;
    ensure!(byte == [due], "{byte:?} came where {due} is due");
    Ok(())
}
