// SPDX-License-Identifier: GPL-2.0

//! Link layer control (LLC) messages: links and keys of a link group, sent over its links.
//!
//! RFC 7609 appendix A.3, version 2 by IBM's «SMC Version 2». In version 1 every message has 44 bytes. In version 2
//! some are longer, and two fields are in the byte order of the sending Linux host where the specification requires
//! big-endian: the length in the header and the count of keys in ADD_LINK. Neither is relied on here; the completion
//! provides the length. [`PeerOrder`] determines how they are written.

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;

use super::clc::OsType;
use super::{
    NoSpace,
    Reader,
    Version,
    Writer,
    SEND_LEN, //
};

mod link;
mod rkey;

pub use link::{
    AddLink,
    AddLinkCont,
    AddLinkV2,
    ConfirmLink,
    DeleteLink,
    DeleteReason,
    NewLink,
    RejectReason,
    ReqAddLink, //
};
pub use rkey::{
    ConfirmRkey,
    ConfirmRkeyCont,
    DeleteRkey,
    LinkRkey,
    NewLinkRkey,
    WireRkey, //
};

/// The longest message: an ADD_LINK of version 2 with 255 keys.
pub const MAX_LEN: usize = 44 + 28 + 255 * 16;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlcMessage<'a> {
    /// The version of its layout, to be compared with that of the link group.
    pub version: Version,
    /// Request or response.
    pub kind: Kind,
    /// The contents.
    pub body: Body<'a>,
}

/// Request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A request.
    Request,
    /// A response to a request of the same type.
    Response,
}

/// Contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The link that carries it works.
    ConfirmLink(ConfirmLink),
    /// A link is to be added.
    AddLink(AddLink<'a>),
    /// Keys for a link being added. Version 1 only.
    AddLinkCont(AddLinkCont<'a>),
    /// A link, or all links, are to be deleted.
    DeleteLink(DeleteLink),
    /// The client can add a link. Version 2 only.
    ReqAddLink(ReqAddLink<'a>),
    /// A buffer is ready for writes.
    ConfirmRkey(ConfirmRkey<'a>),
    /// More links for the buffer of the last [`Body::ConfirmRkey`]. Version 1 only.
    ConfirmRkeyCont(ConfirmRkeyCont<'a>),
    /// Test whether the peer responds. Sixteen bytes of the sender's choice, to be returned.
    TestLink([u8; 16]),
    /// Buffers are deleted.
    DeleteRkey(DeleteRkey<'a>),
}

impl<'a> LlcMessage<'a> {
    /// Parses exactly the bytes received. `None` for a type that is not defined in its version, to be ignored.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; the message is to be dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let &first = bytes.first().ok_or(Malformed::Truncated)?;
        let Some((version, message_type)) = LlcType::from_byte(first) else {
            return Ok(None);
        };
        if bytes.len() < SEND_LEN {
            return Err(Malformed::Truncated);
        }
        let mut reader = Reader::new(bytes);
        let header: &RawLlcHeader = reader.take()?;
        header.check_len(version)?;
        let kind = match header.flags & RESPONSE {
            0 => Kind::Request,
            _ => Kind::Response,
        };
        let input = Input {
            version,
            kind,
            header,
            reader,
        };
        let body = match message_type {
            LlcType::ConfirmLink => Body::ConfirmLink(ConfirmLink::parse(input)?),
            LlcType::AddLink => Body::AddLink(AddLink::parse(input)?),
            LlcType::AddLinkCont => Body::AddLinkCont(AddLinkCont::parse(input)?),
            LlcType::DeleteLink => Body::DeleteLink(DeleteLink::parse(input)?),
            LlcType::ReqAddLink => Body::ReqAddLink(ReqAddLink::parse(input)?),
            LlcType::ConfirmRkey => Body::ConfirmRkey(ConfirmRkey::parse(input)?),
            LlcType::ConfirmRkeyCont => Body::ConfirmRkeyCont(ConfirmRkeyCont::parse(input)?),
            LlcType::TestLink => Body::TestLink(parse_test_link(input)?),
            LlcType::DeleteRkey => Body::DeleteRkey(DeleteRkey::parse(input)?),
        };
        Ok(Some(Self {
            version,
            kind,
            body,
        }))
    }

    /// Writes the message into `buf` and returns its bytes: 44, except for the longer ones of version 2, with at most
    /// [`MAX_LEN`].
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub fn emit<'b>(&self, order: PeerOrder, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
        let len = self.wire_len();
        let mut writer = Writer::new(buf.get_mut(..len).ok_or(NoSpace)?);
        writer.put(&RawLlcHeader::new(self, len, order)?)?;
        match &self.body {
            Body::ConfirmLink(body) => body.emit(&mut writer)?,
            Body::AddLink(body) => body.emit(&mut writer, self.version, order)?,
            Body::AddLinkCont(body) => body.emit(&mut writer)?,
            Body::DeleteLink(body) => body.emit(&mut writer)?,
            Body::ReqAddLink(body) => body.emit(&mut writer)?,
            Body::ConfirmRkey(body) => body.emit(&mut writer)?,
            Body::ConfirmRkeyCont(body) => body.emit(&mut writer)?,
            Body::TestLink(user_data) => writer.put(user_data)?,
            Body::DeleteRkey(body) => body.emit(&mut writer)?,
        }
        writer.pad_to(len)?;
        writer.finish()
    }

    /// Returns the length of the message in bytes, as [`LlcMessage::emit`] writes it.
    pub fn wire_len(&self) -> usize {
        let len = match &self.body {
            Body::AddLink(body) if self.version == Version::V2 => body.v2_len(),
            Body::ReqAddLink(body) => body.len(),
            Body::DeleteRkey(body) => body.len(),
            Body::ConfirmLink(_)
            | Body::AddLink(_)
            | Body::AddLinkCont(_)
            | Body::DeleteLink(_)
            | Body::ConfirmRkey(_)
            | Body::ConfirmRkeyCont(_)
            | Body::TestLink(_) => SEND_LEN,
        };
        len.max(SEND_LEN)
    }
}

impl Body<'_> {
    const fn message_type(&self) -> LlcType {
        match self {
            Self::ConfirmLink(_) => LlcType::ConfirmLink,
            Self::AddLink(_) => LlcType::AddLink,
            Self::AddLinkCont(_) => LlcType::AddLinkCont,
            Self::DeleteLink(_) => LlcType::DeleteLink,
            Self::ReqAddLink(_) => LlcType::ReqAddLink,
            Self::ConfirmRkey(_) => LlcType::ConfirmRkey,
            Self::ConfirmRkeyCont(_) => LlcType::ConfirmRkeyCont,
            Self::TestLink(_) => LlcType::TestLink,
            Self::DeleteRkey(_) => LlcType::DeleteRkey,
        }
    }

    /// Returns the flags of the header except the response flag.
    fn flags(&self, version: Version) -> u8 {
        match self {
            Self::ConfirmLink(body) => body.flags(),
            Self::AddLink(body) => body.flags(version),
            Self::DeleteLink(body) => body.flags(),
            Self::ConfirmRkey(body) => body.flags(),
            Self::DeleteRkey(body) => body.flags(),
            Self::AddLinkCont(_)
            | Self::ReqAddLink(_)
            | Self::ConfirmRkeyCont(_)
            | Self::TestLink(_) => 0,
        }
    }
}

/// The byte order in which a peer reads the two fields that Linux does not swap (version 2).
///
/// The length in the header is uncritical: every Linux accepts it in either order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerOrder {
    /// As specified.
    Big,
    /// A little-endian Linux.
    Little,
    /// A Linux of unknown order. It evaluates only eight bits of the count of keys, so both bytes of the field get it.
    Linux,
}

impl PeerOrder {
    /// Returns the order for a peer with this system in its first contact extension.
    pub fn of(os: OsType) -> Self {
        if os == OsType::LINUX {
            Self::Linux
        } else {
            Self::Big
        }
    }

    /// Returns the field for the count of keys in an ADD_LINK.
    fn count(self, count: u8) -> [u8; 2] {
        match self {
            Self::Big => [0, count],
            Self::Little => [count, 0],
            Self::Linux => [count, count],
        }
    }
}

/// The types of messages, by the low four bits of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LlcType {
    ConfirmLink,
    AddLink,
    AddLinkCont,
    DeleteLink,
    ReqAddLink,
    ConfirmRkey,
    TestLink,
    ConfirmRkeyCont,
    DeleteRkey,
}

impl LlcType {
    const fn from_byte(byte: u8) -> Option<(Version, Self)> {
        let version = match byte >> 4 {
            0 => Version::V1,
            2 => Version::V2,
            _ => return None,
        };
        let message_type = match (byte & 0x0f, version) {
            (1, _) => Self::ConfirmLink,
            (2, _) => Self::AddLink,
            (3, Version::V1) => Self::AddLinkCont,
            (4, _) => Self::DeleteLink,
            (5, Version::V2) => Self::ReqAddLink,
            (6, _) => Self::ConfirmRkey,
            (7, _) => Self::TestLink,
            (8, Version::V1) => Self::ConfirmRkeyCont,
            (9, _) => Self::DeleteRkey,
            _ => return None,
        };
        Some((version, message_type))
    }

    const fn byte(self, version: Version) -> u8 {
        let number = match self {
            Self::ConfirmLink => 1,
            Self::AddLink => 2,
            Self::AddLinkCont => 3,
            Self::DeleteLink => 4,
            Self::ReqAddLink => 5,
            Self::ConfirmRkey => 6,
            Self::TestLink => 7,
            Self::ConfirmRkeyCont => 8,
            Self::DeleteRkey => 9,
        };
        match version {
            Version::V1 => number,
            Version::V2 => 0x20 | number,
        }
    }
}

/// A received message with its header parsed.
struct Input<'a> {
    version: Version,
    kind: Kind,
    header: &'a RawLlcHeader,
    reader: Reader<'a>,
}

impl Input<'_> {
    fn has_flag(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }
}

fn parse_test_link(mut input: Input<'_>) -> Result<[u8; 16], Malformed> {
    input.reader.take().copied()
}

/// A response to a request of the same type.
const RESPONSE: u8 = 0x80;

/// Appendix A.3, the first four bytes. Version 1 has the length in the first byte of `len` and the
/// reason of a rejected ADD_LINK in the second.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLlcHeader {
    kind: u8,
    len: [u8; 2],
    flags: u8,
}

const _: () = assert!(size_of::<RawLlcHeader>() == 4);

impl RawLlcHeader {
    fn new(message: &LlcMessage<'_>, len: usize, order: PeerOrder) -> Result<Self, NoSpace> {
        let response = match message.kind {
            Kind::Request => 0,
            Kind::Response => RESPONSE,
        };
        let len = u16::try_from(len).map_err(|_| NoSpace)?;
        let len = match (message.version, order) {
            (Version::V1, _) => {
                let reason = match &message.body {
                    Body::AddLink(body) => body.reject_reason(),
                    _ => 0,
                };
                [V1_LEN, reason]
            }
            (Version::V2, PeerOrder::Big | PeerOrder::Linux) => len.to_be_bytes(),
            (Version::V2, PeerOrder::Little) => len.to_le_bytes(),
        };
        Ok(Self {
            kind: message.body.message_type().byte(message.version),
            len,
            flags: response | message.body.flags(message.version),
        })
    }

    /// Rejects what the C module rejects on a host of either byte order: in version 2 every length but zero is 44 or
    /// more in one of them.
    fn check_len(&self, version: Version) -> Result<(), Malformed> {
        match (version, self.len) {
            (Version::V1, [V1_LEN, _]) => Ok(()),
            (Version::V1, _) | (Version::V2, [0, 0]) => Err(Malformed::LengthMismatch),
            (Version::V2, _) => Ok(()),
        }
    }
}

/// The length byte of version 1, [`SEND_LEN`].
const V1_LEN: u8 = 44;
