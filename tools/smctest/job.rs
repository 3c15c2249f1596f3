// SPDX-License-Identifier: GPL-2.0

//! What a client asks the server for, in the first bytes of a connection.

use std::io;
use std::io::Read;
use std::io::Write;

use anyhow::bail;
use anyhow::Result;
use smc_user::Socket;

/// One kind of conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// One byte back, then the connection closes.
    One,
    /// Messages of this many bytes, each sent back whole.
    Echo(u64),
    /// The stream of this seed, sent back as it comes.
    Mirror(u64),
    /// Random data both ways, see [`crate::bulk`].
    Bulk(Bulk),
    /// Nothing: hold the connection until the client closes.
    Hold,
    /// Take everything until the client closes.
    Sink,
    /// Send without end until the client closes.
    Source,
    /// Urgent data both ways, see [`crate::urgent`].
    Urgent,
    /// Take everything to the end of the stream, then answer what it was.
    Count,
    /// Send, end one's own half, then as `Watch`.
    Half(u64),
    /// Take everything to the end, and keep under this number how it came.
    Watch(u64),
    /// Send to the end, and keep under this number how it came.
    Feed(u64),
    /// Answer how the conversation with this number ended.
    Ask(u64),
    /// Close without a linger time.
    Reset,
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
    /// Bytes of a request for [`Job::Echo`].
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
            Self::Half(id) => push_word(&mut message, b'H', id),
            Self::Watch(id) => push_word(&mut message, b'w', id),
            Self::Feed(id) => push_word(&mut message, b'f', id),
            Self::Ask(id) => push_word(&mut message, b'a', id),
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
            b'H' => Self::Half(word(socket)?),
            b'w' => Self::Watch(word(socket)?),
            b'f' => Self::Feed(word(socket)?),
            b'a' => Self::Ask(word(socket)?),
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
