// SPDX-License-Identifier: GPL-2.0

//! Netlink requests and replies: the subset for generic netlink and `sock_diag`.
//!
//! Messages and attributes are those of netlink-packet-core. Payloads are bytes, since the tests
//! send malformed ones. The socket is our own because the kernel divides dumps into parts by the
//! size of the largest receive buffer used so far, which [`Netlink::set_buffer_len`] sets; that of
//! the libraries' sockets is fixed.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use netlink_packet_core::DefaultNla;
use netlink_packet_core::Emitable;
use netlink_packet_core::NetlinkBuffer;
use netlink_packet_core::NetlinkDeserializable;
use netlink_packet_core::NetlinkHeader;
use netlink_packet_core::NetlinkMessage;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_core::NetlinkSerializable;
use netlink_packet_core::NlaBuffer;
use netlink_packet_core::NlasIterator;
use netlink_packet_core::NLA_HEADER_SIZE;
use netlink_packet_core::NLM_F_DUMP_INTR;
use netlink_packet_core::NLM_F_REQUEST;
use smc_user::Errno;
use smc_user::Socket;
use zerocopy::FromBytes;

pub use netlink_packet_core::NLA_F_NESTED;
pub use netlink_packet_core::NLM_F_ACK;
pub use netlink_packet_core::NLM_F_DUMP;

/// A socket of one netlink protocol.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer_len: usize,
}

/// What came of a request so far.
#[derive(Default)]
struct Answer {
    replies: Vec<Reply>,
    /// What is listed changed between two parts of the dump: some of it may be missing, or be there twice.
    is_torn: bool,
}

/// A message of a family: its type and the payload.
pub struct Reply {
    /// The `nlmsg_type`.
    pub kind: u16,
    /// The payload.
    pub payload: Vec<u8>,
}

impl NetlinkSerializable for Reply {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.payload.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.payload);
    }
}

impl NetlinkDeserializable for Reply {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self {
            kind: header.message_type,
            payload: payload.to_vec(),
        })
    }
}

impl Netlink {
    /// Opens netlink protocol `protocol` (`NETLINK_*`).
    pub fn open(protocol: i32) -> io::Result<Self> {
        let socket = Socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;

        // The kernel answers in the context of the caller; anything longer is a hang.
        socket.set_timeout(Duration::from_secs(20))?;
        let _ = socket.set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 20);
        Ok(Self {
            socket,
            sequence: 0,
            buffer_len: 1 << 16,
        })
    }

    /// Sets the size of receive buffers, bytes: the kernel divides dumps into parts of this size,
    /// unless a larger buffer was used before.
    pub fn set_buffer_len(&mut self, len: usize) {
        self.buffer_len = len;
    }

    /// Requests a dump and returns all its messages.
    pub fn dump(&mut self, kind: u16, payload: &[u8]) -> io::Result<Vec<Reply>> {
        self.ask(kind, NLM_F_DUMP, payload)
    }

    /// Sends a request with these flags (`NLM_F_*`) and returns the messages up to the end of the
    /// dump, the acknowledgement or an error. If the kernel does not answer, the receive times out.
    ///
    /// A dump during which the list changed is made again.
    pub fn ask(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<Vec<Reply>> {
        /// How often a dump is tried.
        const TRIES: usize = 5;
        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        for _ in 0..TRIES {
            self.send(kind, flags, payload)?;
            let answer = self.answer(is_dump)?;
            if !(is_dump && answer.is_torn) {
                return Ok(answer.replies);
            }
        }
        Err(io::Error::other(format!(
            "a list of the kernel changed each of the {TRIES} times that it was read"
        )))
    }

    /// Receives all of an answer.
    fn answer(&mut self, is_dump: bool) -> io::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            let len = match is_dump {
                // The kernel makes the parts of a dump as they are received, and one more for each look at them. None
                // is longer than the buffer.
                true => self.buffer_len,
                // The answer to any other request may be one datagram, however long.
                false => self.next_len()?.max(self.buffer_len),
            };
            if self.receive(len, &mut answer)? {
                return Ok(answer);
            }
        }
    }

    /// Begins a dump whose parts [`Netlink::next_part`] returns.
    pub fn begin_dump(&mut self, kind: u16, payload: &[u8]) -> io::Result<()> {
        self.send(kind, NLM_F_DUMP, payload)
    }

    /// Returns the next part of a dump, also of one during which the list changed; `None` at its end.
    pub fn next_part(&mut self) -> io::Result<Option<Vec<Reply>>> {
        let mut answer = Answer::default();
        let is_end = self.receive(self.buffer_len, &mut answer)?;
        Ok((!is_end || !answer.replies.is_empty()).then_some(answer.replies))
    }

    fn send(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let payload = payload.to_vec();
        let mut header = NetlinkHeader::default();
        header.flags = flags | NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        let request = NetlinkPayload::InnerMessage(Reply { kind, payload });
        let mut message = NetlinkMessage::new(header, request);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// Waits for a datagram and returns its length.
    fn next_len(&self) -> io::Result<usize> {
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
        Ok(self.socket.recv(&mut [0], flags)?)
    }

    /// Receives a datagram of up to `len` bytes; returns true if the answer is complete.
    fn receive(&mut self, len: usize, answer: &mut Answer) -> io::Result<bool> {
        let mut buffer = vec![0; len];
        let len = self.socket.recv(&mut buffer, libc::MSG_TRUNC)?;
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "an answer of the kernel is cut");
        let mut rest = buffer.get(..len).ok_or_else(cut)?;

        while let Ok(next) = NetlinkBuffer::new_checked(rest) {
            let message = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
            let after = next.length().next_multiple_of(4) as usize;
            rest = rest.get(after..).unwrap_or_default();
            // The acknowledgement of an earlier request may arrive after its dump.
            if message.header.sequence_number != self.sequence {
                continue;
            }
            answer.is_torn |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                // A failed dump ends with an error code, too.
                NetlinkPayload::Done(done) => return end(done.code),
                NetlinkPayload::Error(error) => return end(error.raw_code()),
                NetlinkPayload::InnerMessage(reply) => answer.replies.push(reply),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// Returns the result of a request from its final code.
fn end(code: i32) -> io::Result<bool> {
    match code {
        0 => Ok(true),
        error => Err(Errno(error.wrapping_neg()).into()),
    }
}

/// Iterates over the attributes in `bytes`, up to one that is truncated.
pub fn raw_attributes(bytes: &[u8]) -> impl Iterator<Item = NlaBuffer<&[u8]>> {
    NlasIterator::new(bytes).map_while(Result::ok)
}

/// As [`raw_attributes`]: type, without the flags for nested and big-endian attributes, and value.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    raw_attributes(bytes).map(|nla| {
        // The library's `value` does not outlive `nla`.
        let value = &nla.into_inner()[NLA_HEADER_SIZE..nla.length().into()];
        (nla.kind(), value)
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
    let (at, nla) = (message.len(), DefaultNla::new(kind, value.to_vec()));
    message.resize(at + nla.buffer_len(), 0);
    nla.emit(&mut message[at..]);
}

/// Appends a NUL-terminated string attribute.
pub fn put_text(message: &mut Vec<u8>, kind: u16, text: &str) {
    put_attribute(message, kind, format!("{text}\0").as_bytes());
}

/// Returns the text of a NUL-terminated string attribute. Replaces control characters, since some
/// texts are from the peer and are printed to a terminal.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    let text = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
    let visible = |c: char| match c.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    String::from_utf8_lossy(text).chars().map(visible).collect()
}

/// Reads a value in host byte order.
pub fn get<T: FromBytes>(bytes: &[u8], at: usize) -> Option<T> {
    let (value, _) = T::read_from_prefix(bytes.get(at..)?).ok()?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_text_does_not_steer_the_terminal() {
        assert_eq!(text("h\u{e9}te-1 B\0rest".as_bytes()), "h\u{e9}te-1 B");
        let odd = "a\x1b]0;b\x07\r\n\u{9b}2J".as_bytes();
        assert_eq!(text(odd), "a\u{fffd}]0;b\u{fffd}\u{fffd}\u{fffd}\u{fffd}2J");
    }

    /// Returns the bytes of an answer of so many messages to the first request, and the end of it.
    fn answer(messages: usize) -> Vec<u8> {
        answer_to(0, 0, messages)
    }

    /// As [`answer`], to another request, with flags.
    fn answer_to(sequence_number: u32, flags: u16, messages: usize) -> Vec<u8> {
        let message = |kind: u16, payload: Vec<u8>| {
            let reply = NetlinkPayload::InnerMessage(Reply { kind, payload });
            let mut header = NetlinkHeader::default();
            (header.sequence_number, header.flags) = (sequence_number, flags);
            let mut message = NetlinkMessage::new(header, reply);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            bytes
        };
        let mut bytes = message(64, vec![0; 64]).repeat(messages);
        // NLMSG_DONE, and a code.
        bytes.extend(message(3, vec![0; 4]));
        bytes
    }

    /// Returns what answers, and who asks.
    fn pair() -> (UnixDatagram, Netlink) {
        let (kernel, own) = UnixDatagram::pair().unwrap();
        let netlink = Netlink {
            socket: OwnedFd::from(own).into(),
            // The next one is 0.
            sequence: u32::MAX,
            buffer_len: 1 << 12,
        };
        (kernel, netlink)
    }

    #[test]
    fn a_dump_is_made_again_while_the_list_changes() {
        let (kernel, mut netlink) = pair();
        for (sequence, flags, messages) in [(0, NLM_F_DUMP_INTR, 3), (1, 0, 4)] {
            let sent = answer_to(sequence, flags, messages);
            kernel.send(&sent).unwrap();
        }
        assert_eq!(netlink.dump(1, &[]).unwrap().len(), 4);
        for sequence in 2..7 {
            let sent = answer_to(sequence, NLM_F_DUMP_INTR, 3);
            kernel.send(&sent).unwrap();
        }
        let error = netlink.dump(1, &[]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("changed"), "{error}");
    }

    #[test]
    fn an_answer_may_be_longer_than_the_buffer() {
        let (kernel, mut netlink) = pair();
        let sent = answer(1100);
        assert!(sent.len() > 1 << 16);
        kernel.send(&sent).unwrap();
        assert_eq!(netlink.ask(1, NLM_F_ACK, &[]).unwrap().len(), 1100);
        kernel.send(&sent).unwrap();
        netlink.sequence = u32::MAX;
        let cut = netlink.dump(1, &[]).map(|_| ()).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_truncated_message_ends_the_iteration() {
        let mut message = Vec::new();
        put_attribute(&mut message, 1 | NLA_F_NESTED, b"abcdefgh");
        assert_eq!(attribute(&message, 1), Some(&b"abcdefgh"[..]));
        for len in 0..message.len() {
            assert_eq!(attributes(&message[..len]).count(), 0, "cut at {len}");
        }
    }
}
