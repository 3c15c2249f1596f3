// SPDX-License-Identifier: GPL-2.0

//! `smctest many`: many connections at once.
//!
//! All are opened before the first is used, and then all transfer at the same time. Each side is
//! one event loop: a thousand threads would need more resources than the connections under test.

use std::thread;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::epoll::EpollFlags;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::context::CALL_TIMEOUT;
use crate::data::Random;
use crate::data::Stream;
use crate::event_loop::Loop;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

/// Bytes per echo of the server.
const PIECE: u64 = 1024;

/// Bytes of one send or receive.
const CHUNK: usize = 8192;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 100)]
    connections: u64,

    /// KiB that each sends in each direction
    #[arg(long, default_value_t = 64)]
    kib: u64,

    /// Threads that connect: so many handshakes run at once
    #[arg(long, default_value_t = 8)]
    connecting: u64,

    /// Seed; a random one is taken and printed otherwise
    #[arg(long)]
    seed: Option<u64>,
}

/// Opens all connections, then transfers on all at once.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let server = Server::start(context, Mode::Loop)?;
    let seed = arguments.seed.unwrap_or_else(Random::fresh_seed);
    println!("# many: seed {seed}, {} connections", arguments.connections);

    let sockets = open_all(context, arguments)?;
    let transfers = sockets
        .into_iter()
        .zip(seed..)
        .map(|(socket, seed)| Transfer::begin(socket, seed, arguments.kib << 10))
        .collect::<Result<Vec<_>>>()?;
    let failures = transfer_all(transfers)?;
    ensure!(failures == 0, "{failures} connections failed");

    let failures = server.map_or(0, |server| server.failures());
    ensure!(
        failures == 0,
        "{failures} conversations failed at the server"
    );
    Ok(())
}

fn open_all(context: &Context, arguments: &Arguments) -> Result<Vec<Socket>> {
    let threads = arguments.connecting.max(1);
    let open = |thread: u64| -> Result<Vec<Socket>> {
        netns::enter(context.client_netns.as_deref())?;
        (0..arguments.connections)
            .filter(|number| number % threads == thread)
            .map(|number| {
                context
                    .connect()
                    .with_context(|| format!("number {number}"))
            })
            .collect()
    };
    thread::scope(|scope| {
        let open = &open;
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || open(thread)))
            .collect();
        let mut sockets = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(opened) => sockets.extend(opened?),
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(sockets)
    })
}

/// Runs all connections to their ends; returns how many failed.
fn transfer_all(transfers: Vec<Transfer>) -> Result<u64> {
    let mut ready = Loop::new(|transfer: &Transfer| &transfer.socket)?;
    let mut failures = 0;
    for transfer in transfers {
        let wanted = transfer.wants();
        ready.add(transfer, wanted)?;
    }
    while ready.len() > 0 {
        let has_any = ready.turn(CALL_TIMEOUT, |transfer| match transfer.go_on() {
            Ok(is_done) => (!is_done).then(|| transfer.wants()),
            Err(error) => {
                println!("# connection of seed {}: {error:#}", transfer.seed);
                failures += 1;
                None
            }
        })?;
        ensure!(has_any, "nothing happens on {} connections", ready.len());
    }
    Ok(failures)
}

/// A connection that sends a stream, which the server echoes.
struct Transfer {
    socket: Socket,
    seed: u64,
    up: Stream,
    down: Stream,
    /// Bytes yet to be sent and received.
    unsent: u64,
    missing: u64,
    /// Generated from `up` and not sent yet.
    chunk: Vec<u8>,
}

impl Transfer {
    fn begin(socket: Socket, seed: u64, len: u64) -> Result<Self> {
        Job::Echo(PIECE).send(&socket)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            seed,
            up: Stream::new(seed),
            down: Stream::new(seed),
            unsent: len,
            missing: len,
            chunk: Vec::new(),
        })
    }

    fn wants(&self) -> EpollFlags {
        match self.unsent {
            0 if self.chunk.is_empty() => EpollFlags::EPOLLIN,
            _ => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        }
    }

    /// Sends and receives once, as far as possible without blocking; returns whether the transfer
    /// is complete.
    fn go_on(&mut self) -> Result<bool> {
        self.send().context("send")?;
        self.receive().context("receive")
    }

    fn send(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            let len = usize::try_from(self.unsent)?.min(CHUNK);
            self.chunk.resize(len, 0);
            self.up.fill(&mut self.chunk);
            self.unsent -= len as u64;
        }
        if !self.chunk.is_empty() {
            match self.socket.send(&self.chunk, 0) {
                Ok(len) => drop(self.chunk.drain(..len)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if self.chunk.is_empty() && self.unsent == 0 {
                self.socket.shutdown(libc::SHUT_WR)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<bool> {
        let (mut got, mut expected) = ([0; CHUNK], [0; CHUNK]);
        let len = match self.socket.recv(&mut got, 0) {
            Ok(0) if self.missing == 0 => return Ok(true),
            Ok(0) => bail!("the end, with {} bytes missing", self.missing),
            Ok(len) => len,
            Err(Errno::EAGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        ensure!(len as u64 <= self.missing, "data after the end");
        self.down.fill(&mut expected[..len]);
        ensure!(
            got[..len] == expected[..len],
            "wrong data, {} bytes before the end",
            self.missing
        );
        self.missing -= len as u64;
        Ok(false)
    }
}
