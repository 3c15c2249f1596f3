// SPDX-License-Identifier: GPL-2.0

//! `smctest stuck`: a reader and a writer wait for a page of theirs that nobody serves, and what their
//! connections use is taken away meanwhile.
//!
//! Whoever takes it away does not wait for them: an application can wait for such a page for ever.

use std::process::Child;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;
use smc_user::Unserved;

use crate::context::Context;
use crate::netns;

/// Time for calls to get to the page, for commands to end, and for calls to end once the page is served.
const SOON: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A bash command that takes something away
    #[arg(long, value_name = "COMMAND", required = true)]
    lose: String,
}

/// Runs the command while the calls wait.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(8)?;
    listener.set_timeout(SOON)?;
    let clients = netns::inside(context.client_netns.as_deref(), || {
        Ok([context.connect()?, context.connect()?])
    })?;
    let servers = [listener.accept(0)?, listener.accept(0)?];
    // Handshakes end in any order, and so the connections come to accept(2).
    for server in &servers {
        server.send(b"to be read", 0)?;
    }

    let (into, from) = (Unserved::new()?, Unserved::new()?);
    thread::scope(|scope| {
        let reader = scope.spawn(|| into.recv(&clients[0]));
        let writer = scope.spawn(|| from.send(&clients[1]));
        let result = lose(&[&into, &from], &arguments.lose);
        // Whatever happened, they are to come back.
        into.serve()?;
        from.serve()?;
        for (name, thread) in [("read", reader), ("write", writer)] {
            match thread.join() {
                Ok(answer) => println!("# the {name} ended with {answer:?}"),
                Err(_) => bail!("a thread panicked"),
            }
        }
        result
    })?;
    are_over(&clients)
}

/// Runs the command once all pages are waited for.
fn lose(pages: &[&Unserved], command: &str) -> Result<()> {
    for page in pages {
        ensure!(page.is_wanted(SOON)?, "nobody waits for the page");
    }
    let mut child = Command::new("bash").args(["-c", command]).spawn()?;
    let start = Instant::now();
    let is_done = await_end(&mut child)?;
    println!("# `{command}`: {} ms", start.elapsed().as_millis());
    ensure!(is_done, "`{command}` waits for the page");
    Ok(())
}

fn await_end(child: &mut Child) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < SOON {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "the command failed");
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}

/// Nothing can be sent on the connections any more.
fn are_over(sockets: &[Socket]) -> Result<()> {
    for socket in sockets {
        let error = socket.send(b"x", 0).err();
        error.context("a connection goes on without a device")?;
    }
    Ok(())
}
