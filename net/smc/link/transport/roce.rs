// SPDX-License-Identifier: GPL-2.0

//! Links over RoCE: each queue pair is set up with the other's parameters, and the devices do the rest. A message
//! without a posted receive is retransmitted, and a send completes when the peer has the message; so a link has no
//! further state.

use kernel_ext::{
    ib::{
        self,
        RtrAttr, //
    },
    prelude::*, //
};

use super::{
    Caps,
    TransportOps,
    TransportSetup, //
};
use crate::link::{
    IbResources,
    Link,
    PeerQp, //
};

/// Hop limit of packets through gateways.
const HOP_LIMIT: u8 = 64;

/// The transport; stateless.
pub(in crate::link) struct Roce;

impl TransportSetup for Roce {
    fn to_rtr(&self, link: &Link, resources: &IbResources, peer: &PeerQp) -> Result {
        let port = link.port();
        resources.qp.to_rtr(&RtrAttr {
            port: port.port,
            path_mtu: ib::IbMtu::from_code(peer.mtu.code()).ok_or(EINVAL)?,
            dest_qpn: peer.qp.get(),
            rq_psn: peer.psn.get(),
            dgid: peer.gid.0,
            sgid_index: port.sgid_index,
            traffic_class: link.traffic_class(),
            hop_limit: port.next_hop.map_or(1, |_| HOP_LIMIT),
            dmac: port.next_hop.unwrap_or(peer.mac).0,
        })
    }

    fn to_rts(&self, link: &Link, resources: &IbResources) -> Result {
        resources.qp.to_rts(link.psn().get())
    }
}

impl TransportOps for Roce {
    fn caps(&self) -> &'static Caps {
        &Caps {
            needs_acks: false,
            delivers_after_down: false,
            sees_peer_teardown: false,
            holds_netns: false,
            has_immediate: true,
        }
    }
}
