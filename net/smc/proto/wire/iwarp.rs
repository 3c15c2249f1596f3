// SPDX-License-Identifier: GPL-2.0

//! What SMC-R over iWARP adds to the wire: an offer in the PROPOSAL, the token by which a stream names its
//! handshake, and a word about credits behind each message of a link. The choice in ACCEPT and CONFIRM is
//! [`Vendor::Iwarp`](super::clc::Vendor::Iwarp).
//!
//! An extension of this implementation, in the places that version 2.1 leaves to vendors; a peer that does
//! not know it sees an ordinary handshake. `Documentation/iwarp.md` is its specification.

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

use super::clc::SmcdArea;

/// Whose the vendor's options are: a locally administered company id, "RSM".
pub const OUI: [u8; 3] = [0x52, 0x53, 0x4d];

/// The first byte of the options: this extension, as it is here. Any other value is another extension.
const IWARP: u8 = 0x81;

/// Random bytes that a client draws for each handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 4]);

impl Nonce {
    /// The offer in a PROPOSAL, if there is one.
    pub fn offered(area: &SmcdArea) -> Option<Self> {
        match area.vendor_options {
            [IWARP, a, b, c, d] if area.vendor_oui == OUI => Some(Self([a, b, c, d])),
            _ => None,
        }
    }

    /// The offer, as the vendor's part of a PROPOSAL.
    pub fn offer(self) -> SmcdArea {
        let Self([a, b, c, d]) = self;
        SmcdArea {
            vendor_oui: OUI,
            vendor_options: [IWARP, a, b, c, d],
            ..SmcdArea::default()
        }
    }
}

/// One end of a link, as the token of its stream names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The queue pair.
    pub qp: QpNum,
    /// The first packet number of the handshake, which is of no other use here.
    pub psn: Psn,
}

/// Bytes of the token.
pub const TOKEN_LEN: usize = 28;

/// The token: private data of the connection request (RFC 5044 section 7.1). All of it is known to both
/// sides from the handshake, so the listener compares it with what it has to be and parses nothing.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawToken {
    magic: [u8; 4],
    version: u8,
    reserved: [u8; 3],
    nonce: [u8; 4],
    client_qp: U32,
    client_psn: U32,
    server_qp: U32,
    server_psn: U32,
}

const _: () = assert!(size_of::<RawToken>() == TOKEN_LEN);

/// The token of the stream between two ends that a handshake with this nonce brought together.
pub fn token(nonce: Nonce, client: StreamEnd, server: StreamEnd) -> [u8; TOKEN_LEN] {
    zerocopy::transmute!(RawToken {
        magic: *b"SMCi",
        version: 1,
        reserved: [0; 3],
        nonce: nonce.0,
        client_qp: U32::new(client.qp.get()),
        client_psn: U32::new(client.psn.get()),
        server_qp: U32::new(server.qp.get()),
        server_psn: U32::new(server.psn.get()),
    })
}

/// Bytes behind each message of a link.
pub const TRAILER_LEN: usize = size_of::<RawTrailer>();

/// What stands behind each message of a link: how many receives the sender has made available since the
/// link began, modulo 2^16.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTrailer {
    granted: U16,
    reserved: [u8; 2],
}

const _: () = assert!(TRAILER_LEN == 4);

/// The bytes behind a message.
pub fn trailer(granted: u16) -> [u8; TRAILER_LEN] {
    zerocopy::transmute!(RawTrailer {
        granted: U16::new(granted),
        reserved: [0; 2],
    })
}

/// Takes what arrived apart: the message, which is empty if credits are all that there was to say, and the
/// number behind it.
///
/// # Errors
///
/// [`Malformed::Truncated`] without that number.
pub fn split(bytes: &[u8]) -> Result<(&[u8], u16), Malformed> {
    let (message, raw) = bytes
        .split_last_chunk::<TRAILER_LEN>()
        .ok_or(Malformed::Truncated)?;
    let raw: &RawTrailer = zerocopy::transmute_ref!(raw);
    Ok((message, raw.granted.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_comes_back_as_it_was_and_that_of_others_is_none() {
        let nonce = Nonce([1, 2, 3, 4]);
        assert_eq!(nonce.offer().vendor_options, [0x81, 1, 2, 3, 4]);
        assert_eq!(Nonce::offered(&nonce.offer()), Some(nonce));
        assert_eq!(Nonce::offered(&SmcdArea::default()), None);
        let other_vendor = SmcdArea {
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
        let end = |qp, psn| StreamEnd {
            qp: QpNum::from_low_bits(qp),
            psn: Psn::from_low_bits(psn),
        };
        let bytes = token(Nonce(*b"nonc"), end(0x0a0b0c, 0x010203), end(5, 6));
        let expected = b"SMCi\x01\0\0\0nonc\0\x0a\x0b\x0c\0\x01\x02\x03\0\0\0\x05\0\0\0\x06";
        assert_eq!(&bytes, expected);
    }

    #[test]
    fn a_message_without_its_trailer_is_none() {
        assert_eq!(split(b"abc"), Err(Malformed::Truncated));
        assert_eq!(split(&trailer(0xabcd)), Ok((&b""[..], 0xabcd)));
        let mut bytes = b"message".to_vec();
        bytes.extend(trailer(7));
        assert_eq!(split(&bytes), Ok((&b"message"[..], 7)));
    }
}
