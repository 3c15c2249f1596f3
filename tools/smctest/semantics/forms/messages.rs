// SPDX-License-Identifier: GPL-2.0

//! sendmsg and recvmsg: several buffers and none, control data, flags, several messages at once.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use smc_user::control_int;
use smc_user::Address;
use smc_user::Extras;
use smc_user::Received;
use smc_user::Socket;

use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::events;
use crate::semantics::rig::Rig;
use crate::semantics::rig::WHILE;
use crate::semantics::Pair;

const SCM_RIGHTS: i32 = 1;
const SO_TIMESTAMPING: i32 = 37;
const SO_MARK: i32 = 36;
const TCP_INQ: i32 = 36;
/// Maximum number of buffers per call (`UIO_MAXIOV`).
const MOST: usize = 1024;

fn text(received: smc_user::Result<Received>) -> String {
    match received {
        Ok(r) => format!(
            "{}/{:#x}/{}/{}",
            r.len,
            r.flags,
            r.name_len,
            r.control.len()
        ),
        Err(error) => error.to_string(),
    }
}

/// Returns the result of sendmsg(2) with these control data and flags, and what is received.
fn sent_with(rig: &Rig<'_>, extras: Extras<'_>) -> Result<String> {
    let pair = rig.pair()?;
    let sent = pair.client.send_parts(&[b"some", b"thing"], extras);
    pair.client.send(b"!", 0)?;
    let mut buffer = [0; 16];
    let len = if sent.is_ok() { 10 } else { 1 };
    let room = buffer.get_mut(..len).unwrap_or(&mut []);
    let got = pair.server.recv(room, libc::MSG_WAITALL);
    answer![sent, got, String::from_utf8_lossy(&buffer[..len]).as_ref()]
}

fn with_control(rig: &Rig<'_>, control: &[u8]) -> Result<String> {
    let extras = Extras {
        control,
        ..Extras::default()
    };
    sent_with(rig, extras)
}

fn with_flags(rig: &Rig<'_>, flags: i32) -> Result<String> {
    let extras = Extras {
        flags,
        ..Extras::default()
    };
    sent_with(rig, extras)
}

/// Returns the result of a receive of "hello" with these flags, and what remains.
fn received_with(rig: &Rig<'_>, flags: i32, room: usize) -> Result<String> {
    let pair = rig.pair()?;
    pair.deliver(b"hello")?;
    let mut buffer = [0; 16];
    let room = buffer.get_mut(..room).unwrap_or(&mut []);
    let first = text(pair.server.recv_parts(&mut [room], 64, Some(128), flags));
    let left = pair.server.recv(&mut [0; 16], libc::MSG_DONTWAIT);
    answer![
        first,
        String::from_utf8_lossy(&buffer).trim_end_matches('\0'),
        left
    ]
}

/// Sends and receives with `count` buffers of one byte each.
fn many(rig: &Rig<'_>, count: usize) -> Result<String> {
    let pair = rig.pair()?;
    let parts = vec![b"x".as_slice(); count];
    let sent = pair.client.send_parts(&parts, Extras::default());
    let written = pair.client.write_parts(&parts);
    pair.client.send(b"end", 0)?;
    pair.await_queued(sent.unwrap_or(0) + written.unwrap_or(0) + 3)?;
    let mut bytes = vec![0; count];
    let mut room: Vec<_> = bytes.chunks_mut(1).collect();
    let received = pair
        .server
        .recv_parts(&mut room, 0, None, libc::MSG_DONTWAIT);
    let read = pair.server.read_parts(&mut room);
    answer![sent, written, received.map(|r| r.len), read]
}

/// Receives from the error queue, which is empty.
fn error_queue(socket: &Socket) -> String {
    text(socket.recv_parts(&mut [&mut [0; 8]], 256, None, libc::MSG_ERRQUEUE))
}

pub(super) const FORMS: &[Form] = &[
    Form::new("sendmsg, several buffers, some empty", |rig| {
        let pair = rig.pair()?;
        let parts: [&[u8]; 5] = [b"", b"a", b"", b"bc", b""];
        let sent = pair.client.send_parts(&parts, Extras::default());
        pair.await_queued(3)?;
        let (mut a, mut b, mut c) = ([0; 2], [0; 0], [0; 4]);
        let got = pair
            .server
            .recv_parts(&mut [&mut a, &mut b, &mut c], 0, None, 0);
        answer![sent, text(got), (a, c) == (*b"ab", *b"c\0\0\0")]
    }),
    Form::new("sendmsg and recvmsg, no buffers", |rig| {
        let pair = rig.pair()?;
        let sent = pair.client.send_parts(&[], Extras::default());
        let empty = text(pair.server.recv_parts(&mut [], 0, None, libc::MSG_DONTWAIT));
        pair.deliver(b"x")?;
        let full = text(pair.server.recv_parts(&mut [], 0, None, libc::MSG_DONTWAIT));
        answer![sent, empty, full, pair.server.recv(&mut [0; 8], 0)]
    }),
    Form::new("send and receive nothing", |rig| {
        let pair = rig.pair()?;
        let sent = (pair.client.send(&[], 0), pair.client.write(&[]));
        let empty = (
            pair.server.recv(&mut [], libc::MSG_DONTWAIT),
            pair.server.read(&mut []),
        );
        pair.deliver(b"x")?;
        answer![
            sent.0,
            sent.1,
            empty.0,
            empty.1,
            pair.server.recv(&mut [], 0)
        ]
    }),
    Form::new("the most buffers", |rig| many(rig, MOST)),
    Form::new("more buffers than that", |rig| many(rig, MOST + 1)),
    Form::new("sendmsg, an address on a connection", |rig| {
        let to = Address::from(rig.silent());
        let extras = Extras {
            to: Some(&to),
            ..Extras::default()
        };
        sent_with(rig, extras)
    }),
    Form::new("sendmsg, no connection", |rig| {
        let socket = rig.open()?;
        let control = control_int(libc::SOL_SOCKET, SO_MARK, 0);
        let extras = Extras {
            control: &control,
            ..Extras::default()
        };
        answer![
            socket.send_parts(&[b"x"], Extras::default()),
            socket.send_parts(&[], Extras::default()),
            socket.send_parts(&[b"x"], extras),
            text(socket.recv_parts(&mut [&mut [0; 4]], 16, Some(16), 0)),
            text(socket.recv_parts(&mut [], 0, None, 0))
        ]
    }),
    Form::new("control: a length below its own header", |rig| {
        with_control(rig, &[1; 16])
    }),
    Form::new("control: cut in its header", |rig| {
        with_control(rig, &[0; 4])
    }),
    Form::new("control: another level", |rig| {
        with_control(rig, &control_int(libc::IPPROTO_UDP, 103, 1))
    }),
    Form::new("control: SCM_RIGHTS", |rig| {
        with_control(rig, &control_int(libc::SOL_SOCKET, SCM_RIGHTS, 0))
    }),
    Form::new("control: SO_MARK", |rig| {
        with_control(rig, &control_int(libc::SOL_SOCKET, SO_MARK, 7))
    }),
    Form::new("control: SO_TIMESTAMPING", |rig| {
        with_control(rig, &control_int(libc::SOL_SOCKET, SO_TIMESTAMPING, 0))
    }),
    Form::new("control: of unknown kind", |rig| {
        with_control(rig, &control_int(libc::SOL_SOCKET, 9999, 0))
    }),
    Form::new("control: bytes that wait, for who asked", |rig| {
        let pair = rig.pair()?;
        let asked = pair.server.set_option_int(libc::IPPROTO_TCP, TCP_INQ, 1);
        pair.deliver(b"hello")?;
        let got = pair
            .server
            .recv_parts(&mut [&mut [0; 2]], 64, None, 0)
            .map(|r| (r.len, r.control.get(16..20) == Some(&3_i32.to_ne_bytes())));
        answer![
            asked,
            match got {
                Ok((len, is_told)) => format!("{len} {is_told}"),
                Err(error) => error.to_string(),
            }
        ]
    }),
    Form::new(
        "control: no bytes wait, and the end, for who asked",
        |rig| {
            let pair = rig.pair()?;
            pair.server.set_option_int(libc::IPPROTO_TCP, TCP_INQ, 1)?;
            pair.deliver(b"he")?;
            let inq = || -> anyhow::Result<Option<Vec<u8>>> {
                let received = pair.server.recv_parts(&mut [&mut [0; 2]], 64, None, 0)?;
                Ok(received.control.get(16..20).map(<[u8]>::to_vec))
            };
            let data = inq()?;
            pair.client.shutdown(libc::SHUT_WR)?;
            pair.await_end()?;
            answer![format!("{data:?}"), format!("{:?}", inq()?)]
        },
    ),
    Form::new("MSG_MORE", |rig| with_flags(rig, libc::MSG_MORE)),
    Form::new("MSG_EOR", |rig| with_flags(rig, libc::MSG_EOR)),
    Form::new("MSG_CONFIRM and MSG_DONTROUTE", |rig| {
        with_flags(rig, libc::MSG_CONFIRM | libc::MSG_DONTROUTE)
    }),
    Form::new("MSG_DONTWAIT", |rig| with_flags(rig, libc::MSG_DONTWAIT)),
    Form::new("MSG_ZEROCOPY, not asked for", |rig| {
        with_flags(rig, 0x400_0000)
    }),
    Form::new("an unknown flag", |rig| with_flags(rig, 0x100_0000)),
    Form::new("urgent data", |rig| {
        let pair = rig.pair()?;
        let sent = pair.client.send(b"abc", libc::MSG_OOB);
        await_events(&pair.server, libc::POLLPRI)?;
        let (mut buffer, mut byte) = ([0; 8], [0; 1]);
        let urgent = pair.server.recv(&mut byte, libc::MSG_OOB);
        let again = pair.server.recv(&mut byte, libc::MSG_OOB);
        answer![sent, urgent, again, pair.server.recv(&mut buffer, 0)]
    }),
    Form::new("receive, with room for everything", |rig| {
        received_with(rig, 0, 16)
    }),
    Form::new("MSG_PEEK", |rig| received_with(rig, libc::MSG_PEEK, 3)),
    Form::new("MSG_WAITALL", |rig| {
        received_with(rig, libc::MSG_WAITALL, 5)
    }),
    Form::new("MSG_WAITALL and MSG_PEEK", |rig| {
        received_with(rig, libc::MSG_WAITALL | libc::MSG_PEEK, 5)
    }),
    Form::new("MSG_CMSG_CLOEXEC", |rig| {
        received_with(rig, libc::MSG_CMSG_CLOEXEC, 16)
    }),
    Form::new("MSG_OOB without urgent data", |rig| {
        received_with(rig, libc::MSG_OOB, 4)
    }),
    Form::new("an unknown flag to receive with", |rig| {
        received_with(rig, 0x100_0000, 16)
    }),
    Form::new("MSG_ERRQUEUE, empty", |rig| {
        let pair = rig.pair()?;
        answer![
            error_queue(&pair.client),
            error_queue(&rig.open()?),
            error_queue(&pair.listener)
        ]
    }),
    Form::new("sendmmsg and recvmmsg", |rig| {
        let pair = rig.pair()?;
        let sent = pair.client.send_messages(&[b"ab", b"", b"cde"], 0);
        pair.await_queued(5)?;
        let (mut a, mut b, mut c) = ([0; 2], [0; 2], [0; 8]);
        let got = pair.server.recv_messages(
            &mut [&mut a, &mut b, &mut c],
            libc::MSG_DONTWAIT,
            Some(Duration::from_secs(1)),
        )?;
        answer![
            sent,
            format!("{got:?}"),
            (a, b, c[0]) == (*b"ab", *b"cd", b'e')
        ]
    }),
    Form::new("sendmmsg and recvmmsg, no messages", |rig| {
        let pair = rig.pair()?;
        let got = pair.server.recv_messages(&mut [], libc::MSG_DONTWAIT, None);
        answer![
            pair.client.send_messages(&[], 0),
            got.map(|lens| lens.len())
        ]
    }),
    Form::new("recvmmsg, for one message", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        let (mut a, mut b) = ([0; 8], [0; 8]);
        const MSG_WAITFORONE: i32 = 0x10000;
        let got = pair
            .server
            .recv_messages(&mut [&mut a, &mut b], MSG_WAITFORONE, None);
        answer![got.map(|lens| lens.len())]
    }),
    Form::new("sendmmsg, no connection", |rig| {
        answer![rig.open()?.send_messages(&[b"x", b"y"], 0)]
    }),
    Form::new("memory that cannot be read", |rig| {
        let pair = rig.pair()?;
        let none = pair.client.send_unreadable(&[], 0);
        let half = pair.client.send_unreadable(&[7; 64], 0);
        let then = pair.client.send(b"!", 0);
        answer![
            none,
            half.is_ok() || half == Err(smc_user::Errno::EFAULT),
            then
        ]
    }),
    Form::new(
        "memory that cannot be read, to a peer that has closed",
        |rig| {
            let Pair { client, server, .. } = rig.pair()?;
            drop(server);
            await_true("the end", || events(&client) & libc::POLLRDHUP != 0)?;
            let none = client.send_unreadable(&[], 0);
            let half = client.send_unreadable(&[7; 64], 0);
            std::thread::sleep(WHILE);
            let before = events(&client);
            let first = client.send(b"hello", 0);
            await_true("the answer", || events(&client) & libc::POLLHUP != 0)?;
            answer![
                none,
                half,
                before,
                first,
                client.send_unreadable(&[7; 64], 0)
            ]
        },
    ),
    Form::new("memory that is not present", |rig| {
        let pair = rig.pair()?;
        let data: Vec<u8> = (1..=200).collect();
        let mut answers = String::new();
        for present in [0, 1, 100, 199, 200] {
            let sent = pair.client.send_absent(&data, present, 0);
            let mut got = vec![0; data.len()];
            let received = pair.server.recv(&mut got, libc::MSG_WAITALL);
            write!(answers, "{sent:?} {received:?} {}, ", got == data)?;
        }
        answer![answers]
    }),
    Form::new("memory that cannot be written", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        let all = pair.server.recv_unwritable(&mut [0; 8], 0);
        pair.deliver(b"hello")?;
        let peeked = pair.server.recv_unwritable(&mut [0; 8], libc::MSG_PEEK);
        answer![all, peeked, pair.server.recv(&mut [0; 8], 0)]
    }),
];
