// SPDX-License-Identifier: GPL-2.0

//! `smctest stuck`: read(2), write(2) and getsockopt(2) block on a page fault that userfaultfd does not serve,
//! while the resources of their connections are removed.
//!
//! The removal must not wait for these calls: such a page fault can block forever. Nor must the worker that resets TCP,
//! which getsockopt(2) has locked.

use std::process::Child;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Socket;
use smc_user::Unserved;

use crate::context::Context;
use crate::netns;
use crate::stuck_senders::waiting_workers;

/// Time for calls to reach the page fault, for commands to finish, and for calls to return once the
/// page is served.
const SOON: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A bash command that takes something away
    #[arg(long, value_name = "COMMAND", required = true)]
    lose: String,
    /// It is the server's, of which the client hears a little later
    #[arg(long)]
    at_server: bool,
}

/// Runs the command while the calls are blocked.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(8)?;
    listener.set_timeout(SOON)?;
    listener.set_option_int(libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1)?;
    let clients = netns::inside(context.client_netns.as_deref(), || {
        Ok([context.connect()?, context.connect()?])
    })?;
    let servers = [listener.accept(0)?, listener.accept(0)?];
    // Handshakes finish in any order, and so do connections become ready for accept(2).
    for server in &servers {
        server.send(b"to be read", 0)?;
    }

    let (into, from, syn) = (Unserved::new()?, Unserved::new()?, Unserved::new()?);
    thread::scope(|scope| {
        let reader = scope.spawn(|| into.recv(&clients[0], 0));
        let writer = scope.spawn(|| from.send(&clients[1], 0));
        let getter = scope.spawn(|| {
            let len = syn.get_option(&servers[0], libc::IPPROTO_TCP, libc::TCP_SAVED_SYN)?;
            Ok(len as usize)
        });
        let result = lose(&[&into, &from, &syn], &arguments.lose);
        let waiting = waiting_workers();
        // In any case, let the calls return.
        for page in [&into, &from, &syn] {
            page.serve()?;
        }
        for (name, thread) in [("read", reader), ("write", writer), ("getsockopt", getter)] {
            match thread.join() {
                Ok(answer) => println!("# the {name} ended with {answer:?}"),
                Err(_) => bail!("a thread panicked"),
            }
        }
        let waiting = waiting?;
        ensure!(waiting.is_empty(), "workers wait for a call: {waiting:?}");
        result
    })?;
    // The first send is what the client notices it by. POLLERR and POLLHUP are reported without being requested.
    if arguments.at_server {
        for client in &clients {
            let _ = client.send(b"x", 0);
            let ended = poll_fd(client, 0, SOON)?;
            ensure!(ended != 0, "the client never notices");
        }
    }
    are_over(&clients)
}

/// Runs the command once calls wait for all pages.
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

/// Checks that sends on the connections fail.
fn are_over(sockets: &[Socket]) -> Result<()> {
    for socket in sockets {
        let error = socket.send(b"x", 0).err();
        error.context("a connection goes on without a device")?;
    }
    Ok(())
}
