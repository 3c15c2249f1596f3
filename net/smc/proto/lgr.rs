// SPDX-License-Identifier: GPL-2.0

//! Link groups: the links between two machines in one role, and what their connections share.
//!
//! This file holds what every link group has: its role, its kind and the rules that go with them.
//! [`find`] says when a link group can be used again, [`mod@end`] why it ends, [`rtoken`] is the table
//! of the peer's buffers, [`token`] numbers the connections (RFC 7609 sections 2 and 3; C file
//! `smc_core.c`).

use crate::time::Duration;

pub mod end;
pub mod find;
pub mod rtoken;
pub mod token;

pub use end::End;
pub use find::{Candidate, LinkEnd, Wanted};
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

    /// Says whether a second link would make the group more redundant and is allowed.
    pub const fn wants_link(self, max_links: u8) -> bool {
        match self {
            Self::None => false,
            Self::Single => max_links > 1,
            Self::Symmetric | Self::AsymmetricPeer => false,
            Self::AsymmetricLocal => true,
        }
    }

    /// Returns the kind that a group has after a link went: one that loses its asymmetric link
    /// and still has two others stays as it is.
    #[must_use]
    pub const fn after_loss(self, active_links: usize, was_asymmetric: bool) -> Self {
        match active_links {
            0 => Self::None,
            1 => Self::Single,
            _ if was_asymmetric => self,
            _ => Self::Single,
        }
    }
}

/// Chooses the slot for a new link that makes the group `becoming`, among the first `slots` slots;
/// `None` if the group takes no such link now.
///
/// A symmetric link goes to the lowest free slot, an asymmetric one to the highest: it is the one
/// to be replaced when the missing port returns.
pub fn link_slot(
    now: Kind,
    becoming: Kind,
    slots: usize,
    is_unused: impl Fn(usize) -> bool,
) -> Option<usize> {
    if now == Kind::Symmetric || (now != Kind::Single && becoming.is_asymmetric()) {
        return None;
    }
    let mut slots = 0..slots.min(LINK_SLOTS);
    if becoming.is_asymmetric() {
        slots.rev().find(|slot| is_unused(*slot))
    } else {
        slots.find(|slot| is_unused(*slot))
    }
}

/// Chooses the link for a new connection among slots of which `can_carry` says whether they hold
/// a link that takes connections: active, and not tagged asymmetric. `None` if there is none.
///
/// The server deals its connections out to the links in turn; the client takes the first and is
/// moved to the one that the server named.
pub fn link_for_conn(role: Role, conns: usize, can_carry: impl Fn(usize) -> bool) -> Option<usize> {
    let mut carriers = (0..LINK_SLOTS).filter(|slot| can_carry(*slot));
    let turn = match role {
        Role::Client => 0,
        Role::Server => {
            let count = (0..LINK_SLOTS).filter(|slot| can_carry(*slot)).count();
            conns.checked_rem(count)?
        }
    };
    carriers.nth(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gives_an_idle_group_up_first() {
        assert_eq!(Role::Server.idle_time(IDLE_TIME), Duration::from_secs(600));
        assert_eq!(Role::Client.idle_time(IDLE_TIME), Duration::from_secs(610));
    }

    #[test]
    fn a_symmetric_link_takes_the_lowest_slot_and_an_asymmetric_one_the_highest() {
        let unused = |slot| slot != 0;
        assert_eq!(link_slot(Kind::Single, Kind::Symmetric, 3, unused), Some(1));
        assert_eq!(
            link_slot(Kind::Single, Kind::AsymmetricLocal, 3, unused),
            Some(2)
        );
        assert_eq!(
            link_slot(Kind::AsymmetricLocal, Kind::Symmetric, 3, unused),
            Some(1)
        );
        assert_eq!(
            link_slot(Kind::AsymmetricPeer, Kind::AsymmetricLocal, 3, unused),
            None
        );
        assert_eq!(link_slot(Kind::Symmetric, Kind::Symmetric, 3, unused), None);
        assert_eq!(link_slot(Kind::Single, Kind::Symmetric, 1, unused), None);
        assert_eq!(
            link_slot(Kind::Single, Kind::AsymmetricPeer, 99, unused),
            Some(7)
        );
    }

    #[test]
    fn the_server_deals_connections_out_in_turn() {
        let both = |slot| slot < 2;
        let one = |slot| slot == 1;
        assert_eq!(link_for_conn(Role::Server, 0, both), Some(0));
        assert_eq!(link_for_conn(Role::Server, 1, both), Some(1));
        assert_eq!(link_for_conn(Role::Server, 2, both), Some(0));
        assert_eq!(link_for_conn(Role::Server, 5, one), Some(1));
        assert_eq!(link_for_conn(Role::Client, 1, both), Some(0));
        for role in [Role::Client, Role::Server] {
            assert_eq!(link_for_conn(role, 3, |_| false), None);
        }
    }

    #[test]
    fn a_group_that_loses_links_is_single_or_none() {
        assert_eq!(Kind::Symmetric.after_loss(1, false), Kind::Single);
        assert_eq!(Kind::Symmetric.after_loss(2, true), Kind::Symmetric);
        assert_eq!(Kind::Single.after_loss(0, false), Kind::None);
    }

    #[test]
    fn only_a_group_that_gains_by_it_wants_a_link() {
        assert!(Kind::Single.wants_link(2));
        assert!(!Kind::Single.wants_link(1));
        assert!(Kind::AsymmetricLocal.wants_link(2));
        assert!(!Kind::Symmetric.wants_link(2));
        assert!(!Kind::AsymmetricPeer.wants_link(2));
    }
}
