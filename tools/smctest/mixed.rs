// SPDX-License-Identifier: GPL-2.0

//! `smctest mixed`: clients of TCP and of SMC before one listener. A connection that needs no handshake waits in TCP's
//! own queue until accept(2) takes it there; one that needs a handshake must get it without accept(2).

use std::collections::HashMap;
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
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::context::CALL_TIMEOUT;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::netns;

/// Longest time of a connect(2), whoever waits before it in the queue, and of an event.
const LIMIT: Duration = Duration::from_secs(5);

/// A time without events that is long enough to see that there are none.
const QUIET: Duration = Duration::from_millis(200);

/// Connections of a row in which the server keeps up.
const CONNECTIONS: usize = 40;

/// Room for all connections that are not accepted.
const BACKLOG: i32 = 64;

/// How a server waits for its next connection.
type Accept = fn(&Socket) -> Result<Socket>;

/// Runs the tests; prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    netns::enter(context.client_netns.as_deref())?;
    let mut ktap = Ktap::start(8);
    let mut row = |name: &str, result: Result<()>| {
        ktap.result(name, result.map_err(|error| format!("{error:#}")));
    };
    let waiting: [(&str, &[Family]); 4] = [
        ("SMC", &[Family::Smc]),
        ("TCP, then SMC", &[Family::Tcp, Family::Smc]),
        (
            "three of TCP, then SMC, then TCP",
            &[
                Family::Tcp,
                Family::Tcp,
                Family::Tcp,
                Family::Smc,
                Family::Tcp,
            ],
        ),
        ("twenty of TCP, then SMC", &{
            let mut all = [Family::Tcp; 21];
            all[20] = Family::Smc;
            all
        }),
    ];
    for (name, families) in waiting {
        row(
            &format!("nobody accepts: {name}"),
            connect_before_accept(context, families),
        );
    }
    let servers: [(&str, Accept); 3] = [
        ("accept that waits", |listener| Ok(listener.accept(0)?)),
        ("poll, then accept", accept_after_poll),
        ("accept again and again", accept_by_trying),
    ];
    for (name, accept) in servers {
        row(name, keep_up(context, accept));
    }
    row("edge-triggered epoll", edges(context));
    ensure!(ktap.finish() == 0, "some failed");
    Ok(())
}

/// Connects; each connection sends a number of its own, which is not received before it is accepted.
fn connect(context: &Context, family: Family, number: usize) -> Result<Socket> {
    let start = Instant::now();
    let socket = family.open(context.addr)?;
    socket.set_timeout(CALL_TIMEOUT)?;
    socket
        .connect(context.address())
        .with_context(|| format!("connection {number}"))?;
    ensure!(
        start.elapsed() < LIMIT,
        "connection {number} took {:.1?}",
        start.elapsed()
    );
    check_path(&socket, family, number)?;
    ensure!(socket.send(&[u8::try_from(number)?], 0)? == 1);
    Ok(socket)
}

fn check_path(socket: &Socket, family: Family, number: usize) -> Result<()> {
    if family == Family::Tcp {
        return Ok(());
    }
    let path = Path::of(socket)?;
    ensure!(path.is_smc(), "the path of connection {number} is {path}");
    Ok(())
}

/// Receives the number of an accepted connection and checks what carries it.
fn serve(socket: &Socket, families: impl Fn(usize) -> Family) -> Result<usize> {
    socket.set_timeout(CALL_TIMEOUT)?;
    let mut byte = [0];
    ensure!(socket.recv(&mut byte, 0)? == 1, "an end before its number");
    let number = usize::from(byte[0]);
    let (path, family) = (Path::of(socket)?, families(number));
    ensure!(
        path.is_smc() == (family == Family::Smc),
        "the path of connection {number} of {} is {path}",
        family.name()
    );
    Ok(number)
}

/// All clients connect before the first accept(2).
fn connect_before_accept(context: &Context, families: &[Family]) -> Result<()> {
    let listener = context.listen(BACKLOG)?;
    ensure!(
        poll_fd(&listener, libc::POLLIN, QUIET)? == 0,
        "readable without a connection"
    );
    let mut clients = HashMap::new();
    for (number, family) in families.iter().enumerate() {
        clients.insert(number, connect(context, *family, number)?);
        // What was accepted last may not be what keeps the listener readable.
        let events = poll_fd(&listener, libc::POLLIN, LIMIT)?;
        ensure!(
            events == libc::POLLIN,
            "poll says {events:#x} after {number}"
        );
    }
    listener.set_nonblocking(true)?;
    while !clients.is_empty() {
        let events = poll_fd(&listener, libc::POLLIN, LIMIT)?;
        ensure!(events == libc::POLLIN, "{} are missing", clients.len());
        let number = serve(&listener.accept(0)?, |number| families[number])?;
        ensure!(clients.remove(&number).is_some(), "{number} came twice");
    }
    ensure!(
        poll_fd(&listener, libc::POLLIN, QUIET)? == 0,
        "readable with nothing left"
    );
    ensure!(listener.accept(0).err() == Some(Errno::EAGAIN));
    Ok(())
}

fn accept_after_poll(listener: &Socket) -> Result<Socket> {
    listener.set_nonblocking(true)?;
    ensure!(poll_fd(listener, libc::POLLIN, LIMIT)? == libc::POLLIN);
    Ok(listener.accept(0)?)
}

fn accept_by_trying(listener: &Socket) -> Result<Socket> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept(0) {
            Err(Errno::EAGAIN) if start.elapsed() < LIMIT => thread::yield_now(),
            result => return Ok(result?),
        }
    }
}

/// Family of a connection where both come in no simple order.
fn family_of(number: usize) -> Family {
    match number % 5 {
        0 | 3 => Family::Smc,
        _ => Family::Tcp,
    }
}

/// The server accepts while clients connect.
fn keep_up(context: &Context, accept: Accept) -> Result<()> {
    let listener = context.listen(BACKLOG)?;
    thread::scope(|scope| {
        let server = scope.spawn(|| -> Result<()> {
            let mut seen = [false; CONNECTIONS];
            for _ in 0..CONNECTIONS {
                let number = serve(&accept(&listener)?, family_of)?;
                ensure!(!seen[number], "{number} came twice");
                seen[number] = true;
            }
            Ok(())
        });
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            clients.push(connect(context, family_of(number), number)?);
        }
        server
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the server panicked"))
    })
}

/// Each connection causes an event of its own after everything was accepted.
fn edges(context: &Context) -> Result<()> {
    let listener = context.listen(BACKLOG)?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let edge = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
    epoll.add(&listener, edge)?;
    let limit = EpollTimeout::try_from(LIMIT)?;
    for number in 0..CONNECTIONS {
        let _client = connect(context, family_of(number), number)?;
        // An event may come before accept(2) finds the connection: one more comes then.
        let socket = loop {
            let mut events = [EpollEvent::empty()];
            let count = epoll.wait(&mut events, limit)?;
            ensure!(count == 1, "no event for connection {number}");
            match listener.accept(0) {
                Ok(socket) => break socket,
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        };
        ensure!(serve(&socket, family_of)? == number);
        ensure!(listener.accept(0).err() == Some(Errno::EAGAIN));
    }
    Ok(())
}
