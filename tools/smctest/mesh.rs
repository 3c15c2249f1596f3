// SPDX-License-Identifier: GPL-2.0

//! `smctest mesh`: connections between many network namespaces of one machine, all at once.
//!
//! Namespace number `i` is named by a prefix and `i`, and has the address that follows the one of number `i - 1`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::context::Context;
use crate::context::CALL_TIMEOUT;
use crate::data::Stream;
use crate::netns;

/// Pending connections of each listener.
const BACKLOG: i32 = 1024;

/// How long a thread that accepts waits before it looks whether all is done.
const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of a namespace, before its number
    #[arg(long, default_value = "n")]
    prefix: String,

    /// Namespaces
    #[arg(long, default_value_t = 50)]
    namespaces: u16,

    /// Connections
    #[arg(long, default_value_t = 10_000)]
    connections: usize,

    /// Threads that connect
    #[arg(long, default_value_t = 8)]
    connecting: usize,
}

impl Arguments {
    fn name(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }

    /// The ends of a connection: a client in each namespace, to a server in each other one.
    fn ends(&self, connection: usize) -> (usize, usize) {
        let all = usize::from(self.namespaces);
        let from = connection % all;
        let step = 1 + connection / all % (all - 1).max(1);
        (from, (from + step) % all)
    }
}

/// Opens all, sends data on all in both directions, twice, and closes all.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.namespaces > 1, "at least two namespaces");
    let listeners = (0..usize::from(arguments.namespaces))
        .map(|number| listen(context, arguments, number))
        .collect::<Result<Vec<_>>>()?;
    let is_over = AtomicBool::new(false);
    let (clients, servers) = thread::scope(|scope| {
        let accepting: Vec<_> = listeners
            .iter()
            .map(|listener| scope.spawn(|| accept_all(listener, &is_over)))
            .collect();
        let clients = connect_all(context, arguments);
        // ORDERING: only the flag itself is shared.
        is_over.store(true, Ordering::Relaxed);
        let mut servers = Vec::new();
        for accepting in accepting {
            match accepting.join() {
                Ok(accepted) => servers.extend(accepted?),
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok((clients?, servers))
    })?;
    println!("# {} clients, {} servers", clients.len(), servers.len());
    let mut servers: HashMap<String, Socket> = servers.into_iter().collect();
    let pairs = clients
        .into_iter()
        .map(|client| {
            let name = format!("{:?}", (client.local_address()?, client.peer_address()?));
            let server = servers.remove(&name);
            Ok((
                client,
                server.with_context(|| format!("nobody accepted {name}"))?,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    ensure!(servers.is_empty(), "{} of no client", servers.len());
    for round in 0..2 {
        for (number, (client, server)) in (0..).zip(&pairs) {
            let exchange = || {
                transfer(client, server, number)?;
                transfer(server, client, number + 1)
            };
            exchange().with_context(|| format!("round {round}, connection {number}"))?;
        }
    }
    Ok(())
}

fn listen(context: &Context, arguments: &Arguments, number: usize) -> Result<Socket> {
    netns::inside(Some(&arguments.name(number)), || {
        let listener = context.server_family().open(context.addr)?;
        listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        listener.bind(address(context, number)?)?;
        listener.listen(BACKLOG)?;
        Ok(listener)
    })
}

/// The address of namespace number `number`: the first has the server's.
fn address(context: &Context, number: usize) -> Result<SocketAddr> {
    let IpAddr::V4(first) = context.addr else {
        bail!("an IPv4 address");
    };
    let ip = u32::from(first) + u32::try_from(number)?;
    Ok(SocketAddr::new(IpAddr::V4(ip.into()), context.port))
}

/// Accepts until all is over; returns the connections by the addresses of the client and the server.
fn accept_all(listener: &Socket, is_over: &AtomicBool) -> Result<Vec<(String, Socket)>> {
    let mut accepted = Vec::new();
    loop {
        // ORDERING: only the flag itself is shared. Whatever has connected before it was set is found after.
        let is_last = is_over.load(Ordering::Relaxed);
        while poll_fd(listener, libc::POLLIN, Duration::ZERO)? != 0 {
            let server = listener.accept(0).context("accept")?;
            server.set_timeout(CALL_TIMEOUT)?;
            let name = format!("{:?}", (server.peer_address()?, server.local_address()?));
            accepted.push((name, server));
        }
        if is_last {
            return Ok(accepted);
        }
        poll_fd(listener, libc::POLLIN, LOOK)?;
    }
}

fn connect_all(context: &Context, arguments: &Arguments) -> Result<Vec<Socket>> {
    let threads = arguments.connecting.max(1);
    let connect = |thread: usize| -> Result<Vec<Socket>> {
        (thread..arguments.connections)
            .step_by(threads)
            .map(|number| {
                let (from, to) = arguments.ends(number);
                netns::enter(Some(&arguments.name(from)))?;
                let client = context.family.open(context.addr)?;
                client.set_timeout(CALL_TIMEOUT)?;
                client
                    .connect(address(context, to)?)
                    .with_context(|| format!("connection {number}, from {from} to {to}"))?;
                context.check_path(&client)?;
                Ok(client)
            })
            .collect()
    };
    thread::scope(|scope| {
        let connect = &connect;
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || connect(thread)))
            .collect();
        let mut clients = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(connected) => clients.extend(connected?),
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(clients)
    })
}

/// Sends what no other connection sends, and reads it at the other end.
fn transfer(from: &Socket, to: &Socket, seed: u64) -> Result<()> {
    let mut sent = vec![0; 100 + usize::try_from(seed % 4_000)?];
    Stream::new(seed).fill(&mut sent);
    ensure!(from.send(&sent, 0)? == sent.len(), "a short send");
    let mut got = vec![0; sent.len()];
    let mut read = 0;
    while read < got.len() {
        match to.recv(&mut got[read..], 0)? {
            0 => bail!("the end after {read} bytes"),
            len => read += len,
        }
    }
    ensure!(got == sent, "other data");
    Ok(())
}
