// SPDX-License-Identifier: GPL-2.0

//! Socket options: those of SMC, those of TCP and IP, and side effects that they must not have.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use nix::unistd::gettid;
use smc_tools::path::Path;
use smc_uapi::SMC_LIMIT_HS;
use smc_uapi::SOL_SMC;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::family::Family;
use crate::semantics::answer::answer;
use crate::semantics::rig::await_true;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::is_blocked;
use crate::semantics::rig::Rig;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

const TCP_FASTOPEN_CONNECT: i32 = 30;
const TCP_ULP: i32 = 31;
const TCP_FASTOPEN_KEY: i32 = 33;
const TCP_ZEROCOPY_RECEIVE: i32 = 35;
const IPV6_MTU_DISCOVER: i32 = 23;
const IP_MULTICAST_LOOP: i32 = 34;

/// Returns whether a connection uses the usual path after `prepare` was called for the client.
fn path_is_kept(
    rig: &Rig<'_>,
    prepare: impl FnOnce(&Socket) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let usual = rig.path()?.is_smc();
    let pair = rig.pair_with(prepare)?;
    Ok(Path::of(&pair.client)?.is_smc() == usual)
}

pub(super) const ROWS: &[Row] = &[
    Row::same("TCP_ZEROCOPY_RECEIVE of less than a page", "0 5 5", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        let mut value = [0; 24];
        value[8..12].copy_from_slice(&4096u32.to_ne_bytes());
        pair.server
            .option(libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &mut value)?;
        let field = |at: usize| usize::from(value[at]);
        answer![field(8), field(12), field(16)]
    })
    .c_is_wrong("it asks the idle TCP connection"),
    Row::differs(
        "of SMC: get, get unknown, set unknown",
        "0 EOPNOTSUPP EOPNOTSUPP",
        None,
        |rig| {
            let socket = rig.open()?;
            answer![
                socket.option_int(SOL_SMC, SMC_LIMIT_HS),
                socket.option_int(SOL_SMC, 99),
                socket.set_option_int(SOL_SMC, 99, 1),
            ]
        },
    ),
    Row::differs(
        "of SMC: set and read back, set short",
        "ok 1 EINVAL",
        None,
        |rig| {
            let socket = rig.open()?;
            answer![
                socket.set_option_int(SOL_SMC, SMC_LIMIT_HS, 1),
                socket.option_int(SOL_SMC, SMC_LIMIT_HS),
                socket.set_option(SOL_SMC, SMC_LIMIT_HS, &[1, 0]),
            ]
        },
    ),
    Row::same(
        "upper layer protocol smc: not on a socket of SMC",
        "true",
        |rig| {
            let expected = match rig.context.family {
                Family::Tcp | Family::Bare => Ok(()),
                Family::Ulp => Err(Errno::EEXIST),
                Family::Smc | Family::Ipproto => Err(Errno::EOPNOTSUPP),
            };
            answer![rig.open()?.set_option(libc::IPPROTO_TCP, TCP_ULP, b"smc") == expected]
        },
    ),
    Row::same("one byte of IP_TOS is taken", "ok 16", |rig| {
        let socket = rig.open()?;
        let result = socket.set_option(libc::IPPROTO_IP, libc::IP_TOS, &[16]);
        answer![result, socket.option_int(libc::IPPROTO_IP, libc::IP_TOS)]
    })
    .c_is_wrong("EINVAL after the value was stored (defect 4)"),
    Row::same("bad maximum segment size", "EINVAL", |rig| {
        answer![rig
            .open()?
            .set_option_int(libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1 << 20)]
    }),
    Row::same(
        "TCP_NODELAY is read back, before and after connect",
        "1 1 0",
        |rig| {
            let set = |socket: &Socket, on| {
                socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, on)?;
                socket.option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY)
            };
            let pair = rig.pair_with(|client| Ok(set(client, 1).map(drop)?))?;
            let after = pair.client.option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY);
            answer![set(&pair.server, 1), after, set(&pair.client, 0)]
        },
    ),
    Row::same(
        "keepalive is read back, before and after connect",
        "1 1 0",
        |rig| {
            let name = libc::SO_KEEPALIVE;
            let pair =
                rig.pair_with(|client| Ok(client.set_option_int(libc::SOL_SOCKET, name, 1)?))?;
            let after = pair.client.option_int(libc::SOL_SOCKET, name);
            pair.server.set_option_int(libc::SOL_SOCKET, name, 1)?;
            let server = pair.server.option_int(libc::SOL_SOCKET, name);
            pair.client.set_option_int(libc::SOL_SOCKET, name, 0)?;
            answer![
                after,
                server,
                pair.client.option_int(libc::SOL_SOCKET, name)
            ]
        },
    ),
    Row::same(
        "a linger time set before connect is there after it",
        "true 5",
        // After a fallback the C module has 0 there, so that close resets (defect 3).
        |rig| {
            let pair = rig.pair_with(|client| Ok(client.set_linger(true, 5)?))?;
            let (on, seconds) = pair.client.linger()?;
            answer![on, seconds]
        },
    ),
    Row::differs_over_smc(
        "what only TCP has, on a connection: zero copy, peek offset",
        "EOPNOTSUPP EOPNOTSUPP",
        "ok ok",
        |rig| {
            let pair = rig.pair()?;
            let set = |name| pair.client.set_option_int(libc::SOL_SOCKET, name, 1);
            answer![set(libc::SO_ZEROCOPY), set(libc::SO_PEEK_OFF)]
        },
    ),
    Row::differs_over_smc(
        "a notice of zero copy wakes a poller",
        "EOPNOTSUPP",
        "0x8 true",
        |rig| {
            const MSG_ZEROCOPY: i32 = 0x400_0000;
            let pair = rig.pair()?;
            let taken = pair
                .client
                .set_option_int(libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
            if taken.is_err() {
                return answer![taken];
            }
            thread::scope(|scope| {
                let start = Instant::now();
                let poller = blocked(scope, || poll_fd(&pair.client, 0, SOON))?;
                let sent = pair.client.send(&[0x7a; 1 << 14], MSG_ZEROCOPY)?;
                pair.server.recv(&mut vec![0; sent], libc::MSG_WAITALL)?;
                let events = poller.join().unwrap_or(Err(Errno::EINTR));
                // poll(2) looks once more when its time is over.
                answer![events, start.elapsed() < SOON / 2]
            })
        },
    ),
    Row::differs(
        "what only TCP has, before: zero copy, peek offset",
        "EOPNOTSUPP EOPNOTSUPP",
        Some("ok ok"),
        |rig| {
            let socket = rig.open()?;
            let set = |name| socket.set_option_int(libc::SOL_SOCKET, name, 1);
            answer![set(libc::SO_ZEROCOPY), set(libc::SO_PEEK_OFF)]
        },
    ),
    Row::same(
        "a low-water mark set before the handshake does not hold it up",
        "true 3",
        |rig| {
            let start = Instant::now();
            let set = |socket: &Socket| {
                socket.set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 30_000)
            };
            let (listener, address) = rig.listener()?;
            set(&listener)?;
            let client = rig.open()?;
            set(&client)?;
            client.connect(address)?;
            let server = listener.accept(0)?;
            let is_prompt = start.elapsed() < SOON;
            client.send(b"end", 0)?;
            client.shutdown(libc::SHUT_WR)?;
            answer![is_prompt, server.recv(&mut [0; 8], 0)]
        },
    )
    .c_may_be_wrong(
        "its TCP socket has the mark, too: a client that sleeps is not woken by the ACCEPT",
    ),
    Row::same(
        "a low-water mark set before the handshake counts for poll",
        "0x4 0x5",
        |rig| {
            let (listener, address) = rig.listener()?;
            listener.set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 5)?;
            let client = rig.open()?;
            client.connect(address)?;
            let server = listener.accept(0)?;
            client.send(b"abc", 0)?;
            thread::sleep(WHILE);
            let few = events(&server);
            client.send(b"de", 0)?;
            thread::sleep(WHILE);
            answer![few, events(&server)]
        },
    )
    .c_is_wrong("poll has no low-water mark"),
    Row::same("buffer sizes are doubled as TCP does", "8192 8192", |rig| {
        let socket = rig.open()?;
        let set = |name| {
            socket.set_option_int(libc::SOL_SOCKET, name, 4096)?;
            socket.option_int(libc::SOL_SOCKET, name)
        };
        answer![set(libc::SO_SNDBUF), set(libc::SO_RCVBUF)]
    }),
    Row::same("TCP information can be read", "true", |rig| {
        let mut info = [0; 64];
        let len = rig
            .pair()?
            .client
            .option(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        // The first byte is the state: established.
        answer![len == info.len() && info[0] == 1]
    }),
    Row::same("user timeout is passed on", "ok 5000", |rig| {
        let socket = rig.open()?;
        let name = libc::TCP_USER_TIMEOUT;
        let result = socket.set_option_int(libc::IPPROTO_TCP, name, 5000);
        answer![result, socket.option_int(libc::IPPROTO_TCP, name)]
    }),
    Row::same(
        "a name of three letters for the congestion control",
        "ENOENT",
        |rig| {
            let name = libc::TCP_CONGESTION;
            answer![rig.open()?.set_option(libc::IPPROTO_TCP, name, b"abc")]
        },
    )
    .c_is_wrong("EINVAL for every value shorter than 4 bytes (defect 4)"),
    Row::same("IP_TOS does not change the path", "true", |rig| {
        let (level, name) = (libc::IPPROTO_IP, libc::IP_TOS);
        answer![path_is_kept(rig, |client| Ok(
            client.set_option_int(level, name, 8)?
        ))?]
    }),
    Row::same(
        "an option of IP with a number of TCP fast open does not",
        "true",
        |rig| {
            let (level, name) = if rig.context.addr.is_ipv6() {
                (libc::IPPROTO_IPV6, IPV6_MTU_DISCOVER)
            } else {
                (libc::IPPROTO_IP, IP_MULTICAST_LOOP)
            };
            answer![path_is_kept(rig, |client| Ok(
                client.set_option_int(level, name, 1)?
            ))?]
        },
    )
    .c_is_wrong("compares the number without the level (defect 4)"),
    Row::same(
        "TCP fast open makes it TCP, and it works",
        "false hello",
        |rig| {
            let pair = rig.pair_with(|client| {
                let (level, name) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN);
                client.set_option_int(level, name, 1)?;
                Ok(())
            });
            // TCP itself refuses the option on a connecting socket; data must pass in either case.
            let pair = pair.or_else(|_| rig.pair())?;
            let mut buffer = [0; 5];
            pair.client.send(b"hello", 0)?;
            pair.server.recv(&mut buffer, libc::MSG_WAITALL)?;
            answer![
                Path::of(&pair.client)?.is_smc(),
                String::from_utf8_lossy(&buffer).into_owned()
            ]
        },
    ),
    Row::same("deferred TCP fast open sends its data", "hello", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        client.set_option_int(libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)?;
        client.connect(address)?;
        client.send(b"hello", 0)?;
        let server = listener.accept(0)?;
        let mut buffer = [0; 5];
        server.recv(&mut buffer, libc::MSG_WAITALL)?;
        answer![String::from_utf8_lossy(&buffer).into_owned()]
    }),
    Row::same("fast open data without a connect", "5 hello", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        let sent = client.send_to(b"hello", libc::MSG_FASTOPEN, address);
        let server = listener.accept(0)?;
        let mut buffer = [0; 5];
        server.recv(&mut buffer, libc::MSG_WAITALL)?;
        answer![sent, String::from_utf8_lossy(&buffer).into_owned()]
    }),
    Row::same("TCP fast open of a listener, set again", "ok ok", |rig| {
        let listener = rig.open_server()?;
        listener.set_option_int(libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 5)?;
        listener.bind(rig.any())?;
        listener.listen(1)?;
        let key = listener.set_option(libc::IPPROTO_TCP, TCP_FASTOPEN_KEY, &[7; 16]);
        let queue = listener.set_option_int(libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 6);
        answer![key, queue]
    }),
    Row::same(
        "a filter while nobody answers: at once",
        "true EINPROGRESS EINVAL",
        |rig| {
            let client = rig.open()?;
            client.set_nonblocking(true)?;
            let connect = client.connect(rig.silent());
            let start = Instant::now();
            // One without instructions.
            let result = client.set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 16]);
            answer![start.elapsed() < SOON / 4, connect, result]
        },
    ),
    Row::same(
        "fast open data while it connects, and SO_RCVLOWAT: the usual path",
        "true",
        |rig| {
            let usual = rig.path()?.is_smc();
            let (listener, address) = rig.listener()?;
            let client = rig.open()?;
            client.set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1000)?;
            client.set_nonblocking(true)?;
            let _ = client.connect(address);
            // What it says depends on how far the connection is.
            let _ = client.send_to(b"hello", libc::MSG_FASTOPEN | libc::MSG_DONTWAIT, address);
            let server = listener.accept(0)?;
            poll_fd(&client, libc::POLLOUT, SOON)?;
            answer![Path::of(&server)?.is_smc() == usual]
        },
    )
    .c_is_wrong("the handshake waits for as many bytes as SO_RCVLOWAT says"),
    Row::same("TCP fast open on a connection", "EINVAL", |rig| {
        let pair = rig.pair()?;
        answer![pair
            .client
            .set_option_int(libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)]
    }),
    Row::same("deferred accept waits for data", "5", |rig| {
        let (listener, address) = rig.listener()?;
        listener.set_option_int(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 3)?;
        let client = rig.open()?;
        client.connect(address)?;
        let acceptor = gettid();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = await_true("accept(2)", || is_blocked(acceptor));
                client.send(b"hello", 0)
            });
            let server = listener.accept(0)?;
            answer![server.recv(&mut [0; 5], libc::MSG_DONTWAIT)]
        })
    }),
    Row::same(
        "deferred accept: a silent client delays nobody",
        "0x0 true 5 0x0 7",
        |rig| {
            let (listener, address) = deferring(rig, DEFERRED)?;
            let (silent, client) = (rig.open()?, rig.open()?);
            silent.connect(address)?;
            thread::sleep(WHILE);
            let before = events(&listener);
            client.connect(address)?;
            client.send(b"hello", 0)?;
            let start = Instant::now();
            let server = listener.accept(0)?;
            let is_quick = start.elapsed() < Duration::from_secs(3);
            let got = server.recv(&mut [0; 8], libc::MSG_DONTWAIT);
            let after = events(&listener);
            silent.send(b"at last", 0)?;
            let later = listener.accept(0)?.recv(&mut [0; 8], libc::MSG_DONTWAIT);
            answer![before, is_quick, got, after, later]
        },
    )
    .c_is_wrong("accept waits for the data of the first"),
    Row::same("deferred accept: the end counts as data", "0", |rig| {
        let (listener, address) = deferring(rig, DEFERRED)?;
        let client = rig.open()?;
        client.connect(address)?;
        drop(client);
        answer![listener.accept(0)?.recv(&mut [0; 8], libc::MSG_DONTWAIT)]
    }),
    Row::same(
        "deferred accept: a listener that is closed resets who waits",
        "ECONNRESET",
        |rig| {
            let (listener, address) = deferring(rig, DEFERRED)?;
            let client = rig.open()?;
            client.connect(address)?;
            thread::sleep(WHILE);
            drop(listener);
            client.set_timeout(Duration::from_secs(3))?;
            // TCP's client hears of it when it sends, ours at once.
            let sent = client.send(b"hello", 0);
            answer![sent.and_then(|_| client.recv(&mut [0; 8], 0))]
        },
    )
    .c_may_be_wrong("the client reads the end of the stream"),
    Row::same(
        "deferred accept: the port of a listener that is closed is free at once",
        "0",
        |rig| {
            for round in 0..6 {
                // And those that wait for accept.
                let (listener, address) = deferring(rig, DEFERRED * (round % 2))?;
                let clients = (0..8).map(|_| rig.open()).collect::<Result<Vec<_>, _>>()?;
                for client in &clients {
                    client.connect(address)?;
                }
                thread::sleep(Duration::from_millis(50));
                let next = rig.open_server()?;
                drop(listener);
                let bound = next.bind(address);
                if bound.is_err() {
                    return answer![bound];
                }
            }
            answer![0]
        },
    )
    .c_may_be_wrong("accept waits for the data of each"),
];

/// A listener with so many seconds of TCP_DEFER_ACCEPT.
fn deferring(rig: &Rig<'_>, seconds: i32) -> anyhow::Result<(Socket, SocketAddr)> {
    let (listener, address) = rig.listener()?;
    listener.set_option_int(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)?;
    Ok((listener, address))
}

/// Seconds of TCP_DEFER_ACCEPT that are longer than any wait which is right.
const DEFERRED: i32 = 8;
