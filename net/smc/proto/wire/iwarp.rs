// SPDX-License-Identifier: GPL-2.0

//! Additions of SMC-R over iWARP to the wire format: an offer in the PROPOSAL, the token by which a connection
//! identifies its handshake, the listening address of an added link, and the [`CreditAck`] trailer of each message of a
//! link. The choice in ACCEPT and CONFIRM is [`Vendor::Iwarp`](super::clc::Vendor::Iwarp).
//!
//! An extension of this implementation, in fields that version 2.1 leaves to vendors; other peers see an ordinary
//! handshake. Specified in `Documentation/iwarp.md`.

use zerocopy::byteorder::big_endian::{
    U16,
    U32, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;
use crate::id::{
    Psn,
    QpNum, //
};
use crate::lgr::Role;

use super::clc::SmcdV2Ext;

/// OUI of the vendor's options: a locally administered company id, "RSM".
pub const OUI: [u8; 3] = [0x52, 0x53, 0x4d];

/// The first byte of the options: this version of the extension. Other values are other extensions.
const IWARP: u8 = 0x81;

/// Random bytes that a client generates for each handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 4]);

impl Nonce {
    /// Returns the offer in a PROPOSAL, if there is one.
    pub fn offered(area: &SmcdV2Ext) -> Option<Self> {
        match area.vendor_options {
            [IWARP, a, b, c, d] if area.vendor_oui == OUI => Some(Self([a, b, c, d])),
            _ => None,
        }
    }

    /// Returns the offer as the vendor's part of a PROPOSAL.
    pub fn offer(self) -> SmcdV2Ext {
        let Self([a, b, c, d]) = self;
        SmcdV2Ext {
            vendor_oui: OUI,
            vendor_options: [IWARP, a, b, c, d],
            ..SmcdV2Ext::default()
        }
    }
}

/// One end of a link, as used in the token of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IwEndpoint {
    /// The queue pair.
    pub qp: QpNum,
    /// The first packet number of the handshake, which has no other use here.
    pub psn: Psn,
}

/// Bytes of the token.
pub const TOKEN_LEN: usize = 28;

/// The token: private data of the connection request (RFC 5044 section 7.1). Both sides know all of it from the
/// handshake, so the listener compares it with the expected value and parses nothing.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawToken {
    magic: [u8; 4],
    version: u8,
    initiator: u8,
    reserved: [u8; 2],
    nonce: [u8; 4],
    client_qp: U32,
    client_psn: U32,
    server_qp: U32,
    server_psn: U32,
}

const _: () = assert!(size_of::<RawToken>() == TOKEN_LEN);

/// Returns the token of the connection that `initiator` opens between two ends, for a handshake with this nonce.
pub fn token(
    initiator: Role,
    nonce: Nonce,
    client: IwEndpoint,
    server: IwEndpoint,
) -> [u8; TOKEN_LEN] {
    zerocopy::transmute!(RawToken {
        magic: *b"SMCi",
        version: 1,
        initiator: match initiator {
            Role::Server => 0,
            Role::Client => 1,
        },
        reserved: [0; 2],
        nonce: nonce.0,
        client_qp: U32::new(client.qp.get()),
        client_psn: U32::new(client.psn.get()),
        server_qp: U32::new(server.qp.get()),
        server_psn: U32::new(server.psn.get()),
    })
}

/// Where the client of an added link listens for its connection: the last eight bytes common to both versions of
/// ADD_LINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IwListenAddr {
    /// The TCP port.
    pub port: u16,
    /// Used in the token of this connection.
    pub nonce: Nonce,
}

impl IwListenAddr {
    /// The lowest port at which a peer may listen: it must not make us connect to a service.
    pub const FIRST_PORT: u16 = 49152;

    /// Parses the bytes; `None` without such a port.
    pub const fn of(bytes: [u8; 8]) -> Option<Self> {
        let [high, low, a, b, c, d, _, _] = bytes;
        match u16::from_be_bytes([high, low]) {
            ..Self::FIRST_PORT => None,
            port => Some(Self {
                port,
                nonce: Nonce([a, b, c, d]),
            }),
        }
    }

    /// Returns the bytes; zeroes for `None`.
    pub const fn to_bytes(listen_addr: Option<Self>) -> [u8; 8] {
        match listen_addr {
            None => [0; 8],
            Some(Self { port, nonce }) => {
                let ([high, low], Nonce([a, b, c, d])) = (port.to_be_bytes(), nonce);
                [high, low, a, b, c, d, 0, 0]
            }
        }
    }
}

/// Bytes of the trailer.
pub const TRAILER_LEN: usize = size_of::<RawTrailer>();

/// A [`CreditAck`] on the wire.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTrailer {
    granted: U16,
    /// The lower fifteen bits count; the highest requests an acknowledgement.
    received: U16,
}

const _: () = assert!(TRAILER_LEN == 4);

/// The trailer of each message of a link: credits for the messages of the other direction, and an acknowledgement
/// of those that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditAck {
    /// Receives granted by the sender since the link began, modulo 2^16.
    pub granted: u16,
    /// Messages received by the sender since then, modulo 2^15.
    received: u16,
    /// Requests a trailer immediately.
    pub requests_ack: bool,
}

impl CreditAck {
    /// The bit of [`CreditAck::requests_ack`].
    const REQUEST_ACK: u16 = 0x8000;

    /// Creates a trailer; the count of received messages is reduced modulo 2^15.
    pub const fn new(granted: u16, received: u16, requests_ack: bool) -> Self {
        Self {
            granted,
            received: received & !Self::REQUEST_ACK,
            requests_ack,
        }
    }

    /// Returns the count of received messages modulo 2^16: the value nearest to `last`, and not far behind it.
    pub const fn received_after(self, last: u16) -> u16 {
        let ahead = self.received.wrapping_sub(last) & !Self::REQUEST_ACK;
        match ahead < Self::REQUEST_ACK / 2 {
            true => last.wrapping_add(ahead),
            false => last,
        }
    }

    /// Returns the bytes that follow a message.
    pub fn to_bytes(self) -> [u8; TRAILER_LEN] {
        let request = if self.requests_ack {
            Self::REQUEST_ACK
        } else {
            0
        };
        zerocopy::transmute!(RawTrailer {
            granted: U16::new(self.granted),
            received: U16::new(self.received | request),
        })
    }
}

/// Splits received bytes into the message, which is empty in a credit update, and its trailer.
///
/// # Errors
///
/// [`Malformed::Truncated`] without a trailer.
pub fn split(bytes: &[u8]) -> Result<(&[u8], CreditAck), Malformed> {
    let (message, raw) = bytes
        .split_last_chunk::<TRAILER_LEN>()
        .ok_or(Malformed::Truncated)?;
    let raw: &RawTrailer = zerocopy::transmute_ref!(raw);
    let received = raw.received.get();
    let requests_ack = received & CreditAck::REQUEST_ACK != 0;
    Ok((
        message,
        CreditAck::new(raw.granted.get(), received, requests_ack),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_comes_back_as_it_was_and_that_of_others_is_none() {
        let nonce = Nonce([1, 2, 3, 4]);
        assert_eq!(nonce.offer().vendor_options, [0x81, 1, 2, 3, 4]);
        assert_eq!(Nonce::offered(&nonce.offer()), Some(nonce));
        assert_eq!(Nonce::offered(&SmcdV2Ext::default()), None);
        let other_vendor = SmcdV2Ext {
            vendor_oui: [0, 0, 1],
            ..nonce.offer()
        };
        assert_eq!(Nonce::offered(&other_vendor), None);
        let mut other_kind = nonce.offer();
        other_kind.vendor_options[0] = 0x82;
        assert_eq!(Nonce::offered(&other_kind), None);
    }

    #[test]
    fn every_fact_is_in_the_token_at_its_place() {
        let end = |qp, psn| IwEndpoint {
            qp: QpNum::from_low_bits(qp),
            psn: Psn::from_low_bits(psn),
        };
        let ends = (end(0x0a0b0c, 0x010203), end(5, 6));
        let bytes = token(Role::Server, Nonce(*b"nonc"), ends.0, ends.1);
        let expected = b"SMCi\x01\0\0\0nonc\0\x0a\x0b\x0c\0\x01\x02\x03\0\0\0\x05\0\0\0\x06";
        assert_eq!(&bytes, expected);
        let bytes = token(Role::Client, Nonce(*b"nonc"), ends.0, ends.1);
        assert_eq!(bytes[..8], *b"SMCi\x01\x01\0\0");
        assert_eq!(bytes[8..], expected[8..]);
    }

    #[test]
    fn a_message_without_its_trailer_is_none() {
        assert_eq!(split(b"abc"), Err(Malformed::Truncated));
        let ack = CreditAck::new(0xabcd, 0x1234, false);
        assert_eq!(ack.to_bytes(), [0xab, 0xcd, 0x12, 0x34]);
        assert_eq!(split(&ack.to_bytes()), Ok((&b""[..], ack)));
        let mut bytes = b"message".to_vec();
        let ack = CreditAck::new(7, 0x8001, true);
        assert_eq!(ack.to_bytes(), [0, 7, 0x80, 1]);
        bytes.extend(ack.to_bytes());
        assert_eq!(split(&bytes), Ok((&b"message"[..], ack)));
    }

    #[test]
    fn a_count_goes_on_from_the_last_one_and_never_back() {
        let after = |count, last| CreditAck::new(0, count, false).received_after(last);
        assert_eq!(after(5, 3), 5);
        assert_eq!(after(3, 3), 3);
        assert_eq!(after(2, 3), 3);
        assert_eq!(after(1, 0x7fff), 0x8001);
        assert_eq!(after(0, 0xffff), 0);
        assert_eq!(after(0x7ffe, 0xffff), 0xffff);
    }

    #[test]
    fn what_a_client_awaits_is_at_the_end_of_its_answer() {
        let listen_addr = IwListenAddr {
            port: 0xc001,
            nonce: Nonce([1, 2, 3, 4]),
        };
        let bytes = IwListenAddr::to_bytes(Some(listen_addr));
        assert_eq!(bytes, [0xc0, 1, 1, 2, 3, 4, 0, 0]);
        assert_eq!(IwListenAddr::of(bytes), Some(listen_addr));
        assert_eq!(IwListenAddr::to_bytes(None), [0; 8]);
        assert_eq!(IwListenAddr::of([0; 8]), None);
        assert_eq!(IwListenAddr::of([0, 0, 1, 2, 3, 4, 0, 0]), None);
        assert_eq!(IwListenAddr::of([0xbf, 0xff, 1, 2, 3, 4, 0, 0]), None);
    }
}
