// SPDX-License-Identifier: GPL-2.0

//! Connections that are closed, or shut down in both directions, while data are unread or arrive later.

use std::time::Duration;
use std::time::Instant;

use anyhow::Result;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::fill;
use crate::semantics::Pair;
use crate::semantics::Rig;
use crate::semantics::Row;

/// The linger time where close(2) is not to wait, s.
const LINGER: i32 = 5;

/// Time in which a close(2) returns that does not wait.
const AT_ONCE: Duration = Duration::from_secs(2);

pub(super) const ROWS: &[Row] = &[
    Row::same(
        "a close with only an urgent byte unread is a reset",
        "ECONNRESET",
        |rig| close_with_urgent(rig, |_| Ok(())),
    )
    .c_is_wrong("it closes in order"),
    Row::same(
        "a close with only an urgent byte unread, which MSG_OOB has returned, is a reset",
        "ECONNRESET",
        |rig| {
            close_with_urgent(rig, |pair| {
                let len = pair.server.recv(&mut [0], libc::MSG_OOB)?;
                anyhow::ensure!(len == 1, "no urgent byte");
                Ok(())
            })
        },
    )
    .c_is_wrong("it closes in order"),
    Row::same(
        "a linger time does not wait where data are unread",
        "true ECONNRESET",
        |rig| {
            let Pair { client, server, .. } = rig.pair()?;
            server.send(b"unread", 0)?;
            await_events(&client, libc::POLLIN)?;
            client.set_linger(true, LINGER)?;
            fill(&client);
            let begun = Instant::now();
            drop(client);
            let is_quick = begun.elapsed() < AT_ONCE;
            await_events(&server, libc::POLLERR)?;
            answer![is_quick, server.take_error()?]
        },
    )
    .c_is_wrong("it waits, and closes in order"),
    Row::same(
        "data after a shutdown of both halves at once: a reset",
        "EPIPE",
        |rig| data_after(rig, &[libc::SHUT_RDWR]),
    )
    .c_is_wrong("it closes in order"),
    Row::same(
        "data after a shutdown of the read half, then of the other: a reset",
        "EPIPE",
        |rig| data_after(rig, &[libc::SHUT_RD, libc::SHUT_WR]),
    )
    .c_is_wrong("it takes them"),
    Row::same(
        "data after a shutdown of the write half, then of the other: a reset",
        "EPIPE",
        |rig| data_after(rig, &[libc::SHUT_WR, libc::SHUT_RD]),
    )
    .c_is_wrong("it takes them"),
];

/// The server closes after `before`, with an urgent byte of the client that recv(2) has not passed. Returns the error
/// of the client's socket.
fn close_with_urgent(rig: &Rig<'_>, before: impl Fn(&Pair) -> Result<()>) -> Result<String> {
    let pair = rig.pair()?;
    pair.client.send(b"!", libc::MSG_OOB)?;
    await_events(&pair.server, libc::POLLPRI)?;
    before(&pair)?;
    let Pair { client, server, .. } = pair;
    drop(server);
    await_events(&client, libc::POLLIN | libc::POLLHUP | libc::POLLERR)?;
    answer![client.recv(&mut [0], 0)]
}

/// The client shuts down, and the server sends a byte. Returns the error of the server's socket.
fn data_after(rig: &Rig<'_>, shutdowns: &[i32]) -> Result<String> {
    let pair = rig.pair()?;
    for how in shutdowns {
        pair.client.shutdown(*how)?;
    }
    pair.await_end()?;
    pair.server.send(b"x", 0)?;
    await_events(&pair.server, libc::POLLERR)?;
    answer![pair.server.take_error()?]
}
