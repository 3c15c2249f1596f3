// SPDX-License-Identifier: GPL-2.0

//! Commands of sockets through io_uring: queues, options and names.

use std::cell::RefCell;

use anyhow::Result;
use smc_user::uring::Command;
use smc_user::uring::Ring;
use smc_user::Room;
use smc_user::Socket;

use super::uring::with_made;
use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::answer::Text;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::fill;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCOUTQ;

thread_local! {
    /// One ring for all forms, as in [`uring`](super::uring).
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

fn with_ring(f: impl FnOnce(&mut Ring) -> Result<String>) -> Result<String> {
    RING.with_borrow_mut(|place| with_made(place, Ring::new, f))
}

/// The numbers of both queues, and where ioctl(2) has another one.
fn queues(ring: &mut Ring, socket: &Socket) -> String {
    let both = [(Command::Siocinq, FIONREAD), (Command::Siocoutq, SIOCOUTQ)];
    let texts = both.map(|(command, request)| {
        let (said, other) = (ring.command(socket, command), socket.ioctl_int(request));
        match said == other {
            true => said.text(),
            false => format!("{} (ioctl(2): {})", said.text(), other.text()),
        }
    });
    texts.join(" ")
}

const SNDBUF: (i32, i32) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
const RCVLOWAT: (i32, i32) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
const NODELAY: (i32, i32) = (libc::SOL_TCP, libc::TCP_NODELAY);

pub(super) const FORMS: &[Form] = &[
    Form::new("command: queues of a fresh socket", |rig| {
        with_ring(|ring| Ok(queues(ring, &rig.open()?)))
    }),
    Form::new("command: queues of a listener", |rig| {
        with_ring(|ring| Ok(queues(ring, &rig.listener()?.0)))
    }),
    Form::new("command: queues of one that connects", |rig| {
        with_ring(|ring| {
            let socket = rig.open()?;
            socket.set_nonblocking(true)?;
            let _ = socket.connect(rig.silent());
            Ok(queues(ring, &socket))
        })
    }),
    Form::new("command: queues of one that was refused", |rig| {
        with_ring(|ring| {
            let socket = rig.open()?;
            let refused = socket.connect(rig.refusing()?);
            answer![refused, queues(ring, &socket)]
        })
    }),
    Form::new("command: queues with nothing in them", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            await_true("an empty send queue", || {
                pair.client.ioctl_int(SIOCOUTQ) == Ok(0)
            })?;
            answer![queues(ring, &pair.client), queues(ring, &pair.server)]
        })
    }),
    Form::new("command: bytes that wait", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            let all = queues(ring, &pair.server);
            pair.server.recv(&mut [0; 2], 0)?;
            let rest = queues(ring, &pair.server);
            pair.server.recv(&mut [0; 3], 0)?;
            answer![all, rest, queues(ring, &pair.server)]
        })
    }),
    Form::new("command: bytes that wait before the urgent one", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            pair.client.send(b"hello", libc::MSG_OOB)?;
            pair.await_queued(4)?;
            let all = queues(ring, &pair.server);
            pair.server.recv(&mut [0; 8], 0)?;
            answer![all, queues(ring, &pair.server)]
        })
    }),
    Form::new(
        "command: bytes that wait, after the end of the stream",
        |rig| {
            with_ring(|ring| {
                let pair = rig.pair()?;
                pair.deliver(b"hello")?;
                pair.client.shutdown(libc::SHUT_WR)?;
                pair.await_end()?;
                answer![queues(ring, &pair.server)]
            })
        },
    ),
    Form::new("command: bytes that wait, after a reset", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            pair.client.set_linger(true, 0)?;
            drop(pair.client);
            await_events(&pair.server, libc::POLLRDHUP)?;
            answer![queues(ring, &pair.server)]
        })
    }),
    Form::new("command: a send queue that is full", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            fill(&pair.client);
            answer![ring.command(&pair.client, Command::Siocoutq)? > 0]
        })
    }),
    Form::new("command: options", |rig| {
        with_ring(|ring| {
            let (socket, mut value) = (rig.open()?, [0; 8]);
            let set = ring.set_option(&socket, RCVLOWAT, &7_i32.to_ne_bytes());
            let other = socket.option_int(RCVLOWAT.0, RCVLOWAT.1);
            let got = ring.option(&socket, RCVLOWAT, &mut value);
            let [low, ..] = value;
            let cut = ring.option(&socket, SNDBUF, &mut [0; 2]);
            let short = ring.set_option(&socket, RCVLOWAT, &[1; 2]);
            answer![set, other, got, i32::from(low), cut, short]
        })
    }),
    Form::new("command: options of other levels", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            let set = ring.set_option(&pair.client, NODELAY, &1_i32.to_ne_bytes());
            let got = ring.option(&pair.client, NODELAY, &mut [0; 4]);
            let other = pair.client.option_int(NODELAY.0, NODELAY.1);
            let unknown = ring.set_option(&pair.client, (libc::SOL_TCP, 9999), &[1; 4]);
            answer![set, got, other, unknown]
        })
    }),
    Form::new("command: names", |rig| {
        with_ring(|ring| {
            let (pair, fresh) = (rig.pair()?, rig.open()?);
            let room = Room::Of(128);
            let own = ring.name(&pair.client, 0, room)?;
            let peer = ring.name(&pair.client, 1, room)?;
            let same = own.address() == pair.client.local_address()?
                && peer.address() == pair.client.peer_address()?;
            answer![
                same,
                ring.name(&pair.server, 0, Room::Of(4)).map(|name| name.len),
                ring.name(&pair.server, 0, Room::Null).map(drop),
                ring.name(&pair.server, 2, room).map(drop),
                ring.name(&fresh, 0, room).map(|name| name.len),
                ring.name(&fresh, 1, room).map(drop),
                ring.name(&pair.listener, 1, room).map(drop)
            ]
        })
    }),
    Form::new("command: times of packets, and unknown ones", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            answer![
                ring.command(&pair.client, Command::TxTimestamp),
                ring.command(&pair.client, Command::Unknown)
            ]
        })
    }),
];
