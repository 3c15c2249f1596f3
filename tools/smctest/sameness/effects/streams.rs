// SPDX-License-Identifier: GPL-2.0

//! What comes with the data, and where data is.

use std::time::Duration;

use anyhow::Result;
use smc_user::Received;
use smc_user::Socket;

use super::set;
use super::text;
use super::Effect;
use super::SIOCOUTQNSD;
use crate::semantics::await_true;
use crate::semantics::fill;
use crate::semantics::Rig;
use crate::semantics::FIONREAD;
use crate::semantics::SIOCATMARK;

const SIOCOUTQ: u64 = 0x5411;
const TCP_INQ: i32 = 36;

/// A filter that drops every packet (`BPF_RET | BPF_K`, 0).
static DROP: [u64; 1] = [0x0000_0000_0000_0006];

/// The kinds of control messages with which data comes, if an option is on.
fn control(rig: &Rig<'_>, level: i32, name: i32, value: i32) -> Result<String> {
    let pair = rig.pair()?;
    let result = set(&pair.server, level, name, value);
    pair.deliver(b"hello")?;
    let got = pair.server.recv_parts(&mut [&mut [0; 3]], 256, None, 0)?;
    Ok(format!("{} {}", super::done(result), kinds(&got)))
}

/// Level and type of each control message.
fn kinds(got: &Received) -> String {
    let mut rest = got.control.as_slice();
    let mut kinds = Vec::new();
    while let Some((len, level, kind)) = head(rest) {
        kinds.push(format!("{level}/{kind}"));
        rest = rest
            .get(len.next_multiple_of(8).max(16)..)
            .unwrap_or_default();
    }
    format!("{} bytes, [{}]", got.len, kinds.join(" "))
}

fn head(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let len = usize::try_from(u64::from_ne_bytes(*len)).ok()?;
    Some((len, i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind)))
}

fn number(socket: &Socket, request: u64) -> String {
    text(socket.ioctl_int(request))
}

pub(super) const EFFECTS: &[Effect] = &[
    Effect::of("SO_TIMESTAMP", "a time comes with the data", |rig| {
        control(rig, libc::SOL_SOCKET, 29, 1)
    }),
    Effect::of("SO_TIMESTAMPNS", "a time comes with the data", |rig| {
        control(rig, libc::SOL_SOCKET, 35, 1)
    }),
    Effect::of("SO_TIMESTAMPING", "a time comes with the data", |rig| {
        control(rig, libc::SOL_SOCKET, 37, 0x18)
    }),
    Effect::of(
        "TCP_INQ",
        "what is left to read comes with the data",
        |rig| control(rig, libc::IPPROTO_TCP, TCP_INQ, 1),
    ),
    Effect::of("SO_PEEK_OFF", "peeks go on", |rig| {
        let pair = rig.pair()?;
        let result = set(&pair.server, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 1);
        pair.deliver(b"hello")?;
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut buffer = [0; 2];
            pair.server.recv(&mut buffer, libc::MSG_PEEK)?;
            seen.push(String::from_utf8_lossy(&buffer).into_owned());
        }
        Ok(format!("{} {}", super::done(result), seen.join(" ")))
    }),
    Effect::of("SO_OOBINLINE", "urgent data in the stream", |rig| {
        let mut said = Vec::new();
        for inline in [0, 1] {
            let pair = rig.pair()?;
            set(&pair.server, libc::SOL_SOCKET, libc::SO_OOBINLINE, inline)?;
            pair.client.send(b"ab", libc::MSG_OOB)?;
            pair.client.send(b"c", 0)?;
            // Up to the mark.
            let expected = if inline == 1 { 3 } else { 1 };
            pair.await_queued(expected)?;
            let mut buffer = [0; 8];
            let first = pair.server.recv(&mut buffer, 0);
            let mark = number(&pair.server, SIOCATMARK);
            said.push(format!(
                "{} {mark} {}",
                text(first),
                text(pair.server.recv(&mut buffer, 0))
            ));
        }
        Ok(said.join(", "))
    }),
    Effect::of("SO_ATTACH_FILTER", "data that a filter drops", |rig| {
        let pair = rig.pair()?;
        let address = DROP.as_ptr() as usize;
        let program = [1_u64.to_ne_bytes(), address.to_ne_bytes()].concat();
        pair.server
            .set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        pair.client.send(b"hello", 0)?;
        pair.server.set_timeout(Duration::from_millis(100))?;
        Ok(text(pair.server.recv(&mut [0; 8], 0)))
    }),
    Effect::of(
        "SO_RCVBUF",
        "what a peer can send that nobody reads is limited",
        |rig| {
            let pair = rig
                .pair_with(|client| Ok(set(client, libc::SOL_SOCKET, libc::SO_SNDBUF, 32_768)?))?;
            let sent = fill(&pair.client);
            Ok(format!("{}", sent > 0 && sent < 16 << 20))
        },
    ),
    Effect::of("SIOCINQ (FIONREAD)", "bytes that can be read", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        pair.server.recv(&mut [0; 2], 0)?;
        Ok(number(&pair.server, FIONREAD))
    }),
    Effect::of(
        "SIOCOUTQ (TIOCOUTQ)",
        "bytes that the peer does not have are none soon",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            let seen = await_true("nothing on its way", || {
                pair.client.ioctl_int(SIOCOUTQ) == Ok(0)
            });
            Ok(seen.map_or_else(|_| number(&pair.client, SIOCOUTQ), |()| "0".into()))
        },
    ),
    Effect::of("SIOCOUTQNSD", "a cork keeps bytes from being sent", |rig| {
        let pair = rig.pair()?;
        set(&pair.client, libc::IPPROTO_TCP, libc::TCP_CORK, 1)?;
        pair.client.send(b"hello", 0)?;
        Ok(number(&pair.client, SIOCOUTQNSD))
    }),
];
