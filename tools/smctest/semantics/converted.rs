// SPDX-License-Identifier: GPL-2.0

//! TCP sockets that TCP_ULP converts to SMC sockets: before and after use, and concurrently with
//! it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use nix::sys::epoll::EpollFlags;
use nix::sys::stat::fstat;
use smc_tools::path::Path;
use smc_user::Errno;
use smc_user::Socket;

use crate::family::Family;
use crate::netns;
use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::events;
use crate::semantics::rig::local;
use crate::semantics::rig::Rig;
use crate::semantics::rig::SOON;
use crate::semantics::Row;
use crate::watch::Watch;

const TCP_FASTOPEN_CONNECT: i32 = 30;
const SO_ZEROCOPY: i32 = 60;

/// Opens a TCP socket at the client.
fn tcp(rig: &Rig<'_>) -> Result<Socket> {
    let socket = Family::Tcp.open(rig.context.addr)?;
    socket.set_timeout(SOON)?;
    Ok(socket)
}

/// Opens a TCP socket at the server.
fn server_tcp(rig: &Rig<'_>) -> Result<Socket> {
    netns::inside(rig.context.server_netns.as_deref(), || tcp(rig))
}

fn convert(socket: &Socket) -> smc_user::Result<()> {
    socket.set_option(libc::IPPROTO_TCP, libc::TCP_ULP, b"smc")
}

/// Returns whether data passes between the socket and a server in both directions, over SMC.
fn works(rig: &Rig<'_>, socket: &Socket) -> Result<bool> {
    let (listener, address) = rig.listener()?;
    socket.connect(address)?;
    let server = listener.accept(0)?;
    server.set_timeout(SOON)?;
    Ok(is_smc(socket)? && echoes(socket, &server)?)
}

fn is_smc(socket: &Socket) -> Result<bool> {
    Ok(Path::of(socket)?.is_smc())
}

fn echoes(client: &Socket, server: &Socket) -> Result<bool> {
    let mut buffer = [0; 8];
    client.send(b"there", 0)?;
    let there = server.recv(&mut buffer, 0)?;
    server.send(b"back", 0)?;
    let back = client.recv(&mut buffer, 0)?;
    Ok((there, back) == (5, 4))
}

/// Options that getsockopt(2) returns as they were set.
const OPTIONS: &[(i32, i32, i32)] = &[
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 7),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 9000),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT, 2),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2, 5),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, 4),
    (libc::SOL_SOCKET, libc::SO_MARK, 5),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 1),
    (libc::IPPROTO_IP, libc::IP_TTL, 33),
    (libc::IPPROTO_IP, libc::IP_TOS, 16),
    (libc::IPPROTO_IP, libc::IP_FREEBIND, 1),
];

/// Returns whether options of this level apply to the IP version under test.
fn applies(rig: &Rig<'_>, level: i32) -> bool {
    level != libc::IPPROTO_IP || rig.context.addr.is_ipv4()
}

/// Makes one of several calls on a socket that other threads convert.
fn any_call(socket: &Socket, address: SocketAddr, kind: u32) {
    match kind % 8 {
        0 => drop(convert(socket)),
        1 => drop(socket.connect(address)),
        2 => drop(socket.bind(SocketAddr::new(address.ip(), 0))),
        3 => drop(socket.listen(4)),
        4 => drop(socket.send(b"x", libc::MSG_DONTWAIT)),
        5 => drop(socket.recv(&mut [0; 64], libc::MSG_DONTWAIT)),
        6 => {
            let _ = events(socket);
            let _ = socket.local_address();
            let _ = socket.take_error();
        }
        _ => {
            let _ = socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            let _ = socket.set_option_int(libc::SOL_SOCKET, libc::SO_SNDBUF, 65536);
            let _ = socket.duplicate();
            let _ = socket.accept(libc::SOCK_NONBLOCK).map(drop);
        }
    }
}

/// Converts and closes sockets while eight threads use them; returns the number of rounds.
fn race(rig: &Rig<'_>, time: Duration) -> Result<u32> {
    let (listener, address) = rig.listener()?;
    listener.set_nonblocking(true)?;
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < time {
        let socket = server_tcp(rig)?;
        socket.set_nonblocking(true)?;
        let go = AtomicBool::new(false);
        thread::scope(|scope| {
            for kind in 0..8 {
                let (socket, go) = (socket.duplicate(), &go);
                scope.spawn(move || {
                    let Ok(socket) = socket else { return };
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    for step in 0..8 {
                        any_call(&socket, address, kind + rounds * 3 + step);
                    }
                });
            }
            go.store(true, Ordering::Release);
            drop(socket);
        });
        while listener.accept(0).is_ok() {}
        rounds += 1;
    }
    println!("# {rounds} sockets");
    Ok(rounds)
}

pub(super) const ROWS: &[Row] = &[
    Row::same(
        "a fresh socket, with its inode and family",
        "true true true",
        |rig| {
            let socket = tcp(rig)?;
            let before = fstat(&socket)?;
            convert(&socket)?;
            let after = fstat(&socket)?;
            answer![
                works(rig, &socket)?,
                (before.st_ino, before.st_dev) == (after.st_ino, after.st_dev),
                socket.option_int(libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_TCP
            ]
        },
    ),
    Row::same(
        "a bound socket keeps its port to itself",
        "true EADDRINUSE true ok",
        |rig| {
            let socket = tcp(rig)?;
            socket.bind(rig.any())?;
            let address = local(&socket)?;
            convert(&socket)?;
            let is_same = local(&socket)? == address;
            let other = tcp(rig)?.bind(address);
            let works = works(rig, &socket)?;
            drop(socket);
            let again = tcp(rig)?;
            again.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            answer![is_same, other, works, again.bind(address)]
        },
    ),
    Row::same(
        "a listener, bound before; who is accepted is SMC, too",
        "true true",
        |rig| {
            let listener = server_tcp(rig)?;
            listener.bind(SocketAddr::new(rig.context.addr, 0))?;
            convert(&listener)?;
            listener.listen(4)?;
            let client = rig.open()?;
            client.connect(local(&listener)?)?;
            let server = listener.accept(0)?;
            server.set_timeout(SOON)?;
            answer![is_smc(&server)?, echoes(&client, &server)?]
        },
    ),
    Row::same(
        "not while it is used",
        "EISCONN ENOTCONN EISCONN EEXIST",
        |rig| {
            let listener = server_tcp(rig)?;
            listener.bind(SocketAddr::new(rig.context.addr, 0))?;
            listener.listen(4)?;
            let connected = tcp(rig)?;
            connected.connect(local(&listener)?)?;
            let connecting = tcp(rig)?;
            connecting.set_nonblocking(true)?;
            let _ = connecting.connect(rig.silent());
            let twice = tcp(rig)?;
            convert(&twice)?;
            answer![
                convert(&connected),
                convert(&listener),
                convert(&connecting),
                convert(&twice)
            ]
        },
    ),
    Row::same("the option reads back", "true", |rig| {
        let socket = tcp(rig)?;
        convert(&socket)?;
        let mut name = [0; 16];
        let len = socket.option(libc::IPPROTO_TCP, libc::TCP_ULP, &mut name)?;
        answer![name
            .get(..len)
            .is_some_and(|name| name.starts_with(b"smc\0"))]
    }),
    Row::same(
        "what cannot be kept is refused, and left alone",
        "EOPNOTSUPP EOPNOTSUPP EOPNOTSUPP",
        |rig| {
            let with = |level, name| -> Result<smc_user::Result<()>> {
                let socket = tcp(rig)?;
                socket.set_option_int(level, name, 1)?;
                Ok(convert(&socket))
            };
            answer![
                with(libc::SOL_SOCKET, SO_ZEROCOPY)?,
                with(libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT)?,
                with(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)?
            ]
        },
    ),
    Row::same("options set before read back", "", |rig| {
        let socket = tcp(rig)?;
        for &(level, name, value) in OPTIONS {
            if applies(rig, level) {
                socket.set_option_int(level, name, value)?;
            }
        }
        // Read all before, since setting one option may change another.
        let read = |level, name| socket.option_int(level, name);
        let before: Vec<_> = OPTIONS.iter().map(|o| read(o.0, o.1)).collect();
        convert(&socket)?;
        let mut wrong = String::new();
        for (&(level, name, _), before) in OPTIONS.iter().zip(before) {
            if read(level, name) != before {
                wrong += &format!("{level}/{name} ");
            }
        }
        Ok(wrong)
    }),
    Row::same(
        "buffer sizes and time-outs set before hold",
        "true EAGAIN true",
        |rig| {
            let pair = rig.pair_with(|_| Ok(()))?;
            let socket = tcp(rig)?;
            socket.set_option_int(libc::SOL_SOCKET, libc::SO_SNDBUF, 100_000)?;
            let before = socket.option_int(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
            socket.set_duration(libc::SO_RCVTIMEO, Duration::from_millis(200))?;
            convert(&socket)?;
            socket.connect(pair.address)?;
            let start = Instant::now();
            let received = socket.recv(&mut [0; 1], 0);
            answer![
                socket.option_int(libc::SOL_SOCKET, libc::SO_SNDBUF)? == before,
                received,
                start.elapsed() < SOON / 2
            ]
        },
    ),
    Row::same("a duplicate of the descriptor", "true true", |rig| {
        let socket = tcp(rig)?;
        let other = socket.duplicate()?;
        convert(&socket)?;
        answer![works(rig, &other)?, is_smc(&socket)?]
    }),
    Row::same(
        "epoll set up before tells of the connection and of data",
        "true true",
        |rig| {
            let (listener, address) = rig.listener()?;
            let socket = tcp(rig)?;
            socket.set_nonblocking(true)?;
            let all = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            let watch = Watch::new(&socket, all)?;
            watch.settle()?;
            convert(&socket)?;
            watch.settle()?;
            let _ = socket.connect(address);
            let server = listener.accept(0)?;
            let connected = watch.soon()?;
            await_events(&socket, libc::POLLOUT)?;
            watch.settle()?;
            server.send(b"hello", 0)?;
            answer![connected != "none", watch.soon()? != "none"]
        },
    ),
    Row::same("a connect that is refused", "ECONNREFUSED none", |rig| {
        let socket = tcp(rig)?;
        socket.set_nonblocking(true)?;
        convert(&socket)?;
        let _ = socket.connect(rig.refusing()?);
        await_events(&socket, libc::POLLERR)?;
        let error = socket.take_error()?.unwrap_or(Errno(0));
        answer![error.to_string(), socket.take_error()]
    }),
    Row::same(
        "eight threads use sockets that are converted and closed",
        "true",
        |rig| answer![race(rig, rig.race)? > 0],
    ),
];
