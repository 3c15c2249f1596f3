// SPDX-License-Identifier: GPL-2.0

//! `smctest flood`: total throughput of many connections that send continuously.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

/// Time until the buffers of all connections are full; the measurement begins after it.
const WARM_UP: Duration = Duration::from_millis(500);

/// Bytes of one send.
const CHUNK: usize = 1 << 16;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 16)]
    connections: u32,

    /// How long to measure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// Opens all connections, sends continuously on each, and prints one line of results.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let server = Server::start(context, Mode::Spawn)?;
    let server = server.context("the server counts, so it cannot run elsewhere")?;
    netns::enter(context.client_netns.as_deref())?;
    let sockets: Vec<Socket> = (0..arguments.connections)
        .map(|number| open(context).with_context(|| format!("connection {number}")))
        .collect::<Result<_>>()?;

    let stop = AtomicBool::new(false);
    let (bytes, took, sent) = thread::scope(|scope| {
        let stop = &stop;
        let senders: Vec<_> = sockets
            .iter()
            .map(|socket| scope.spawn(move || send(socket, stop)))
            .collect();
        thread::sleep(WARM_UP);
        // Received bytes count, not sent ones, many of which are still in buffers.
        let (before, start) = (server.received(), Instant::now());
        thread::sleep(Duration::from_secs_f64(arguments.seconds));
        let (bytes, took) = (server.received() - before, start.elapsed());
        // ORDERING: only the flag itself is shared.
        stop.store(true, Ordering::Relaxed);
        let sent = senders.into_iter().try_fold(0, |sum, sender| {
            let sent = sender.join().map_err(|_| anyhow!("a thread panicked"))?;
            anyhow::Ok(sum + sent?)
        });
        anyhow::Ok((bytes, took, sent?))
    })?;
    server.await_bytes(sent)?;
    let failures = server.failures();
    ensure!(failures == 0, "{failures} connections failed at the server");
    ensure!(bytes > 0, "nothing arrived");
    println!(
        "flood: {} connections, {bytes} bytes in {:.2} s: {:.4} Gb/s",
        arguments.connections,
        took.as_secs_f64(),
        bytes as f64 * 8.0 / 1e9 / took.as_secs_f64(),
    );
    Ok(())
}

fn open(context: &Context) -> Result<Socket> {
    let socket = context.connect()?;
    Job::Sink.send(&socket)?;
    Ok(socket)
}

/// Sends until `stop`, then ends the stream; returns the number of bytes sent.
fn send(mut socket: &Socket, stop: &AtomicBool) -> Result<u64> {
    let chunk = vec![0x5a; CHUNK];
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        socket.write_all(&chunk)?;
        sent += CHUNK as u64;
    }
    socket.shutdown(libc::SHUT_WR)?;
    Ok(sent)
}
