// SPDX-License-Identifier: GPL-2.0

//! A listening socket.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use nix::sys::stat::fstat;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::family::Family;
use crate::netns;
use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::local;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCOUTQ;
use crate::semantics::rig::SIOCOUTQNSD;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

pub(super) const ROWS: &[Row] = &[
    Row::same("without a bind, then again", "ok ok true", |rig| {
        let socket = rig.open_server()?;
        let answers = (socket.listen(1), socket.listen(2));
        answer![answers.0, answers.1, local(&socket)?.port() != 0]
    }),
    Row::same("poll", "0x0", |rig| answer![events(&rig.listener()?.0)]),
    Row::same(
        "TCP's list has the inodes of both ends, and of the listener",
        "true true true",
        |rig| {
            let (listener, address) = rig.listener()?;
            let client = rig.open()?;
            client.connect(address)?;
            let server = listener.accept(0)?;
            let is_listed = |socket: &Socket, is_client| {
                let inode = fstat(socket)?.st_ino;
                let list = netns::inside(rig.netns(is_client), || {
                    let of =
                        |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
                    Ok(of("tcp")? + &of("tcp6")?)
                })?;
                let column = |line: &str| line.split_whitespace().nth(9)?.parse().ok();
                Ok::<_, anyhow::Error>(list.lines().any(|line| column(line) == Some(inode)))
            };
            answer![
                is_listed(&client, true)?,
                is_listed(&server, false)?,
                is_listed(&listener, false)?
            ]
        },
    )
    .c_is_wrong("it has those of inner sockets"),
    Row::same("send and receive", "EPIPE ENOTCONN", |rig| {
        let (listener, _) = rig.listener()?;
        answer![listener.send(b"x", 0), listener.recv(&mut [0], 0)]
    }),
    Row::same("connect and bind", "EISCONN EINVAL", |rig| {
        let (listener, address) = rig.listener()?;
        answer![listener.connect(address), listener.bind(rig.any())]
    })
    .c_differs("EINVAL EINVAL"),
    Row::same("queue lengths", "EINVAL EINVAL EINVAL", |rig| {
        let (listener, _) = rig.listener()?;
        answer![
            listener.ioctl_int(FIONREAD),
            listener.ioctl_int(SIOCOUTQ),
            listener.ioctl_int(SIOCOUTQNSD),
        ]
    }),
    Row::same("accepts connections: the option", "0 true", |rig| {
        let read =
            |socket: &smc_user::Socket| socket.option_int(libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
        // For a converted socket, the kernel queries the original TCP socket.
        let expected = i32::from(rig.context.family != Family::Ulp);
        answer![
            read(&rig.open_server()?),
            read(&rig.listener()?.0)? == expected
        ]
    }),
    Row::same(
        "accept without a connection, non-blocking",
        "EAGAIN",
        |rig| {
            let (listener, _) = rig.listener()?;
            listener.set_nonblocking(true)?;
            answer![listener.accept(0).map(drop)]
        },
    ),
    Row::same(
        "accept without a connection, with a timeout",
        "EAGAIN true",
        |rig| {
            let (listener, _) = rig.listener()?;
            listener.set_timeout(Duration::from_millis(200))?;
            let start = Instant::now();
            let result = listener.accept(0).map(drop);
            answer![result, start.elapsed() >= Duration::from_millis(150)]
        },
    ),
    Row::same("poll with a connection waiting", "0x1", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        client.connect(address)?;
        answer![await_events(&listener, libc::POLLIN)?]
    }),
    Row::same("a poll that waits is woken by a connection", "0x1", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        thread::scope(|scope| {
            let poll = blocked(scope, || poll_fd(&listener, libc::POLLIN, SOON))?;
            client.connect(address)?;
            answer![poll.join().unwrap_or(Err(Errno::EINTR))]
        })
    }),
    Row::same("connections wait in order", "true true", |rig| {
        let (listener, address) = rig.listener()?;
        let (first, second) = (rig.open()?, rig.open()?);
        first.connect(address)?;
        await_events(&listener, libc::POLLIN)?;
        second.connect(address)?;
        let accepted = (listener.accept(0)?, listener.accept(0)?);
        answer![
            accepted.0.peer_address()? == first.local_address()?,
            accepted.1.peer_address()? == second.local_address()?,
        ]
    }),
    Row::same(
        "TCP_INFO: how many connections wait, and the backlog",
        "3 7 1 9",
        |rig| {
            let (listener, address) = rig.listener()?;
            listener.listen(7)?;
            // Fields of `struct tcp_info` that have another meaning for a listener.
            let queue = || {
                let mut info = [0; 32];
                listener.option(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
                let [.., a, b, c, d, e, f, g, h] = info;
                let field = i32::from_ne_bytes;
                Ok::<_, Errno>((field([a, b, c, d]), field([e, f, g, h])))
            };
            let clients = [rig.open()?, rig.open()?, rig.open()?];
            for client in &clients {
                client.connect(address)?;
            }
            let waiting = |number| move || queue().is_ok_and(|(waiting, _)| waiting == number);
            await_true("three connections", waiting(3))?;
            let before = queue()?;
            let _accepted = (listener.accept(0)?, listener.accept(0)?);
            listener.listen(9)?;
            let after = queue()?;
            answer![before.0, before.1, after.0, after.1]
        },
    )
    .c_is_wrong("those that it has taken from TCP are not counted"),
    Row::same("flags of accept", "EAGAIN", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        client.connect(address)?;
        let server = listener.accept(libc::SOCK_NONBLOCK)?;
        answer![server.recv(&mut [0], 0)]
    }),
    Row::same("data sent before accept is there after it", "5", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        client.connect(address)?;
        client.send(b"hello", 0)?;
        let server = listener.accept(0)?;
        answer![server.recv(&mut [0; 5], libc::MSG_WAITALL)]
    }),
    Row::same(
        "close resets connections that nobody accepted",
        "ECONNRESET 0",
        |rig| {
            let (listener, address) = rig.listener()?;
            let client = rig.open()?;
            client.connect(address)?;
            await_events(&listener, libc::POLLIN)?;
            drop(listener);
            answer![client.recv(&mut [0], 0), client.recv(&mut [0], 0)]
        },
    )
    .c_is_wrong("they end in order"),
    Row::same("close frees the port for a new listener", "ok 5", |rig| {
        let (listener, address) = rig.listener()?;
        drop(listener);
        let listener = rig.open_server()?;
        listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        await_true("the port", || listener.bind(address).is_ok())?;
        let listening = listener.listen(4);
        let client = rig.open()?;
        client.connect(address)?;
        client.send(b"hello", 0)?;
        let server = listener.accept(0)?;
        answer![listening, server.recv(&mut [0; 5], libc::MSG_WAITALL)]
    }),
    Row::same(
        "a listen that failed, then a good one",
        "EADDRINUSE ok 5",
        |rig| {
            let bound = |port| -> anyhow::Result<_> {
                let socket = rig.open_server()?;
                socket.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
                socket.bind(SocketAddr::new(rig.context.addr, port))?;
                Ok(socket)
            };
            let first = bound(0)?;
            let address = local(&first)?;
            let second = bound(address.port())?;
            first.listen(4)?;
            let failed = second.listen(4);
            drop(first);
            await_true("the port", || second.listen(4).is_ok())?;
            let listening = second.listen(4);

            let client = rig.open()?;
            client.connect(address)?;
            client.send(b"hello", 0)?;
            let server = second.accept(0)?;
            answer![
                failed,
                listening,
                server.recv(&mut [0; 5], libc::MSG_WAITALL)
            ]
        },
    )
    .c_crashes("the next connection recurses without end (defect 1)"),
    Row::same(
        "shut down: accept, then connect, which works",
        "ok EINVAL ok 5",
        |rig| {
            let (listener, address) = rig.listener()?;
            let socket = rig.listener()?.0;
            let shut = socket.shutdown(libc::SHUT_RDWR);
            socket.set_nonblocking(true)?;
            let accepted = socket.accept(0).map(drop);
            socket.set_nonblocking(false)?;
            let connected = socket.connect(address);
            let mut received = Ok(0);
            if connected.is_ok() {
                listener.accept(0)?.send(b"hello", 0)?;
                received = socket.recv(&mut [0; 5], libc::MSG_WAITALL);
            }
            answer![shut, accepted, connected, received]
        },
    )
    .c_differs("ENOTCONN EAGAIN EINVAL 0"),
    Row::same(
        "a blocked accept ends when it is shut down",
        "EINVAL",
        |rig| {
            let (listener, _) = rig.listener()?;
            thread::scope(|scope| {
                let accept = blocked(scope, || listener.accept(0).map(drop))?;
                listener.shutdown(libc::SHUT_RD)?;
                answer![accept.join().unwrap_or(Err(Errno::EINTR))]
            })
        },
    )
    .c_is_wrong("a listener cannot be shut down"),
    Row::same(
        "a listen that failed leaves a socket of TCP alone as it was",
        "EADDRINUSE EINPROGRESS 0x4",
        |rig| {
            let (other, address) = rig.listener()?;
            let (listener, taken) = {
                let listener = rig.open_server()?;
                listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
                listener.bind(SocketAddr::new(rig.context.addr, 0))?;
                let taken = local(&listener)?;
                (listener, taken)
            };
            let socket = rig.open_server()?;
            socket.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 1)?;
            socket.bind(taken)?;
            listener.listen(1)?;
            let failed = socket.listen(1);
            socket.set_nonblocking(true)?;
            let connected = socket.connect(address);
            // Blocks until events of the TCP socket wake it.
            let events = poll_fd(&socket, libc::POLLOUT, SOON);
            drop(other);
            answer![failed, connected, events]
        },
    )
    .c_crashes("the next connection recurses without end (defect 1)"),
    Row::same(
        "two share a port: every connection is accepted",
        "1 12",
        |rig| {
            let (listeners, address) = rig.sharing::<2>()?;
            let option = listeners[0].option_int(libc::SOL_SOCKET, libc::SO_REUSEPORT);
            let accepted: usize = rig.shares(&listeners, address, 12)?.iter().sum();
            answer![option, accepted]
        },
    )
    .c_is_wrong("SO_REUSEPORT is refused for AF_SMC"),
    Row::same("a full backlog refuses nobody for good", "true", |rig| {
        let listener = rig.open_server()?;
        listener.bind(SocketAddr::new(rig.context.addr, 0))?;
        listener.listen(1)?;
        let address = local(&listener)?;
        // A dropped SYN is retransmitted after 1, 3 and 7 s.
        listener.set_timeout(4 * SOON)?;
        let connect_once = || -> anyhow::Result<usize> {
            let client = rig.open()?;
            client.set_timeout(4 * SOON)?;
            client.connect(address)?;
            client.send(b"x", 0)?;
            Ok(client.recv(&mut [0], 0)?)
        };
        let netns = rig.context.client_netns.as_deref();
        thread::scope(|scope| {
            let clients =
                [(); 6].map(|()| scope.spawn(|| netns::enter(netns).and_then(|()| connect_once())));
            for _ in &clients {
                let server = listener.accept(0)?;
                server.recv(&mut [0], 0)?;
                server.send(b"y", 0)?;
            }
            let served = clients.map(|client| client.join().ok().and_then(Result::ok));
            answer![served == [Some(1); 6]]
        })
    }),
    Row::same("a backlog of three holds four", "4 true", |rig| {
        let listener = rig.open_server()?;
        listener.bind(SocketAddr::new(rig.context.addr, 0))?;
        listener.listen(3)?;
        let address = local(&listener)?;
        let connect = |family: Family| -> anyhow::Result<smc_user::Socket> {
            let client = family.open(rig.context.addr)?;
            client.set_nonblocking(true)?;
            let _ = client.connect(address);
            Ok(client)
        };
        let is_connected = |client: &smc_user::Socket| {
            events(client) & (libc::POLLOUT | libc::POLLERR) == libc::POLLOUT
        };
        // One after the other: SMC handshakes that have begun do not count yet.
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = connect(rig.context.family)?;
            await_true("a connection", || is_connected(&client))?;
            thread::sleep(WHILE);
            clients.push(client);
        }
        // The queue of TCP, where connections wait for the listener's work, may hold one more.
        for family in [Family::Tcp, rig.context.family] {
            for _ in 0..4 {
                clients.push(connect(family)?);
            }
            thread::sleep(WHILE);
        }
        let count =
            |clients: &[smc_user::Socket]| clients.iter().filter(|c| is_connected(c)).count();
        answer![
            count(&clients[..4]) + count(&clients[8..]),
            count(&clients[4..8]) <= 1
        ]
    })
    .c_is_wrong("it holds more"),
];
