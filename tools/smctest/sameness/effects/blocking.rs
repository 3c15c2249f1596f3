// SPDX-License-Identifier: GPL-2.0

//! How long calls wait, and for what.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use smc_user::poll_fd;

use super::done;
use super::set;
use super::text;
use super::timed;
use super::Effect;
use super::SIOCOUTQNSD;
use crate::semantics::await_true;
use crate::semantics::events;
use crate::semantics::fill;
use crate::semantics::Pair;
use crate::semantics::Rig;

const SHORT: Duration = Duration::from_millis(500);

/// Room for what is due at the same time.
const SOON: Duration = Duration::from_secs(5);

/// Time in which what does not wait would be there.
const QUIET: Duration = Duration::from_millis(50);

/// The longest time for which a cork keeps data.
const CORKED: Duration = Duration::from_millis(200);

/// Sends into a cork, and sets an option that lets the data go. Returns how many bytes the cork kept, and whether they
/// went at once: TCP keeps them for no more than 200 ms.
fn corked(rig: &Rig<'_>, name: i32, value: i32) -> Result<String> {
    let pair = rig.pair()?;
    set(&pair.client, libc::IPPROTO_TCP, libc::TCP_CORK, 1)?;
    pair.client.send(b"hello", 0)?;
    let kept = text(pair.client.ioctl_int(SIOCOUTQNSD));
    let begin = Instant::now();
    set(&pair.client, libc::IPPROTO_TCP, name, value)?;
    pair.await_queued(5)?;
    let is_soon = begin.elapsed() < CORKED / 2;
    Ok(format!("{kept} {is_soon}"))
}

pub(super) const EFFECTS: &[Effect] = &[
    Effect::of("SO_RCVTIMEO", "recv times out", |rig| {
        let pair = rig.pair()?;
        pair.client.set_duration(libc::SO_RCVTIMEO, SHORT)?;
        Ok(timed(SHORT, || text(pair.client.recv(&mut [0; 8], 0))))
    }),
    Effect::of("SO_RCVTIMEO", "accept times out", |rig| {
        let (listener, _) = rig.listener()?;
        listener.set_duration(libc::SO_RCVTIMEO, SHORT)?;
        Ok(timed(SHORT, || text(listener.accept(0).map(|_| "ok"))))
    }),
    Effect::of(
        "SO_RCVTIMEO",
        "an accepted socket times out as its listener",
        |rig| {
            let (listener, address) = rig.listener()?;
            listener.set_duration(libc::SO_RCVTIMEO, SHORT)?;
            let client = rig.open()?;
            client.connect(address)?;
            let server = listener.accept(0)?;
            Ok(timed(SHORT, || text(server.recv(&mut [0; 8], 0))))
        },
    ),
    Effect::of("SO_SNDTIMEO", "send into full buffers times out", |rig| {
        let pair = rig.pair()?;
        fill(&pair.client);
        pair.client.set_duration(libc::SO_SNDTIMEO, SHORT)?;
        // Acknowledgements may still make room for one more.
        let said = timed(SHORT, || loop {
            if let Err(error) = pair.client.send(&[0; 1 << 20], 0) {
                break error.to_string();
            }
        });
        Ok(said)
    }),
    Effect::of("SO_SNDTIMEO", "connect times out, and goes on", |rig| {
        let socket = rig.open()?;
        socket.set_duration(libc::SO_SNDTIMEO, SHORT)?;
        let first = timed(SHORT, || done(socket.connect(rig.silent())));
        Ok(format!("{first}, {}", done(socket.connect(rig.silent()))))
    }),
    Effect::of(
        "SO_RCVLOWAT",
        "poll and recv wait for as many bytes",
        |rig| {
            let pair = rig.pair()?;
            set(&pair.server, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 6)?;
            pair.deliver(b"hello")?;
            std::thread::sleep(QUIET);
            let before = events(&pair.server) & libc::POLLIN;
            pair.client.send(b"x", 0)?;
            pair.await_queued(6)?;
            let after = events(&pair.server) & libc::POLLIN;
            let read = pair.server.recv(&mut [0; 16], 0);
            Ok(format!("{before:#x} {after:#x} {}", text(read)))
        },
    ),
    Effect::of(
        "SO_RCVLOWAT",
        "more than the buffer holds does not hold up recv for good",
        |rig| {
            let pair = rig.pair()?;
            set(&pair.server, libc::SOL_SOCKET, libc::SO_RCVLOWAT, i32::MAX)?;
            pair.server.set_timeout(SOON)?;
            fill(&pair.client);
            let ready = poll_fd(&pair.server, libc::POLLIN, SOON)? & libc::POLLIN;
            Ok(format!("{ready:#x}"))
        },
    ),
    Effect::of("TCP_USER_TIMEOUT", "connect fails in time", |rig| {
        let socket = rig.open()?;
        set(&socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 500)?;
        let said = timed(Duration::from_millis(500), || {
            done(socket.connect(rig.silent()))
        });
        Ok(said)
    }),
    Effect::of(
        "TCP_USER_TIMEOUT",
        "a peer that reads nothing does not hold data for good",
        |rig| {
            let pair = rig.pair()?;
            set(&pair.client, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 500)?;
            fill(&pair.client);
            let ended = poll_fd(&pair.client, libc::POLLRDHUP, SOON)? & libc::POLLERR != 0;
            Ok(match ended {
                true => text(pair.client.send(b"x", libc::MSG_DONTWAIT)),
                false => "no end".to_string(),
            })
        },
    ),
    Effect::of(
        "TCP_USER_TIMEOUT",
        "a reader may pause for longer, until TCP would probe",
        |rig| {
            let pair = rig.pair()?;
            set(&pair.client, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 10)?;
            while pair.client.send(&[0; 4096], libc::MSG_DONTWAIT).is_ok() {}
            thread::sleep(Duration::from_millis(60));
            let ended =
                poll_fd(&pair.client, libc::POLLRDHUP, Duration::ZERO)? & libc::POLLERR != 0;
            Ok(ended.to_string())
        },
    ),
    Effect::of(
        "TCP_SYNCNT",
        "connect gives up after as many retransmissions",
        |rig| {
            let socket = rig.open()?;
            socket.set_timeout(4 * SOON)?;
            set(&socket, libc::IPPROTO_TCP, libc::TCP_SYNCNT, 1)?;
            let said = timed(Duration::from_secs(2), || {
                done(socket.connect(rig.silent()))
            });
            Ok(said)
        },
    ),
    Effect::of(
        "TCP_DEFER_ACCEPT",
        "a connection is accepted when there is data",
        |rig| {
            let (listener, address) = rig.listener()?;
            set(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 5)?;
            let client = rig.open()?;
            client.connect(address)?;
            std::thread::sleep(QUIET);
            let before = events(&listener) & libc::POLLIN;
            client.send(b"hello", 0)?;
            let server = listener.accept(0)?;
            let read = server.recv(&mut [0; 8], libc::MSG_DONTWAIT);
            Ok(format!("{before:#x} {}", text(read)))
        },
    ),
    Effect::of("TCP_CORK", "data wait for the cork", |rig| {
        corked(rig, libc::TCP_CORK, 0)
    }),
    Effect::of("TCP_NODELAY", "what a cork holds back goes", |rig| {
        corked(rig, libc::TCP_NODELAY, 1)
    }),
    Effect::of("SO_LINGER", "0 s: the peer is reset", |rig| {
        let Pair { client, server, .. } = rig.pair()?;
        client.set_linger(true, 0)?;
        drop(client);
        await_true("the end", || events(&server) & libc::POLLHUP != 0)?;
        let mask = events(&server);
        Ok(format!("{mask:#x} {}", text(server.recv(&mut [0; 8], 0))))
    }),
    Effect::of("SO_LINGER", "close does not wait for nothing", |rig| {
        let Pair { client, server, .. } = rig.pair()?;
        client.set_linger(true, 60)?;
        server.shutdown(libc::SHUT_WR)?;
        Ok(timed(Duration::ZERO, || {
            drop(client);
            text(server.recv(&mut [0; 8], 0))
        }))
    }),
];
