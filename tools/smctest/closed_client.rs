// SPDX-License-Identifier: GPL-2.0

//! `smctest closed-client`: clients that close as soon as the server has accepted them, when connect(2) is about to
//! end. As over TCP, the server reads the end of the stream, and no error; or a reset, if the client wants one.

use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;

use crate::context::Context;
use crate::netns;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 1000)]
    connections: usize,

    /// The clients close with SO_LINGER of 0 seconds, and the server reads a reset
    #[arg(long)]
    reset: bool,
}

/// Runs the test, both ends in this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(8)?;
    listener.set_timeout(context.deadline())?;
    let (accepted, is_accepted) = mpsc::channel();
    // With `accepted`: clients do not wait for it any longer once a connection has failed.
    thread::scope(move |scope| {
        let clients = scope.spawn(move || {
            netns::enter(context.client_netns.as_deref())?;
            (0..arguments.connections)
                .try_for_each(|_| connect_and_close(context, arguments.reset, &is_accepted))
        });
        for number in 0..arguments.connections {
            let server = listener.accept(0).context("accept")?;
            context.check_path(&server)?;
            let _ = accepted.send(());
            match server.recv(&mut [0], 0) {
                Err(Errno::ECONNRESET) if arguments.reset => {}
                Ok(0) if !arguments.reset => {
                    let events = poll_fd(&server, libc::POLLERR, Duration::ZERO)?;
                    ensure!(
                        events & libc::POLLERR == 0,
                        "connection {number} ends with {:?}",
                        server.take_error()
                    );
                }
                Ok(len) => bail!("connection {number}: {len} bytes, and none were sent"),
                Err(error) => bail!("connection {number}, closed by its client: {error}"),
            }
        }
        match clients.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread panicked"),
        }
    })
}

/// Begins to connect, and closes when the server has accepted.
fn connect_and_close(context: &Context, resets: bool, is_accepted: &Receiver<()>) -> Result<()> {
    let client = context.begin_connect(context.family)?;
    client.set_linger(resets, 0)?;
    is_accepted.recv().context("the server has given up")
}
