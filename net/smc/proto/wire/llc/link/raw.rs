// SPDX-License-Identifier: GPL-2.0

//! The bytes of LLC messages about links, after the header (RFC 7609 appendices A.3.1 to A.3.4).

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

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
use crate::wire::llc::{
    NewLinkRkey,
    PeerOrder,
    RawLlcHeader, //
};
use crate::wire::SEND_LEN;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ConfirmLink {
    mac: Mac,
    gid: Gid,
    qp_num: [u8; 3],
    link_num: u8,
    uid: U32,
    max_links: u8,
    max_conns: u8,
    reserved: [u8; 8],
}

const _: () = assert!(size_of::<RawLlcHeader>() + size_of::<ConfirmLink>() == SEND_LEN);

impl ConfirmLink {
    pub(super) fn new(message: &super::ConfirmLink) -> Self {
        Self {
            mac: message.mac,
            gid: message.gid,
            qp_num: message.qp_num.to_be_bytes(),
            link_num: message.link_num.0,
            uid: U32::new(message.uid.0),
            max_links: message.limits.max_links,
            max_conns: message.limits.max_conns,
            reserved: [0; 8],
        }
    }

    pub(super) fn parse(&self, no_eye_catcher: bool) -> super::ConfirmLink {
        super::ConfirmLink {
            mac: self.mac,
            gid: self.gid,
            qp_num: QpNum::from_be_bytes(self.qp_num),
            link_num: LinkNum(self.link_num),
            uid: LinkUid(self.uid.get()),
            limits: Limits {
                max_conns: self.max_conns,
                max_links: self.max_links,
            },
            no_eye_catcher,
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AddLink {
    mac: Mac,
    reserved: [u8; 2],
    gid: Gid,
    qp_num: [u8; 3],
    link_num: u8,
    mtu: u8,
    psn: [u8; 3],
    /// Reserved, except for links over iWARP.
    listen_addr: [u8; 8],
}

const _: () = assert!(size_of::<RawLlcHeader>() + size_of::<AddLink>() == SEND_LEN);

impl AddLink {
    pub(super) fn new(link: &super::NewLink) -> Self {
        Self {
            mac: link.mac,
            reserved: [0; 2],
            gid: link.gid,
            qp_num: link.qp_num.to_be_bytes(),
            link_num: link.link_num.0,
            mtu: link.mtu.map_or(0, Mtu::code),
            psn: link.psn.to_be_bytes(),
            listen_addr: IwListenAddr::to_bytes(link.listen_addr),
        }
    }

    /// Creates an invitation, which contains only the client's port.
    pub(super) fn invitation(mac: Mac, gid: Gid) -> Self {
        Self::new(&super::NewLink {
            mac,
            gid,
            qp_num: QpNum::default(),
            link_num: LinkNum::NONE,
            mtu: None,
            psn: Psn::default(),
            listen_addr: None,
        })
    }

    pub(super) fn parse(&self) -> super::NewLink {
        super::NewLink {
            mac: self.mac,
            gid: self.gid,
            qp_num: QpNum::from_be_bytes(self.qp_num),
            link_num: LinkNum(self.link_num),
            mtu: Mtu::from_code(self.mtu & 0x0f),
            psn: Psn::from_be_bytes(self.psn),
            listen_addr: IwListenAddr::of(self.listen_addr),
        }
    }
}

/// Additions of version 2, before the keys.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AddLinkV2 {
    direct: u8,
    reserved: u8,
    pub(super) target_gid: Gid,
    reserved2: [u8; 8],
    count: [u8; 2],
}

const _: () = assert!(size_of::<AddLinkV2>() == 28);

impl AddLinkV2 {
    const DIRECT: u8 = 0x80;

    pub(super) fn new(message: &super::AddLinkV2<'_>, order: PeerOrder) -> Self {
        Self {
            direct: if message.direct { Self::DIRECT } else { 0 },
            reserved: 0,
            target_gid: message.target_gid,
            reserved2: [0; 8],
            count: order.count(message.rkeys.count()),
        }
    }

    pub(super) const fn is_direct(&self) -> bool {
        self.direct & Self::DIRECT != 0
    }
}

/// ADD_LINK_CONT before its keys.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AddLinkCont {
    pub(super) link_num: u8,
    /// Keys here and in later messages.
    pub(super) remaining: u8,
    pub(super) reserved: [u8; 2],
}

const _: () = assert!(
    size_of::<RawLlcHeader>() + size_of::<AddLinkCont>() + 2 * size_of::<NewLinkRkey>() + 4
        == SEND_LEN
);

/// DELETE_LINK before its reserved bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DeleteLink {
    pub(super) link_num: u8,
    pub(super) reason: U32,
}

const _: () = assert!(size_of::<RawLlcHeader>() + size_of::<DeleteLink>() + 35 == SEND_LEN);

/// REQ_ADD_LINK before its GIDs.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ReqAddLink {
    pub(super) reserved: [u8; 20],
    pub(super) count: u8,
    pub(super) reserved2: [u8; 3],
}

pub(super) const REQ_ADD_LINK_HEAD: usize = size_of::<RawLlcHeader>() + size_of::<ReqAddLink>();
const _: () = assert!(REQ_ADD_LINK_HEAD == 28);
