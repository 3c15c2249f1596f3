// SPDX-License-Identifier: GPL-2.0

//! `smctest failover`: connections that transfer in both directions while links fail.
//!
//! Each sends a stream that the server echoes, and both ends compare it byte by byte: no data may
//! be lost, duplicated or reordered, and no connection may end. The caller provides the commands
//! that take links down and up.
//! bring it back are the caller's.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Check;
use crate::data::Random;
use crate::data::Stream;
use crate::fabric::Fabric;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

/// Bytes per send.
const PIECE: usize = 8192;

/// Time for data that arrived before the link failure to be read, and for the failure to affect all
/// connections.
const SETTLE: Duration = Duration::from_millis(200);

/// Polling interval for the state of connections.
const LOOK: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 16)]
    connections: u64,

    /// How often a link is taken away
    #[arg(long, default_value_t = 4)]
    losses: usize,

    /// Milliseconds between two pieces that a connection sends, so that there is time for other things
    #[arg(long, default_value_t = 150)]
    pause: u64,

    /// A bash command that takes a link away; several are used in turn
    #[arg(long, value_name = "COMMAND", required = true)]
    lose: Vec<String>,

    /// The command that undoes the one of the same place
    #[arg(long, value_name = "COMMAND", required = true)]
    restore: Vec<String>,

    /// RDMA devices of one machine that have a link each when all is well
    #[arg(long, value_name = "DEVICES")]
    linked: Vec<String>,

    /// Seconds after a loss within which all connections transfer again
    #[arg(long, default_value_t = 15)]
    within: u64,

    /// Seconds at the end for which the devices of a machine have to send equal shares
    #[arg(long, default_value_t = 0)]
    compare: u64,
}

/// Runs the transfers and the commands.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let turns = arguments.lose.iter().zip(&arguments.restore).cycle();
    ensure!(
        arguments.lose.len() == arguments.restore.len(),
        "each --lose needs its --restore"
    );
    let server = Server::start(context, Mode::Spawn)?;
    let talks = (0..arguments.connections)
        .map(|_| Talk::open(context))
        .collect::<Result<Vec<_>>>()?;
    let fabric = Fabric::new(&arguments.linked);
    let is_over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let (is_over, pause) = (&is_over, Duration::from_millis(arguments.pause));
        for talk in &talks {
            scope.spawn(move || talk.watch(talk.send(pause, is_over)));
            scope.spawn(move || talk.watch(talk.receive()));
        }
        let result = fabric.await_links().and_then(|()| {
            let times = turns
                .take(arguments.losses)
                .map(|(lose, restore)| {
                    let within = Duration::from_secs(arguments.within);
                    lose_once(&talks, &fabric, within, lose, restore)
                })
                .collect::<Result<Vec<_>>>()?;
            if arguments.compare > 0 {
                fabric.compare(Duration::from_secs(arguments.compare))?;
            }
            Ok(times)
        });
        is_over.store(true, Ordering::Relaxed);
        result
    });
    report(&talks, &result?)?;
    let failures = server.map_or(0, |server| server.failures());
    ensure!(
        failures == 0,
        "{failures} conversations failed at the server"
    );
    Ok(())
}

/// Durations after a link failure.
struct Times {
    /// Until all connections transferred data again.
    on: Duration,
    /// From the repair until there was a link on each device again.
    back: Duration,
}

/// Takes a link down and up again; fails if a connection does not transfer again `within` that time.
fn lose_once(
    talks: &[Talk],
    fabric: &Fabric,
    within: Duration,
    lose: &str,
    restore: &str,
) -> Result<Times> {
    talks.iter().for_each(Talk::mark);
    let start = Instant::now();
    shell(lose)?;
    thread::sleep(SETTLE);
    let settled = Instant::now();
    while let Some(talk) = talks.iter().find(|talk| !talk.has_heard_since(settled)) {
        ensure!(
            settled.elapsed() < within,
            "nothing comes back on connection {} after: {lose}",
            talk.seed
        );
        thread::sleep(LOOK);
    }
    let longest = talks.iter().map(Talk::pause).max_by_key(|pause| pause.len);
    let end = longest.and_then(|pause| pause.end).unwrap_or(start);
    shell(restore)?;
    let restored = Instant::now();
    fabric.await_links()?;
    Ok(Times {
        on: end.saturating_duration_since(start),
        back: restored.elapsed(),
    })
}

fn shell(command: &str) -> Result<()> {
    let status = Command::new("bash").args(["-c", command]).status()?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}

fn report(talks: &[Talk], times: &[Times]) -> Result<()> {
    let checked: u64 = talks
        .iter()
        .map(|talk| talk.received.load(Ordering::Relaxed))
        .sum();
    let broken = talks.iter().filter(|talk| talk.is_broken()).count();
    println!(
        "# failover: {} losses, {} connections, {} KiB came back and were compared, {broken} broken",
        times.len(),
        talks.len(),
        checked >> 10
    );
    summarize(
        "a loss to the first byte of the last connection",
        times.iter().map(|times| times.on),
    );
    summarize(
        "the end of its cause to a link on each device",
        times.iter().map(|times| times.back),
    );
    ensure!(broken == 0, "{broken} connections broke");
    Ok(())
}

fn summarize(what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<_> = times.collect();
    times.sort();
    if let (Some(median), Some(worst)) = (times.get(times.len() / 2), times.last()) {
        println!(
            "# failover: from {what}: median {} ms, worst {} ms",
            median.as_millis(),
            worst.as_millis()
        );
    }
}

/// The longest interval without data since the last link failure.
#[derive(Clone, Copy, Default)]
struct Pause {
    len: Duration,
    end: Option<Instant>,
}

/// When data arrived.
struct Pulse {
    last: Instant,
    pause: Pause,
}

/// A connection.
struct Talk {
    socket: Socket,
    seed: u64,
    sent: AtomicU64,
    received: AtomicU64,
    pulse: Mutex<Pulse>,
    broken: AtomicBool,
}

impl Talk {
    fn open(context: &Context) -> Result<Self> {
        let socket = netns::inside(context.client_netns.as_deref(), || context.connect())?;
        let seed = Random::fresh_seed();
        Job::Mirror(seed).send(&socket)?;
        Ok(Self {
            socket,
            seed,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            pulse: Mutex::new(Pulse {
                last: Instant::now(),
                pause: Pause::default(),
            }),
            broken: AtomicBool::new(false),
        })
    }

    /// On an error, marks the connection as broken and shuts it down, which ends the other
    /// direction, too.
    fn watch(&self, result: Result<()>) {
        if let Err(error) = result {
            println!("# connection of seed {}: {error:#}", self.seed);
            self.broken.store(true, Ordering::Relaxed);
            let _ = self.socket.shutdown(libc::SHUT_RDWR);
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn send(&self, pause: Duration, is_over: &AtomicBool) -> Result<()> {
        let mut stream = Stream::new(self.seed);
        let mut piece = [0; PIECE];
        let mut socket = &self.socket;
        while !is_over.load(Ordering::Relaxed) && !self.is_broken() {
            stream.fill(&mut piece);
            // Counted before they are sent, so that the echoed bytes never exceed them.
            let at = self.sent.fetch_add(PIECE as u64, Ordering::Relaxed);
            socket
                .write_all(&piece)
                .with_context(|| format!("send at {at}"))?;
            thread::sleep(pause);
        }
        self.socket.shutdown(libc::SHUT_WR).context("shutdown")
    }

    fn receive(&self) -> Result<()> {
        let mut check = Check::new(self.seed);
        let mut got = [0; PIECE];
        let socket = &self.socket;
        loop {
            let at = check.at();
            let len = socket
                .read(&mut got)
                .with_context(|| format!("receive at {at}"))?;
            if len == 0 {
                let sent = self.sent.load(Ordering::Relaxed);
                ensure!(at == sent, "the end at {at}, after {sent} were sent");
                return Ok(());
            }
            self.note(Instant::now());
            check.take(&got[..len])?;
            self.received.fetch_add(len as u64, Ordering::Relaxed);
        }
    }

    fn note(&self, now: Instant) {
        self.with_pulse(|pulse| {
            let len = now.saturating_duration_since(pulse.last);
            pulse.last = now;
            if len > pulse.pause.len {
                pulse.pause = Pause {
                    len,
                    end: Some(now),
                };
            }
        });
    }

    /// Resets the longest interval: a link is about to fail.
    fn mark(&self) {
        self.with_pulse(|pulse| pulse.pause = Pause::default());
    }

    fn pause(&self) -> Pause {
        self.with_pulse(|pulse| pulse.pause)
    }

    /// Returns whether data arrived after `since`, or the connection is broken.
    fn has_heard_since(&self, since: Instant) -> bool {
        self.is_broken() || self.with_pulse(|pulse| pulse.last > since)
    }

    fn with_pulse<R>(&self, f: impl FnOnce(&mut Pulse) -> R) -> R {
        // No holder of the lock panics.
        f(&mut self.pulse.lock().unwrap_or_else(|e| e.into_inner()))
    }
}
