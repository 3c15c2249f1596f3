// SPDX-License-Identifier: GPL-2.0

//! Urgent data in random order: one thread sends and receives, and after each step the receiver's
//! view must be the same as over TCP.

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Result;
use smc_user::Socket;

use super::setting;
use super::Path;
use super::Subject;
use crate::context::Context;
use crate::data::Random;
use crate::ktap::Ktap;
use crate::semantics::events;
use crate::semantics::Pair;
use crate::semantics::Rig;
use crate::semantics::FIONREAD;
use crate::semantics::SIOCATMARK;

/// Steps per sequence.
const STEPS: usize = 24;

/// Time for TCP to deliver data within one machine.
const DELIVERY: Duration = Duration::from_millis(15);

/// Longest time until a receiver's view is the same as over TCP.
const LONG: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    SendUrgent(usize),
    Recv(usize),
    RecvUrgent,
    PeekUrgent,
    Peek(usize),
}

/// Returns the steps of a sequence, which depend on the seed only, and whether SO_OOBINLINE is set.
fn sequence(seed: u64) -> (Vec<Step>, bool) {
    let mut random = Random::new(seed);
    let mut below = |n: u64| random.next() % n;
    let is_inline = below(4) == 0;
    let steps = (0..STEPS).map(|_| {
        let len = 1 + usize::try_from(below(9)).unwrap_or(0);
        match below(8) {
            0 | 1 => Step::Send(len),
            2 | 3 => Step::SendUrgent(len),
            4 | 5 => Step::Recv(len),
            6 => Step::RecvUrgent,
            _ if below(2) == 0 => Step::PeekUrgent,
            _ => Step::Peek(len),
        }
    });
    (steps.collect(), is_inline)
}

/// Returns what a receiver can observe without reading.
fn view(socket: &Socket) -> String {
    let number = |request| socket.ioctl_int(request).unwrap_or(-1);
    // At the urgent mark, only a peek shows how much data is behind it.
    let next = socket.recv(&mut [0; 256], libc::MSG_PEEK | libc::MSG_DONTWAIT);
    format!(
        "{} queued, {} next, mark {}, mask {:#x}",
        number(FIONREAD),
        next.unwrap_or(0),
        number(SIOCATMARK),
        events(socket)
    )
}

/// Compares `count` sequences on each path with TCP; prints KTAP.
pub(super) fn run(context: &Context, paths: &[Path], first: u64, count: u64) -> Result<()> {
    let mut ktap = Ktap::start(paths.len());
    let mut results = vec![Ok(()); paths.len()];
    for seed in first..first + count {
        let tcp = go(context, None, seed, &[])?;
        for (path, result) in paths.iter().zip(&mut results) {
            if result.is_ok() {
                *result = compare(&tcp, &go(context, Some(path), seed, &tcp)?)
                    .map_err(|line| format!("seed {seed}: {line}"));
            }
        }
    }
    for (path, result) in paths.iter().zip(results) {
        ktap.result(
            format!("{}: {count} sequences of urgent data", path.name),
            result,
        );
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

fn compare(tcp: &[String], other: &[String]) -> Result<(), String> {
    let mut before = Vec::new();
    for (tcp, other) in tcp.iter().zip(other) {
        if tcp != other {
            return Err(format!("{}\n{other}\nover TCP: {tcp}", before.join("\n")));
        }
        before.push(tcp.clone());
    }
    Ok(())
}

/// Runs a sequence; returns the view after each step. Waits until it equals that of `tcp`.
fn go(context: &Context, path: Option<&Path>, seed: u64, tcp: &[String]) -> Result<Vec<String>> {
    let setting = setting(context, path, Subject::Client);
    let rig = Rig::new(&setting, Duration::ZERO)?;
    let (steps, is_inline) = sequence(seed);
    let Pair { client, server, .. } = rig.pair()?;
    client.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    server.set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, is_inline.into())?;
    let mut next = 0u8;
    let mut seen = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let said = step.take(&client, &server, &mut next);
        let line = || format!("{step:?}: {said}; {}", view(&server));
        let start = Instant::now();
        if tcp.is_empty() {
            std::thread::sleep(DELIVERY);
        }
        let expected = tcp.get(i);
        while expected.is_some_and(|expected| *expected != line()) && start.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(2));
        }
        let line = line();
        let differs = expected.is_some_and(|expected| *expected != line);
        seen.push(line);
        if differs {
            break;
        }
    }
    Ok(seen)
}

impl Step {
    /// Executes the step; returns the result of the call, and the bytes.
    fn take(self, client: &Socket, server: &Socket, next: &mut u8) -> String {
        let mut bytes = |len: usize| {
            let bytes: Vec<u8> = (0..len)
                .map(|i| next.wrapping_add(u8::try_from(i).unwrap_or(0)))
                .collect();
            *next = next.wrapping_add(u8::try_from(len).unwrap_or(0));
            bytes
        };
        let recv = |len: usize, flags| {
            let mut buffer = vec![0; len];
            match server.recv(&mut buffer, flags | libc::MSG_DONTWAIT) {
                Ok(len) => format!("{:?}", &buffer[..len]),
                Err(error) => error.to_string(),
            }
        };
        let send = |bytes: Vec<u8>, flags| match client.send(&bytes, flags | libc::MSG_DONTWAIT) {
            Ok(len) => len.to_string(),
            Err(error) => error.to_string(),
        };
        match self {
            Self::Send(len) => send(bytes(len), 0),
            Self::SendUrgent(len) => send(bytes(len), libc::MSG_OOB),
            Self::Recv(len) => recv(len, 0),
            Self::RecvUrgent => recv(1, libc::MSG_OOB),
            Self::PeekUrgent => recv(1, libc::MSG_OOB | libc::MSG_PEEK),
            Self::Peek(len) => recv(len, libc::MSG_PEEK),
        }
    }
}
