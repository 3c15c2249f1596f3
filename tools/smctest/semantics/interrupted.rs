// SPDX-License-Identifier: GPL-2.0

//! Signals that interrupt calls, which end or begin again.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::sys::pthread::pthread_kill;
use nix::sys::pthread::pthread_self;
use nix::sys::signal::Signal;
use smc_user::interrupt_calls_by;
use smc_user::restart_calls_by;

use crate::semantics::answer::answer;
use crate::semantics::rig::fill;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

const DONTWAIT: i32 = libc::MSG_DONTWAIT;

/// Returns the result of `call` after a signal interrupted it. The signal is repeated until it
/// returns.
pub(super) fn interrupted<T>(call: impl FnOnce() -> T) -> Result<T> {
    interrupt_calls_by(libc::SIGUSR1)?;
    let caller = pthread_self();
    let (returned, waits) = mpsc::channel::<()>();
    Ok(thread::scope(|scope| {
        scope.spawn(move || {
            while waits.recv_timeout(WHILE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = pthread_kill(caller, Signal::SIGUSR1);
            }
        });
        let result = call();
        drop(returned);
        result
    }))
}

/// Returns the result of `call`, during which some signals come whose handler lets it begin again, and then `end`.
fn restarted<T>(call: impl FnOnce() -> T, end: impl FnOnce() + Send) -> Result<T> {
    restart_calls_by(libc::SIGUSR1)?;
    let caller = pthread_self();
    Ok(thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..3 {
                thread::sleep(WHILE);
                let _ = pthread_kill(caller, Signal::SIGUSR1);
            }
            thread::sleep(WHILE);
            end();
        });
        call()
    }))
}

/// The rows.
pub(super) const ROWS: &[Row] = &[
    Row::same("a signal interrupts a receive", "EINTR", |rig| {
        let pair = rig.pair()?;
        answer![interrupted(|| pair.server.recv(&mut [0], 0))?]
    }),
    Row::same("a signal leaves a receive what it has", "5", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        answer![interrupted(|| pair
            .server
            .recv(&mut [0; 9], libc::MSG_WAITALL))?]
    }),
    Row::same("a signal interrupts a send", "EINTR", |rig| {
        let pair = rig.pair()?;
        fill(&pair.client);
        // It is no error if space is freed late.
        let sent = interrupted(|| -> smc_user::Result<()> {
            loop {
                pair.client.send(b"x", 0)?;
            }
        })?;
        drop(pair.server);
        answer![sent]
    }),
    Row::same(
        "send, receive and accept begin again after a signal with SA_RESTART",
        "1 1 true",
        |rig| {
            let pair = rig.pair()?;
            let (listener, addr) = rig.listener()?;
            // A call with a timeout does not begin again.
            for socket in [&pair.client, &pair.server, &listener] {
                socket.set_timeout(Duration::ZERO)?;
            }
            fill(&pair.client);
            let drain = || {
                let mut buf = vec![0; 1 << 16];
                for _ in 0..10 {
                    while pair.server.recv(&mut buf, DONTWAIT).is_ok() {}
                    thread::sleep(WHILE / 4);
                }
            };
            let sent = restarted(|| pair.client.send(b"x", 0), drain)?;
            let reply = || _ = pair.server.send(b"y", 0);
            let received = restarted(|| pair.client.recv(&mut [0], 0), reply)?;
            let late = rig.open()?;
            let connect = || _ = late.connect(addr);
            let accepted = restarted(|| listener.accept(0).is_ok(), connect)?;
            answer![sent, received, accepted]
        },
    ),
    Row::same("a signal interrupts accept", "EINTR", |rig| {
        let (listener, _) = rig.listener()?;
        answer![interrupted(|| listener.accept(0).map(drop))?]
    }),
    Row::same(
        "a signal interrupts connect, the attempt goes on",
        "EINTR EALREADY",
        |rig| {
            let socket = rig.open()?;
            let first = interrupted(|| socket.connect(rig.silent()))?;
            socket.set_nonblocking(true)?;
            answer![first, socket.connect(rig.silent())]
        },
    ),
];
