// SPDX-License-Identifier: GPL-2.0

//! Parameters of a link group, fixed at first contact.

use kernel_ext::{
    ib::BlockKind,
    net::{
        NetNsId,
        Sk, //
    }, //
};
use smc_proto::{
    id::{
        Eid,
        PeerId, //
    },
    lgr::{
        Role,
        TcpEnds, //
    },
    time::Duration,
    wire::{
        clc::{
            Limits,
            Release, //
        },
        Version, //
    }, //
};

use crate::{
    link::LinkConfig,
    namespace, //
};

/// What both sides agreed on at first contact, and our settings at that time.
#[derive(Clone, Copy)]
pub(crate) struct LgrParams {
    pub(crate) role: Role,
    pub(crate) version: Version,
    /// Release of version 2.
    pub(crate) release: Release,
    pub(crate) limits: Limits,
    pub(crate) peer: PeerId,
    /// VLAN of the group, 0 for none.
    pub(crate) vlan: u16,
    /// The EID that both sides have, in version 2.
    pub(crate) eid: Option<Eid>,
    /// No gateway is between the two hosts.
    pub(crate) is_direct: bool,
    /// The TCP connection of the first contact.
    pub(crate) ends: TcpEnds,
    /// Cookie of the network namespace in which the group was created.
    pub(crate) net_cookie: u64,
    pub(crate) times: LgrTimeouts,
    /// The kind of its buffers.
    pub(crate) buf_type: BlockKind,
    /// Settings of its links.
    pub(crate) link: LinkConfig,
    /// The network namespace of the first connection.
    pub(crate) net: NetNsId,
}

impl LgrParams {
    /// Returns whether the group is with the same peer at the same address as another, for the same namespace.
    pub(crate) fn is_same_peer(&self, other: &Self) -> bool {
        self.peer == other.peer
            && self.ends.peer == other.ends.peer
            && self.ends.scope == other.ends.scope
            && self.ends.namespace == other.ends.namespace
    }
}

/// Longest idle time of a group while one of its links holds its network namespace, other than the initial one.
const NETNS_HOLD_MAX: Duration = Duration::from_secs(5);

/// Our time settings when the group was created.
#[derive(Clone, Copy)]
pub(crate) struct LgrTimeouts {
    /// Time without messages after which a link is tested; zero for never.
    pub(crate) test_after: Duration,
    /// Time without connections after which the group ends.
    pub(crate) idle: Duration,
    /// The same while a link holds its network namespace.
    pub(crate) idle_holding_netns: Duration,
    /// Time without connections after which an RMB is freed.
    pub(crate) unused: Duration,
}

impl LgrTimeouts {
    /// Returns the settings of the socket's namespace.
    pub(crate) fn of(sk: &Sk, role: Role) -> Self {
        let namespace = namespace::of(sk);
        let config = &namespace.config;
        let kept = namespace::idle_time(sk);
        let idle = role.idle_time(kept);
        Self {
            test_after: config.test_after(),
            idle,
            idle_holding_netns: match sk.netns().is_initial() {
                true => idle,
                false => idle.min(role.idle_time(NETNS_HOLD_MAX)),
            },
            unused: kept.div(10),
        }
    }
}
