// SPDX-License-Identifier: GPL-2.0

//! Link groups: the links between two machines in one role, and what their connections share.
//!
//! This file holds what every link group has: its role, its kind and the rules that go with them.
//! [`redundancy`] says what further links are good for, [`balance`] deals the connections out to them,
//! [`find`] says when a link group can be used again, [`mod@end`] why it ends, [`rtoken`] is the table
//! of the peer's buffers, [`token`] numbers the connections (RFC 7609 sections 2 and 3; C file
//! `smc_core.c`).

use crate::time::Duration;

pub mod balance;
pub mod end;
pub mod find;
pub mod redundancy;
pub mod rtoken;
pub mod token;

pub use end::End;
pub use find::{Candidate, LinkEnd, TcpEnds, Wanted};
pub use redundancy::{Ends, Links, Port};
pub use rtoken::{RowId, Rtoken, Rtokens};

/// Slots for links in a link group: what the protocol allows. The negotiated limit is lower.
pub const LINK_SLOTS: usize = 8;

/// Links that a group has when nothing was negotiated (version 1 and release 0 of version 2), and
/// the most that a C peer takes.
pub const MAX_LINKS_DEFAULT: u8 = 2;

/// Connections that a group holds when nothing was negotiated, and the most there can be.
pub const MAX_CONNS_DEFAULT: u8 = 255;

/// The lowest limit of connections that may be negotiated.
pub const MIN_CONNS: u8 = 16;

/// The lowest limit of links that may be negotiated.
pub const MIN_LINKS: u8 = 1;

/// Time that an unused link group is kept (C: `SMC_LGR_FREE_DELAY_SERV`).
pub const IDLE_TIME: Duration = Duration::from_secs(600);

/// What the client adds to it (C: `SMC_LGR_FREE_DELAY_CLNT`).
const CLIENT_EXTRA_TIME: Duration = Duration::from_secs(10);

/// Which end of the TCP connections of a link group a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that connects.
    Client,
    /// The side that listens; it assigns link numbers and starts link changes.
    Server,
}

impl Role {
    /// Time that a link group without connections is kept for the next one, where the administrator
    /// allows `time`. The client waits longer, so that the server, which decides about reuse, gives
    /// up first.
    pub const fn idle_time(self, time: Duration) -> Duration {
        match self {
            Self::Client => time.saturating_add(CLIENT_EXTRA_TIME),
            Self::Server => time,
        }
    }

    /// Returns the number that user space gets (`SMC_CLNT` and `SMC_SERV`).
    pub const fn number(self) -> u8 {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }

    /// Returns the role at the other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How redundant the links of a group are. The numbers are visible to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// There is no active link.
    #[default]
    None = 0,
    /// There is one link.
    Single = 1,
    /// There are links between different ports on both sides.
    Symmetric = 2,
    /// We have two ports, the peer has one.
    AsymmetricPeer = 3,
    /// We have one port, the peer has two.
    AsymmetricLocal = 4,
}

impl Kind {
    /// Returns the number that user space sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Single => 1,
            Self::Symmetric => 2,
            Self::AsymmetricPeer => 3,
            Self::AsymmetricLocal => 4,
        }
    }

    /// Says whether one side uses one port for both links.
    pub const fn is_asymmetric(self) -> bool {
        matches!(self, Self::AsymmetricPeer | Self::AsymmetricLocal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gives_an_idle_group_up_first() {
        assert_eq!(Role::Server.idle_time(IDLE_TIME), Duration::from_secs(600));
        assert_eq!(Role::Client.idle_time(IDLE_TIME), Duration::from_secs(610));
    }
}
