// SPDX-License-Identifier: GPL-2.0

//! Netlink requests and replies: as much as generic netlink and `sock_diag` need.

use std::io;
use std::time::Duration;

use smc_user::Errno;
use smc_user::Socket;

/// `struct nlmsghdr`.
const HEADER_LEN: usize = 16;

/// `struct nlattr`.
const ATTR_HEADER_LEN: usize = 4;

/// The bit of an attribute's type that says that its value is attributes.
pub const NLA_F_NESTED: u16 = 0x8000;

/// An attribute type without the bits that say "nested" and "big-endian".
const ATTR_TYPE_MASK: u16 = 0x3fff;

/// Ends a dump.
const NLMSG_DONE: u16 = 3;

/// Carries an error, or 0 as the acknowledgement.
const NLMSG_ERROR: u16 = 2;

/// A request; every one has this flag.
pub const NLM_F_REQUEST: u16 = 0x1;

/// Asks for an acknowledgement.
pub const NLM_F_ACK: u16 = 0x4;

/// Asks for a list; each of its two bits alone is enough for `sock_diag`.
pub const NLM_F_DUMP: u16 = 0x300;

/// A connection to one netlink protocol.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer_len: usize,
}

/// One reply message: its type and what follows the header.
pub struct Reply {
    /// Number of the request that it answers.
    sequence: u32,
    /// The `nlmsg_type`.
    pub kind: u16,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Netlink {
    /// Opens netlink protocol `protocol` (`NETLINK_*`).
    pub fn open(protocol: i32) -> io::Result<Self> {
        let socket = Socket::open(libc_netlink::AF_NETLINK, libc_netlink::SOCK_RAW, protocol)?;

        // The kernel answers from the caller's own context; anything longer is a hang.
        socket.set_timeout(Duration::from_secs(20))?;
        let size = 1 << 20;
        let _ = socket.set_option_int(libc_netlink::SOL_SOCKET, libc_netlink::SO_RCVBUF, size);
        Ok(Self {
            socket,
            sequence: 0,
            buffer_len: 1 << 16,
        })
    }

    /// Receives into buffers of that many bytes: the kernel cuts lists into parts that fit, as long as
    /// no larger buffer was used before.
    pub fn set_buffer_len(&mut self, len: usize) {
        self.buffer_len = len;
    }

    /// Asks for a dump and returns all messages of it.
    pub fn dump(&mut self, kind: u16, payload: &[u8]) -> io::Result<Vec<Reply>> {
        self.ask(kind, NLM_F_DUMP, payload)
    }

    /// Sends a request and waits for its acknowledgement; returns what came before that.
    pub fn request(&mut self, kind: u16, payload: &[u8]) -> io::Result<Vec<Reply>> {
        self.ask(kind, NLM_F_ACK, payload)
    }

    /// Sends a request with these flags (`NLM_F_*`) and returns what comes back, up to the end of the
    /// list, the acknowledgement or an error. A request that the kernel does not answer runs into the
    /// socket's timeout.
    pub fn ask(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<Vec<Reply>> {
        self.send(kind, flags, payload)?;
        self.receive()
    }

    /// Begins a list; [`Netlink::next_part`] brings its parts.
    pub fn begin_dump(&mut self, kind: u16, payload: &[u8]) -> io::Result<()> {
        self.send(kind, NLM_F_DUMP, payload)
    }

    /// The next part of a list; `None` at its end.
    pub fn next_part(&mut self) -> io::Result<Option<Vec<Reply>>> {
        let mut replies = Vec::new();
        match self.receive_into(&mut vec![0; self.buffer_len], &mut replies)? {
            Some(()) if replies.is_empty() => Ok(None),
            _ => Ok(Some(replies)),
        }
    }

    fn send(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<()> {
        self.sequence += 1;

        let len = u32::try_from(HEADER_LEN + payload.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut message = Vec::new();
        message.extend(len.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(payload);

        self.socket.send(&message, 0)?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Vec<Reply>> {
        let mut replies = Vec::new();
        let mut buffer = vec![0; self.buffer_len];

        while self.receive_into(&mut buffer, &mut replies)?.is_none() {}
        Ok(replies)
    }

    /// Receives once; `Some` when nothing more will come.
    fn receive_into(
        &mut self,
        buffer: &mut [u8],
        replies: &mut Vec<Reply>,
    ) -> io::Result<Option<()>> {
        let len = self.socket.recv(buffer, 0)?;
        let mut rest = buffer.get(..len).unwrap_or_default();

        while let Some((reply, after)) = split_message(rest) {
            rest = after;
            // The acknowledgement of an earlier request may come after its list.
            if reply.sequence != self.sequence {
                continue;
            }
            match reply.kind {
                NLMSG_DONE if reply.payload.is_empty() => return Ok(Some(())),
                // The end of a list that could not be made carries an error, too.
                NLMSG_DONE | NLMSG_ERROR => {
                    return match get_i32(&reply.payload, 0) {
                        Some(0) => Ok(Some(())),
                        Some(error) => Err(Errno(error.wrapping_neg()).into()),
                        None => Err(io::ErrorKind::InvalidData.into()),
                    };
                }
                _ => replies.push(reply),
            }
        }
        Ok(None)
    }
}

fn split_message(bytes: &[u8]) -> Option<(Reply, &[u8])> {
    let len = get_u32(bytes, 0)? as usize;
    let kind = get_u16(bytes, 4)?;
    let sequence = get_u32(bytes, 8)?;
    let payload = bytes.get(HEADER_LEN..len)?.to_vec();
    let rest = bytes.get(align(len)..).unwrap_or_default();

    let reply = Reply {
        kind,
        sequence,
        payload,
    };
    Some((reply, rest))
}

/// Iterates over the attributes in `bytes`: type and value.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    raw_attributes(bytes).map(|(kind, value)| (kind & ATTR_TYPE_MASK, value))
}

/// As [`attributes`], with the bits of the type that say "nested" and "big-endian".
pub fn raw_attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(get_u16(bytes, 0)?);
        let kind = get_u16(bytes, 2)?;
        let value = bytes.get(ATTR_HEADER_LEN..len)?;

        bytes = bytes.get(align(len)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Finds one attribute by type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// Appends an attribute.
pub fn put_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = ATTR_HEADER_LEN + value.len();

    // Only short values are ever put: names and identifiers.
    message.extend(u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len() + align(len) - len, 0);
}

/// The text of a NUL-terminated string attribute. Some are what a peer says of itself: characters that a
/// terminal would obey are replaced.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    let text = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
    let visible = |c: char| match c.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    String::from_utf8_lossy(text).chars().map(visible).collect()
}

/// Reads a `u16` in host order.
pub fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Reads a `u32` in host order.
pub fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a `u64` in host order.
pub fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn get_i32(bytes: &[u8], at: usize) -> Option<i32> {
    get_u32(bytes, at).map(u32::cast_signed)
}

const fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// The few numbers of the netlink interface that are needed here.
mod libc_netlink {
    pub(super) const AF_NETLINK: i32 = 16;
    pub(super) const SOCK_RAW: i32 = 3;
    pub(super) const SOL_SOCKET: i32 = 1;
    pub(super) const SO_RCVBUF: i32 = 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_put_is_found_again() {
        let mut message = Vec::new();
        put_attribute(&mut message, 1, b"abc\0");
        put_attribute(&mut message, 0x8000 | 2, b"x");

        assert_eq!(message.len(), 16);
        assert_eq!(attribute(&message, 1).map(text).as_deref(), Some("abc"));
        assert_eq!(attribute(&message, 2), Some(&b"x"[..]));
        assert_eq!(attribute(&message, 3), None);
    }

    #[test]
    fn a_text_does_not_steer_the_terminal() {
        assert_eq!(text("h\u{e9}te-1 B\0rest".as_bytes()), "h\u{e9}te-1 B");
        let odd = "a\x1b]0;b\x07\r\n\u{9b}2J".as_bytes();
        assert_eq!(text(odd), "a\u{fffd}]0;b\u{fffd}\u{fffd}\u{fffd}\u{fffd}2J");
    }

    #[test]
    fn a_truncated_message_ends_the_iteration() {
        let mut message = Vec::new();
        put_attribute(&mut message, 1, b"abcdefgh");
        for len in 0..message.len() {
            assert_eq!(attributes(&message[..len]).count(), 0, "cut at {len}");
        }
    }
}
