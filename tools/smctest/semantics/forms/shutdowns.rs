// SPDX-License-Identifier: GPL-2.0

//! shutdown(2) in each state, and the results of calls after it.

use anyhow::Result;
use smc_user::Socket;

use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::answer::Text;
use crate::semantics::rig::WHILE;

/// Calls shutdown(2) with valid and invalid values of `how`, each on a new socket.
fn each(make: impl Fn() -> Result<Socket>) -> Result<String> {
    let mut answers = Vec::new();
    for how in [-1, 0, 1, 2, 3] {
        answers.push(make()?.shutdown(how).text());
    }
    Ok(answers.join(" "))
}

/// Returns the results of sending and receiving.
fn after(socket: &Socket) -> String {
    let send = socket.send(b"x", libc::MSG_DONTWAIT).text();
    let recv = socket.recv(&mut [0; 8], libc::MSG_DONTWAIT).text();
    format!("{send} {recv}")
}

pub(super) const FORMS: &[Form] = &[
    Form::new("fresh", |rig| each(|| rig.open())),
    Form::new("fresh, for receiving, then connected", |rig| {
        let pair = rig.pair_with(|client| {
            let _ = client.shutdown(libc::SHUT_RD);
            Ok(())
        })?;
        let sent = pair.client.send(b"hello", 0);
        answer![
            sent,
            pair.server.recv(&mut [0; 8], 0),
            pair.client.recv(&mut [0; 8], 0)
        ]
    }),
    Form::new("fresh, for sending, then connected", |rig| {
        let pair = rig.pair_with(|client| {
            let _ = client.shutdown(libc::SHUT_WR);
            Ok(())
        })?;
        let sent = pair.server.send(b"hello", 0);
        answer![
            sent,
            pair.client.recv(&mut [0; 8], 0),
            pair.client.send(b"x", libc::MSG_NOSIGNAL)
        ]
    }),
    Form::new("listening", |rig| each(|| Ok(rig.listener()?.0))),
    Form::new("connecting", |rig| {
        each(|| {
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(rig.silent());
            Ok(socket)
        })
    }),
    Form::new("connected", |rig| {
        let pairs = std::cell::RefCell::new(Vec::new());
        each(|| {
            let pair = rig.pair()?;
            let client = pair.client.duplicate()?;
            pairs.borrow_mut().push(pair);
            Ok(client)
        })
    }),
    Form::new("again, and the other way", |rig| {
        let pair = rig.pair()?;
        answer![
            pair.client.shutdown(libc::SHUT_WR),
            pair.client.shutdown(libc::SHUT_WR),
            pair.client.shutdown(libc::SHUT_RD),
            pair.client.shutdown(libc::SHUT_RDWR)
        ]
    }),
    Form::new("sending", |rig| {
        let pair = rig.pair()?;
        pair.client.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        let there = pair.server.recv(&mut [0; 8], 0);
        pair.server.send(b"back", 0)?;
        answer![
            pair.client.send(b"x", 0),
            there,
            pair.client.recv(&mut [0; 8], 0)
        ]
    }),
    Form::new("receiving", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        pair.server.shutdown(libc::SHUT_RD)?;
        answer![
            pair.server.recv(&mut [0; 8], libc::MSG_DONTWAIT),
            pair.server.recv(&mut [0; 8], libc::MSG_DONTWAIT),
            pair.server.send(b"x", 0)
        ]
    }),
    Form::new("after the peer has closed", |rig| {
        let pair = rig.pair()?;
        drop(pair.client);
        let end = pair.server.recv(&mut [0; 8], 0);
        answer![
            end,
            pair.server.shutdown(libc::SHUT_WR),
            after(&pair.server)
        ]
    }),
    Form::new("after both have shut down", |rig| {
        let pair = rig.pair()?;
        pair.client.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        pair.server.shutdown(libc::SHUT_WR)?;
        let end = pair.client.recv(&mut [0; 8], 0);
        answer![end, after(&pair.client), after(&pair.server)]
    }),
    Form::new("of a listener, and listen again", |rig| {
        let (listener, address) = rig.listener()?;
        listener.set_timeout(WHILE)?;
        let shut = listener.shutdown(libc::SHUT_RD);
        let accept = listener.accept(libc::SOCK_NONBLOCK).map(drop);
        let refused = rig.open()?.connect(address);
        let again = listener.listen(4);
        let client = rig.open()?;
        answer![
            shut,
            accept,
            refused,
            again,
            client.connect(address),
            listener.accept(0).map(drop)
        ]
    }),
];
