// SPDX-License-Identifier: GPL-2.0

//! State of a link group for diagnosis.

use kernel::sync::atomic::Full;
use kernel_ext::{
    prelude::*,
    ratelimit, //
};
use smc_proto::{
    id::{
        LinkNum,
        LinkUid, //
    },
    lgr::{
        LgrType,
        LinkMap, //
    },
    pnet::PnetId,
    wire::clc::{
        Hostname,
        OsType, //
    }, //
};

use super::LinkGroup;

/// What a peer sends about itself.
#[derive(Clone, Copy)]
pub(crate) struct PeerSystem {
    /// Determines the byte order of some fields of version 2, too.
    pub(crate) os: OsType,
    pub(crate) hostname: Hostname,
    /// Connections may move from a working link to another one.
    pub(crate) takes_cdc_on_any_link: bool,
    /// Immediate data of a write may take the place of a CDC message.
    pub(crate) takes_immediate: bool,
    /// The RMBEs of a connection can be replaced.
    pub(crate) replaces_rmbes: bool,
}

impl PeerSystem {
    /// A peer that has sent nothing about itself yet, or of version 1.
    pub(super) const UNKNOWN: Self = Self {
        os: OsType::LINUX,
        hostname: Hostname([0; 32]),
        takes_cdc_on_any_link: false,
        takes_immediate: false,
        replaces_rmbes: false,
    };
}

impl LinkGroup {
    /// Returns what the peer sent about itself.
    pub(crate) fn peer(&self) -> PeerSystem {
        self.inner.lock().peer
    }

    /// Returns how redundant the links are.
    /// Context: does not sleep.
    pub(crate) fn kind(&self) -> LgrType {
        LgrType::of(&self.ports())
    }

    /// Logs how redundant the links are, if that has changed (C function `smcr_lgr_set_type`, with whose lines
    /// administrators watch for lost redundancy).
    /// Context: does not sleep.
    pub(crate) fn log_type(&self) {
        let kind = self.kind();
        let code = kind.code().into();
        if self.logged_type.xchg(code, Full) == code || !ratelimit::links() {
            return;
        }
        let text = match kind {
            LgrType::None => "NONE",
            LgrType::Single => "SINGLE",
            LgrType::Symmetric => "SYMMETRIC",
            LgrType::AsymmetricPeer => "ASYMMETRIC_PEER",
            LgrType::AsymmetricLocal => "ASYMMETRIC_LOCAL",
        };
        let links = self.links();
        let pnetid = links.iter().flatten().find_map(|link| link.port().pnetid);
        let pnetid = pnetid.as_ref().map_or(&[][..], PnetId::as_bytes);
        pr_warn!(
            "SMC-R lg {:08x} net {} state changed: {text}, pnetid {}\n",
            self.id,
            self.params.net_cookie,
            core::str::from_utf8(pnetid).unwrap_or("?")
        );
    }

    /// Returns the number of connections on each link, by index.
    /// Context: does not sleep.
    pub(crate) fn loads(&self) -> LinkMap<usize> {
        *self.inner.lock().conns.loads()
    }

    /// Returns the UID that we assign to a link of the group and send to the peer.
    pub(crate) fn link_uid(&self, number: LinkNum) -> LinkUid {
        LinkUid(self.id.wrapping_add(number.0.into()))
    }
}
