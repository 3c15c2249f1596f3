// SPDX-License-Identifier: GPL-2.0

//! Links over RoCE: each queue pair is set up with the other's parameters, and the devices do the rest. A message
//! without a posted receive is retransmitted, and a send completes when the peer has the message; so a link has no
//! further state.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    ib::{
        self,
        RtrAttr, //
    },
    net::NetNs, //
};
use smc_proto::{
    id::Gid,
    time::Instant,
    wire::{
        iwarp::{
            IwListenAddr,
            Nonce,
            TRAILER_LEN, //
        },
        llc::NewLink, //
    }, //
};

use super::{
    Caps,
    CreditUse,
    Setup,
    SetupError,
    TransportOps,
    TransportSetup, //
};
use crate::link::{
    IbResources,
    Link,
    LinkError,
    PeerQp,
    Sent, //
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
            path_mtu: ib::Mtu::from_code(peer.mtu.code()).ok_or(EINVAL)?,
            dest_qpn: peer.qp.get(),
            rq_psn: peer.psn.get(),
            dgid: peer.gid.0,
            sgid_index: port.sgid_index,
            hop_limit: port.next_hop.map_or(1, |_| HOP_LIMIT),
            dmac: port.next_hop.unwrap_or(peer.mac).0,
        })
    }

    fn to_rts(&self, link: &Link, resources: &IbResources) -> Result {
        resources.qp.to_rts(link.psn().get())
    }

    fn listen(&self, _: &Link, _: &NetNs, _: Gid) -> u16 {
        0
    }

    fn listen_for_server(&self, _: &Link, _: &NetNs, _: Option<Nonce>) -> Result<Option<u16>> {
        Ok(None)
    }

    fn connect_as_client(&self, _: &Arc<Link>, _: &Setup<'_>) -> Result<(), SetupError> {
        Ok(())
    }

    fn connect_as_server(&self, link: &Arc<Link>, _: &Setup<'_>) -> Result<(), SetupError> {
        Ok(link.ready_to_send()?)
    }

    fn listen_added(&self, _: &Link, _: usize) -> Result<Option<IwListenAddr>> {
        Ok(None)
    }

    fn connect_added(&self, _: &Link, _: usize, _: &NewLink) -> Result {
        Ok(())
    }

    fn close(&self) {}
}

impl TransportOps for Roce {
    fn caps(&self) -> &'static Caps {
        &Caps {
            needs_acks: false,
            delivers_after_down: false,
            sees_peer_teardown: false,
            holds_netns: false,
        }
    }

    fn take_credit(&self, _: CreditUse) -> bool {
        true
    }

    fn put_back_credit(&self) {}

    fn has_credit(&self) -> bool {
        true
    }

    fn trailer(&self) -> Option<[u8; TRAILER_LEN]> {
        None
    }

    fn on_completion(&self, sent: Sent) {
        sent.complete(true);
    }

    fn on_stop(&self) {}

    fn send_credit_update(&self, _: &Arc<Link>) -> Result {
        Ok(())
    }

    fn on_message<'b>(&self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, LinkError> {
        Ok(Some(bytes))
    }

    fn on_unread_message(&self) {}

    fn after_message(&self, _: &Arc<Link>) -> Result {
        Ok(())
    }

    fn request_ack(&self) {}

    fn schedule_ack_request(&self) -> Option<Instant> {
        None
    }

    fn ack_request_at(&self) -> Option<Instant> {
        None
    }

    fn unschedule_ack_request(&self) {}
}
