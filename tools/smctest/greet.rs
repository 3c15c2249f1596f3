// SPDX-License-Identifier: GPL-2.0

//! `smctest greet`: connections on which both sides compare every byte up to the end of the stream,
//! and measure the duration.
//!
//! A connection that falls back to TCP must neither lose data nor deliver bytes of the handshake to
//! the application. Those would arrive first, so either side can be the first to send.

use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use clap::ValueEnum;
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::context::Expected;
use crate::netns;

/// Which side sends first, before it has received anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum First {
    Client,
    Server,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Who speaks first
    #[arg(long, default_value = "client")]
    first: First,

    /// Connections, all at once
    #[arg(long, default_value_t = 1)]
    connections: usize,

    /// Fail if a connection takes longer, from connect to the last byte
    #[arg(long, value_name = "MILLISECONDS")]
    within: Option<u64>,

    /// The server is another program: do not check what it received
    #[arg(long)]
    peer_may_fail: bool,

    /// Bind the client to this address first, and connect without waiting
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,

    /// Be the server of another machine, until killed
    #[arg(long)]
    serve: bool,
}

/// The data of each side.
const CLIENT_SAYS: &[u8] = b"The client speaks, and says this and nothing else.";
const SERVER_SAYS: &[u8] = b"The server speaks; it has nothing to add to these words of it.";
/// The server's last message, if it received exactly the client's data.
const GOOD: &[u8] = b"good";

/// Longest duration of a call: handshakes take several seconds if RDMA packets do not get through.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the connections, and prints their results.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = match context.remote {
        true => None,
        false => Some(context.listen(1024)?),
    };
    if let (Some(listener), true) = (&listener, arguments.serve) {
        return serve(listener, arguments.first);
    }
    if let Some(listener) = listener {
        let first = arguments.first;
        // The thread ends with the process.
        thread::spawn(move || serve(&listener, first));
    }
    let results = connect_all(context, arguments)?;
    report(context, arguments, &results)
}

fn serve(listener: &Socket, first: First) -> Result<()> {
    loop {
        let socket = listener.accept(0).context("accept")?;
        thread::spawn(move || {
            if let Err(error) = answer(&socket, first) {
                println!("# server: {error:#}");
            }
        });
    }
}

/// Serves one connection.
fn answer(socket: &Socket, first: First) -> Result<()> {
    socket.set_timeout(PATIENCE)?;
    let mut stream = socket;
    if first == First::Server {
        stream.write_all(SERVER_SAYS)?;
    }
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    if first == First::Client {
        stream.write_all(SERVER_SAYS)?;
    }
    match said == CLIENT_SAYS {
        true => stream.write_all(GOOD)?,
        false => {
            stream.write_all(b"bad")?;
            bail!("received {:?}", String::from_utf8_lossy(&said));
        }
    }
    Ok(())
}

/// The result of a connection at the client.
struct Greeted {
    is_smc: bool,
    took: Duration,
}

fn connect_all(context: &Context, arguments: &Arguments) -> Result<Vec<Result<Greeted>>> {
    let barrier = Barrier::new(arguments.connections);
    let one = || -> Result<Greeted> {
        let entered = netns::enter(context.client_netns.as_deref());
        barrier.wait();
        entered?;
        let started = Instant::now();
        let is_smc = exchange(context, arguments)?;
        Ok(Greeted {
            is_smc,
            took: started.elapsed(),
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.connections)
            .map(|_| scope.spawn(one))
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => Ok(result),
                Err(_) => bail!("a thread panicked"),
            })
            .collect()
    })
}

/// Runs one connection at the client; returns whether it used SMC.
fn exchange(context: &Context, arguments: &Arguments) -> Result<bool> {
    let socket = context.family.open(context.addr).context("socket")?;
    socket.set_timeout(PATIENCE)?;
    match arguments.bind {
        Some(local) => connect_from(&socket, local, context.address())?,
        None => socket.connect(context.address()).context("connect")?,
    }
    let is_smc = Path::of(&socket)?.is_smc();
    let mut stream = &socket;
    let mut heard = vec![0; SERVER_SAYS.len()];
    if arguments.first == First::Server {
        stream.read_exact(&mut heard).context("the greeting")?;
    }
    stream.write_all(CLIENT_SAYS).context("send")?;
    socket.shutdown(libc::SHUT_WR)?;
    if arguments.first == First::Client {
        stream.read_exact(&mut heard).context("the answer")?;
    }
    ensure!(
        heard == SERVER_SAYS,
        "received {:?}",
        String::from_utf8_lossy(&heard)
    );
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).context("the end")?;
    let is_good = rest == GOOD || arguments.peer_may_fail && rest == b"bad";
    ensure!(
        is_good,
        "at the end received {:?}",
        String::from_utf8_lossy(&rest)
    );
    Ok(is_smc)
}

/// Connects from a local address with a non-blocking socket, as event loops do, then waits for the
/// result.
fn connect_from(socket: &Socket, local: SocketAddr, server: SocketAddr) -> Result<()> {
    socket.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    socket.bind(local).context("bind")?;
    socket.set_nonblocking(true)?;
    ensure!(
        socket.connect(server) == Err(Errno(libc::EINPROGRESS)),
        "connect did not say that it is in progress"
    );
    let events = poll_fd(socket, libc::POLLOUT, PATIENCE)?;
    ensure!(events == libc::POLLOUT, "poll: {events:#x}");
    let error = socket.option_int(libc::SOL_SOCKET, libc::SO_ERROR)?;
    ensure!(error == 0, "connect: {}", Errno(error));
    let bound = socket.local_address()?;
    ensure!(bound.to_ip() == Some(local), "it is bound to {bound:?}");
    socket.set_nonblocking(false)?;
    Ok(())
}

fn report(context: &Context, arguments: &Arguments, results: &[Result<Greeted>]) -> Result<()> {
    let failed = results.iter().filter_map(|result| result.as_ref().err());
    failed
        .clone()
        .for_each(|error| println!("# client: {error:#}"));
    let greeted = || results.iter().flatten();
    let smc = greeted().filter(|exchange| exchange.is_smc).count();
    let took = greeted()
        .map(|exchange| exchange.took)
        .max()
        .unwrap_or_default();
    let failed = failed.count();
    println!(
        "greet: {} connections, {failed} failed, {smc} over SMC, slowest {} ms",
        results.len(),
        took.as_millis()
    );
    ensure!(failed == 0, "{failed} connections failed");
    match context.expect {
        Expected::Smc | Expected::Smcd => {
            ensure!(smc == results.len(), "not all of them were over SMC")
        }
        Expected::Tcp => ensure!(smc == 0, "{smc} of them were over SMC"),
        Expected::Any => {}
    }
    let most = arguments.within.map(Duration::from_millis);
    ensure!(
        most.is_none_or(|most| took <= most),
        "the slowest took {took:?}"
    );
    Ok(())
}
