// SPDX-License-Identifier: GPL-2.0

//! What is to be known of the two ends of a link, and why one breaks.

use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::ib::{
    self,
    Device, //
};
use smc_proto::{
    id::{
        Gid,
        LinkNum,
        LinkUid,
        Mac,
        Mtu,
        Psn,
        QpNum, //
    },
    link::State,
    pnet::PnetId,
    wire::clc::SmcR, //
};

/// Why a link is broken.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// A work request could not be posted.
    Post,
    /// A message, or the data before it, did not arrive.
    Send(ib::Status),
    /// A receive ended without a message.
    Receive(ib::Status),
    /// The registration of memory did not end in time.
    Register,
    /// The peer did not answer when the link was tested.
    Silence,
    /// Its port does not work any more, or is gone.
    Port,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post => f.write_str("cannot post to its queues"),
            Self::Send(status) => f.write_fmt(fmt!("a send ended with: {status}")),
            Self::Receive(status) => f.write_fmt(fmt!("a receive ended with: {status}")),
            Self::Register => f.write_str("memory was not registered in time"),
            Self::Silence => f.write_str("the peer does not answer"),
            Self::Port => f.write_str("its port is gone"),
        }
    }
}

/// The peer's end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerEnd {
    pub(crate) qp: QpNum,
    pub(crate) gid: Gid,
    pub(crate) mac: Mac,
    pub(crate) psn: Psn,
    /// The lower of both sides' path MTUs.
    pub(crate) mtu: Mtu,
}

impl PeerEnd {
    /// The end that a peer named in the handshake.
    pub(crate) fn of(peer: &SmcR, mtu: Mtu) -> Self {
        Self {
            qp: peer.qp_num,
            gid: peer.gid,
            mac: peer.mac,
            psn: peer.psn,
            mtu,
        }
    }
}

/// What administrators see of a link.
pub(crate) struct Facts {
    pub(crate) number: LinkNum,
    pub(crate) state: State,
    /// Gone once the link is down.
    pub(crate) device: Option<Arc<Device>>,
    pub(crate) peer_gid: Gid,
    pub(crate) peer_uid: LinkUid,
}

/// Facts of our port.
#[derive(Clone, Copy)]
pub(crate) struct PortFacts {
    pub(crate) port: u32,
    pub(crate) gid: Gid,
    pub(crate) sgid_index: u8,
    pub(crate) mac: Mac,
    pub(crate) mtu: Mtu,
    pub(crate) next_hop: Option<Mac>,
    /// The physical network that it is on, if that has a name.
    pub(crate) pnetid: Option<PnetId>,
}
