// SPDX-License-Identifier: GPL-2.0

//! The bytes of ACCEPT and CONFIRM between header and trailer (RFC 7609 appendix A.2.3), and their conversion to one
//! side's end of a connection.

use zerocopy::byteorder::big_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::buffer::SizeClass;
use crate::error::Malformed;
use crate::id::{
    AlertToken,
    Eid,
    Gid,
    Mac,
    Mtu,
    PeerId,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex, //
};

use super::super::{
    HEADER_LEN,
    TRAILER_LEN, //
};

/// SMC-R, common to both versions.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SmcR {
    peer_id: PeerId,
    gid: Gid,
    mac: Mac,
    qp_num: [u8; 3],
    rkey: U32,
    rmbe_index: u8,
    token: U32,
    size_mtu: u8,
    reserved: u8,
    rmb_addr: U64,
    reserved2: u8,
    psn: [u8; 3],
}

const _: () = assert!(HEADER_LEN + size_of::<SmcR>() + TRAILER_LEN == 68);

impl SmcR {
    pub(super) fn new(end: &super::SmcR) -> Self {
        Self {
            peer_id: end.peer_id,
            gid: end.gid,
            mac: end.mac,
            qp_num: end.qp_num.to_be_bytes(),
            rkey: U32::new(end.rkey.0),
            rmbe_index: end.rmbe_index.get(),
            token: U32::new(end.token.0),
            size_mtu: end.rmbe_size.code() << 4 | end.mtu.code(),
            reserved: 0,
            rmb_addr: U64::new(end.rmb_addr.0),
            reserved2: 0,
            psn: end.psn.to_be_bytes(),
        }
    }

    pub(super) fn parse(&self) -> Result<super::SmcR, Malformed> {
        Ok(super::SmcR {
            peer_id: self.peer_id,
            gid: self.gid,
            mac: self.mac,
            qp_num: QpNum::from_be_bytes(self.qp_num),
            rkey: Rkey(self.rkey.get()),
            rmbe_index: RmbeIndex::new(self.rmbe_index).ok_or(Malformed::RmbeIndex)?,
            token: AlertToken(self.token.get()),
            rmbe_size: size_class(self.size_mtu)?,
            mtu: Mtu::from_code(self.size_mtu & 0x0f).ok_or(Malformed::Mtu)?,
            rmb_addr: RemoteAddr(self.rmb_addr.get()),
            psn: Psn::from_be_bytes(self.psn),
        })
    }
}

/// SMC-R, additions of version 2.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SmcRV2 {
    pub(super) eid: Eid,
    reserved: [u8; 8],
}

pub(super) const SMCR_V2_LEN: usize = size_of::<SmcR>() + size_of::<SmcRV2>();
const _: () = assert!(HEADER_LEN + SMCR_V2_LEN + TRAILER_LEN == 108);

impl SmcRV2 {
    pub(super) const fn new(eid: Eid) -> Self {
        Self {
            eid,
            reserved: [0; 8],
        }
    }
}

/// SMC-D, common to both versions.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SmcD {
    gid: U64,
    token: U64,
    index: u8,
    size: u8,
    reserved: [u8; 2],
    link_id: U32,
}

/// Reserved bytes that end a version 1 SMC-D message.
pub(super) const SMCD_V1_RESERVED: usize = 12;
pub(super) const SMCD_V1_LEN: usize = size_of::<SmcD>() + SMCD_V1_RESERVED;
const _: () = assert!(HEADER_LEN + SMCD_V1_LEN + TRAILER_LEN == 48);

impl SmcD {
    pub(super) fn new(end: &super::SmcD) -> Self {
        Self {
            gid: U64::new(end.gid),
            token: U64::new(end.token),
            index: end.index,
            size: end.size.code() << 4,
            reserved: [0; 2],
            link_id: U32::new(end.link_id),
        }
    }

    pub(super) fn parse(&self, chid: u16, gid_ext: u64) -> Result<super::SmcD, Malformed> {
        Ok(super::SmcD {
            gid: self.gid.get(),
            token: self.token.get(),
            index: self.index,
            size: size_class(self.size)?,
            link_id: self.link_id.get(),
            chid,
            gid_ext,
        })
    }
}

/// SMC-D, additions of version 2.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SmcDV2 {
    pub(super) chid: U16,
    pub(super) eid: Eid,
    pub(super) gid_ext: U64,
}

pub(super) const SMCD_V2_LEN: usize = size_of::<SmcD>() + size_of::<SmcDV2>();
const _: () = assert!(HEADER_LEN + SMCD_V2_LEN + TRAILER_LEN == 78);

impl SmcDV2 {
    pub(super) fn new(end: &super::SmcD, eid: Eid) -> Self {
        Self {
            chid: U16::new(end.chid),
            eid,
            gid_ext: U64::new(end.gid_ext),
        }
    }
}

/// Header of the list of GIDs in a CONFIRM.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct GidList {
    pub(super) count: u8,
    pub(super) reserved: [u8; 3],
}

/// Parses the size in the high four bits, of which every value is legal.
fn size_class(byte: u8) -> Result<SizeClass, Malformed> {
    SizeClass::from_code(byte >> 4).ok_or(Malformed::LengthMismatch)
}
