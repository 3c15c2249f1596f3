// SPDX-License-Identifier: GPL-2.0

//! Socket addresses: given, omitted, too short, too long.

use std::net::SocketAddr;
use std::thread;

use anyhow::Result;
use smc_user::Address;
use smc_user::Name;
use smc_user::Room;
use smc_user::Socket;

use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::rig::local;
use crate::semantics::rig::Rig;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;

/// Size of a buffer that is too short for an address; the last byte that fits is the same in each
/// run.
const SHORT: i32 = 8;
/// More bytes than any address has.
const LONG: i32 = 200;

/// Formats the returned length, the number of bytes written, and whether these are (the beginning
/// of) the address.
pub(super) fn show(name: &Name, address: SocketAddr) -> String {
    let expected = Address::from(address);
    let written = name.address();
    let is_right = expected.as_bytes().starts_with(written.as_bytes());
    format!("{}/{}/{is_right}", name.len, name.written)
}

/// Returns the result of `accept` for a pending connection, and the state of that connection.
pub(super) fn accepted(
    rig: &Rig<'_>,
    accept: impl FnOnce(&Socket) -> smc_user::Result<(Socket, Name)>,
) -> Result<String> {
    let (listener, address) = rig.listener()?;
    let client = rig.open()?;
    client.connect(address)?;
    match accept(&listener) {
        Ok((server, name)) => {
            server.set_timeout(SOON)?;
            let name = show(&name, local(&client)?);
            let sent = client.send(b"there", 0);
            let there = server.recv(&mut [0; 8], 0);
            server.send(b"back", 0)?;
            answer![name, sent, there, client.recv(&mut [0; 8], 0)]
        }
        Err(error) => answer![error.to_string(), client.recv(&mut [0; 8], 0)],
    }
}

/// Returns the result of accept(2) with an address when the connection was reset before.
fn gone_before_accept(rig: &Rig<'_>) -> Result<String> {
    let (listener, address) = rig.listener()?;
    let client = rig.open()?;
    client.set_linger(true, 0)?;
    client.connect(address)?;
    let peer = local(&client)?;
    // The connection reaches the backlog before it is reset.
    thread::sleep(WHILE);
    drop(client);
    thread::sleep(WHILE);
    let (_, name) = listener.accept_name(0, Room::Of(LONG))?;
    answer![show(&name, peer)]
}

/// Calls getsockname(2) and getpeername(2) with buffers of all kinds.
fn names(socket: &Socket, local: SocketAddr, peer: SocketAddr) -> String {
    let mut answers = Vec::new();
    let rooms = [
        Room::Null,
        Room::NoLength,
        Room::NoAddress(LONG),
        Room::Of(-1),
        Room::Of(0),
        Room::Of(SHORT),
        Room::Of(LONG),
    ];
    let text = |name: smc_user::Result<Name>, address| match name {
        Ok(name) => show(&name, address),
        Err(error) => error.to_string(),
    };
    for room in rooms {
        answers.push(text(socket.local_name(room), local));
        answers.push(text(socket.peer_name(room), peer));
    }
    answers.join(" ")
}

/// Calls recvfrom(2); returns the address length that it reports.
fn received_from(rig: &Rig<'_>, room: Room) -> Result<String> {
    let pair = rig.pair()?;
    pair.deliver(b"hello")?;
    let mut buffer = [0; 8];
    match pair.server.recv_from(&mut buffer, 0, room) {
        Ok((len, name)) => answer![len, name.len, name.written],
        Err(error) => {
            let left = pair.server.recv(&mut buffer, libc::MSG_DONTWAIT);
            answer![error.to_string(), left]
        }
    }
}

pub(super) const FORMS: &[Form] = &[
    Form::new("accept, no address", |rig| {
        accepted(rig, |listener| listener.accept_plain(Room::Null))
    }),
    Form::new("accept, with an address", |rig| {
        accepted(rig, |listener| listener.accept_plain(Room::Of(LONG)))
    }),
    Form::new("accept4, with an address", |rig| {
        accepted(rig, |listener| {
            listener.accept_name(libc::SOCK_CLOEXEC, Room::Of(LONG))
        })
    }),
    Form::new("accept4, with the address of a peer that has gone", |rig| {
        gone_before_accept(rig)
    }),
    Form::new("accept4, room that is too short", |rig| {
        accepted(rig, |listener| listener.accept_name(0, Room::Of(SHORT)))
    }),
    Form::new("accept4, no room", |rig| {
        accepted(rig, |listener| listener.accept_name(0, Room::Of(0)))
    }),
    Form::new("accept4, a length and no address", |rig| {
        accepted(rig, |listener| {
            listener.accept_name(0, Room::NoAddress(LONG))
        })
    }),
    Form::new("accept4, a negative length", |rig| {
        accepted(rig, |listener| listener.accept_name(0, Room::Of(-1)))
    }),
    Form::new("accept4, an address and no length", |rig| {
        accepted(rig, |listener| listener.accept_name(0, Room::NoLength))
    }),
    Form::new("accept4, unknown flags", |rig| {
        let (listener, _) = rig.listener()?;
        answer![listener.accept_name(1, Room::Null).map(drop)]
    }),
    Form::new("accept4, flags of the new descriptor", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        client.connect(address)?;
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let (server, _) = listener.accept_name(flags, Room::Of(LONG))?;
        answer![
            server.fcntl(libc::F_GETFL, 0)? & libc::O_NONBLOCK != 0,
            server.fcntl(libc::F_GETFD, 0)?,
            server.recv(&mut [0; 8], 0)
        ]
    }),
    Form::new("accept, one after another with and without", |rig| {
        let (listener, address) = rig.listener()?;
        let mut answers = Vec::new();
        for room in [Room::Of(LONG), Room::Null, Room::Of(LONG)] {
            let client = rig.open()?;
            client.connect(address)?;
            let (server, name) = listener.accept_plain(room)?;
            let by_accept = show(&name, local(&client)?);
            let by_name = show(&server.peer_name(Room::Of(LONG))?, local(&client)?);
            let own = show(&server.local_name(Room::Of(LONG))?, address);
            answers.push(format!("{by_accept} {by_name} {own}"));
        }
        Ok(answers.join(" "))
    }),
    Form::new("names of a fresh socket", |rig| {
        Ok(names(&rig.open()?, rig.any(), rig.any()))
    }),
    Form::new("names of a listener", |rig| {
        let (listener, address) = rig.listener()?;
        Ok(names(&listener, address, rig.any()))
    }),
    Form::new("names of one that connects", |rig| {
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(rig.silent());
        Ok(names(&socket, local(&socket)?, rig.silent()))
    }),
    Form::new("names of both ends", |rig| {
        let pair = rig.pair()?;
        let (own, peer) = (local(&pair.client)?, pair.address);
        let client = names(&pair.client, own, peer);
        answer![client, names(&pair.server, peer, own)]
    }),
    Form::new("names after the peer has closed", |rig| {
        let pair = rig.pair()?;
        let own = local(&pair.client)?;
        drop(pair.server);
        let end = pair.client.recv(&mut [0], 0);
        answer![end, names(&pair.client, own, pair.address)]
    }),
    Form::new("bind, lengths", |rig| {
        let address = Address::from(rig.any());
        let bind = |len| Ok::<_, anyhow::Error>(rig.open()?.bind(address.cut(len)));
        answer![bind(0)?, bind(2)?, bind(15)?, bind(16)?]
    }),
    Form::new("connect, lengths", |rig| {
        let (_listener, address) = rig.listener()?;
        let address = Address::from(address);
        let connect = |len| Ok::<_, anyhow::Error>(rig.open()?.connect(address.cut(len)));
        answer![connect(0)?, connect(1)?, connect(15)?, connect(16)?]
    }),
    Form::new("connect again, lengths", |rig| {
        let pair = rig.pair()?;
        let address = Address::from(pair.address);
        let connect = |len| pair.client.connect(address.cut(len));
        answer![connect(0), connect(1), connect(15), connect(16)]
    }),
    Form::new("connect again, and with no family", |rig| {
        let pair = rig.pair()?;
        let other = Address::from(pair.address).with_family(99);
        answer![
            pair.client.connect(pair.address),
            pair.client.connect(other)
        ]
    }),
    Form::new("recvfrom, no address", |rig| received_from(rig, Room::Null)),
    Form::new("recvfrom, with an address", |rig| {
        received_from(rig, Room::Of(LONG))
    }),
    Form::new("recvfrom, no room", |rig| received_from(rig, Room::Of(0))),
    Form::new("recvfrom, a negative length", |rig| {
        received_from(rig, Room::Of(-1))
    }),
    Form::new("recvfrom, an address and no length", |rig| {
        received_from(rig, Room::NoLength)
    }),
    Form::new("sendto, an address on a connection", |rig| {
        let pair = rig.pair()?;
        let elsewhere = rig.silent();
        let sent = (
            pair.client.send_to(b"to", 0, pair.address),
            pair.client.send_to(b"elsewhere", 0, elsewhere),
        );
        pair.await_queued(11)?;
        answer![sent.0, sent.1, pair.server.recv(&mut [0; 16], 0)]
    }),
    Form::new("sendto, an address without a connection", |rig| {
        let (_listener, address) = rig.listener()?;
        let socket = rig.open()?;
        answer![
            socket.send_to(b"x", 0, address),
            socket.peer_name(Room::Of(LONG)).map(|_| ())
        ]
    }),
];
