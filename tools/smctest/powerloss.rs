// SPDX-License-Identifier: GPL-2.0

//! `smctest powerloss`: connections with another machine, which loses power without a word.
//!
//! Both machines are client and server of some of them, and here each kind of call waits on some: each has to end
//! with an error, soon. The other machine runs `smctest serve` and `smctest powerloss --victim`.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::io::Write;
use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use nix::sys::epoll::EpollTimeout;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::data::Stream;
use crate::job::Job;

/// Time for rings to fill, and for calls to wait.
const SETTLE: Duration = Duration::from_secs(2);

/// Time for the other machine's connections to come.
const ARRIVAL: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections of each kind
    #[arg(long, default_value_t = 4)]
    each: usize,

    /// The address here, of a listener at the port after that of the server
    #[arg(long, required_unless_present = "victim")]
    local: Option<IpAddr>,

    /// Be the client in the machine that loses power
    #[arg(long)]
    victim: bool,

    /// The command that takes the other machine's power
    #[arg(long, value_name = "COMMAND", default_value = "true")]
    lose: String,

    /// Seconds after which the last call has to end
    #[arg(long, default_value_t = 15)]
    within: u64,
}

/// What waits on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A receive, where nothing comes.
    Receive,
    /// A send into a ring that is full, as nobody reads.
    Send,
    /// Neither for long: data goes both ways.
    Transfer,
    /// epoll for data, where none comes.
    PollIn,
    /// epoll for room, where there is none.
    PollOut,
}

const WAITS: [Wait; 5] = [
    Wait::Receive,
    Wait::Send,
    Wait::Transfer,
    Wait::PollIn,
    Wait::PollOut,
];

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "receive, nothing comes",
            Self::Send => "send, the ring is full",
            Self::Transfer => "transfer both ways",
            Self::PollIn => "epoll for data",
            Self::PollOut => "epoll for room",
        })
    }
}

/// Makes calls until one ends with an error, which it returns, or with the end of the stream.
type Call = fn(&Socket) -> Result<Option<Errno>>;

/// The end of a call that waited.
struct End {
    wait: Wait,
    /// The connection's number.
    number: usize,
    at: Instant,
    /// Its error; `None` for the end of the stream.
    error: Option<Errno>,
}

impl End {
    /// Returns whether this tells the application of the loss. The second call of a connection sees what is left when
    /// the first one got the error, as with TCP: the end of the stream, or EPIPE.
    fn tells(&self) -> bool {
        self.error.is_some_and(|error| error != Errno::EPIPE)
    }
}

/// Runs either side.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    match arguments.local {
        Some(local) if !arguments.victim => survive(context, arguments, local),
        _ => be_victim(context, arguments),
    }
}

/// Opens connections and does on each what the survivor expects of its peer, until it is killed.
fn be_victim(context: &Context, arguments: &Arguments) -> Result<()> {
    let sockets = (0..arguments.each * WAITS.len())
        .map(|_| context.connect())
        .collect::<Result<Vec<_>>>()?;
    println!("# powerloss: connected");
    thread::scope(|scope| {
        for (number, socket) in sockets.iter().enumerate() {
            // The survivor learns what the connection is for from its first byte.
            let kind = number % WAITS.len();
            scope.spawn(move || -> Result<()> {
                let mut stream = socket;
                stream.write_all(&[u8::try_from(kind)?])?;
                match WAITS[kind] {
                    Wait::Transfer => echo(socket),
                    _ => {
                        thread::sleep(context.deadline());
                        Ok(())
                    }
                }
            });
        }
    });
    Ok(())
}

fn echo(mut socket: &Socket) -> Result<()> {
    let mut buffer = [0; 1 << 13];
    loop {
        let len = socket.read(&mut buffer)?;
        ensure!(len > 0, "the end");
        socket.write_all(&buffer[..len])?;
    }
}

fn survive(context: &Context, arguments: &Arguments, local: IpAddr) -> Result<()> {
    let (send, ends) = channel();
    let accepted = accept_all(context, arguments, local)?;
    let opened = open_all(context, arguments)?;
    let mut calls = 0;
    for (number, (wait, socket)) in accepted.into_iter().chain(opened).enumerate() {
        calls += watch((wait, number), socket, &send)?;
    }
    drop(send);
    thread::sleep(SETTLE);
    ensure!(
        ends.try_recv().is_err(),
        "a call ended before the loss of power"
    );
    let start = Instant::now();
    let status = Command::new("bash")
        .args(["-c", &arguments.lose])
        .status()?;
    ensure!(status.success(), "{}: {status}", arguments.lose);
    let limit = Duration::from_secs(arguments.within);
    report(&await_ends(&ends, calls, start + limit), calls, start)
}

/// Accepts the connections of the other machine's client.
fn accept_all(
    context: &Context,
    arguments: &Arguments,
    local: IpAddr,
) -> Result<Vec<(Wait, Socket)>> {
    let mut here = context.clone();
    here.addr = local;
    here.port += 1;
    let listener = here.listen(64)?;
    listener.set_timeout(ARRIVAL)?;
    (0..arguments.each * WAITS.len())
        .map(|_| {
            let socket = listener.accept(0).context("accept")?;
            here.check_path(&socket)?;
            socket.set_timeout(ARRIVAL)?;
            let mut kind = [0];
            let mut stream = &socket;
            stream.read_exact(&mut kind)?;
            let wait = WAITS.get(usize::from(kind[0])).context("an unknown kind")?;
            Ok((*wait, socket))
        })
        .collect()
}

/// Connects to the other machine's server.
fn open_all(context: &Context, arguments: &Arguments) -> Result<Vec<(Wait, Socket)>> {
    let mut all = Vec::new();
    for wait in WAITS {
        for _ in 0..arguments.each {
            let socket = context.connect()?;
            match wait {
                Wait::Receive | Wait::PollIn => Job::Hold.send(&socket)?,
                // Its echo is not read, so it stops reading in the end.
                Wait::Send | Wait::PollOut | Wait::Transfer => Job::Echo(1 << 13).send(&socket)?,
            }
            all.push((wait, socket));
        }
    }
    Ok(all)
}

/// Has the calls wait in threads; returns their number.
fn watch((wait, number): (Wait, usize), socket: Socket, ends: &Sender<End>) -> Result<usize> {
    // The calls have no timeout of their own.
    socket.set_timeout(Duration::ZERO)?;
    let calls: &[Call] = match wait {
        Wait::Receive => &[receives],
        Wait::Send => &[sends],
        Wait::Transfer => &[receives, sends],
        Wait::PollIn => &[polls_in],
        Wait::PollOut => &[polls_out],
    };
    for call in calls {
        let (socket, ends) = (socket.duplicate()?, ends.clone());
        thread::spawn(move || {
            let result = call(&socket);
            let at = Instant::now();
            match result {
                Ok(error) => {
                    let _ = ends.send(End {
                        wait,
                        number,
                        at,
                        error,
                    });
                }
                // Counts as a call that has not ended.
                Err(why) => println!("# powerloss: {wait}: {why:#}"),
            }
        });
    }
    Ok(calls.len())
}

fn receives(socket: &Socket) -> Result<Option<Errno>> {
    let mut buffer = [0; 1 << 13];
    loop {
        match socket.recv(&mut buffer, 0) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Ok(Some(error)),
        }
    }
}

fn sends(socket: &Socket) -> Result<Option<Errno>> {
    let mut piece = [0; 1 << 13];
    let mut stream = Stream::new(Random::fresh_seed());
    loop {
        stream.fill(&mut piece);
        if let Err(error) = socket.send(&piece, libc::MSG_NOSIGNAL) {
            return Ok(Some(error));
        }
    }
}

fn polls_in(socket: &Socket) -> Result<Option<Errno>> {
    poll_error(socket, EpollFlags::EPOLLIN)
}

fn polls_out(socket: &Socket) -> Result<Option<Errno>> {
    socket.set_nonblocking(true)?;
    let piece = [0; 1 << 13];
    loop {
        match socket.send(&piece, libc::MSG_NOSIGNAL) {
            Ok(_) => {}
            // The peer takes some more until its own ring is full.
            Err(Errno::EAGAIN) => {
                let error = poll_error(socket, EpollFlags::EPOLLOUT)?;
                if error.is_some() {
                    return Ok(error);
                }
            }
            Err(error) => return Ok(Some(error)),
        }
    }
}

/// Waits in epoll for the events; returns the socket's error.
fn poll_error(socket: &Socket, wanted: EpollFlags) -> Result<Option<Errno>> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(socket, EpollEvent::new(wanted, 0))?;
    let mut events = [EpollEvent::empty()];
    while epoll.wait(&mut events, EpollTimeout::NONE)? == 0 {}
    let seen = events[0].events();
    let error = socket.take_error()?;
    ensure!(
        error.is_none() || seen.contains(EpollFlags::EPOLLERR),
        "{error:?}, but the events are {seen:?}"
    );
    Ok(error)
}

fn await_ends(ends: &Receiver<End>, calls: usize, limit: Instant) -> Vec<End> {
    let mut all = Vec::new();
    while all.len() < calls {
        match ends.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(end) => all.push(end),
            Err(_) => break,
        }
    }
    all
}

fn report(ends: &[End], calls: usize, start: Instant) -> Result<()> {
    for wait in WAITS {
        let of_kind: Vec<_> = ends.iter().filter(|end| end.wait == wait).collect();
        let after = of_kind
            .iter()
            .map(|end| end.at.saturating_duration_since(start));
        let how: BTreeSet<_> = of_kind.iter().map(|end| how(end.error)).collect();
        println!(
            "# powerloss: {wait}: {} calls ended after at most {} ms: {}",
            of_kind.len(),
            after.max().unwrap_or_default().as_millis(),
            Vec::from_iter(how).join(", ")
        );
    }
    let connections: BTreeSet<_> = ends.iter().map(|end| end.number).collect();
    let told: BTreeSet<_> = ends
        .iter()
        .filter(|end| end.tells())
        .map(|end| end.number)
        .collect();
    ensure!(
        ends.len() == calls,
        "{} of {calls} calls have not ended",
        calls - ends.len()
    );
    ensure!(
        told == connections,
        "{} connections ended without an error",
        connections.len() - told.len()
    );
    Ok(())
}

fn how(error: Option<Errno>) -> String {
    error.map_or_else(|| "the end".to_string(), |error| error.to_string())
}
