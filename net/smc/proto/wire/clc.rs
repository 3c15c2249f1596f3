// SPDX-License-Identifier: GPL-2.0

//! Connection layer control (CLC) messages: the handshake over the TCP connection.
//!
//! RFC 7609 section 3.5 and appendix A.2; the extensions of version 2 are those of IBM's «SMC Version 2» document.
//! Every message begins with eight bytes, which include its length, and ends with an eye catcher. A receiver peeks at
//! the eight bytes, calls [`Header::peek`] to learn whether and how much to read, then passes the data to
//! [`ClcMessage::parse`].

use zerocopy::byteorder::big_endian::U16;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;

use super::{
    NoSpace,
    Reader,
    Version,
    Writer, //
};

mod accept;
mod decline;
mod extension;
mod proposal;
mod vendor;

pub use accept::{
    Accept,
    Confirm,
    Endpoint,
    Mode,
    SmcD,
    SmcR, //
};
pub use decline::{
    Decline,
    DeclineForm,
    Diagnosis,
    Head, //
};
pub use extension::{
    FirstContactExt,
    Hostname,
    Limits,
    OsType,
    Release, //
};
pub use proposal::{
    IpPrefix,
    Ipv6Prefix,
    IsmEntry,
    Proposal,
    ProposedModes,
    SmcTypes,
    SmcdV2Ext,
    SmcdV2Offer,
    V1Offer,
    V2Offer,
    V2SmcTypes, //
};
pub use vendor::Vendor;

/// Bytes of a message's header, enough for [`Header::peek`].
pub const HEADER_LEN: usize = 8;

/// The longest message that is parsed: a proposal with every area at its limit.
///
/// A peer may announce more. The excess is to be read and discarded.
pub const MAX_LEN: usize = 652;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClcMessage<'a> {
    /// The client's offer.
    Proposal(Proposal<'a>),
    /// The server's choice.
    Accept(Accept),
    /// The client's agreement.
    Confirm(Confirm<'a>),
    /// Either side gives up SMC; the connection continues over TCP.
    Decline(Decline),
}

impl<'a> ClcMessage<'a> {
    /// Parses a message; `bytes` is all of it or its first [`MAX_LEN`] bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is not valid; [`Malformed::reason`] returns the reason for a DECLINE.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Ok(match Header::of(bytes)?.message_type {
            ClcType::Proposal => Self::Proposal(Proposal::parse(bytes)?),
            ClcType::Accept => Self::Accept(Accept::parse(bytes)?),
            ClcType::Confirm => Self::Confirm(Confirm::parse(bytes)?),
            ClcType::Decline => Self::Decline(Decline::parse(bytes)?),
        })
    }

    /// Writes the message into `buf` and returns its bytes.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit; [`MAX_LEN`] bytes hold any message but a confirm with more
    /// than 30 GIDs.
    pub fn emit<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
        match self {
            Self::Proposal(message) => message.emit(buf),
            Self::Accept(message) => message.emit(buf),
            Self::Confirm(message) => message.emit(buf),
            Self::Decline(message) => message.emit(buf),
        }
    }
}

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClcType {
    /// The client's offer.
    Proposal,
    /// The server's choice.
    Accept,
    /// The client's agreement.
    Confirm,
    /// The end of the attempt.
    Decline,
}

impl ClcType {
    const fn number(self) -> u8 {
        match self {
            Self::Proposal => 1,
            Self::Accept => 2,
            Self::Confirm => 3,
            Self::Decline => 4,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Proposal),
            2 => Some(Self::Accept),
            3 => Some(Self::Confirm),
            4 => Some(Self::Decline),
            _ => None,
        }
    }
}

/// A message's first eight bytes, checked as far as possible without the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    message_type: ClcType,
    version: Version,
    len: u16,
    /// The two type fields of the last byte: version 2 in 0x0c, version 1 in 0x03.
    types: u8,
}

impl Header {
    /// Parses the first eight bytes of a stream.
    ///
    /// Version and type are checked first, as in the C module (`smc_clc_wait_msg`): they distinguish application data
    /// from a handshake.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if no message begins with these bytes. No answer is sent then.
    pub fn peek(bytes: &[u8; HEADER_LEN]) -> Result<Self, Malformed> {
        let raw: &RawClcHeader = zerocopy::transmute_ref!(bytes);
        // First: what begins otherwise is another protocol.
        if !is_eye_catcher(raw.eye_catcher) {
            return Err(Malformed::EyeCatcher);
        }
        let version = Version::from_nibble(raw.version_types >> 4).ok_or(Malformed::Version)?;
        let message_type = ClcType::from_number(raw.kind).ok_or(Malformed::MessageType)?;
        let len = raw.len.get();
        if usize::from(len) < MIN_LEN {
            return Err(Malformed::LengthMismatch);
        }
        Ok(Self {
            message_type,
            version,
            len,
            types: raw.version_types & 0x0f,
        })
    }

    /// Returns the message type.
    pub const fn message_type(&self) -> ClcType {
        self.message_type
    }

    /// Returns the version of the message.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the length of the whole message in bytes, including these eight: 12 to 65535.
    pub fn message_len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns how many bytes to read and pass to [`ClcMessage::parse`]: at most [`MAX_LEN`].
    pub fn read_len(&self) -> usize {
        self.message_len().min(MAX_LEN)
    }

    /// Returns how many bytes to read after that and discard.
    pub fn drain_len(&self) -> usize {
        self.message_len().saturating_sub(MAX_LEN)
    }

    /// Parses the header of a message from its first bytes.
    fn of(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        Self::peek(head)
    }

    const fn type_v1(&self) -> u8 {
        self.types & 0x03
    }

    const fn type_v2(&self) -> u8 {
        self.types >> 2
    }
}

/// Checks the header and trailer of a message of type `expected`; returns its header and its body.
///
/// The trailer is checked unless the message was truncated at [`MAX_LEN`].
fn open(bytes: &[u8], expected: ClcType) -> Result<(Header, Reader<'_>), Malformed> {
    let header = Header::of(bytes)?;
    if header.message_type != expected {
        return Err(Malformed::MessageType);
    }
    let inside = if bytes.len() == header.message_len() {
        let (inside, trailer) = bytes.split_last_chunk().ok_or(Malformed::Truncated)?;
        // The trailer of a DECLINE is not checked, as in the C module.
        if expected != ClcType::Decline && !is_eye_catcher(*trailer) {
            return Err(Malformed::Trailer);
        }
        inside
    } else if bytes.len() > header.message_len() {
        return Err(Malformed::LengthMismatch);
    } else if bytes.len() >= MAX_LEN {
        bytes
    } else {
        return Err(Malformed::Truncated);
    };
    let mut reader = Reader::new(inside);
    reader.skip(HEADER_LEN)?;
    Ok((header, reader))
}

/// Begins a message of `len` bytes, header and trailer included.
fn begin<'b>(
    buf: &'b mut [u8],
    message_type: ClcType,
    version: Version,
    types: u8,
    eye_catcher: [u8; 4],
    len: usize,
) -> Result<Writer<'b>, NoSpace> {
    let mut writer = Writer::new(buf.get_mut(..len).ok_or(NoSpace)?);
    writer.put(&RawClcHeader {
        eye_catcher,
        kind: message_type.number(),
        len: U16::new(u16::try_from(len).map_err(|_| NoSpace)?),
        version_types: version.number() << 4 | types & 0x0f,
    })?;
    Ok(writer)
}

/// The eye catcher of SMC-R: its name in EBCDIC.
const SMCR: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];
/// The eye catcher of SMC-D.
const SMCD: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xc4];
/// Bytes of the eye catcher at a message's end.
const TRAILER_LEN: usize = 4;
/// Header and trailer.
const MIN_LEN: usize = HEADER_LEN + TRAILER_LEN;
/// First contact (accept, confirm) or out of sync (decline), among the type bits of the header.
const FIRST_CONTACT: u8 = 0x08;

/// Either is accepted at either end, whatever the rest of the message contains (`smc_clc_msg_hdr_valid`).
fn is_eye_catcher(bytes: [u8; 4]) -> bool {
    bytes == SMCR || bytes == SMCD
}

/// The first eight bytes of every message.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawClcHeader {
    eye_catcher: [u8; 4],
    kind: u8,
    len: U16,
    version_types: u8,
}

const _: () = assert!(size_of::<RawClcHeader>() == HEADER_LEN);
