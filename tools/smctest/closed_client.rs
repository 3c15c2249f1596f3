// SPDX-License-Identifier: GPL-2.0

//! `smctest closed-client`: clients that close as soon as the server has accepted them, when connect(2) is about to
//! end. As over TCP, the server reads the end of the stream, and no error.

use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Errno;

use crate::context::Context;
use crate::netns;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 1000)]
    connections: usize,
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
            (0..arguments.connections).try_for_each(|_| connect_and_close(context, &is_accepted))
        });
        for number in 0..arguments.connections {
            let server = listener.accept(0).context("accept")?;
            context.check_path(&server)?;
            let _ = accepted.send(());
            match server.recv(&mut [0], 0) {
                Ok(0) => {}
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
fn connect_and_close(context: &Context, is_accepted: &Receiver<()>) -> Result<()> {
    let client = context.family.open(context.addr)?;
    client.set_nonblocking(true)?;
    match client.connect(context.address()) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error).context("connect"),
    }
    is_accepted.recv().context("the server has given up")
}
