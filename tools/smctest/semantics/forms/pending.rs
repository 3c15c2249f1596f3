// SPDX-License-Identifier: GPL-2.0

//! Operations of io_uring that wait: they end when something arrives, are cancelled, or go on.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::uring::End;
use smc_user::uring::How;
use smc_user::uring::Queue;
use smc_user::uring::Tag;
use smc_user::Socket;

use super::uring::with_made;
use super::Form;
use super::NOT_RUN;
use crate::semantics::answer::answer;
use crate::semantics::connected::drain;
use crate::semantics::rig::fill;
use crate::semantics::rig::Rig;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;

/// Time in which what waits has not ended.
const PENDING: Duration = Duration::from_millis(50);

const PLAIN: How = How {
    links: false,
    polls_first: false,
    flags: 0,
};

thread_local! {
    /// One ring for all forms: see [`close`].
    static QUEUE: RefCell<Option<Queue>> = const { RefCell::new(None) };
}

/// Runs `f` with a ring, if this kernel supports io_uring.
fn with_queue(f: impl FnOnce(&mut Queue) -> Result<String>) -> Result<String> {
    QUEUE.with_borrow_mut(|place| {
        let result = with_made(place, Queue::new, f);
        if place.as_ref().is_some_and(|queue| !queue.is_idle()) {
            close(place);
        }
        result
    })
}

/// The same with a ring of its own, which has all of its provided buffers.
fn with_fresh_queue(f: impl FnOnce(&mut Queue) -> Result<String>) -> Result<String> {
    QUEUE.with_borrow_mut(close);
    let result = with_queue(f);
    QUEUE.with_borrow_mut(close);
    result
}

/// Closes a ring with what is in it. That interrupts a blocked call of the thread soon afterwards.
fn close(queue: &mut Option<Queue>) {
    *queue = None;
    thread::sleep(WHILE);
}

/// Returns the next completion, which has to be soon.
fn ended(queue: &mut Queue) -> Result<End> {
    queue.next(SOON)?.context("nothing has ended")
}

/// Returns the completion of this operation; those of others are dropped.
fn end_of(queue: &mut Queue, tag: Tag) -> Result<End> {
    loop {
        let end = ended(queue)?;
        if end.tag == tag {
            return Ok(end);
        }
    }
}

/// Returns "waits" if nothing ends, for a while.
fn waits(queue: &mut Queue) -> Result<String> {
    Ok(match queue.next(PENDING)? {
        None => "waits".to_string(),
        Some(end) => said(&end),
    })
}

/// Returns the result of a completion, what it received, and whether the operation goes on.
fn said(end: &End) -> String {
    let result = match (&end.socket, end.result) {
        (Some(_), _) => "a socket".to_string(),
        (None, Ok(value)) => value.to_string(),
        (None, Err(error)) => error.to_string(),
    };
    let data = match end.data.is_empty() {
        true => String::new(),
        false => format!(" {:?}", String::from_utf8_lossy(&end.data)),
    };
    let more = if end.more { " and more" } else { "" };
    format!("{result}{data}{more}")
}

/// What a pending receive ends with after `what` is done to the two ends.
fn received_after(rig: &Rig<'_>, how: How, what: impl FnOnce(Socket, &Socket)) -> Result<String> {
    with_queue(|queue| {
        let pair = rig.pair()?;
        queue.recv(&pair.server, 8, how)?;
        let before = waits(queue)?;
        what(pair.client, &pair.server);
        answer![before, said(&ended(queue)?)]
    })
}

fn say(socket: &Socket, data: &[u8]) {
    // What is received shows whether it was sent.
    let _ = socket.send(data, 0);
}

/// Cancels a receive or an accept, and tells both ends.
fn cancelled(queue: &mut Queue, tag: Tag) -> Result<String> {
    let cancel = queue.cancel(tag)?;
    let (mut first, mut second) = (ended(queue)?, ended(queue)?);
    if first.tag == cancel {
        std::mem::swap(&mut first, &mut second);
    }
    ensure!(
        first.tag == tag && second.tag == cancel,
        "others have ended"
    );
    answer![said(&first), said(&second)]
}

/// Sends `len` bytes by an operation that has to wait for room, and reads all of them.
fn sent_in_full(rig: &Rig<'_>, len: usize, flags: i32, is_zero_copy: bool) -> Result<String> {
    with_queue(|queue| {
        let pair = rig.pair()?;
        let filled = fill(&pair.client);
        pair.client.set_nonblocking(false)?;
        let data = vec![b'x'; len];
        let how = How { flags, ..PLAIN };
        let tag = match is_zero_copy {
            true => queue.send_zero_copy(&pair.client, data, how)?,
            false => queue.send(&pair.client, data, how)?,
        };
        let before = waits(queue)?;
        pair.server.set_timeout(SOON)?;
        let (sent, got) = thread::scope(|scope| {
            let reader = scope.spawn(|| drain(&pair.server, filled + len));
            (end_of(queue, tag), reader.join().unwrap_or(0))
        });
        let sent = sent?;
        answer![before, said(&sent), got - filled]
    })
}

pub(super) const FORMS: &[Form] = &[
    Form::new("a receive that waits", |rig| {
        received_after(rig, PLAIN, |client, _| say(&client, b"hello"))
    }),
    Form::new("a receive that polls first", |rig| {
        let how = How {
            polls_first: true,
            ..PLAIN
        };
        received_after(rig, how, |client, _| say(&client, b"hello"))
    }),
    Form::new("a receive that waits for all", |rig| {
        let how = How {
            flags: libc::MSG_WAITALL,
            ..PLAIN
        };
        received_after(rig, how, |client, _| {
            for part in [b"ab", b"cd", b"ef", b"gh"] {
                say(&client, part);
                thread::sleep(PENDING);
            }
        })
    }),
    Form::new("a receive of which the peer closes", |rig| {
        received_after(rig, PLAIN, |client, _| drop(client))
    }),
    Form::new("a receive of which the peer resets", |rig| {
        received_after(rig, PLAIN, |client, _| {
            let _ = client.set_linger(true, 0);
        })
    }),
    Form::new("a receive that is shut down", |rig| {
        received_after(rig, PLAIN, |_client, server| {
            let _ = server.shutdown(libc::SHUT_RDWR);
        })
    }),
    Form::new("a receive that is cancelled", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            let tag = queue.recv(&pair.server, 8, PLAIN)?;
            let before = waits(queue)?;
            let cancelled = cancelled(queue, tag)?;
            pair.deliver(b"hello")?;
            answer![before, cancelled, pair.server.recv(&mut [0; 8], 0)]
        })
    }),
    Form::new("a receive with a time limit", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            let how = How {
                links: true,
                ..PLAIN
            };
            let tag = queue.recv(&pair.server, 8, how)?;
            queue.timeout_of_last(PENDING)?;
            let end = said(&end_of(queue, tag)?);
            pair.deliver(b"hello")?;
            answer![end, pair.server.recv(&mut [0; 8], 0)]
        })
    }),
    Form::new("receives of one socket, in their order", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            for _ in 0..3 {
                queue.recv(&pair.server, 2, PLAIN)?;
            }
            let before = waits(queue)?;
            pair.client.send(b"abcdef", 0)?;
            let mut parts = Vec::new();
            for _ in 0..3 {
                parts.push(said(&ended(queue)?));
            }
            parts.sort();
            answer![before, parts.join(", ")]
        })
    }),
    Form::new(
        "receives of parts, which say whether there is more",
        |rig| {
            with_queue(|queue| {
                let pair = rig.pair()?;
                pair.deliver(b"8 bytes.")?;
                let mut parts = Vec::new();
                for _ in 0..2 {
                    let tag = queue.recv(&pair.server, 4, PLAIN)?;
                    let end = end_of(queue, tag)?;
                    parts.push(format!("{} {}", said(&end), end.has_rest));
                }
                Ok(parts.join(", "))
            })
        },
    ),
    Form::new("a receive that goes on", |rig| {
        with_fresh_queue(|queue| {
            let pair = rig.pair()?;
            let tag = queue.recv_multi(&pair.server)?;
            let mut parts = vec![waits(queue)?];
            for part in [b"ab", b"cd", b"ef"] {
                pair.client.send(part, 0)?;
                parts.push(said(&end_of(queue, tag)?));
            }
            drop(pair.client);
            parts.push(said(&end_of(queue, tag)?));
            Ok(parts.join(", "))
        })
    }),
    Form::new(
        "a receive that goes on, until its buffers are used up",
        |rig| {
            with_fresh_queue(|queue| {
                let pair = rig.pair()?;
                pair.deliver(&[b'x'; 400])?;
                let tag = queue.recv_multi(&pair.server)?;
                let (mut len, mut ends) = (0, 0);
                let last = loop {
                    let end = end_of(queue, tag)?;
                    (len, ends) = (len + end.data.len(), ends + 1);
                    if !end.more {
                        break said(&end);
                    }
                };
                answer![len, ends, last, pair.server.recv(&mut [0; 500], 0)]
            })
        },
    ),
    Form::new("an accept that waits", |rig| {
        with_queue(|queue| {
            let (listener, address) = rig.listener()?;
            queue.accept(&listener)?;
            let before = waits(queue)?;
            let client = rig.open()?;
            client.connect(address)?;
            let end = ended(queue)?;
            let server = end.socket.as_ref().context("no socket")?;
            client.send(b"hello", 0)?;
            answer![before, said(&end), server.recv(&mut [0; 8], 0)]
        })
    }),
    Form::new("an accept that is cancelled", |rig| {
        with_queue(|queue| {
            let (listener, address) = rig.listener()?;
            let tag = queue.accept(&listener)?;
            let before = waits(queue)?;
            let cancelled = cancelled(queue, tag)?;
            let client = rig.open()?;
            client.connect(address)?;
            answer![before, cancelled, listener.accept(0).map(drop)]
        })
    }),
    Form::new("an accept that goes on", |rig| {
        with_queue(|queue| {
            let (listener, address) = rig.listener()?;
            let tag = queue.accept_multi(&listener)?;
            let mut parts = vec![waits(queue)?];
            let mut clients = Vec::new();
            for _ in 0..3 {
                let client = rig.open()?;
                client.connect(address)?;
                clients.push(client);
                parts.push(said(&end_of(queue, tag)?));
            }
            parts.push(cancelled(queue, tag)?);
            Ok(parts.join(", "))
        })
    }),
    Form::new("a poll that waits, and one that goes on", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            let once = queue.poll(&pair.server, libc::POLLIN, false)?;
            let before = waits(queue)?;
            pair.client.send(b"a", 0)?;
            let first = said(&end_of(queue, once)?);
            pair.server.recv(&mut [0; 8], 0)?;
            let again = queue.poll(&pair.server, libc::POLLIN, true)?;
            let between = waits(queue)?;
            pair.client.send(b"b", 0)?;
            let second = said(&end_of(queue, again)?);
            answer![before, first, between, second]
        })
    }),
    Form::new("a send that waits for room", |rig| {
        sent_in_full(rig, 300_000, libc::MSG_WAITALL, false)
    }),
    Form::new("a send without a copy", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            let tag = queue.send_zero_copy(&pair.client, b"hello".to_vec(), PLAIN)?;
            let sent = end_of(queue, tag)?;
            let mut parts = vec![said(&sent)];
            let received = pair.server.recv(&mut [0; 8], 0);
            parts.push(format!("{received:?}"));
            if sent.more {
                let notice = end_of(queue, tag)?;
                parts.push(format!("notice {}", notice.is_notice));
            }
            Ok(parts.join(", "))
        })
    }),
    Form::new("a send without a copy that waits for room", |rig| {
        sent_in_full(rig, 300_000, libc::MSG_WAITALL, true)
    }),
    Form::new("a send without a copy, from registered memory", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            let data: Vec<u8> = (0..60_000u32).map(|i| (i % 251) as u8).collect();
            let tag = queue.send_registered(&pair.client, &data)?;
            let mut got = vec![0; data.len()];
            let received = thread::scope(|scope| -> Result<_> {
                let reader = scope.spawn(|| pair.server.recv(&mut got, libc::MSG_WAITALL));
                let sent = end_of(queue, tag)?;
                let notice = end_of(queue, tag)?;
                answer![
                    said(&sent),
                    notice.is_notice,
                    reader.join().unwrap_or(Ok(0))
                ]
            })?;
            answer![received, got == data]
        })
    }),
    Form::new("a send, and a receive behind it", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            let how = How {
                links: true,
                ..PLAIN
            };
            let sent = queue.send(&pair.client, b"question".to_vec(), how)?;
            let got = queue.recv(&pair.client, 8, PLAIN)?;
            let sent = said(&end_of(queue, sent)?);
            let before = waits(queue)?;
            let asked = pair.server.recv(&mut [0; 8], 0);
            pair.server.send(b"answer", 0)?;
            answer![sent, before, asked, said(&end_of(queue, got)?)]
        })
    }),
    Form::new("a receive whose socket is closed goes on", |rig| {
        with_queue(|queue| {
            let pair = rig.pair()?;
            queue.recv(&pair.server, 8, PLAIN)?;
            let before = waits(queue)?;
            drop(pair.server);
            let closed = waits(queue)?;
            pair.client.send(b"hello", 0)?;
            answer![before, closed, said(&ended(queue)?)]
        })
    }),
    Form::new("a ring that is closed with a receive in it", |rig| {
        let pair = rig.pair()?;
        let before = with_queue(|queue| {
            queue.recv(&pair.server, 8, PLAIN)?;
            waits(queue)
        })?;
        if before.starts_with(NOT_RUN) {
            return Ok(before);
        }
        pair.server.set_timeout(SOON)?;
        pair.client.send(b"hello", 0)?;
        answer![before, pair.server.recv(&mut [0; 8], 0)]
    }),
];
