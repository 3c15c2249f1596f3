// SPDX-License-Identifier: GPL-2.0

//! Urgent data.

use std::thread;
use std::time::Instant;

use anyhow::Result;
use smc_user::Errno;
use smc_user::Unserved;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCATMARK;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

const OOB: i32 = libc::MSG_OOB;

pub(super) const ROWS: &[Row] = &[
    Row::same("none there", "EINVAL", |rig| {
        answer![rig.pair()?.server.recv(&mut [0], OOB)]
    }),
    Row::same("3 bytes sent: poll, queue length, mark", "0x7 2 0", |rig| {
        let pair = rig.pair()?;
        pair.client.send(b"abc", OOB)?;
        await_events(&pair.server, libc::POLLPRI)?;
        pair.await_queued(2)?;
        let server = &pair.server;
        answer![
            await_events(server, libc::POLLPRI)?,
            server.ioctl_int(FIONREAD),
            server.ioctl_int(SIOCATMARK),
        ]
    }),
    Row::same(
        "the last byte is the urgent one, once",
        "1 c EINVAL",
        |rig| {
            let pair = rig.pair()?;
            pair.client.send(b"abc", OOB)?;
            await_events(&pair.server, libc::POLLPRI)?;
            let mut byte = [0];
            let got = pair.server.recv(&mut byte, OOB);
            let letter = char::from(byte[0]).to_string();
            answer![got, letter, pair.server.recv(&mut byte, OOB)]
        },
    ),
    Row::same("it is not in the stream", "2 EAGAIN", |rig| {
        let pair = rig.pair()?;
        pair.client.send(b"abc", OOB)?;
        await_events(&pair.server, libc::POLLPRI)?;
        pair.await_queued(2)?;
        pair.server.recv(&mut [0], OOB)?;
        let mut buffer = [0; 8];
        answer![
            pair.server.recv(&mut buffer, 0),
            pair.server.recv(&mut buffer, libc::MSG_DONTWAIT),
        ]
    }),
    Row::same(
        "a read that waits for all ends before it, in line or not",
        "4 1 1 u 4 1 1 u",
        |rig| {
            let ends = |inline: i32, flags: i32| -> Result<_> {
                let pair = rig.pair()?;
                pair.server
                    .set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, inline)?;
                pair.deliver(b"half")?;
                let got = thread::scope(|scope| {
                    let receive = || pair.server.recv(&mut [0; 8], libc::MSG_WAITALL);
                    let reader = blocked(scope, receive)?;
                    pair.client.send(b"u", OOB)?;
                    await_events(&pair.server, libc::POLLPRI)?;
                    thread::sleep(WHILE);
                    pair.client.send(b"more", 0)?;
                    anyhow::Ok(reader.join().unwrap_or(Err(Errno::EINTR)))
                })?;
                let mark = pair.server.ioctl_int(SIOCATMARK);
                let mut byte = [0];
                let urgent = pair.server.recv(&mut byte, flags);
                Ok((got, mark, urgent, char::from(byte[0]).to_string()))
            };
            let (a, b) = (ends(0, OOB)?, ends(1, 0)?);
            answer![a.0, a.1, a.2, a.3, b.0, b.1, b.2, b.3]
        },
    )
    .c_is_wrong("it has no event for it while a call waits, and reads on"),
    Row::same(
        "a look that waits for all ends before it, in line or not",
        "4 4",
        |rig| {
            let ends = |inline: i32| -> Result<_> {
                let pair = rig.pair()?;
                pair.server
                    .set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, inline)?;
                pair.server.set_timeout(2 * SOON)?;
                pair.deliver(b"half")?;
                pair.client.send(b"u", OOB)?;
                await_events(&pair.server, libc::POLLPRI)?;
                let looks = libc::MSG_PEEK | libc::MSG_WAITALL;
                let start = Instant::now();
                let got = pair.server.recv(&mut [0; 8], looks);
                anyhow::ensure!(start.elapsed() < SOON, "it waits for more");
                Ok(got)
            };
            answer![ends(0)?, ends(1)?]
        },
    )
    .c_is_wrong("it waits for more"),
    Row::same(
        "in line, a read stops before it and the mark is next",
        "2 1 1 c",
        |rig| {
            let pair = rig.pair()?;
            pair.server
                .set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
            pair.client.send(b"abc", OOB)?;
            await_events(&pair.server, libc::POLLPRI)?;
            pair.await_queued(3)?;
            let mut buffer = [0; 8];
            let before = pair.server.recv(&mut buffer, 0);
            let mark = pair.server.ioctl_int(SIOCATMARK);
            let after = pair.server.recv(&mut buffer, 0);
            answer![before, mark, after, char::from(buffer[0]).to_string()]
        },
    ),
    Row::same("data after it goes on", "abde", |rig| {
        let pair = rig.pair()?;
        pair.client.send(b"abc", OOB)?;
        await_events(&pair.server, libc::POLLPRI)?;
        thread::scope(|scope| {
            scope.spawn(|| pair.client.send(b"de", 0));
            let (mut text, mut buffer) = (Vec::new(), [0; 8]);
            while text.len() < 4 {
                let len = pair.server.recv(&mut buffer, 0)?;
                text.extend(&buffer[..len]);
            }
            answer![String::from_utf8_lossy(&text).into_owned()]
        })
    }),
    Row::same(
        "one thread sends on while nobody has read the urgent byte",
        "3 5 2 3 e c 5 fghij",
        |rig| {
            let pair = rig.pair()?;
            let (client, server) = (&pair.client, &pair.server);
            client.set_nonblocking(true)?;
            let sent = (client.send(b"abc", OOB), client.send(b"fghij", 0));
            await_events(server, libc::POLLPRI)?;
            pair.await_queued(2)?;
            let mut byte = [0];
            let mut buffer = [0; 16];
            let before = server.recv(&mut buffer, 0);
            let answer = server.send(b"cde", OOB);
            await_events(client, libc::POLLPRI)?;
            client.recv(&mut byte, OOB)?;
            let there = char::from(byte[0]).to_string();
            server.recv(&mut byte, OOB)?;
            let here = char::from(byte[0]).to_string();
            await_events(server, libc::POLLIN)?;
            let rest = server.recv(&mut buffer, 0);
            let text = String::from_utf8_lossy(&buffer[..5]).into_owned();
            answer![sent.0, sent.1, before, answer, there, here, rest, text]
        },
    )
    .c_is_wrong("the second send waits"),
    Row::same(
        "a later urgent byte supersedes one that was not read",
        "3 2 4 1 e EINVAL 4 abcd",
        |rig| {
            let pair = rig.pair()?;
            let (client, server) = (&pair.client, &pair.server);
            client.set_nonblocking(true)?;
            let first = client.send(b"abc", OOB);
            await_events(server, libc::POLLPRI)?;
            let second = client.send(b"de", OOB);
            pair.await_queued(4)?;
            let queued = server.ioctl_int(FIONREAD);
            let mut byte = [0];
            let got = server.recv(&mut byte, OOB);
            let letter = char::from(byte[0]).to_string();
            let again = server.recv(&mut byte, OOB);
            let mut buffer = [0; 16];
            let read = server.recv(&mut buffer, 0);
            let text = String::from_utf8_lossy(&buffer[..4]).into_owned();
            answer![first, second, queued, got, letter, again, read, text]
        },
    )
    .c_is_wrong("the second send waits"),
    Row::same(
        "one that comes while an earlier one is read is read next",
        "1 1 b",
        |rig| {
            let pair = rig.pair()?;
            pair.client.send(b"a", OOB)?;
            await_events(&pair.server, libc::POLLPRI)?;
            let page = Unserved::new()?;
            let first = thread::scope(|scope| {
                let reader = scope.spawn(|| page.recv(&pair.server, OOB));
                let is_wanted = page.is_wanted(SOON);
                let sent = pair.client.send(b"b", OOB);
                thread::sleep(WHILE);
                // In any case, or the thread would never end.
                page.serve()?;
                is_wanted.and(sent)?;
                reader.join().unwrap_or(Err(Errno::EINTR))
            });
            await_events(&pair.server, libc::POLLPRI)?;
            let mut byte = [0];
            let second = pair.server.recv(&mut byte, OOB);
            answer![first, second, char::from(byte[0]).to_string()]
        },
    )
    .c_is_wrong("it has no event for the second one"),
    Row::same(
        "the mark stays until a read goes on behind it",
        "2 1 1 1 EAGAIN 0",
        |rig| {
            let pair = rig.pair()?;
            pair.client.send(b"abc", OOB)?;
            await_events(&pair.server, libc::POLLPRI)?;
            pair.await_queued(2)?;
            let (server, mut buffer) = (&pair.server, [0; 8]);
            let read = server.recv(&mut buffer, 0);
            let mark = server.ioctl_int(SIOCATMARK);
            let byte = server.recv(&mut buffer, OOB);
            let still = server.ioctl_int(SIOCATMARK);
            let behind = server.recv(&mut buffer, libc::MSG_DONTWAIT);
            answer![
                read,
                mark,
                byte,
                still,
                behind,
                server.ioctl_int(SIOCATMARK)
            ]
        },
    )
    .c_is_wrong("it is at the mark before the mark only"),
    Row::same(
        "the flag says that it is urgent; a peek leaves it",
        "1/0x1 1 EINVAL",
        |rig| {
            let pair = rig.pair()?;
            pair.client.send(b"x", OOB)?;
            await_events(&pair.server, libc::POLLPRI)?;
            let server = &pair.server;
            answer![
                server.recv_message(&mut [0; 4], OOB | libc::MSG_PEEK),
                server.recv(&mut [0], OOB),
                server.recv(&mut [0], OOB),
            ]
        },
    ),
    Row::same(
        "what there was no room for leaves the last byte that there was urgent",
        "true",
        |rig| {
            let pair = rig.pair()?;
            let data = vec![0x11; 16 << 20];
            let sent = pair.client.send(&data, OOB | libc::MSG_DONTWAIT)?;
            // The byte comes when what is before it was read.
            await_true("the urgent byte", || {
                let _ = pair.server.recv(&mut [0; 1 << 16], libc::MSG_DONTWAIT);
                events(&pair.server) & libc::POLLPRI != 0
            })?;
            answer![sent < data.len()]
        },
    )
    .c_is_wrong("nothing is urgent then"),
];
