// SPDX-License-Identifier: GPL-2.0

//! A socket that several threads use at once, and signals that meet its users.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use nix::sys::pthread::pthread_kill;
use nix::sys::pthread::pthread_self;
use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SfdFlags;
use nix::sys::signalfd::SignalFd;
use smc_user::interrupt_calls_by;
use smc_user::Errno;
use smc_user::Socket;

use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::fill;
use crate::semantics::rig::Rig;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

const DONTWAIT: i32 = libc::MSG_DONTWAIT;

/// What `call` gives when a signal meets it while it waits. It comes again until it does.
fn interrupted<T>(call: impl FnOnce() -> T) -> Result<T> {
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

/// Whether a thread that sends with these flags to a closed connection is sent SIGPIPE.
fn raises_sigpipe(rig: &Rig<'_>, send: impl Fn(&Socket) -> Option<Errno> + Sync) -> Result<bool> {
    let pair = rig.pair()?;
    pair.client.shutdown(libc::SHUT_WR)?;
    // Ignored signals are not kept for those who wait for them.
    interrupt_calls_by(libc::SIGPIPE)?;
    // The mask is that of a thread.
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<bool> {
            let mut mask = SigSet::empty();
            mask.add(Signal::SIGPIPE);
            mask.thread_block()?;
            let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK)?;
            anyhow::ensure!(send(&pair.client) == Some(Errno::EPIPE), "no EPIPE");
            Ok(signals.read_signal()?.is_some())
        });
        sender
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the sending thread panicked"))
    })
}

pub(super) const ROWS: &[Row] = &[
    Row::same(
        "a receive that does not wait passes one that does",
        "EAGAIN true 5",
        |rig| {
            let pair = rig.pair()?;
            thread::scope(|scope| {
                let reader = scope.spawn(|| pair.server.recv(&mut [0; 8], 0));
                thread::sleep(WHILE);
                let start = Instant::now();
                let result = pair.server.recv(&mut [0; 8], DONTWAIT);
                let is_prompt = start.elapsed() < SOON / 4;
                pair.client.send(b"hello", 0)?;
                answer![
                    result,
                    is_prompt,
                    reader.join().unwrap_or(Err(Errno::EINTR))
                ]
            })
        },
    ),
    Row::same(
        "a send that does not wait passes one that does",
        "EAGAIN true",
        |rig| {
            let pair = rig.pair()?;
            fill(&pair.client);
            thread::scope(|scope| {
                scope.spawn(|| pair.client.send(&[0; 8], 0));
                thread::sleep(WHILE);
                let start = Instant::now();
                let result = pair.client.send(b"x", DONTWAIT);
                let is_prompt = start.elapsed() < SOON / 4;
                // Ends the send that waits.
                drop(pair.server);
                answer![result, is_prompt]
            })
        },
    ),
    Row::same("two who receive get all of it together", "20", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut total = 0;
                    while let Ok(len @ 1..) = pair.server.recv(&mut [0; 3], 0) {
                        total += len;
                    }
                    total
                })
            });
            for _ in 0..10 {
                pair.client.send(b"ab", 0)?;
            }
            pair.client.shutdown(libc::SHUT_WR)?;
            let total: usize = readers
                .map(|reader| reader.join().unwrap_or(0))
                .iter()
                .sum();
            answer![total]
        })
    }),
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
        // Room that comes late is no error.
        let sent = interrupted(|| -> smc_user::Result<()> {
            loop {
                pair.client.send(b"x", 0)?;
            }
        })?;
        drop(pair.server);
        answer![sent]
    }),
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
    Row::same(
        "SIGPIPE comes with EPIPE, unless the flags say not",
        "true false",
        |rig| {
            let write = |socket: &Socket| nix::unistd::write(socket, b"x").err();
            let write = |socket: &Socket| write(socket).map(|error| Errno(error as i32));
            let send = |socket: &Socket| socket.send(b"x", libc::MSG_NOSIGNAL).err();
            answer![raises_sigpipe(rig, write)?, raises_sigpipe(rig, send)?]
        },
    ),
    Row::same("SIGURG comes to the owner", "true", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let owner = scope.spawn(|| -> Result<bool> {
                let mut mask = SigSet::empty();
                mask.add(Signal::SIGURG);
                mask.thread_block()?;
                let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK)?;
                pair.server.set_owner_to_this_thread()?;
                pair.client.send(b"x", libc::MSG_OOB)?;
                await_events(&pair.server, libc::POLLPRI)?;
                thread::sleep(WHILE);
                Ok(signals.read_signal()?.is_some())
            });
            answer![owner.join().is_ok_and(|result| result.unwrap_or(false))]
        })
    }),
];
