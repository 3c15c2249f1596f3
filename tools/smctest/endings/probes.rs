// SPDX-License-Identifier: GPL-2.0

//! The calls that are made on a socket whose connection has ended.

use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use nix::sys::epoll::EpollFlags;
use smc_user::Errno;
use smc_user::Socket;

use super::cases::Case;
use super::cases::Scene;
use crate::semantics::await_true;
use crate::semantics::events;
use crate::semantics::Rig;
use crate::watch::Watch;

/// Time for the end, or the effect of a call, to become visible, also on a loaded machine.
const QUIET: Duration = Duration::from_millis(100);

/// Longest time until the result is the same as over TCP.
const LONG: Duration = Duration::from_secs(3);

const STEP: Duration = Duration::from_millis(5);

/// A sequence of calls, each of which may change the result of the next one.
pub(super) struct Probe {
    pub(super) name: &'static str,
    calls: &'static [Call],
    /// Also used for ways that take long.
    pub(super) is_brief: bool,
}

/// One call, whose result is printed as one word.
#[derive(Clone, Copy)]
enum Call {
    Mask,
    Error,
    Recv,
    Send,
    Connect,
    Listen,
    Peer,
    Shutdown,
}

use Call::*;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "SO_ERROR twice, mask, recv twice, send twice, mask",
        calls: &[Error, Error, Mask, Recv, Recv, Send, Send, Mask],
        is_brief: true,
    },
    Probe {
        name: "name of the peer, recv twice, send twice, SO_ERROR, mask, shutdown",
        calls: &[Peer, Recv, Recv, Send, Send, Error, Mask, Shutdown],
        is_brief: false,
    },
    Probe {
        name: "send twice, recv twice, SO_ERROR, mask",
        calls: &[Send, Send, Recv, Recv, Error, Mask],
        is_brief: false,
    },
    Probe {
        name: "connect again twice, SO_ERROR, mask, recv",
        calls: &[Connect, Connect, Error, Mask, Recv],
        is_brief: true,
    },
    Probe {
        name: "listen, mask",
        calls: &[Listen, Mask],
        is_brief: false,
    },
];

/// Runs `case`, then prints the poll masks and the results of the calls. `expected` is the result of
/// TCP, for which this waits up to [`LONG`].
pub(super) fn take(
    rig: &Rig<'_>,
    case: &Case,
    probe: &Probe,
    expected: Option<&str>,
) -> Result<String> {
    let flags = EpollFlags::EPOLLIN
        | EpollFlags::EPOLLOUT
        | EpollFlags::EPOLLPRI
        | EpollFlags::EPOLLRDHUP
        | EpollFlags::EPOLLET;
    let mut watch = None;
    let scene = (case.go)(rig, &mut |socket| {
        let edge = Watch::new(socket, flags)?;
        while edge.wait(Duration::ZERO)? != "none" {}
        watch = Some(edge);
        Ok(())
    })?;
    let subject = &scene.subject;
    if expected.is_none() && case.shows() {
        let signs = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        await_true("a sign of the end", || events(subject) & signs != 0)?;
    }
    let mask = await_mask(subject, expected.and_then(|said| said.split(' ').next()));
    let mut edge = "none".to_string();
    if let Some(watch) = watch {
        loop {
            match watch.wait(STEP)? {
                quiet if quiet == "none" => break,
                events => edge = events,
            }
        }
    }
    let mut said = vec![mask, edge];
    let mut listeners = Vec::new();
    for call in probe.calls {
        said.push(call.answer(rig, &scene, &mut listeners)?);
    }
    Ok(said.join(" "))
}

/// Returns the poll mask once it equals `expected`, or no longer changes.
fn await_mask(socket: &Socket, expected: Option<&str>) -> String {
    let text = || format!("{:#x}", events(socket));
    let (start, mut since, mut last) = (Instant::now(), Instant::now(), text());
    loop {
        std::thread::sleep(STEP);
        let now = text();
        if now != last {
            (since, last) = (Instant::now(), now);
        }
        let enough = match expected {
            Some(expected) if last != expected => LONG,
            Some(_) => STEP,
            None => QUIET * 2,
        };
        if since.elapsed() >= enough || start.elapsed() >= LONG {
            return last;
        }
    }
}

impl Call {
    fn answer(self, rig: &Rig<'_>, scene: &Scene, listeners: &mut Vec<Socket>) -> Result<String> {
        let socket = &scene.subject;
        let word = |result: smc_user::Result<usize>| match result {
            Ok(len) => len.to_string(),
            Err(error) => error.to_string(),
        };
        Ok(match self {
            Self::Mask => format!("{:#x}", events(socket)),
            Self::Error => match socket.take_error() {
                Ok(None) => "none".to_string(),
                Ok(Some(error)) | Err(error) => error.to_string(),
            },
            Self::Recv => word(socket.recv(&mut [0; 64], libc::MSG_DONTWAIT)),
            Self::Send => {
                let said = word(socket.send(b"x", libc::MSG_DONTWAIT));
                // Time for an answer of the peer.
                std::thread::sleep(QUIET);
                said
            }
            Self::Connect => {
                let (listener, address) = rig.listener()?;
                let result = socket.connect(address);
                let is_pending = matches!(result, Err(Errno::EINPROGRESS | Errno::EALREADY));
                if is_pending {
                    // Wait for the result.
                    let _ = await_pending(socket);
                }
                // Keep the listener open: it may have the connection in its backlog.
                listeners.push(listener);
                word(result.map(|()| 0))
            }
            Self::Listen => word(socket.listen(1).map(|()| 0)),
            Self::Peer => word(socket.peer_address().map(|_| 0)),
            Self::Shutdown => word(socket.shutdown(libc::SHUT_WR).map(|()| 0)),
        })
    }
}

fn await_pending(socket: &Socket) -> Result<()> {
    let start = Instant::now();
    while events(socket) == 0 && start.elapsed() < LONG {
        std::thread::sleep(STEP);
    }
    Ok(())
}
