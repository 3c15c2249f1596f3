// SPDX-License-Identifier: GPL-2.0

//! What administrators see of a link group.

use smc_proto::{
    id::{
        LinkNum,
        LinkUid, //
    },
    lgr::{
        Kind,
        LINK_SLOTS, //
    },
    wire::clc::{
        Hostname,
        OsType, //
    }, //
};

use super::LinkGroup;

/// What a peer says of itself.
#[derive(Clone, Copy)]
pub(crate) struct System {
    /// Decides the byte order of some fields of version 2, too.
    pub(crate) os: OsType,
    pub(crate) hostname: Hostname,
    /// Connections may leave a link that works for another one.
    pub(crate) takes_any_link: bool,
}

impl System {
    /// Of a peer that has said nothing yet, or of version 1.
    pub(super) const UNKNOWN: Self = Self {
        os: OsType::LINUX,
        hostname: Hostname([0; 32]),
        takes_any_link: false,
    };
}

impl LinkGroup {
    /// What the peer said of itself.
    pub(crate) fn peer(&self) -> System {
        self.table.lock().peer
    }

    /// How redundant the links are. Does not sleep.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.ports())
    }

    /// Connections on each link, by slot. Does not sleep.
    pub(crate) fn loads(&self) -> [usize; LINK_SLOTS] {
        *self.table.lock().conns.loads()
    }

    /// What we call a link of the group towards the peer.
    pub(crate) fn link_uid(&self, number: LinkNum) -> LinkUid {
        LinkUid(self.id.wrapping_add(number.0.into()))
    }
}
