// SPDX-License-Identifier: GPL-2.0

//! Newtypes for everything that names something in the protocol.
//!
//! A type whose every bit pattern is legal has a public field; a type with an invariant has a
//! private one and a constructor that keeps it. None of them knows where in a message it lies:
//! that is [`crate::wire`]'s business.
//!
//! Expanded once: GID, global identifier of an RDMA port; MAC, its Ethernet address; QP, queue pair;
//! PSN, packet sequence number; RMB, remote memory buffer; RMBE, its element; EID, enterprise id.

mod bytes;
mod number;

pub use bytes::{
    Eid,
    Gid,
    Ipv4,
    Mac,
    PeerId, //
};
pub use number::{
    AlertToken,
    Features,
    LinkNum,
    LinkUid,
    Mtu,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex,
    ShortToken, //
};
