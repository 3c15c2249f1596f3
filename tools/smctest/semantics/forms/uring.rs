// SPDX-License-Identifier: GPL-2.0

//! The same calls through io_uring.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use smc_user::uring::Ring;
use smc_user::Address;
use smc_user::Errno;
use smc_user::Room;

use super::names::accepted;
use super::Form;
use super::NOT_RUN;
use crate::semantics::answer::answer;
use crate::semantics::rig::Rig;

/// Time in which a listener mostly has a connection that connect(2) has returned, and trials for when it has not.
const SETTLED: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 10;

/// How often a refused connect(2) is repeated.
const REPEATED: usize = 100;

thread_local! {
    /// One ring for all forms: the exit of a ring interrupts blocked calls of its thread.
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

fn with_ring(f: impl FnOnce(&mut Ring) -> Result<String>) -> Result<String> {
    RING.with_borrow_mut(|place| with_made(place, Ring::new, f))
}

/// Runs `f` with the ring in `place`, which is made first if there is none, and if this kernel supports io_uring.
pub(super) fn with_made<R>(
    place: &mut Option<R>,
    make: impl FnOnce() -> smc_user::Result<R>,
    f: impl FnOnce(&mut R) -> Result<String>,
) -> Result<String> {
    let ring = match place {
        Some(ring) => ring,
        None => match make() {
            Ok(ring) => place.insert(ring),
            Err(Errno::ENOSYS) => return Ok(format!("{NOT_RUN}this kernel has no io_uring")),
            Err(error) => return Err(error.into()),
        },
    };
    f(ring)
}

fn accepted_by_ring(rig: &Rig<'_>, flags: i32, room: Room) -> Result<String> {
    with_ring(|ring| accepted(rig, |listener| ring.accept(listener, flags, room)))
}

pub(super) const FORMS: &[Form] = &[
    Form::new("accept, no address", |rig| {
        accepted_by_ring(rig, 0, Room::Null)
    }),
    Form::new("accept, with an address", |rig| {
        accepted_by_ring(rig, libc::SOCK_CLOEXEC, Room::Of(200))
    }),
    Form::new("accept, room that is too short", |rig| {
        accepted_by_ring(rig, 0, Room::Of(8))
    }),
    Form::new("accept, an address and no length", |rig| {
        accepted_by_ring(rig, 0, Room::NoLength)
    }),
    Form::new("accept, while another connection waits", |rig| {
        with_ring(|ring| {
            let mut said = [false; 2];
            for _ in 0..ATTEMPTS {
                let (listener, address) = rig.listener()?;
                let clients = [rig.open()?, rig.open()?];
                for client in &clients {
                    client.connect(address)?;
                }
                thread::sleep(SETTLED);
                for said in &mut said {
                    *said = ring.accept_next(&listener)?.1;
                }
                if said == [true, false] {
                    break;
                }
            }
            answer![said[0], said[1]]
        })
    }),
    Form::new("connect, send and receive", |rig| {
        with_ring(|ring| {
            let (listener, address) = rig.listener()?;
            let client = rig.open()?;
            let connected = ring.connect(&client, address);
            let server = listener.accept(0)?;
            let sent = ring.send(&client, b"hello", 0);
            let got = ring.recv(&server, &mut [0; 8], 0);
            answer![connected, sent, got]
        })
    }),
    Form::new("connect, refused, and with a short address", |rig| {
        with_ring(|ring| {
            let (socket, nobody) = (rig.open()?, rig.refusing()?);
            let short = Address::from(nobody).cut(1);
            answer![
                ring.connect(&socket, nobody),
                ring.connect(&rig.open()?, short)
            ]
        })
    }),
    Form::new("connect, refused again and again", |rig| {
        with_ring(|ring| {
            let (socket, nobody) = (rig.open()?, rig.refusing()?);
            let mut others = 0;
            for _ in 0..REPEATED {
                others += usize::from(ring.connect(&socket, nobody) != Err(Errno::ECONNREFUSED));
            }
            answer![others]
        })
    }),
    Form::new("read and write", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            let sent = ring.write(&pair.client, b"hello");
            answer![sent, ring.read(&pair.server, &mut [0; 8])]
        })
    }),
    Form::new("sendmsg and recvmsg", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            let sent = ring.send_message(&pair.client, b"hello");
            answer![sent, ring.recv_message(&pair.server, &mut [0; 8])]
        })
    }),
    Form::new("receive, without waiting, and peeking", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            let none = ring.recv(&pair.server, &mut [0; 8], libc::MSG_DONTWAIT);
            pair.deliver(b"hello")?;
            let peeked = ring.recv(&pair.server, &mut [0; 8], libc::MSG_PEEK);
            answer![none, peeked, ring.recv(&pair.server, &mut [0; 3], 0)]
        })
    }),
    Form::new("poll and shutdown", |rig| {
        with_ring(|ring| {
            let pair = rig.pair()?;
            let shut = ring.shutdown(&pair.client, libc::SHUT_WR);
            let events = ring.poll(&pair.server, libc::POLLIN | libc::POLLRDHUP);
            let end = ring.recv(&pair.server, &mut [0; 8], 0);
            answer![shut, events, end, ring.shutdown(&pair.client, 9)]
        })
    }),
    Form::new("no connection", |rig| {
        with_ring(|ring| {
            let socket = rig.open()?;
            answer![
                ring.send(&socket, b"x", 0),
                ring.recv(&socket, &mut [0; 8], 0),
                ring.accept(&socket, 0, Room::Null).map(drop)
            ]
        })
    }),
];
