// SPDX-License-Identifier: GPL-2.0

//! Urgent data.

use std::thread;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCATMARK;
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
    // A sender may have to wait with the rest until the urgent byte was read.
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
];
