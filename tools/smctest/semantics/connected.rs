// SPDX-License-Identifier: GPL-2.0

//! A connection with both ends open.

use std::io::Write;
use std::ops::Range;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use smc_user::Errno;
use smc_user::Socket;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::fill;
use crate::semantics::rig::Pair;
use crate::semantics::rig::Rig;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCATMARK;
use crate::semantics::rig::SIOCOUTQ;
use crate::semantics::rig::SIOCOUTQNSD;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

const DONTWAIT: i32 = libc::MSG_DONTWAIT;

/// Receives `len` bytes, or until no more arrive; returns their number.
pub(super) fn drain(socket: &Socket, len: usize) -> usize {
    let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
    while total < len {
        match socket.recv(&mut buffer, 0) {
            Ok(0) | Err(_) => break,
            Ok(got) => total += got,
        }
    }
    total
}

/// Opens a connection whose server receives for longer than corked data are held back: TCP does that for as long as its
/// retransmission timeout, which follows from how long the handshake took.
fn corked_pair(rig: &Rig<'_>) -> Result<Pair> {
    /// In `struct tcp_info`, microseconds.
    const RTO: Range<usize> = 8..12;
    let pair = rig.pair()?;
    let mut info = [0; 64];
    pair.client
        .option(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let rto = u32::from_ne_bytes(info[RTO].try_into()?);
    let limit = Duration::from_secs(2) + Duration::from_micros(rto.into());
    pair.server.set_timeout(limit)?;
    Ok(pair)
}

pub(super) const ROWS: &[Row] = &[
    Row::same("connect, listen, bind", "EISCONN EINVAL EINVAL", |rig| {
        let pair = rig.pair()?;
        answer![
            pair.client.connect(pair.address),
            pair.client.listen(1),
            pair.client.bind(rig.any())
        ]
    }),
    Row::same("poll", "0x4 0x4", |rig| {
        let pair = rig.pair()?;
        answer![events(&pair.client), events(&pair.server)]
    }),
    Row::same(
        "5 bytes: poll, queue length, urgent mark",
        "0x5 5 0",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            let server = &pair.server;
            answer![
                events(server),
                server.ioctl_int(FIONREAD),
                server.ioctl_int(SIOCATMARK)
            ]
        },
    ),
    Row::same("5 bytes: queues of the sender", "0 0", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        await_true("an empty queue", || {
            pair.client.ioctl_int(SIOCOUTQ) == Ok(0)
        })?;
        answer![
            pair.client.ioctl_int(SIOCOUTQ),
            pair.client.ioctl_int(SIOCOUTQNSD)
        ]
    }),
    Row::same("more and more, unread: queues of the sender", "0", |rig| {
        let pair = rig.pair()?;
        for _ in 0..4 {
            pair.client.send(b"hello", 0)?;
            await_true("an empty queue", || {
                pair.client.ioctl_int(SIOCOUTQ) == Ok(0)
            })?;
        }
        answer![pair.client.ioctl_int(SIOCOUTQ)]
    }),
    Row::same("queues of the sender once all is read", "0 0", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        pair.server.recv(&mut [0; 5], 0)?;
        await_true("an empty queue", || {
            pair.client.ioctl_int(SIOCOUTQ) == Ok(0)
        })?;
        answer![
            pair.client.ioctl_int(SIOCOUTQ),
            pair.client.ioctl_int(SIOCOUTQNSD)
        ]
    }),
    Row::same(
        "peek, receive a part, receive the rest, nothing",
        "5 2 3 EAGAIN",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            let (server, mut buffer) = (&pair.server, [0; 8]);
            answer![
                server.recv(&mut buffer, libc::MSG_PEEK),
                server.recv(&mut buffer[..2], 0),
                server.recv(&mut buffer, 0),
                server.recv(&mut buffer, DONTWAIT),
            ]
        },
    ),
    Row::same("a peek leaves the data as it is", "hello hello", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        let (mut first, mut second) = ([0; 5], [0; 5]);
        pair.server.recv(&mut first, libc::MSG_PEEK)?;
        pair.server.recv(&mut second, 0)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        answer![text(&first), text(&second)]
    }),
    Row::same(
        "truncating receive throws data away",
        "2 untouched llo",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            let (mut buffer, mut rest) = (*b"..", [0; 3]);
            let got = pair.server.recv(&mut buffer, libc::MSG_TRUNC);
            let state = if buffer == *b".." {
                "untouched"
            } else {
                "written"
            };
            pair.server.recv(&mut rest, 0)?;
            answer![got, state, String::from_utf8_lossy(&rest).into_owned()]
        },
    ),
    Row::same("receive from the error queue", "EAGAIN", |rig| {
        answer![rig.pair()?.server.recv(&mut [0], libc::MSG_ERRQUEUE)]
    })
    .c_differs("EINVAL"),
    Row::same("receive into nothing", "0 5", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        answer![
            pair.server.recv(&mut [], DONTWAIT),
            pair.server.ioctl_int(FIONREAD)
        ]
    }),
    Row::same(
        "receive into nothing when there is nothing waits",
        "EAGAIN true",
        |rig| {
            let pair = rig.pair()?;
            let at_once = pair.server.recv(&mut [], DONTWAIT);
            pair.server.set_timeout(Duration::from_millis(200))?;
            let start = Instant::now();
            // The C module blocks as well, then returns 0.
            let _ = pair.server.recv(&mut [], 0);
            answer![at_once, start.elapsed() >= Duration::from_millis(150)]
        },
    ),
    Row::same("receive with a timeout", "EAGAIN true", |rig| {
        let pair = rig.pair()?;
        pair.server.set_timeout(Duration::from_millis(200))?;
        let start = Instant::now();
        let result = pair.server.recv(&mut [0], 0);
        answer![result, start.elapsed() >= Duration::from_millis(150)]
    }),
    Row::same("receive that waits for all", "8", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"half")?;
        thread::scope(|scope| {
            let receive = || pair.server.recv(&mut [0; 8], libc::MSG_WAITALL);
            let reader = blocked(scope, receive)?;
            pair.client.send(b"half", 0)?;
            answer![reader.join().unwrap_or(Err(Errno::EINTR))]
        })
    }),
    Row::same(
        "a peek that waits for all, and what it has seen is still there",
        "8 headtail 8 headtail",
        |rig| {
            let pair = rig.pair()?;
            pair.server.set_timeout(Duration::from_secs(2))?;
            pair.deliver(b"head")?;
            let (mut seen, mut taken) = ([0; 8], [0; 8]);
            let all = libc::MSG_PEEK | libc::MSG_WAITALL;
            let peeked = thread::scope(|scope| {
                let reader = blocked(scope, || pair.server.recv(&mut seen, all))?;
                pair.client.send(b"tail", 0)?;
                anyhow::Ok(reader.join().unwrap_or(Err(Errno::EINTR)))
            })?;
            let received = pair.server.recv(&mut taken, DONTWAIT);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            answer![peeked, text(&seen), received, text(&taken)]
        },
    ),
    Row::same(
        "a timeout bounds the whole of a receive that waits for all",
        "true true",
        |rig| {
            let pair = rig.pair()?;
            pair.server.set_timeout(Duration::from_millis(400))?;
            pair.deliver(b"x")?;
            thread::scope(|scope| {
                let reader = scope.spawn(|| pair.server.recv(&mut [0; 64], libc::MSG_WAITALL));
                let start = Instant::now();
                while !reader.is_finished() && start.elapsed() < Duration::from_secs(4) {
                    thread::sleep(WHILE);
                    pair.client.send(b"x", 0)?;
                }
                let is_bounded = reader.is_finished();
                let len = reader.join().unwrap_or(Err(Errno::EINTR))?;
                answer![len > 0, is_bounded]
            })
        },
    ),
    Row::same("receive blocks until data comes", "5", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let reader = blocked(scope, || pair.server.recv(&mut [0; 8], 0))?;
            pair.client.send(b"hello", 0)?;
            answer![reader.join().unwrap_or(Err(Errno::EINTR))]
        })
    }),
    Row::same("receive waits for the low-water mark", "6", |rig| {
        let pair = rig.pair()?;
        pair.server
            .set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 6)?;
        thread::scope(|scope| {
            let reader = blocked(scope, || pair.server.recv(&mut [0; 8], 0))?;
            pair.client.send(b"abc", 0)?;
            thread::sleep(WHILE);
            pair.client.send(b"def", 0)?;
            answer![reader.join().unwrap_or(Err(Errno::EINTR))]
        })
    }),
    Row::same(
        "a look does not wait for a low-water mark beyond what there is room for",
        "true true",
        |rig| {
            let pair = rig.pair()?;
            pair.server
                .set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1 << 20)?;
            let len = fill(&pair.client);
            let is_ready = await_events(&pair.server, libc::POLLIN)? & libc::POLLIN != 0;
            let begin = Instant::now();
            let seen = pair.server.recv(&mut vec![0; 1 << 20], libc::MSG_PEEK)?;
            let is_soon = begin.elapsed() < SOON / 2;
            answer![is_ready, is_soon && (1..=len).contains(&seen)]
        },
    )
    .c_is_wrong("it waits for more"),
    Row::same(
        "a full buffer: send, poll; once read, poll",
        "EAGAIN 0x0 0x4",
        |rig| {
            let pair = rig.pair()?;
            let len = fill(&pair.client);
            let full = (pair.client.send(b"x", DONTWAIT), events(&pair.client));
            drain(&pair.server, len);
            let room = await_events(&pair.client, libc::POLLOUT)?;
            answer![full.0, full.1, room]
        },
    ),
    Row::same(
        "a full buffer: blocking send with a timeout",
        "EAGAIN",
        |rig| {
            let pair = rig.pair()?;
            fill(&pair.client);
            pair.client.set_timeout(Duration::from_millis(200))?;
            let sent = pair.client.send(b"x", 0);
            // close(2) with unsent data waits for a peer that can still read.
            drop(pair.server);
            answer![sent]
        },
    ),
    Row::same("a full buffer: all of it arrives", "true", |rig| {
        let pair = rig.pair()?;
        let len = fill(&pair.client);
        answer![drain(&pair.server, len) == len]
    }),
    Row::same("a blocked send goes on when there is room", "true", |rig| {
        let pair = rig.pair()?;
        let data = vec![0x22; 2 << 20];
        thread::scope(|scope| {
            let writer = blocked(scope, || (&pair.client).write_all(&data))?;
            let got = drain(&pair.server, data.len());
            let sent = writer.join().is_ok_and(|result| result.is_ok());
            answer![sent && got == data.len()]
        })
    }),
    Row::same("corked data waits for the cork", "0 10", |rig| {
        for _ in 0..20 {
            let pair = rig.pair()?;
            let cork = |on| {
                pair.client
                    .set_option_int(libc::IPPROTO_TCP, libc::TCP_CORK, on)
            };
            cork(1)?;
            let start = Instant::now();
            pair.client.send(b"hello", 0)?;
            thread::sleep(Duration::from_millis(50));
            let before = pair.server.ioctl_int(FIONREAD);
            // It waits for 200 ms at most.
            if start.elapsed() > Duration::from_millis(180) {
                continue;
            }
            pair.client.send(b"world", 0)?;
            cork(0)?;
            pair.await_queued(10)?;
            return answer![before, pair.server.ioctl_int(FIONREAD)];
        }
        anyhow::bail!("all looks were late")
    }),
    Row::same(
        "data marked as having more behind it arrives with that",
        "8",
        |rig| {
            let pair = rig.pair()?;
            pair.client.send(b"head", libc::MSG_MORE)?;
            pair.client.send(b"tail", 0)?;
            pair.await_queued(8)?;
            answer![pair.server.recv(&mut [0; 16], 0)]
        },
    ),
    Row::same(
        "data marked as having more behind it wait, but not for ever",
        "4 true",
        |rig| {
            let pair = corked_pair(rig)?;
            let start = Instant::now();
            pair.client.send(b"head", libc::MSG_MORE)?;
            let got = pair.server.recv(&mut [0; 16], 0);
            answer![got, start.elapsed() > Duration::from_millis(100)]
        },
    )
    .c_is_wrong("they wait for what is to come"),
    Row::same(
        "corks of two connections, one after the other, each hold for a while only",
        "4 4",
        |rig| {
            let pairs = [corked_pair(rig)?, corked_pair(rig)?];
            for pair in &pairs {
                pair.client.send(b"head", libc::MSG_MORE)?;
                thread::sleep(Duration::from_millis(100));
            }
            let [first, second] = pairs.map(|pair| pair.server.recv(&mut [0; 16], 0));
            answer![first, second]
        },
    )
    .c_is_wrong("they hold until there is more"),
    Row::same("a cork is no stopper", "5 4", |rig| {
        let pair = corked_pair(rig)?;
        let corked = pair
            .client
            .set_option_int(libc::IPPROTO_TCP, libc::TCP_CORK, 1);
        corked?;
        pair.client.send(b"hello", 0)?;
        let first = pair.server.recv(&mut [0; 16], 0);
        pair.client.send(b"more", 0)?;
        answer![first, pair.server.recv(&mut [0; 16], 0)]
    })
    .c_is_wrong("nothing leaves while it is set"),
    Row::same("a duplicate keeps the connection open", "5", |rig| {
        let pair = rig.pair()?;
        let other = pair.client.duplicate()?;
        drop(pair.client);
        other.send(b"hello", 0)?;
        answer![pair.server.recv(&mut [0; 5], libc::MSG_WAITALL)]
    }),
    Row::same("both directions at once", "true", |rig| {
        let pair = rig.pair()?;
        let data = vec![0x44; 1 << 20];
        thread::scope(|scope| {
            scope.spawn(|| (&pair.client).write_all(&data));
            scope.spawn(|| (&pair.server).write_all(&data));
            let there = scope.spawn(|| drain(&pair.server, data.len()));
            let here = drain(&pair.client, data.len());
            let there = there.join().unwrap_or(0);
            answer![here == data.len() && there == data.len()]
        })
    }),
    Row::same("the listener may close first", "5", |rig| {
        let pair = rig.pair()?;
        drop(pair.listener);
        pair.client.send(b"hello", 0)?;
        answer![pair.server.recv(&mut [0; 5], libc::MSG_WAITALL)]
    }),
];
