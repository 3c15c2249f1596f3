// SPDX-License-Identifier: GPL-2.0

//! LLC (link layer control) messages about links.
//!
//! RFC 7609 appendices A.3.1 to A.3.4; REQ_ADD_LINK and the long ADD_LINK are version 2. A link is
//! one queue pair (QP) on each side; its port has a GID (global identifier) and an Ethernet address
//! (MAC).

use crate::error::Malformed;
use crate::id::{
    Gid,
    LinkNum,
    LinkUid,
    Mac,
    Mtu,
    Psn,
    QpNum, //
};
use crate::wire::clc::Limits;
use crate::wire::iwarp::IwListenAddr;
use crate::wire::{
    List,
    NoSpace,
    Version,
    Writer,
    SEND_LEN, //
};

use super::{
    Input,
    Kind,
    NewLinkRkey,
    PeerOrder, //
};

mod raw;

/// CONFIRM_LINK: confirms that the link which carries it works, and assigns its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmLink {
    /// The sender's port.
    pub mac: Mac,
    /// The sender's port.
    pub gid: Gid,
    /// The sender's queue pair.
    pub qp_num: QpNum,
    /// The link's number, assigned by the server and repeated by the client.
    pub link_num: LinkNum,
    /// The sender's name for the link, for diagnosis.
    pub uid: LinkUid,
    /// Limits of the link group: version 2.1. Otherwise `max_links` is 2 from Linux and
    /// `max_conns` 0.
    pub limits: Limits,
    /// The sender's elements have no eye catcher. Required by Linux on first contact.
    pub no_eye_catcher: bool,
}

/// ADD_LINK: adds a second or further link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddLink<'a> {
    /// A request without a link: the client has a port for another link. Version 1 only.
    Invitation {
        /// The client's port.
        mac: Mac,
        /// The client's port.
        gid: Gid,
    },
    /// The sender's end of the new link: from the server as request, from the client as response.
    Link {
        /// The end.
        link: NewLink,
        /// Additions of version 2. `None` if the message was too short for them.
        v2: Option<AddLinkV2<'a>>,
    },
    /// A response: the client rejects the link.
    Rejection {
        /// The server's end, repeated.
        link: NewLink,
        /// The reason.
        reason: RejectReason,
    },
}

/// One side's end of a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLink {
    /// The sender's port.
    pub mac: Mac,
    /// The sender's port.
    pub gid: Gid,
    /// The sender's queue pair.
    pub qp_num: QpNum,
    /// The new link's number, assigned by the server.
    pub link_num: LinkNum,
    /// Path MTU; `None` for an invalid code, to be rejected.
    pub mtu: Option<Mtu>,
    /// First packet sequence number of the sender's queue pair.
    pub psn: Psn,
    /// Where a client listens for the connection of a link over iWARP.
    pub listen_addr: Option<IwListenAddr>,
}

/// Additions of version 2 to ADD_LINK, which replace ADD_LINK_CONT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddLinkV2<'a> {
    /// There is no gateway between the two ports.
    pub direct: bool,
    /// The client's GID for the link; Linux writes its own in both directions.
    pub target_gid: Gid,
    /// The sender's buffers on the new link.
    pub rkeys: List<'a, NewLinkRkey, 255>,
}

/// ADD_LINK_CONT: the sender's buffers on a link being added, two at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddLinkCont<'a> {
    /// The new link.
    pub link_num: LinkNum,
    /// Buffers in this message.
    pub rkeys: List<'a, NewLinkRkey, 2>,
    /// Number of buffers in later messages; not written unless this one is full.
    pub following: u8,
}

/// DELETE_LINK: a link or the link group is to be deleted, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteLink {
    /// The link; `None` for all links.
    pub link_num: Option<LinkNum>,
    /// Connections are moved or ended first.
    pub orderly: bool,
    /// The reason; in a response, the result.
    pub reason: DeleteReason,
}

/// REQ_ADD_LINK: the client has ports for another link. The response is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReqAddLink<'a> {
    /// GIDs: first that of the link in use, then alternatives. Empty in a response.
    pub gids: List<'a, Gid, 255>,
}

/// Why a client rejects a link; not written by Linux in version 2.
///
/// # Invariants
///
/// Four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RejectReason(u8);

impl RejectReason {
    /// Not specified.
    pub const NONE: Self = Self(0);
    /// The client has no other path.
    pub const NO_ALTERNATE_PATH: Self = Self(1);
    /// The path MTU cannot be used.
    pub const INVALID_MTU: Self = Self(2);

    const fn from_nibble(bits: u8) -> Self {
        // INVARIANT: the mask leaves four bits.
        Self(bits & 0x0f)
    }

    /// Returns the number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Why a link is deleted, or the result of its deletion. Any value may be received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeleteReason(pub u32);

impl DeleteReason {
    /// Response: done.
    pub const DONE: Self = Self(0);
    /// The path was lost.
    pub const LOST_PATH: Self = Self(0x0001_0000);
    /// Requested by the operator.
    pub const OPERATOR: Self = Self(0x0002_0000);
    /// Requested by the program, for example because the link group is unused.
    pub const PROGRAM: Self = Self(0x0003_0000);
    /// A symmetric link makes the asymmetric one superfluous.
    pub const ASYMMETRIC_UNNEEDED: Self = Self(0x0005_0000);
    /// Response: no such link.
    pub const UNKNOWN_LINK: Self = Self(0x0010_0000);
}

impl ConfirmLink {
    pub(super) fn parse(mut input: Input<'_>) -> Result<Self, Malformed> {
        let raw: &raw::ConfirmLink = input.reader.take()?;
        Ok(raw.parse(input.has_flag(NO_EYE_CATCHER)))
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put(&raw::ConfirmLink::new(self))
    }

    pub(super) const fn flags(&self) -> u8 {
        if self.no_eye_catcher {
            NO_EYE_CATCHER
        } else {
            0
        }
    }
}

impl<'a> AddLink<'a> {
    pub(super) fn parse(mut input: Input<'a>) -> Result<Self, Malformed> {
        let raw: &raw::AddLink = input.reader.take()?;
        let link = raw.parse();
        match input.kind {
            Kind::Request if !link.link_num.is_link() => Self::invitation(link.mac, link.gid),
            Kind::Response if input.has_flag(REJECTED) => Ok(Self::Rejection {
                link,
                reason: RejectReason::from_nibble(match input.version {
                    Version::V1 => input.header.len[1],
                    Version::V2 => input.header.flags,
                }),
            }),
            Kind::Request | Kind::Response => Ok(Self::Link {
                link,
                v2: AddLinkV2::parse(input)?,
            }),
        }
    }

    /// Rejects an invitation without a port. The C module marks its own events by zeroes alone, and would mistake such
    /// a message for one.
    fn invitation(mac: Mac, gid: Gid) -> Result<Self, Malformed> {
        if mac.is_zero() && gid.is_none() {
            return Err(Malformed::Empty);
        }
        Ok(Self::Invitation { mac, gid })
    }

    pub(super) fn emit(
        &self,
        writer: &mut Writer<'_>,
        version: Version,
        order: PeerOrder,
    ) -> Result<(), NoSpace> {
        match self {
            Self::Invitation { mac, gid } => writer.put(&raw::AddLink::invitation(*mac, *gid)),
            Self::Rejection { link, .. } => writer.put(&raw::AddLink::new(link)),
            Self::Link { link, v2 } => {
                writer.put(&raw::AddLink::new(link))?;
                if let (Version::V2, Some(v2)) = (version, v2) {
                    writer.put(&raw::AddLinkV2::new(v2, order))?;
                    writer.put(v2.rkeys.as_slice())?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn flags(&self, version: Version) -> u8 {
        match (self, version) {
            (Self::Rejection { .. }, Version::V1) => REJECTED,
            (Self::Rejection { reason, .. }, Version::V2) => REJECTED | reason.number(),
            (Self::Invitation { .. } | Self::Link { .. }, _) => 0,
        }
    }

    /// Returns the reason in the version 1 header.
    pub(super) const fn reject_reason(&self) -> u8 {
        match self {
            Self::Rejection { reason, .. } => reason.number(),
            Self::Invitation { .. } | Self::Link { .. } => 0,
        }
    }

    /// Returns the length in version 2, bytes.
    pub(super) fn v2_len(&self) -> usize {
        match self {
            Self::Link { v2: Some(v2), .. } => {
                size_of_val(v2.rkeys.as_slice()).saturating_add(ADD_LINK_V2_LEN)
            }
            Self::Invitation { .. } | Self::Link { .. } | Self::Rejection { .. } => SEND_LEN,
        }
    }
}

impl<'a> AddLinkV2<'a> {
    fn parse(mut input: Input<'a>) -> Result<Option<Self>, Malformed> {
        if input.version == Version::V1 || input.reader.remaining() < size_of::<raw::AddLinkV2>() {
            return Ok(None);
        }
        let raw: &raw::AddLinkV2 = input.reader.take()?;
        // The count field is in the sender's byte order; the number of bytes is reliable.
        let count = input.reader.fits::<NewLinkRkey>();
        let rkeys = input.reader.list(count)?;
        input.reader.finish()?;
        Ok(Some(Self {
            direct: raw.is_direct(),
            target_gid: raw.target_gid,
            rkeys,
        }))
    }
}

impl<'a> AddLinkCont<'a> {
    pub(super) fn parse(mut input: Input<'a>) -> Result<Self, Malformed> {
        let raw: &raw::AddLinkCont = input.reader.take()?;
        let rkeys = input.reader.list(usize::from(raw.remaining.min(2)))?;
        Ok(Self {
            link_num: LinkNum(raw.link_num),
            rkeys,
            following: raw.remaining.saturating_sub(2),
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        let here = self.rkeys.count();
        let following = if here == 2 { self.following } else { 0 };
        writer.put(&raw::AddLinkCont {
            link_num: self.link_num.0,
            remaining: here.saturating_add(following),
            reserved: [0; 2],
        })?;
        writer.put(self.rkeys.as_slice())
    }
}

impl DeleteLink {
    pub(super) fn parse(mut input: Input<'_>) -> Result<Self, Malformed> {
        let raw: &raw::DeleteLink = input.reader.take()?;
        let link_num = LinkNum(raw.link_num);
        Ok(Self {
            link_num: (!input.has_flag(ALL_LINKS)).then_some(link_num),
            orderly: input.has_flag(ORDERLY),
            reason: DeleteReason(raw.reason.get()),
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put(&raw::DeleteLink {
            link_num: self.link_num.unwrap_or(LinkNum::NONE).0,
            reason: self.reason.0.into(),
        })
    }

    pub(super) const fn flags(&self) -> u8 {
        let all = if self.link_num.is_none() {
            ALL_LINKS
        } else {
            0
        };
        let orderly = if self.orderly { ORDERLY } else { 0 };
        all | orderly
    }
}

impl<'a> ReqAddLink<'a> {
    pub(super) fn parse(mut input: Input<'a>) -> Result<Self, Malformed> {
        let raw: &raw::ReqAddLink = input.reader.take()?;
        let gids = match input.kind {
            Kind::Response => List::EMPTY,
            Kind::Request => input.reader.list(usize::from(raw.count))?,
        };
        Ok(Self { gids })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put(&raw::ReqAddLink {
            reserved: [0; 20],
            count: self.gids.count(),
            reserved2: [0; 3],
        })?;
        writer.put(self.gids.as_slice())
    }

    pub(super) fn len(&self) -> usize {
        size_of_val(self.gids.as_slice()).saturating_add(raw::REQ_ADD_LINK_HEAD)
    }
}

/// CONFIRM_LINK: Linux sets both bits and requires at least one.
const NO_EYE_CATCHER: u8 = 0x03;
/// ADD_LINK response.
const REJECTED: u8 = 0x40;
/// DELETE_LINK.
const ALL_LINKS: u8 = 0x40;
/// DELETE_LINK.
const ORDERLY: u8 = 0x20;
/// A version 2 ADD_LINK without keys.
const ADD_LINK_V2_LEN: usize = SEND_LEN + size_of::<raw::AddLinkV2>();
