// SPDX-License-Identifier: GPL-2.0

//! `smctest destroyed`: an administrator destroys one end of many connections at once (`SOCK_DESTROY`). As over TCP,
//! that end says ECONNABORTED and the other one ECONNRESET, whichever of them hears of it first, and no reader takes it
//! for the end of the stream.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;
use crate::semantics::await_true;
use crate::semantics::events;

/// Longest time until both ends must detect it.
const NOTICE: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections that are destroyed at once
    #[arg(long, default_value_t = 32)]
    connections: usize,

    /// How often
    #[arg(long, default_value_t = 8)]
    rounds: usize,
}

/// Runs the test, both ends in this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(8)?;
    listener.set_timeout(NOTICE)?;
    for round in 0..arguments.rounds {
        let pairs = netns::inside(context.client_netns.as_deref(), || {
            let pair = |_| {
                let client = context.connect()?;
                let server = listener.accept(0).context("accept")?;
                server.set_timeout(NOTICE)?;
                Ok((client, server))
            };
            (0..arguments.connections)
                .map(pair)
                .collect::<Result<Vec<_>>>()
        })?;
        let (is_client, has_peer_finished) = (round % 2 == 0, round % 4 < 2);
        let ends: Vec<_> = pairs
            .iter()
            .map(|(client, server)| match is_client {
                true => (client, server),
                false => (server, client),
            })
            .collect();
        let end = if is_client { "client" } else { "server" };
        end_all(context, &ends, is_client, has_peer_finished)
            .with_context(|| format!("round {round}, the {end} is destroyed"))?;
    }
    Ok(())
}

/// Destroys the first of each of these ends of connections, while both ends wait.
fn end_all(
    context: &Context,
    ends: &[(&Socket, &Socket)],
    is_client: bool,
    has_peer_finished: bool,
) -> Result<()> {
    if has_peer_finished {
        for (subject, peer) in ends {
            peer.shutdown(libc::SHUT_WR)?;
            ensure!(subject.recv(&mut [0], 0) == Ok(0), "no end of the stream");
        }
    }
    let said = thread::scope(|scope| {
        let waiters: Vec<_> = ends
            .iter()
            .map(|(subject, peer)| {
                let own = scope.spawn(move || match has_peer_finished {
                    true => await_error(subject),
                    false => read(subject),
                });
                (own, scope.spawn(move || read(peer)))
            })
            .collect();
        let result = destroy(context, is_client);
        let said: Vec<_> = waiters
            .into_iter()
            .map(|(own, peer)| (own.join().ok(), peer.join().ok()))
            .collect();
        result.map(|()| said)
    })?;
    for (number, said) in said.into_iter().enumerate() {
        let (Some(own), Some(peer)) = said else {
            bail!("a thread panicked");
        };
        let (own, peer) = (own?, peer?);
        ensure!(
            own == Err(Errno::ECONNABORTED) && peer == Err(Errno::ECONNRESET),
            "connection {number}: {own:?} at the end that is destroyed, {peer:?} at its peer"
        );
    }
    Ok(())
}

fn read(socket: &Socket) -> Result<Result<usize, Errno>> {
    Ok(socket.recv(&mut [0], 0))
}

/// Waits for the error of a socket that has read the end of the stream.
fn await_error(socket: &Socket) -> Result<Result<usize, Errno>> {
    await_true("an error", || events(socket) & libc::POLLERR != 0)?;
    Ok(socket.take_error()?.map_or(Ok(0), Err))
}

/// Destroys all connections of the client's end, or the server's.
fn destroy(context: &Context, is_client: bool) -> Result<()> {
    let (netns, which) = match is_client {
        true => (&context.client_netns, "dport"),
        false => (&context.server_netns, "sport"),
    };
    let port = format!(":{}", context.port);
    let args = ["-K", "-tnH", "state", "connected", which, &port];
    netns::inside(netns.as_deref(), || {
        let output = Command::new("ss").args(args).output().context("ss")?;
        ensure!(output.status.success(), "ss -K: {output:?}");
        Ok(())
    })
}
