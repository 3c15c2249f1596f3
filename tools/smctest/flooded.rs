// SPDX-License-Identifier: GPL-2.0

//! `smctest flooded`: clients connect to a listener without pause, so that its work always finds
//! another connection in TCP's accept queue. close(2) of a listener must not wait until the flood ends.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::netns;

/// Threads that connect: so many that the listener's work, one thread among them, is slower than they are.
const CLIENTS: u32 = 16;

/// Threads that accept: so many that the backlog does not fill, which would end the work.
const SERVERS: u32 = 8;

/// Time until the work always finds another connection.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long other listeners are opened and closed.
const OTHERS: Duration = Duration::from_secs(3);

/// Longest duration of a close. It waits for one run of the work, 64 connections, and ends
/// those that nobody accepted: about a second at most with KASAN.
const LIMIT: Duration = Duration::from_secs(5);

/// The flood ends by then even if a close waits for its end.
const FLOOD: Duration = Duration::from_secs(10);

/// Longest wait for a connection to accept.
const ACCEPT: Duration = Duration::from_millis(100);

/// Connections of a flood at least.
const CONNECTIONS: u32 = 500;

/// Runs the tests; prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    netns::enter(context.client_netns.as_deref())?;
    let mut ktap = Ktap::start(2);
    let others = Flood::run(context, |flood, listener| {
        flood.serve(&listener, || longest_close(context))
    });
    ktap.result("another listener closes", within_limit(others));
    let own = Flood::run(context, |flood, listener| {
        flood.serve(&listener, || Ok(()))?;
        Ok(time_of_close(listener))
    });
    ktap.result("the flooded listener closes", within_limit(own));
    ensure!(ktap.finish() == 0, "some failed");
    Ok(())
}

fn within_limit(longest: Result<Duration>) -> Result<(), String> {
    let longest = longest.map_err(|error| format!("{error:#}"))?;
    match longest < LIMIT {
        true => Ok(()),
        false => Err(format!("it took {longest:.1?}")),
    }
}

/// Opens and closes further listeners, in another namespace than the flooded one.
fn longest_close(context: &Context) -> Result<Duration> {
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    while start.elapsed() < OTHERS {
        let other = context.family.open(context.addr)?;
        other.listen(1)?;
        longest = longest.max(time_of_close(other));
    }
    Ok(longest)
}

fn time_of_close(socket: Socket) -> Duration {
    let start = Instant::now();
    drop(socket);
    start.elapsed()
}

/// What the threads of a flood share.
struct Flood {
    start: Instant,
    /// The clients are to end.
    no_connect: AtomicBool,
    /// The threads that accept are to end.
    no_accept: AtomicBool,
    accepted: AtomicU32,
}

impl Flood {
    /// Returns the result of `work` with a listener while clients connect to it.
    fn run(
        context: &Context,
        work: impl FnOnce(&Self, Socket) -> Result<Duration>,
    ) -> Result<Duration> {
        let listener = context.listen(i32::MAX)?;
        listener.set_timeout(ACCEPT)?;
        let flood = Self {
            start: Instant::now(),
            no_connect: AtomicBool::new(false),
            no_accept: AtomicBool::new(false),
            accepted: AtomicU32::new(0),
        };
        let longest = thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| flood.connect(context));
            }
            let longest = work(&flood, listener);
            // ORDERING: only the flag itself is shared.
            flood.no_connect.store(true, Ordering::Relaxed);
            longest
        })?;
        let accepted = flood.accepted.into_inner();
        println!("# longest close: {longest:.3?}, {accepted} connections accepted");
        ensure!(accepted >= CONNECTIONS, "that was no flood");
        Ok(longest)
    }

    /// Connects over TCP alone: the listener's work has the least to do then before the next connection.
    fn connect(&self, context: &Context) -> Result<()> {
        while !self.no_connect.load(Ordering::Relaxed) && self.start.elapsed() < FLOOD {
            let socket = Family::Tcp.open(context.addr)?;
            // Closes with a reset, which leaves the port free.
            socket.set_linger(true, 0)?;
            let _ = socket.connect(context.address());
        }
        Ok(())
    }

    /// Returns the result of `work`, while threads accept connections and close them.
    fn serve<T>(&self, listener: &Socket, work: impl FnOnce() -> Result<T>) -> Result<T> {
        thread::scope(|scope| {
            for _ in 0..SERVERS {
                scope.spawn(|| self.accept(listener));
            }
            thread::sleep(WARM_UP);
            // On a busy machine it takes longer to have had so many.
            while self.accepted.load(Ordering::Relaxed) < CONNECTIONS
                && self.start.elapsed() < FLOOD / 2
            {
                thread::sleep(ACCEPT);
            }
            let result = work();
            self.no_accept.store(true, Ordering::Relaxed);
            result
        })
    }

    fn accept(&self, listener: &Socket) {
        while !self.no_accept.load(Ordering::Relaxed) {
            if listener.accept(0).is_ok() {
                self.accepted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
