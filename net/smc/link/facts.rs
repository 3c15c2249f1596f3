// SPDX-License-Identifier: GPL-2.0

//! What is to be known of the two ends of a link, and why one breaks.

use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    ib::{
        self,
        Device, //
    },
    trace::LinkDown, //
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
    link::{
        State,
        Transport, //
    },
    pnet::PnetId,
    wire::clc::SmcR, //
};

use super::Handler;

/// Why a link is broken.
#[derive(Clone, Copy)]
pub(crate) enum LinkError {
    /// A work request could not be posted.
    Post,
    /// A message, or the data before it, did not arrive.
    Send(ib::Status),
    /// A receive ended without a message.
    Receive(ib::Status),
    /// The registration of memory did not end in time.
    Register,
    /// The peer did not answer when the link was tested.
    TestLinkTimeout,
    /// Its port does not work any more, or is gone.
    Port,
    /// The peer's message says nothing about credits.
    MissingTrailer,
    /// The peer does not use it any more.
    Retired,
    /// The peer's queue pair has the number of another link's: the device at the other end is not that of before.
    Replaced,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post => f.write_str("cannot post to its queues"),
            Self::Send(status) => f.write_fmt(fmt!("a send ended with: {status}")),
            Self::Receive(status) => f.write_fmt(fmt!("a receive ended with: {status}")),
            Self::Register => f.write_str("memory was not registered in time"),
            Self::TestLinkTimeout => f.write_str("the peer does not answer"),
            Self::Port => f.write_str("its port is gone"),
            Self::MissingTrailer => f.write_str("the peer does not account for its receives"),
            Self::Retired => f.write_str("the peer gave it up"),
            Self::Replaced => f.write_str("the peer's queue pair is that of another link now"),
        }
    }
}

/// Which link group it is, for those who trace links.
#[derive(Clone, Copy, Default)]
pub(crate) struct TraceLgr {
    pub(crate) address: usize,
    /// That of its network namespace.
    pub(crate) net_cookie: u64,
}

/// A link that has just gone down.
pub(super) struct LinkDownInfo {
    pub(super) handler: Option<Arc<dyn Handler>>,
    pub(super) device: Option<Arc<Device>>,
    pub(super) state: State,
}

impl LinkDownInfo {
    /// What the tracepoint shows of it.
    #[cold]
    pub(super) fn traced(&self) -> LinkDown {
        let group = self.handler.as_ref().map(|handler| handler.group());
        let group = group.unwrap_or_default();
        LinkDown {
            group: group.address,
            net_cookie: group.net_cookie,
            state: self.state.code(),
            device: self.device.as_ref().map(|device| device.name()),
        }
    }
}

/// The peer's end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerQp {
    pub(crate) qp: QpNum,
    pub(crate) gid: Gid,
    pub(crate) mac: Mac,
    pub(crate) psn: Psn,
    /// The lower of both sides' path MTUs.
    pub(crate) mtu: Mtu,
}

impl PeerQp {
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
pub(crate) struct LinkInfo {
    pub(crate) number: LinkNum,
    pub(crate) state: State,
    /// Gone once the link is down.
    pub(crate) device: Option<Arc<Device>>,
    pub(crate) peer_gid: Gid,
    pub(crate) peer_uid: LinkUid,
}

/// LinkInfo of our port.
#[derive(Clone, Copy)]
pub(crate) struct PortInfo {
    pub(crate) transport: Transport,
    pub(crate) port: u32,
    pub(crate) gid: Gid,
    pub(crate) sgid_index: u8,
    pub(crate) mac: Mac,
    pub(crate) mtu: Mtu,
    pub(crate) next_hop: Option<Mac>,
    /// The physical network that it is on, if that has a name.
    pub(crate) pnetid: Option<PnetId>,
}
