// SPDX-License-Identifier: GPL-2.0

//! `smctest gather`: many small messages one way, for which the reader is woken later, and how much may be under way
//! while the reader keeps up (SMC-D).

use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use nix::sys::epoll::EpollTimeout;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::ktap::Ktap;
use crate::netns;
use crate::semantics::blocked;

/// Bytes of a message.
const MESSAGE: usize = 64;

/// Messages in a row.
const MESSAGES: usize = 500;

/// Rows of messages per reader.
const ROUNDS: usize = 20;

/// How long a reader or a writer waits. One that nobody woke looks again when that is over, which is too late.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for one that is woken, on a machine that does something else as well.
const LATE: Duration = Duration::from_secs(5);

/// How a reader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Recv,
    Poll,
    EpollEdge,
}

/// How a writer waits.
#[derive(Clone, Copy, Debug)]
enum Writer {
    Send,
    Poll,
}

/// Prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    let mut ktap = Ktap::start(7);
    for reader in [Reader::Recv, Reader::Poll, Reader::EpollEdge] {
        ktap.result(
            format!("{reader:?}: the last of many small messages comes"),
            last_comes(context, reader).map_err(|error| format!("{error:#}")),
        );
    }
    ktap.result(
        "more may be under way to a reader that keeps up",
        grows(context, None).map_err(|error| format!("{error:#}")),
    );
    ktap.result(
        "but not where SO_RCVBUF is set",
        grows(context, Some(65_536)).map_err(|error| format!("{error:#}")),
    );
    for writer in [Writer::Send, Writer::Poll] {
        ktap.result(
            format!("{writer:?}: a writer goes on when the reader raises SO_RCVBUF"),
            goes_on(context, writer).map_err(|error| format!("{error:#}")),
        );
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

fn pair(context: &Context, rcvbuf: Option<i32>) -> Result<(Socket, Socket)> {
    let listener = context.listen(1)?;
    if let Some(bytes) = rcvbuf {
        listener.set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    }
    let client = netns::inside(context.client_netns.as_deref(), || context.connect())?;
    let server = listener.accept(0).context("accept")?;
    context.check_path(&client)?;
    Ok((client, server))
}

/// A writer that does nothing after the last message of a row: its reader gets that none the less.
fn last_comes(context: &Context, reader: Reader) -> Result<()> {
    let (client, server) = pair(context, None)?;
    server.set_timeout(PATIENCE)?;
    let mut longest = Duration::ZERO;
    for round in 0..ROUNDS {
        let took = thread::scope(|scope| {
            let reading = blocked(scope, || read(&server, reader, MESSAGES * MESSAGE))?;
            send_row(&client)?;
            let sent = Instant::now();
            joined(reading).with_context(|| format!("row {round}"))?;
            Ok::<_, anyhow::Error>(sent.elapsed())
        })?;
        longest = longest.max(took);
    }
    println!("# {reader:?}: at most {longest:?} after the last send");
    ensure!(longest < LATE, "it came {longest:?} after the last send");
    Ok(())
}

fn joined(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| bail!("a thread panicked"))
}

/// Sends a row of messages.
fn send_row(socket: &Socket) -> Result<()> {
    for _ in 0..MESSAGES {
        ensure!(socket.send(&[7; MESSAGE], 0)? == MESSAGE, "a short send");
    }
    Ok(())
}

/// Reads so many bytes.
fn read(socket: &Socket, reader: Reader, len: usize) -> Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    epoll.add(socket, EpollEvent::new(edge, 0))?;
    let mut missing = len;
    while missing > 0 {
        let flags = match reader {
            Reader::Recv => 0,
            Reader::Poll => {
                let events = poll_fd(socket, libc::POLLIN, PATIENCE)?;
                ensure!(events != 0, "{missing} bytes are missing");
                0
            }
            Reader::EpollEdge => libc::MSG_DONTWAIT,
        };
        match socket.recv(&mut [0; 1 << 16], flags) {
            Ok(0) => bail!("the end, with {missing} bytes missing"),
            Ok(len) => missing -= len,
            Err(Errno::EAGAIN) if reader == Reader::EpollEdge => {
                let timeout = EpollTimeout::try_from(PATIENCE)?;
                let count = epoll.wait(&mut [EpollEvent::empty()], timeout)?;
                ensure!(count == 1, "{missing} bytes are missing");
            }
            Err(error) => bail!("{error}, with {missing} bytes missing"),
        }
    }
    Ok(())
}

/// Fills the connection and reads all, again and again.
fn grows(context: &Context, rcvbuf: Option<i32>) -> Result<()> {
    let (client, server) = pair(context, rcvbuf)?;
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let first = fill(&client)?;
    ensure!(fill(&client)? == 0, "more fits though nothing was read");
    let mut last = first;
    for _ in 0..40 {
        ensure!(drain(&server)? == last, "not all was read");
        last = fill(&client)?;
    }
    println!("# {first} bytes under way at first, {last} at last");
    match rcvbuf {
        None => ensure!(
            last > 4 * first && last <= 1 << 20,
            "from {first} to {last}"
        ),
        Some(_) => ensure!(last == first, "from {first} to {last}"),
    }
    Ok(())
}

/// The reader reads nothing.
fn goes_on(context: &Context, writer: Writer) -> Result<()> {
    let (client, server) = pair(context, Some(32_768))?;
    client.set_timeout(PATIENCE)?;
    // At once, so that it is in one ring.
    let sent = client.send(&vec![1; 1 << 20], libc::MSG_DONTWAIT)?;
    ensure!(
        client.send(&[1], libc::MSG_DONTWAIT) == Err(Errno::EAGAIN),
        "more fits than {sent} bytes"
    );
    thread::scope(|scope| {
        let waiting = blocked(scope, || {
            match writer {
                Writer::Send => ensure!(client.send(&[1; 10_000], 0)? == 10_000, "a short send"),
                Writer::Poll => {
                    let events = poll_fd(&client, libc::POLLOUT, PATIENCE)?;
                    ensure!(events == libc::POLLOUT, "poll says {events:#x}");
                }
            }
            Ok(())
        })?;
        server.set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 1 << 20)?;
        let raised = Instant::now();
        joined(waiting)?;
        let took = raised.elapsed();
        ensure!(took < LATE, "it went on {took:?} later");
        Ok(())
    })
}

fn fill(socket: &Socket) -> Result<usize> {
    transfer(|| socket.send(&[1; 10_000], 0))
}

fn drain(socket: &Socket) -> Result<usize> {
    transfer(|| socket.recv(&mut [0; 100_000], 0))
}

/// Repeats until `EAGAIN`; returns how many bytes.
fn transfer(mut once: impl FnMut() -> Result<usize, Errno>) -> Result<usize> {
    let mut bytes = 0;
    loop {
        match once() {
            Ok(0) => bail!("the end after {bytes} bytes"),
            Ok(len) => bytes += len,
            Err(Errno::EAGAIN) => return Ok(bytes),
            Err(error) => return Err(error.into()),
        }
    }
}
