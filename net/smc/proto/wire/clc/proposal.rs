// SPDX-License-Identifier: GPL-2.0

//! CLC (connection layer control) PROPOSAL: everything that the client offers.
//!
//! RFC 7609 appendix A.2.2, and IBM's «SMC Version 2» for the extensions. The areas follow each other without gaps:
//! base, SMC-D area, IP prefixes, version 2 extension with its enterprise ids (EIDs), SMC-D version 2 extension. The
//! message contains offsets of the areas; they are compared with the required positions and never used unchecked.

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;
use crate::id::{
    Eid,
    Features,
    Gid,
    Ipv4,
    Mac,
    PeerId, //
};
use crate::wire::{
    List,
    NoSpace,
    Version, //
};

use super::{
    Limits,
    Release, //
};

mod emit;
mod parse;
mod raw;

pub use raw::IsmEntry;

/// The client's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal<'a> {
    /// The client; [`PeerId::NONE`] from Linux unless version 1 SMC-R is offered.
    pub peer_id: PeerId,
    /// RoCE v1 GID of the client's port; [`Gid::NONE`] unless version 1 SMC-R is offered.
    pub gid: Gid,
    /// Ethernet address of that port; [`Mac::NONE`] unless version 1 SMC-R is offered.
    pub mac: Mac,
    /// What is offered.
    pub modes: ProposedModes<'a>,
}

/// The two forms of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposedModes<'a> {
    /// The form of RFC 7609, which Linux accepts and does not send.
    V1 {
        /// The offer.
        v1: V1Offer<'a>,
        /// The area before the prefixes; `None` if it is missing or of another length.
        area: Option<SmcdV2Ext>,
    },
    /// The form of version 2, also used by a client that offers version 1 only.
    V2 {
        /// What is offered in version 1.
        v1: Option<V1Offer<'a>>,
        /// The area with the vendor's options and, for SMC-D, the device.
        area: SmcdV2Ext,
        /// What is offered in version 2.
        v2: Option<V2Offer<'a>>,
    },
}

/// The technologies offered. Without any there is no offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SmcTypes {
    /// SMC-R only.
    SmcR,
    /// SMC-D only.
    SmcD,
    /// Both.
    Both,
}

/// What a client offers in version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V1Offer<'a> {
    /// The technologies.
    pub technologies: SmcTypes,
    /// The subnets of the client's interface, for comparison with the server's.
    pub prefix: IpPrefix<'a>,
}

/// Subnets of the outgoing interface of the TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPrefix<'a> {
    /// The TCP connection is over IPv4.
    V4 {
        /// The subnet address.
        subnet: Ipv4,
        /// Length of its mask, bits. As received: a value above 32 matches no interface.
        len: u8,
    },
    /// The TCP connection is over IPv6; the interface's prefixes. An empty list is sent as the IPv4 prefix 0.0.0.0/0,
    /// and received as that.
    V6(List<'a, Ipv6Prefix, 8>),
}

/// One IPv6 prefix.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Ipv6Prefix {
    /// The prefix, its host part zero.
    pub address: [u8; 16],
    /// Its length, bits. As received: a value above 128 matches no interface.
    pub len: u8,
}

/// The 40 bytes before the prefixes, «for future growth» in the RFC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmcdV2Ext {
    /// The SMC-D device offered; zero if none is.
    ///
    /// In a proposal without a version 1 offer the low byte of the GID must be at most 8: the C module interprets that
    /// byte as a count of IPv6 prefixes then.
    pub ism: IsmEntry,
    /// The vendor's OUI; zero if there are no options.
    pub vendor_oui: [u8; 3],
    /// The vendor's experimental options.
    pub vendor_options: [u8; 5],
}

/// What a client offers in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V2Offer<'a> {
    /// Whether SMC-R is offered, and SMC-D with its devices.
    pub technologies: V2SmcTypes<'a>,
    /// The latest release of version 2 that the client supports.
    pub release: Release,
    /// RoCE v2 GID of the client's port; [`Gid::NONE`] if SMC-R is not offered.
    pub gid: Gid,
    /// The limits that the client requests; use [`V2Offer::limits`], which checks the release.
    pub raw_limits: Limits,
    /// Feature bits, from release 1 on.
    pub features: Features,
    /// The client's user EIDs, in its order.
    pub eids: List<'a, Eid, 8>,
    /// The client also accepts the system EID of its SMC-D offer.
    pub seid: bool,
}

/// The technologies offered in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum V2SmcTypes<'a> {
    /// SMC-R only.
    SmcR,
    /// SMC-D only.
    SmcD(SmcdV2Offer<'a>),
    /// Both.
    Both(SmcdV2Offer<'a>),
}

/// The SMC-D part of a version 2 offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmcdV2Offer<'a> {
    /// The system EID.
    pub seid: Eid,
    /// The devices; an emulated one takes two entries.
    pub devices: List<'a, IsmEntry, 8>,
}

impl<'a> Proposal<'a> {
    /// Parses a whole message.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; such a proposal is not answered.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        parse::proposal(bytes)
    }

    /// Writes the message into `buf` and returns its bytes, at most [`MAX_LEN`](super::MAX_LEN).
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub fn emit<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
        emit::proposal(self, buf)
    }

    /// Returns the version of the message, not that of the offers.
    pub const fn version(&self) -> Version {
        match self.modes {
            ProposedModes::V1 { .. } => Version::V1,
            ProposedModes::V2 { .. } => Version::V2,
        }
    }

    /// Returns the version 1 offer.
    pub const fn v1(&self) -> Option<&V1Offer<'a>> {
        match &self.modes {
            ProposedModes::V1 { v1, .. } => Some(v1),
            ProposedModes::V2 { v1, .. } => v1.as_ref(),
        }
    }

    /// Returns the version 2 offer.
    pub const fn v2(&self) -> Option<&V2Offer<'a>> {
        match &self.modes {
            ProposedModes::V1 { .. } => None,
            ProposedModes::V2 { v2, .. } => v2.as_ref(),
        }
    }

    /// Returns the SMC-D area, which also carries the vendor's options.
    pub const fn area(&self) -> Option<&SmcdV2Ext> {
        match &self.modes {
            ProposedModes::V1 { area, .. } => area.as_ref(),
            ProposedModes::V2 { area, .. } => Some(area),
        }
    }
}

impl V2Offer<'_> {
    /// Returns the limits that the client requests; `None` before release 1, which has none.
    pub fn limits(&self) -> Option<Limits> {
        (self.release >= Release::R1).then_some(self.raw_limits)
    }
}

impl SmcTypes {
    /// Returns true if SMC-R is among them.
    pub const fn has_smcr(self) -> bool {
        matches!(self, Self::SmcR | Self::Both)
    }

    /// Returns true if SMC-D is among them.
    pub const fn has_smcd(self) -> bool {
        matches!(self, Self::SmcD | Self::Both)
    }

    /// Parses a 2-bit field; `None` for neither technology.
    const fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0x03 {
            0 => Some(Self::SmcR),
            1 => Some(Self::SmcD),
            3 => Some(Self::Both),
            _ => None,
        }
    }

    const fn bits(this: Option<Self>) -> u8 {
        match this {
            Some(Self::SmcR) => 0,
            Some(Self::SmcD) => 1,
            None => 2,
            Some(Self::Both) => 3,
        }
    }
}

impl<'a> V2SmcTypes<'a> {
    /// Returns the technologies.
    pub const fn technologies(&self) -> SmcTypes {
        match self {
            Self::SmcR => SmcTypes::SmcR,
            Self::SmcD(_) => SmcTypes::SmcD,
            Self::Both(_) => SmcTypes::Both,
        }
    }

    /// Returns true if SMC-R is among them.
    pub const fn has_smcr(&self) -> bool {
        self.technologies().has_smcr()
    }

    /// Returns the SMC-D part.
    pub const fn smcd(&self) -> Option<&SmcdV2Offer<'a>> {
        match self {
            Self::SmcR => None,
            Self::SmcD(offer) | Self::Both(offer) => Some(offer),
        }
    }
}
