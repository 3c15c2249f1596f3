// SPDX-License-Identifier: GPL-2.0

//! `connect`: refused, pending, repeated, non-blocking.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use smc_user::Address;
use smc_user::Errno;
use smc_user::Socket;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::local;
use crate::semantics::Row;

const FAILED: i16 = libc::POLLERR | libc::POLLHUP;

pub(super) const ROWS: &[Row] = &[
    Row::same("a socket connects to itself", "ok 5 5 hello", |rig| {
        let socket = rig.open()?;
        socket.bind(rig.any())?;
        let loopback = match rig.any().is_ipv4() {
            true => IpAddr::from(Ipv4Addr::LOCALHOST),
            false => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        let connected = socket.connect(SocketAddr::new(loopback, local(&socket)?.port()));
        let sent = socket.send(b"hello", 0);
        let mut buffer = [0; 16];
        let received = socket.recv(&mut buffer, 0);
        let text = String::from_utf8_lossy(&buffer[..5]).into_owned();
        answer![connected, sent, received, text]
    })
    .c_is_wrong("it reads the kernel's own DECLINE"),
    Row::same(
        "while it is pending, neither an urgent byte nor an error is waited for",
        "EINPROGRESS EINVAL EAGAIN EAGAIN",
        |rig| {
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let attempt = socket.connect(rig.silent());
            answer![
                attempt,
                socket.recv(&mut [0], libc::MSG_OOB),
                socket.recv(&mut [0], libc::MSG_ERRQUEUE),
                socket.recv(&mut [0], 0),
            ]
        },
    )
    .c_differs("EINPROGRESS ENOTCONN ENOTCONN ENOTCONN"),
    Row::same(
        "with TCP_CORK at both ends it takes no longer",
        "true",
        |rig| {
            let cork =
                |socket: &Socket| socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_CORK, 1);
            // TCP keeps what is corked for 200 ms, and a handshake has two messages at least.
            for _ in 0..20 {
                let (listener, address) = rig.listener()?;
                cork(&listener)?;
                let socket = rig.open()?;
                cork(&socket)?;
                let start = Instant::now();
                socket.connect(address)?;
                listener.accept(0)?;
                if start.elapsed() < Duration::from_millis(180) {
                    return answer![true];
                }
            }
            answer![false]
        },
    )
    .c_is_wrong("TCP keeps the messages of its handshake"),
    Row::same("with a short address", "EINVAL", |rig| {
        let address = Address::from(SocketAddr::new(rig.context.addr, 1));
        answer![rig.open()?.connect(address.cut(1))]
    }),
    Row::same("with no family on a fresh socket", "ok", |rig| {
        answer![rig.open()?.connect(Address::unspecified())]
    })
    .c_is_wrong("it is refused"),
    Row::same(
        "with no family on a connection, which can be made again, or be a listener",
        "ok ECONNRESET ECONNRESET ok 5 ok ok",
        |rig| {
            let pair = rig.pair()?;
            let client = &pair.client;
            let undone = client.connect(Address::unspecified());
            let here = client.take_error()?;
            await_events(&pair.server, libc::POLLERR)?;
            let there = pair.server.recv(&mut [0], 0);
            let again = client.connect(pair.address);
            let server = pair.listener.accept(0)?;
            client.send(b"hello", 0)?;
            let got = server.recv(&mut [0; 8], 0);
            let twice = client.connect(Address::unspecified());
            answer![undone, here, there, again, got, twice, client.listen(1)]
        },
    )
    .c_is_wrong("it is refused"),
    Row::same(
        "with no family on a connection, whose peer reads what was sent before",
        "100 ECONNRESET",
        |rig| {
            for _ in 0..20 {
                let pair = rig.pair()?;
                pair.client.send(&[1; 100], 0)?;
                pair.client.connect(Address::unspecified())?;
                let mut buffer = [0; 128];
                let got = pair.server.recv(&mut buffer, 0);
                let end = pair.server.recv(&mut buffer, 0);
                if got != Ok(100) || end != Err(Errno::ECONNRESET) {
                    return answer![got, end];
                }
            }
            answer![100, "ECONNRESET".to_owned()]
        },
    )
    .c_is_wrong("connect is refused"),
    Row::same(
        "with no family on a listener, and on an attempt",
        "ok EINVAL EINPROGRESS ok ok 5",
        |rig| {
            let (listener, address) = rig.listener()?;
            let socket = rig.open()?;
            socket.listen(1)?;
            let undone = socket.connect(Address::unspecified());
            let accepted = socket.accept(libc::SOCK_NONBLOCK).map(|_| ());
            socket.set_nonblocking(true)?;
            let attempt = socket.connect(rig.silent());
            let again = socket.connect(Address::unspecified());
            // What is left of the listener does not get into the way of the attempt.
            for _ in 0..200 {
                socket.listen(1)?;
                socket.connect(Address::unspecified())?;
                let _ = socket.connect(rig.silent());
                socket.connect(Address::unspecified())?;
            }
            socket.set_nonblocking(false)?;
            let connected = socket.connect(address);
            let server = listener.accept(0)?;
            socket.send(b"hello", 0)?;
            let got = server.recv(&mut [0; 8], 0);
            answer![undone, accepted, attempt, again, connected, got]
        },
    )
    .c_is_wrong("it is refused"),
    Row::same("with an unknown family", "EAFNOSUPPORT", |rig| {
        answer![rig.open()?.connect(Address::of_family(99, 28))]
    })
    .c_differs("EINVAL"),
    Row::same(
        "refused, then again",
        "ECONNREFUSED ECONNREFUSED none",
        |rig| {
            let address = rig.refusing()?;
            let socket = rig.open()?;
            answer![
                socket.connect(address),
                socket.connect(address),
                socket.take_error()
            ]
        },
    ),
    Row::same("refused, then accepted", "ECONNREFUSED ok 5", |rig| {
        let refusing = rig.refusing()?;
        let (listener, address) = rig.listener()?;
        let socket = rig.open()?;
        let answers = (socket.connect(refusing), socket.connect(address));
        let server = listener.accept(0)?;
        socket.send(b"hello", 0)?;
        let received = server.recv(&mut [0; 5], libc::MSG_WAITALL);
        answer![answers.0, answers.1, received]
    }),
    Row::same("listen after a refusal", "ok", |rig| {
        let socket = rig.open()?;
        let _ = socket.connect(rig.refusing()?);
        answer![socket.listen(1)]
    })
    .c_differs("EINVAL"),
    Row::same(
        "refused while non-blocking",
        "EINPROGRESS true ECONNREFUSED none",
        |rig| {
            let address = rig.refusing()?;
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let first = socket.connect(address);
            let failed = await_events(&socket, FAILED)? & FAILED != 0;
            answer![first, failed, socket.take_error(), socket.take_error()]
        },
    ),
    Row::same("non-blocking", "EINPROGRESS 0x4 none", |rig| {
        let (_listener, address) = rig.listener()?;
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        let first = socket.connect(address);
        let events = await_events(&socket, libc::POLLOUT)?;
        answer![first, events, socket.take_error()]
    }),
    Row::differs(
        "non-blocking, collected by connect",
        "ok EISCONN",
        Some("EISCONN EISCONN"),
        |rig| {
            let (_listener, address) = rig.listener()?;
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(address);
            await_events(&socket, libc::POLLOUT)?;
            let second = socket.connect(address);
            // TCP also returns 0 if no call has observed the connection before.
            let second = if second.is_ok() && rig.context.family == crate::family::Family::Tcp {
                Err(Errno::EISCONN)
            } else {
                second
            };
            answer![second, socket.connect(address)]
        },
    ),
    Row::same("data after a non-blocking connect", "5 hello", |rig| {
        let (listener, address) = rig.listener()?;
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(address);
        await_events(&socket, libc::POLLOUT)?;
        let server = listener.accept(0)?;
        let sent = socket.send(b"hello", 0);
        let mut buffer = [0; 5];
        server.recv(&mut buffer, libc::MSG_WAITALL)?;
        answer![sent, String::from_utf8_lossy(&buffer).into_owned()]
    }),
    Row::same(
        "a second one while the first is pending",
        "EINPROGRESS EALREADY EALREADY",
        |rig| {
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let first = socket.connect(rig.silent());
            answer![
                first,
                socket.connect(rig.silent()),
                socket.connect(rig.silent())
            ]
        },
    ),
    Row::same(
        "a second one when the first has succeeded and is reset, and a third",
        "ECONNRESET EINPROGRESS",
        |rig| {
            let (listener, address) = rig.listener()?;
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(address);
            await_events(&socket, libc::POLLOUT)?;
            let server = listener.accept(0)?;
            server.set_linger(true, 0)?;
            drop(server);
            await_events(&socket, libc::POLLIN | libc::POLLHUP | libc::POLLERR)?;
            answer![socket.connect(address), socket.connect(address)]
        },
    )
    .c_is_wrong("it closes in order, and the second one succeeds"),
    Row::same(
        "other calls while one is pending",
        "EINVAL EINVAL EAGAIN EAGAIN 0x0",
        |rig| {
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(rig.silent());
            answer![
                socket.bind(rig.any()),
                socket.listen(1),
                socket.send(b"x", 0),
                socket.recv(&mut [0], 0),
                events(&socket),
            ]
        },
    )
    .c_differs("EINVAL EINVAL ENOTCONN ENOTCONN 0x0"),
    Row::same(
        "shutdown while one is pending, then another",
        "ok ok",
        |rig| {
            let (_listener, address) = rig.listener()?;
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(rig.silent());
            let shut = socket.shutdown(libc::SHUT_RDWR);
            socket.set_nonblocking(shut.is_err())?;
            answer![shut, socket.connect(address)]
        },
    )
    .c_differs("ENOTCONN EALREADY"),
    Row::same(
        "a blocking one ends at a shutdown",
        "ok ECONNRESET",
        |rig| {
            let socket = rig.open()?;
            thread::scope(|scope| {
                let connect = blocked(scope, || socket.connect(rig.silent()))?;
                let shut = socket.shutdown(libc::SHUT_RDWR);
                answer![shut, connect.join().unwrap_or(Err(Errno::EINTR))]
            })
        },
    )
    .c_differs("ENOTCONN ETIMEDOUT"),
    Row::same("close while one is pending", "EINPROGRESS", |rig| {
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        answer![socket.connect(rig.silent())]
    }),
    Row::same(
        "a send timeout bounds a blocking one",
        "EINPROGRESS",
        |rig| {
            let socket = rig.open()?;
            socket.set_duration(libc::SO_SNDTIMEO, Duration::from_millis(100))?;
            answer![socket.connect(rig.silent())]
        },
    )
    .c_is_wrong("starts the handshake on a half-open connection (defect 6)"),
    Row::same("from a bound socket", "true", |rig| {
        let pair = rig.pair_with(|client| Ok(client.bind(rig.any())?))?;
        let (here, there) = (local(&pair.client)?, pair.server.peer_address()?.to_ip());
        answer![Some(here) == there]
    }),
    Row::same("each end has the other's name", "true true", |rig| {
        let pair = rig.pair()?;
        answer![
            pair.client.local_address()? == pair.server.peer_address()?,
            pair.server.local_address()? == pair.client.peer_address()?,
        ]
    }),
];
