// SPDX-License-Identifier: GPL-2.0

//! `smctest greet`: connections on which both sides compare every byte up to the end, and time each.
//!
//! A connection that goes from RDMA to TCP must neither lose a byte nor get one that nobody sent. What the
//! handshake leaves behind would come first, so either side can be the one that speaks first.

use std::io;
use std::io::Read;
use std::io::Write;
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
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::context::Expected;
use crate::netns;

/// Which side sends before it has received anything.
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

    /// The server of another machine is not ours: do not ask what it received
    #[arg(long)]
    peer_may_fail: bool,

    /// A connection may end with an error, as where a C server already uses a link that is dead; one that ends in
    /// order, or has other bytes, still fails
    #[arg(long)]
    may_break: bool,

    /// Be the server of another machine, until killed
    #[arg(long)]
    serve: bool,
}

/// What each side says.
const CLIENT_SAYS: &[u8] = b"The client speaks, and says this and nothing else.";
const SERVER_SAYS: &[u8] = b"The server speaks; it has nothing to add to these words of it.";
/// What the server says in the end, if it received that and nothing else.
const GOOD: &[u8] = b"good";

/// How long a call may take: handshakes of a dead path take seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the connections, and prints what became of them.
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
        // It ends with the process.
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

/// One connection at the server.
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

/// What became of a connection at the client.
struct Talk {
    is_smc: bool,
    /// The error that ended it, which it may.
    broken: Option<String>,
    took: Duration,
}

fn connect_all(context: &Context, arguments: &Arguments) -> Result<Vec<Result<Talk>>> {
    let barrier = Barrier::new(arguments.connections);
    let one = || -> Result<Talk> {
        let entered = netns::enter(context.client_netns.as_deref());
        barrier.wait();
        entered?;
        let started = Instant::now();
        match talk(context, arguments) {
            Ok(is_smc) => Ok(Talk {
                is_smc,
                broken: None,
                took: started.elapsed(),
            }),
            Err(error) if arguments.may_break && is_break(&error) => Ok(Talk {
                is_smc: false,
                broken: Some(format!("{error:#}")),
                took: started.elapsed(),
            }),
            Err(error) => Err(error),
        }
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

/// Whether it is the error of a connection that was lost.
fn is_break(error: &anyhow::Error) -> bool {
    let code = match error.downcast_ref::<Errno>() {
        Some(error) => io::Error::from(*error).raw_os_error(),
        None => error.downcast_ref().and_then(io::Error::raw_os_error),
    };
    let lost = [
        libc::ETIMEDOUT,
        libc::ECONNRESET,
        libc::ECONNABORTED,
        libc::EPIPE,
        libc::ENOTCONN,
    ];
    code.is_some_and(|code| lost.contains(&code))
}

/// One connection at the client; says whether it was over SMC.
fn talk(context: &Context, arguments: &Arguments) -> Result<bool> {
    let socket = context.family.open(context.addr).context("socket")?;
    socket.set_timeout(PATIENCE)?;
    match socket.connect(context.address()) {
        Ok(()) => {}
        Err(error @ Errno::ECONNREFUSED) => bail!("connect: {error}; is the server there?"),
        Err(error) => return Err(error).context("connect"),
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

fn report(context: &Context, arguments: &Arguments, results: &[Result<Talk>]) -> Result<()> {
    let failed = results.iter().filter_map(|result| result.as_ref().err());
    failed
        .clone()
        .for_each(|error| println!("# client: {error:#}"));
    let talks = || results.iter().flatten();
    let smc = talks().filter(|talk| talk.is_smc).count();
    let took = talks().map(|talk| talk.took).max().unwrap_or_default();
    let failed = failed.count();
    let broken = || talks().filter_map(|talk| talk.broken.as_ref());
    broken().for_each(|error| println!("# client: as it may: {error}"));
    let note = match broken().count() {
        0 => String::new(),
        count => format!("{count} broken, "),
    };
    println!(
        "greet: {} connections, {failed} failed, {note}{smc} over SMC, slowest {} ms",
        results.len(),
        took.as_millis()
    );
    ensure!(failed == 0, "{failed} connections failed");
    match context.expect {
        Expected::Smc => ensure!(smc == results.len(), "not all of them were over SMC"),
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
