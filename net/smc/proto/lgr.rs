// SPDX-License-Identifier: GPL-2.0

//! Link groups: the links between two hosts in one role, and the state that their connections share.
//!
//! Common to all link groups: role, kind and the rules that follow from them. [`redundancy`] decides on further links,
//! [`balance`] distributes connections over links, [`find`] decides on the reuse of a link group, [`mod@end`] lists the
//! causes of its end, [`rtoken`] is the table of the peer's buffers, [`token`] numbers the connections (RFC 7609
//! sections 2 and 3; C file `smc_core.c`).

use crate::time::Duration;

pub mod balance;
pub mod end;
pub mod find;
mod link_idx;
pub mod redundancy;
pub mod rtoken;
pub mod token;

pub use end::TerminateReason;
pub use find::{LgrKey, LgrView, LinkEnd, TcpEnds};
pub use link_idx::{LinkIdx, LinkMap};
pub use redundancy::{ActiveLinks, LinkPorts, Port};
pub use rtoken::{Rtoken, RtokenIdx, Rtokens};

/// Links in a link group: the maximum of the protocol. The negotiated limit is lower.
pub const MAX_LINKS: usize = 8;

/// Default limit of links if none was negotiated (version 1 and release 0 of version 2), and the maximum of a C peer.
pub const MAX_LINKS_DEFAULT: u8 = 2;

/// Default limit of connections if none was negotiated, and the maximum.
pub const MAX_CONNS_DEFAULT: u8 = 255;

/// Lowest limit of connections that may be negotiated.
pub const MIN_CONNS: u8 = 16;

/// Lowest limit of links that may be negotiated.
pub const MIN_LINKS: u8 = 1;

/// Added on the client to the time that an unused link group is kept (C: `SMC_LGR_FREE_DELAY_CLNT`).
const CLIENT_EXTRA_TIME: Duration = Duration::from_secs(10);

/// Our side of a TCP connection, and so of the link group that it is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that connects.
    Client,
    /// The side that listens; it assigns link numbers and starts link changes.
    Server,
}

impl Role {
    /// Returns how long a link group without connections is kept, given the configured `time`. Longer on the client, so
    /// that the server, which decides about reuse, gives up first.
    pub const fn idle_time(self, time: Duration) -> Duration {
        match self {
            Self::Client => time.saturating_add(CLIENT_EXTRA_TIME),
            Self::Server => time,
        }
    }

    /// Returns the value for user space (`SMC_CLNT` and `SMC_SERV`).
    pub const fn number(self) -> u8 {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }

    /// Returns the peer's role.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Redundancy of a group's links. The values are visible to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LgrType {
    /// No active link.
    #[default]
    None = 0,
    /// One link.
    Single = 1,
    /// Links between different ports on both sides.
    Symmetric = 2,
    /// We have two ports, the peer has one.
    AsymmetricPeer = 3,
    /// We have one port, the peer has two.
    AsymmetricLocal = 4,
}

impl LgrType {
    /// Returns the value for user space.
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Single => 1,
            Self::Symmetric => 2,
            Self::AsymmetricPeer => 3,
            Self::AsymmetricLocal => 4,
        }
    }

    /// Returns true if one side uses one port for both links.
    pub const fn is_asymmetric(self) -> bool {
        matches!(self, Self::AsymmetricPeer | Self::AsymmetricLocal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gives_an_idle_group_up_first() {
        let time = Duration::from_secs(600);
        assert_eq!(Role::Server.idle_time(time), time);
        assert_eq!(Role::Client.idle_time(time), Duration::from_secs(610));
    }
}
