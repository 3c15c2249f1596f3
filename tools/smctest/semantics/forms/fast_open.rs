// SPDX-License-Identifier: GPL-2.0

//! `MSG_FASTOPEN`, which connects and sends in one call, on sockets in each state. `forms.sh` runs
//! these again where the administrator has disabled it (`net.ipv4.tcp_fastopen`).

use std::net::SocketAddr;

use anyhow::Result;
use smc_user::Address;
use smc_user::Extras;
use smc_user::Socket;

use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::rig::await_events;
use crate::semantics::rig::Rig;
use crate::semantics::rig::SOON;

/// Returns what the call says without an address, with this one, with one of no family, and with one that is too short
/// to have a family.
fn attempts(socket: &Socket, address: SocketAddr) -> Result<String> {
    let to = |address: &Address| {
        let extras = Extras {
            to: Some(address),
            flags: libc::MSG_FASTOPEN,
            ..Extras::default()
        };
        socket.send_parts(&[b"data"], extras)
    };
    let address = Address::from(address);
    answer![
        socket.send(b"data", libc::MSG_FASTOPEN),
        to(&address),
        to(&address.with_family(0)),
        to(&address.cut(1))
    ]
}

/// Connects to a listener by the first data; returns what arrives of them.
fn first_data(rig: &Rig<'_>, socket: &Socket) -> Result<String> {
    let (listener, address) = rig.listener()?;
    let mut buffer = [0; 8];
    let sent = socket.send_to(b"hello", libc::MSG_FASTOPEN, address);
    if sent.is_err() {
        return answer![sent];
    }
    let server = listener.accept(0)?;
    server.set_timeout(SOON)?;
    let len = server.recv(&mut buffer, 0);
    answer![sent, len, buffer.starts_with(b"hello")]
}

/// Returns what arrives of a byte that is sent last.
fn last(from: &Socket, to: &Socket) -> Result<String> {
    let mut buffer = [0; 8];
    let sent = from.send(b"!", 0);
    let len = to.recv(&mut buffer, 0);
    answer![sent, len, buffer[0] == b'!']
}

#[rustfmt::skip]
pub(super) const FORMS: &[Form] = &[
    Form::new("nobody listens", |rig| {
        let address = rig.refusing()?;
        let socket = rig.open()?;
        let sent = socket.send_to(b"data", libc::MSG_FASTOPEN, address);
        answer![sent, socket.take_error()?, attempts(&socket, address)?]
    }),
    Form::new("after a refusal", |rig| {
        let refused = rig.open()?;
        let answer = refused.connect(rig.refusing()?);
        answer![answer, first_data(rig, &refused)?]
    }),
    Form::new("after an address without a route", |rig| {
        let socket = rig.open()?;
        let answer = socket.connect(rig.unrouted());
        answer![answer, first_data(rig, &socket)?]
    }),
    Form::new("after a connection that was undone", |rig| {
        let client = rig.pair()?.client;
        client.connect(Address::unspecified())?;
        let _ = client.take_error();
        first_data(rig, &client)
    }),
    Form::new("after it has listened", |rig| {
        let (listener, _) = rig.listener()?;
        listener.shutdown(libc::SHUT_RD)?;
        first_data(rig, &listener)
    }),
    Form::new("on a connection", |rig| {
        let pair = rig.pair()?;
        let tried = attempts(&pair.client, pair.address)?;
        answer![tried, last(&pair.client, &pair.server)?]
    }),
    Form::new("on an accepted connection", |rig| {
        let pair = rig.pair()?;
        let tried = attempts(&pair.server, pair.address)?;
        answer![tried, last(&pair.server, &pair.client)?]
    }),
    Form::new("after the peer has closed", |rig| {
        let pair = rig.pair()?;
        drop(pair.server);
        let end = pair.client.recv(&mut [0], 0);
        answer![end, attempts(&pair.client, pair.address)?]
    }),
    Form::new("while it connects", |rig| {
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        let begun = socket.connect(rig.silent());
        answer![begun, attempts(&socket, rig.silent())?]
    }),
    Form::new("connected, and not told so", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        client.set_nonblocking(true)?;
        let begun = client.connect(address);
        let server = listener.accept(0)?;
        await_events(&client, libc::POLLOUT)?;
        let sent = client.send(b"data", libc::MSG_FASTOPEN);
        let mut buffer = [0; 8];
        let got = server.recv(&mut buffer, 0);
        answer![begun, sent, got, client.connect(address), attempts(&client, address)?]
    }),
    Form::new("a listener", |rig| {
        let (listener, address) = rig.listener()?;
        attempts(&listener, address)
    }),
];
