// SPDX-License-Identifier: GPL-2.0

//! Half-closed, closed and reset connections.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use nix::unistd::gettid;
use smc_tools::path::Path;
use smc_user::Errno;
use smc_user::Socket;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::fill;
use crate::semantics::rig::is_blocked;
use crate::semantics::rig::local;
use crate::semantics::rig::tcp_state;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::WHILE;
use crate::semantics::Pair;
use crate::semantics::Rig;
use crate::semantics::Row;

/// Sends until that fails, and returns the errno: after a reset the first send may still succeed.
fn send_error(socket: &Socket) -> anyhow::Result<Errno> {
    let mut error = None;
    await_true("an error of send", || {
        error = socket.send(b"x", 0).err();
        error.is_some()
    })?;
    error.ok_or_else(|| anyhow::anyhow!("no error"))
}

/// Closes with a linger time, after `before`, while all buffers are full and the peer begins to read only later.
/// Returns whether it waited for that, and whether the peer got all.
fn linger(rig: &Rig<'_>, before: impl Fn(&Socket) -> Result<()>) -> Result<String> {
    let Pair { client, server, .. } = rig.pair()?;
    client.set_linger(true, 10)?;
    let sent = fill(&client);
    before(&client)?;
    let closer = gettid();
    let reader = thread::spawn(move || {
        let _ = await_true("close(2)", || is_blocked(closer));
        (Instant::now(), read_all(&server))
    });
    drop(client);
    let closed = Instant::now();
    let (began, got) = reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))?;
    answer![closed > began, got == sent]
}

/// Reads until the end of the stream, or an error; returns the number of bytes.
fn read_all(socket: &Socket) -> usize {
    let (mut buffer, mut got) = ([0; 4096], 0);
    while let Ok(len @ 1..) = socket.recv(&mut buffer, 0) {
        got += len;
    }
    got
}

/// Returns whether the port of a client is free soon after a close for which `prepare` is called before. Somebody else
/// may get the port meanwhile, so there are three trials.
fn frees_port(rig: &Rig<'_>, prepare: impl Fn(&Pair) -> Result<()>) -> Result<bool> {
    for _ in 0..3 {
        let pair = rig.pair()?;
        let at = local(&pair.client)?;
        prepare(&pair)?;
        let Pair { client, server, .. } = pair;
        drop(client);
        // Over RDMA the answer of the peer's kernel comes first.
        for _ in 0..20 {
            if rig.open()?.bind(at).is_ok() {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(50));
        }
        drop(server);
    }
    Ok(false)
}

fn is_broken(error: Errno) -> bool {
    matches!(
        error,
        Errno::EPIPE | Errno::ECONNRESET | Errno::ECONNABORTED
    )
}

/// Waits until TCP has what it waits for of its peer, and returns both states.
fn settled(pair: &Pair, states: [i32; 2]) -> Result<[i32; 2]> {
    let read = || Ok::<_, anyhow::Error>([tcp_state(&pair.client)?, tcp_state(&pair.server)?]);
    let _ = await_true("states", || read().is_ok_and(|found| found == states));
    read()
}

pub(super) const ROWS: &[Row] = &[
    Row::same(
        "the peer's name after both streams have ended, before the last data are read",
        "true ok",
        |rig| {
            let Pair { client, server, .. } = rig.pair()?;
            client.shutdown(libc::SHUT_WR)?;
            await_events(&server, libc::POLLRDHUP)?;
            let sent = fill(&server);
            server.shutdown(libc::SHUT_WR)?;
            thread::sleep(WHILE);
            let name = match Path::of(&client)? {
                // All data have arrived.
                Path::SmcD => Ok(()),
                _ => client.peer_address().map(drop),
            };
            answer![read_all(&client) == sent, name]
        },
    )
    .c_is_wrong("it tells the name in two states alone, and the last data are lost"),
    Row::same(
        "TCP_INFO: the state of both ends as one stream after the other ends",
        "1 1 8 5 8 7 7",
        |rig| {
            let pair = rig.pair()?;
            let before = [tcp_state(&pair.client)?, tcp_state(&pair.server)?];
            pair.client.shutdown(libc::SHUT_WR)?;
            pair.await_end()?;
            let at_once = tcp_state(&pair.server)?;
            let half = settled(&pair, [5, 8])?;
            pair.server.shutdown(libc::SHUT_WR)?;
            let both = settled(&pair, [7, 7])?;
            answer![before[0], before[1], at_once, half[0], half[1], both[0], both[1]]
        },
    )
    .c_may_be_wrong("it tells of TCP alone, which may hear of the end later"),
    Row::same(
        "write half: peer's poll and receive, own send",
        "0x2005 0 EPIPE",
        |rig| {
            let pair = rig.pair()?;
            pair.client.shutdown(libc::SHUT_WR)?;
            pair.await_end()?;
            answer![
                events(&pair.server),
                pair.server.recv(&mut [0], 0),
                pair.client.send(b"x", 0),
            ]
        },
    ),
    Row::same(
        "write half: the other direction still works",
        "5 hello",
        |rig| {
            let pair = rig.pair()?;
            pair.client.shutdown(libc::SHUT_WR)?;
            pair.await_end()?;
            let sent = pair.server.send(b"hello", 0);
            let mut buffer = [0; 5];
            pair.client.recv(&mut buffer, libc::MSG_WAITALL)?;
            answer![sent, String::from_utf8_lossy(&buffer).into_owned()]
        },
    ),
    Row::same(
        "closed by the peer: the first send is taken, the next not",
        "5 0 0x201d EPIPE",
        |rig| {
            let pair = rig.pair()?;
            drop(pair.client);
            await_true("the end", || {
                pair.server.recv(&mut [0], libc::MSG_PEEK) == Ok(0)
            })?;
            let first = pair.server.send(b"hello", 0);
            await_true("the answer", || events(&pair.server) & libc::POLLHUP != 0)?;
            answer![
                first,
                pair.server.recv(&mut [0], 0),
                events(&pair.server),
                pair.server.send(b"x", 0),
            ]
        },
    )
    .c_is_wrong("the first gives ECONNRESET"),
    Row::same(
        "close does not wait for the peer to read, who gets it all",
        "true true 0",
        |rig| {
            let pair = rig.pair()?;
            let sent = fill(&pair.client);
            let start = Instant::now();
            drop(pair.client);
            let is_quick = start.elapsed() < Duration::from_millis(1_800);
            thread::sleep(WHILE);
            let (mut buffer, mut got) = ([0; 4096], 0);
            let end = loop {
                match pair.server.recv(&mut buffer, 0) {
                    Ok(len @ 1..) => got += len,
                    end => break end,
                }
            };
            answer![is_quick, got == sent, end]
        },
    )
    .c_is_wrong("it waits for two seconds, and what has not left then is lost"),
    Row::same("write half: data before it arrives first", "5 0", |rig| {
        let pair = rig.pair()?;
        pair.client.send(b"hello", 0)?;
        pair.client.shutdown(libc::SHUT_WR)?;
        let mut buffer = [0; 16];
        answer![
            pair.server.recv(&mut buffer, libc::MSG_WAITALL),
            pair.server.recv(&mut buffer, 0),
        ]
    }),
    Row::same(
        "both halves, and close, with all buffers full: a reset",
        "true ECONNRESET",
        |rig| {
            let pair = rig.pair()?;
            for socket in [&pair.client, &pair.server] {
                socket.set_nonblocking(true)?;
                while socket.send(&[0; 4096], 0).is_ok() {}
            }
            pair.client.shutdown(libc::SHUT_RDWR)?;
            let Pair { client, server, .. } = pair;
            drop(client);
            let is_reset = await_events(&server, libc::POLLERR).is_ok();
            answer![is_reset, server.take_error()?]
        },
    )
    .c_may_be_wrong("the peer is not told, if its own data fills the buffers"),
    Row::same("read half: own poll and receive", "ok 0x2005 0", |rig| {
        let pair = rig.pair()?;
        let result = pair.client.shutdown(libc::SHUT_RD);
        answer![result, events(&pair.client), pair.client.recv(&mut [0], 0)]
    }),
    Row::same("both halves: own poll", "ok 0x2015", |rig| {
        let pair = rig.pair()?;
        let result = pair.client.shutdown(libc::SHUT_RDWR);
        await_events(&pair.client, libc::POLLHUP)?;
        answer![result, events(&pair.client)]
    }),
    Row::same(
        "both write halves, one after the other: polls",
        "0x2015 0x2015",
        |rig| {
            let pair = rig.pair()?;
            pair.client.shutdown(libc::SHUT_WR)?;
            pair.await_end()?;
            pair.server.shutdown(libc::SHUT_WR)?;
            await_events(&pair.client, libc::POLLHUP)?;
            await_events(&pair.server, libc::POLLHUP)?;
            answer![events(&pair.client), events(&pair.server)]
        },
    ),
    Row::same(
        "both write halves: name of the peer, shutdown again",
        "ENOTCONN ENOTCONN",
        |rig| {
            let pair = rig.pair()?;
            pair.client.shutdown(libc::SHUT_WR)?;
            pair.await_end()?;
            pair.server.shutdown(libc::SHUT_WR)?;
            await_events(&pair.client, libc::POLLHUP)?;
            await_true("the connection's end", || {
                pair.client.peer_address().is_err()
            })?;
            answer![
                pair.client.peer_address(),
                pair.client.shutdown(libc::SHUT_WR)
            ]
        },
    ),
    Row::same(
        "the peer closed: receive, then send fails soon",
        "0 true",
        |rig| {
            let pair = rig.pair()?;
            drop(pair.server);
            let received = pair.client.recv(&mut [0], 0);
            answer![received, is_broken(send_error(&pair.client)?)]
        },
    ),
    Row::same(
        "the peer closed: its data can still be read",
        "5 0",
        |rig| {
            let pair = rig.pair()?;
            pair.server.send(b"hello", 0)?;
            drop(pair.server);
            let mut buffer = [0; 16];
            answer![
                pair.client.recv(&mut buffer, libc::MSG_WAITALL),
                pair.client.recv(&mut buffer, 0),
            ]
        },
    ),
    Row::same(
        "the peer closed: a send of more than buffers hold is cut short",
        "true true",
        |rig| {
            let pair = rig.pair()?;
            drop(pair.server);
            await_events(&pair.client, libc::POLLIN)?;
            let data = vec![0; 32 << 20];
            let sent = pair.client.send(&data, 0)?;
            let error = pair.client.send(&data, 0);
            answer![sent < data.len(), error.is_err_and(is_broken)]
        },
    )
    .c_is_wrong("an error at once"),
    Row::same(
        "the peer closed with unread data: poll, send fails",
        "true true",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            drop(pair.server);
            let seen = await_events(&pair.client, libc::POLLERR)?;
            answer![
                seen & libc::POLLHUP != 0,
                is_broken(send_error(&pair.client)?)
            ]
        },
    )
    .c_is_wrong("without POLLHUP"),
    Row::same(
        "the peer sent, and closed with unread data: its data, then a reset",
        "6 ECONNRESET",
        |rig| {
            let pair = rig.pair()?;
            pair.client.send(b"request that is too long", 0)?;
            await_events(&pair.server, libc::POLLIN)?;
            pair.server.send(b"refuse", 0)?;
            drop(pair.server);
            thread::sleep(WHILE);
            let mut buffer = [0; 16];
            answer![
                pair.client.recv(&mut buffer, 0),
                pair.client.recv(&mut buffer, 0)
            ]
        },
    )
    .c_is_wrong("an end in place of the reset"),
    Row::same("a blocked receive ends when the peer closes", "0", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let reader = blocked(scope, || pair.client.recv(&mut [0], 0))?;
            drop(pair.server);
            answer![reader.join().unwrap_or(Err(Errno::EINTR))]
        })
    }),
    Row::same("a blocked receive ends at one's own shutdown", "0", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let reader = blocked(scope, || pair.client.recv(&mut [0], 0))?;
            pair.client.shutdown(libc::SHUT_RDWR)?;
            answer![reader.join().unwrap_or(Err(Errno::EINTR))]
        })
    }),
    Row::same("a blocked send ends when the peer closes", "true", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let writer = blocked(scope, || loop {
                if let Err(error) = pair.client.send(&[0; 65536], 0) {
                    return error;
                }
            })?;
            drop(pair.server);
            answer![writer.join().is_ok_and(is_broken)]
        })
    }),
    Row::same(
        "a send of nothing after a shutdown, and after a reset",
        "EPIPE ECONNRESET EPIPE",
        |rig| {
            let shut = rig.pair()?;
            shut.client.shutdown(libc::SHUT_WR)?;
            let reset = rig.pair()?;
            reset.server.set_linger(true, 0)?;
            drop(reset.server);
            await_events(&reset.client, libc::POLLIN | libc::POLLHUP | libc::POLLERR)?;
            answer![
                shut.client.send(b"", 0),
                reset.client.send(b"", 0),
                reset.client.send(b"", 0)
            ]
        },
    )
    .c_is_wrong("it closes in order, and takes no notice of the end"),
    Row::same("a zero linger time resets", "ECONNRESET true", |rig| {
        let pair = rig.pair()?;
        pair.client.set_linger(true, 0)?;
        drop(pair.client);
        await_events(&pair.server, libc::POLLIN | libc::POLLHUP | libc::POLLERR)?;
        let received = pair.server.recv(&mut [0], 0);
        answer![received, is_broken(send_error(&pair.server)?)]
    })
    .c_is_wrong("it closes in order"),
    Row::same("after a reset the port is free", "true true", |rig| {
        let forced = frees_port(rig, |pair| Ok(pair.client.set_linger(true, 0)?))?;
        let unread = frees_port(rig, |pair| {
            pair.server.send(b"nobody reads this", 0)?;
            await_events(&pair.client, libc::POLLIN).map(drop)
        })?;
        answer![forced, unread]
    })
    .c_is_wrong("it closes TCP in order"),
    Row::same(
        "a linger time waits until the peer has taken the data",
        "true true",
        |rig| linger(rig, |_| Ok(())),
    ),
    Row::same(
        "a linger time waits after a shutdown of the write half, too",
        "true true",
        |rig| linger(rig, |client| Ok(client.shutdown(libc::SHUT_WR)?)),
    )
    .c_is_wrong("it waits for two seconds in shutdown(2), and what has not left then is lost"),
    Row::same(
        "a close in the middle loses nothing that was sent",
        "true",
        |rig| {
            let pair = rig.pair()?;
            let data = vec![0x66; 30_000];
            let sent = pair.client.send(&data, 0)?;
            drop(pair.client);
            thread::sleep(Duration::from_millis(50));
            answer![read_all(&pair.server) == sent]
        },
    ),
    Row::same(
        "after the end: pending error, queue length",
        "none 0",
        |rig| {
            let pair = rig.pair()?;
            drop(pair.server);
            pair.client.recv(&mut [0], 0)?;
            answer![pair.client.take_error(), pair.client.ioctl_int(FIONREAD)]
        },
    ),
    Row::same(
        "after the end of both, with data: queue length, the data",
        "5 5",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            drop(pair.client);
            await_events(&pair.server, libc::POLLRDHUP)?;
            pair.server.shutdown(libc::SHUT_RDWR)?;
            let queued = pair.server.ioctl_int(FIONREAD);
            answer![queued, pair.server.recv(&mut [0; 8], 0)]
        },
    )
    .c_is_wrong("the data are lost"),
];
