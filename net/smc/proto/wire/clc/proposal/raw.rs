// SPDX-License-Identifier: GPL-2.0

//! The areas of a PROPOSAL on the wire (RFC 7609 appendix A.2.2; «SMC Version 2»).

use core::fmt;

use zerocopy::byteorder::big_endian::{
    U16,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::id::{
    Eid,
    Gid,
    Ipv4,
    Mac,
    PeerId, //
};
use crate::wire::clc::{
    Limits,
    HEADER_LEN,
    MAX_LEN,
    TRAILER_LEN, //
};

/// The base, after the header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Base {
    pub(super) peer_id: PeerId,
    pub(super) gid: Gid,
    pub(super) mac: Mac,
    /// Offset of the IP prefixes, from the end of this struct.
    pub(super) prefix_offset: U16,
}

/// Header and base.
pub(super) const BASE_END: usize = HEADER_LEN + size_of::<Base>();
const _: () = assert!(BASE_END == 40);

/// The SMC-D area.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Area {
    pub(super) ism: IsmEntry,
    /// Offset of the version 2 extension, from the end of this field.
    pub(super) v2_offset: U16,
    pub(super) vendor_oui: [u8; 3],
    pub(super) vendor_options: [u8; 5],
    pub(super) reserved: [u8; 20],
}

pub(super) const AREA_LEN: usize = size_of::<Area>();
const _: () = assert!(AREA_LEN == 40);

/// Bytes of the area after the field that [`Area::v2_offset`] is relative to.
pub(super) const AREA_TAIL: usize = 28;

/// Header of the IP prefixes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Prefix {
    pub(super) subnet: Ipv4,
    pub(super) len: u8,
    pub(super) reserved: [u8; 2],
    pub(super) v6_count: u8,
}

pub(super) const PREFIX_LEN: usize = size_of::<Prefix>();
const _: () = assert!(PREFIX_LEN == 8);
const _: () = assert!(size_of::<super::Ipv6Prefix>() == 17);

/// The version 2 extension, before its EIDs.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct V2 {
    pub(super) eid_count: u8,
    pub(super) device_count: u8,
    pub(super) reserved: u8,
    /// Release in 0xf0, [`SEID`] in 0x01.
    pub(super) release_seid: u8,
    pub(super) reserved2: [u8; 2],
    /// Offset of the SMC-D version 2 extension, from the end of this field.
    pub(super) smcd_offset: U16,
    pub(super) gid: Gid,
    pub(super) limits: Limits,
    pub(super) features: U16,
    pub(super) reserved3: [u8; 12],
}

pub(super) const V2_LEN: usize = size_of::<V2>();
const _: () = assert!(V2_LEN == 40);

/// Bytes of the extension after the field that [`V2::smcd_offset`] is relative to.
pub(super) const V2_TAIL: usize = 32;

/// The client accepts the system EID.
pub(super) const SEID: u8 = 0x01;

/// The SMC-D version 2 extension, before its devices.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SmcdV2 {
    pub(super) seid: Eid,
    pub(super) reserved: [u8; 16],
}

pub(super) const SMCD_V2_LEN: usize = size_of::<SmcdV2>();
const _: () = assert!(SMCD_V2_LEN == 48);

/// An SMC-D device: its GID and its channel.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IsmEntry {
    gid: U64,
    chid: U16,
}

const _: () = assert!(size_of::<IsmEntry>() == 10);

impl IsmEntry {
    /// Creates an entry.
    pub const fn new(gid: u64, chid: u16) -> Self {
        Self {
            gid: U64::new(gid),
            chid: U16::new(chid),
        }
    }

    /// Returns the device's GID.
    pub const fn gid(self) -> u64 {
        self.gid.get()
    }

    /// Returns the device's channel; 0xff00 and above are emulated devices.
    pub const fn chid(self) -> u16 {
        self.chid.get()
    }
}

impl fmt::Debug for IsmEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{:04x}", self.gid(), self.chid())
    }
}

const _: () = assert!(
    BASE_END
        + AREA_LEN
        + PREFIX_LEN
        + 8 * size_of::<super::Ipv6Prefix>()
        + V2_LEN
        + 8 * size_of::<Eid>()
        + SMCD_V2_LEN
        + 8 * size_of::<IsmEntry>()
        + TRAILER_LEN
        == MAX_LEN
);
