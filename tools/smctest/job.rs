// SPDX-License-Identifier: GPL-2.0

//! The request that a client sends in the first bytes of a connection.

use std::io;
use std::io::Read;
use std::io::Write;

use anyhow::bail;
use anyhow::Result;
use smc_user::Socket;

/// What the server does on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Send one byte, then close.
    One,
    /// Echo messages of this many bytes.
    Echo(u64),
    /// Echo the stream of this seed as it arrives.
    Mirror(u64),
    /// As `Mirror`, with urgent data among it, which stays in the stream: see [`crate::urgent::send_some`].
    UrgentMirror(u64),
    /// Random data in both directions, see [`crate::bulk`].
    Bulk(Bulk),
    /// Neither send nor read: keep the connection until the client closes.
    Hold,
    /// Read and discard until the client closes.
    Sink,
    /// Send until the client closes.
    Source,
    /// Urgent data in both directions, see [`crate::urgent`].
    Urgent,
    /// Read to the end of the stream, then send a record of it ([`crate::ending::Ending`]).
    Count,
    /// Send, shut down writing, then as `Watch`.
    Half(u64),
    /// Read to the end, and keep the record of it under this id.
    Watch(u64),
    /// Send until an error, and keep the record of it under this id.
    Feed(u64),
    /// Send the record that was kept under this id.
    Ask(u64),
    /// Close with a reset (linger time 0).
    Reset,
    /// Shut down both directions, wait for an error, and keep the record of it under this id.
    Shut(u64),
}

/// Parameters of [`Job::Bulk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bulk {
    pub(crate) seed: u64,
    /// Bytes from the client to the server.
    pub(crate) up: u64,
    /// Bytes from the server to the client.
    pub(crate) down: u64,
    /// Largest chunk of one send or receive.
    pub(crate) chunk: u64,
}

impl Job {
    /// Length of a request for [`Job::Echo`], bytes.
    pub(crate) const ECHO_LEN: usize = 9;

    /// Sends the request.
    pub(crate) fn send(self, mut socket: &Socket) -> io::Result<()> {
        let mut message = Vec::new();
        match self {
            Self::One => message.push(b'1'),
            Self::Hold => message.push(b'h'),
            Self::Sink => message.push(b's'),
            Self::Source => message.push(b'S'),
            Self::Urgent => message.push(b'u'),
            Self::Count => message.push(b'c'),
            Self::Reset => message.push(b'r'),
            Self::Echo(size) => push_word(&mut message, b'e', size),
            Self::Mirror(seed) => push_word(&mut message, b'm', seed),
            Self::UrgentMirror(seed) => push_word(&mut message, b'M', seed),
            Self::Half(id) => push_word(&mut message, b'H', id),
            Self::Watch(id) => push_word(&mut message, b'w', id),
            Self::Feed(id) => push_word(&mut message, b'f', id),
            Self::Ask(id) => push_word(&mut message, b'a', id),
            Self::Shut(id) => push_word(&mut message, b'x', id),
            Self::Bulk(bulk) => {
                message.push(b'b');
                for word in [bulk.seed, bulk.up, bulk.down, bulk.chunk] {
                    message.extend(word.to_le_bytes());
                }
            }
        }
        socket.write_all(&message)
    }

    /// Receives a request; `None` if the client closed without one.
    pub(crate) fn receive(socket: &Socket) -> Result<Option<Self>> {
        let mut kind = [0];
        if socket.read(&mut kind)? == 0 {
            return Ok(None);
        }
        Ok(Some(match kind[0] {
            b'1' => Self::One,
            b'h' => Self::Hold,
            b's' => Self::Sink,
            b'S' => Self::Source,
            b'u' => Self::Urgent,
            b'c' => Self::Count,
            b'r' => Self::Reset,
            b'e' => Self::Echo(word(socket)?),
            b'm' => Self::Mirror(word(socket)?),
            b'M' => Self::UrgentMirror(word(socket)?),
            b'H' => Self::Half(word(socket)?),
            b'w' => Self::Watch(word(socket)?),
            b'f' => Self::Feed(word(socket)?),
            b'a' => Self::Ask(word(socket)?),
            b'x' => Self::Shut(word(socket)?),
            b'b' => Self::Bulk(Bulk {
                seed: word(socket)?,
                up: word(socket)?,
                down: word(socket)?,
                chunk: word(socket)?,
            }),
            other => bail!("unknown request {other:#x}"),
        }))
    }
}

fn push_word(message: &mut Vec<u8>, kind: u8, word: u64) {
    message.push(kind);
    message.extend(word.to_le_bytes());
}

fn word(mut socket: &Socket) -> io::Result<u64> {
    let mut bytes = [0; 8];
    socket.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
