// SPDX-License-Identifier: GPL-2.0

//! The states of one link: one reliable queue pair between two RDMA ports.
//!
//! A link is made during a first contact or an ADD_LINK flow, carries traffic once CONFIRM_LINK
//! went both ways on it, and goes down once (RFC 7609 section 4.4; C file `smc_core.h`,
//! `enum smc_link_state`).

pub mod credits;
pub mod device;

use crate::id::{
    Gid,
    LinkNum, //
};
use crate::wire::Version;

/// How far a link is. The numbers are visible to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LinkState {
    /// There is no link at this index.
    #[default]
    Unused = 0,
    /// The link is being taken down: nothing is sent on it any more.
    Inactive = 1,
    /// The queue pair exists, CONFIRM_LINK has not been exchanged on it.
    Activating = 2,
    /// CONFIRM_LINK has been exchanged; connections may use the link.
    Active = 3,
}

/// What carries a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RDMA over Converged Ethernet: the queue pairs are told of each other.
    Roce,
    /// RDMA over TCP: one side connects to the other.
    Iwarp,
}

impl Transport {
    /// What carries a link to the RDMA port with this GID. In version 1 that is RoCE, whatever the GID: one of RoCE v1
    /// may be any IPv6 address.
    pub const fn of(gid: Gid, version: Version) -> Self {
        match (version, gid.iwarp()) {
            (Version::V1, _) | (Version::V2, None) => Self::Roce,
            (Version::V2, Some(_)) => Self::Iwarp,
        }
    }

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Roce => Self::Iwarp,
            Self::Iwarp => Self::Roce,
        }
    }

    /// Whether RFC 7609 knows links over it, so that they may be added whoever the peer is.
    pub const fn is_standard(self) -> bool {
        matches!(self, Self::Roce)
    }
}

/// The traffic class of a link group's packets, as an administrator sets it for one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// This one.
    Fixed(u8),
    /// That of the TCP connection of the first contact.
    OfSocket,
}

impl TrafficClass {
    /// The setting that stands for [`TrafficClass::OfSocket`].
    pub const OF_SOCKET: i32 = -1;

    /// The bits that TCP uses for the explicit congestion notification of its own packets (RFC 3168).
    const ECN: u8 = 3;

    /// The class for the value of the setting: a class, or [`TrafficClass::OF_SOCKET`].
    pub fn of_setting(value: i32) -> Self {
        u8::try_from(value).map_or(Self::OfSocket, Self::Fixed)
    }

    /// The byte in the IP header of the packets, where the socket has `socket` there.
    pub const fn byte(self, socket: u8) -> u8 {
        match self {
            Self::Fixed(class) => class,
            Self::OfSocket => socket & !Self::ECN,
        }
    }
}

/// What happens to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A queue pair was made for a new link.
    Created,
    /// CONFIRM_LINK was exchanged.
    Confirmed,
    /// The link failed, or is no longer wanted.
    WentDown,
    /// The last completion arrived and the queue pair is gone.
    Cleared,
}

crate::transitions! {
    LinkState, LinkEvent;
    Unused: Created => Activating;
    Activating: Confirmed => Active;
    // From Inactive there is no way down: a link goes down once, however many completions
    // report its failure.
    Activating | Active: WentDown => Inactive;
    Inactive: Cleared => Unused;
}

impl LinkState {
    /// Every state, in the order of the numbers.
    pub const ALL: [Self; 4] = [Self::Unused, Self::Inactive, Self::Activating, Self::Active];

    /// Says whether messages may be received and, with a ready queue pair, sent.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Activating | Self::Active)
    }

    /// Says whether connections may use the link.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }

    /// Returns the number that user space sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Unused => 0,
            Self::Inactive => 1,
            Self::Activating => 2,
            Self::Active => 3,
        }
    }
}

/// Returns the number for a new link: the one after `last`, never zero and never one `in_use`.
///
/// Numbers go up and start again at 1 when exhausted, so that a late message about a link that is
/// gone does not meet a new one. `None` if all 255 are in use, which eight slots cannot do.
pub fn next_number(last: LinkNum, in_use: impl Fn(LinkNum) -> bool) -> Option<LinkNum> {
    (1..=u8::MAX)
        .map(|step| LinkNum(last.0.wrapping_add(step)))
        .chain([last])
        .find(|number| number.is_link() && !in_use(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lives_through_its_states_once() {
        let events = [
            LinkEvent::Created,
            LinkEvent::Confirmed,
            LinkEvent::WentDown,
            LinkEvent::Cleared,
        ];
        let end = events
            .iter()
            .try_fold(LinkState::Unused, |state, event| state.on(*event));
        assert_eq!(end, Some(LinkState::Unused));
    }

    #[test]
    fn a_link_goes_down_once() {
        let down = LinkState::Active.on(LinkEvent::WentDown).unwrap();
        assert_eq!(down.on(LinkEvent::WentDown), None);
        assert_eq!(down.on(LinkEvent::Confirmed), None);
        assert_eq!(LinkState::Unused.on(LinkEvent::WentDown), None);
    }

    #[test]
    fn codes_are_those_of_user_space() {
        for (code, state) in LinkState::ALL.iter().enumerate() {
            assert_eq!(usize::from(state.code()), code);
        }
    }

    #[test]
    fn a_traffic_class_is_the_one_set_or_that_of_the_socket_without_ecn() {
        for class in 0..=u8::MAX {
            let fixed = TrafficClass::of_setting(class.into());
            assert_eq!(fixed, TrafficClass::Fixed(class));
            assert_eq!(fixed.byte(!class), class);
            let of_socket = TrafficClass::of_setting(TrafficClass::OF_SOCKET);
            assert_eq!(of_socket.byte(class), class / 4 * 4);
        }
    }

    #[test]
    fn numbers_skip_zero_and_those_in_use() {
        let none = |_| false;
        assert_eq!(next_number(LinkNum::NONE, none), Some(LinkNum(1)));
        assert_eq!(next_number(LinkNum(255), none), Some(LinkNum(1)));
        assert_eq!(next_number(LinkNum(255), |n| n.0 == 1), Some(LinkNum(2)));
        assert_eq!(next_number(LinkNum(3), |n| n.0 != 3), Some(LinkNum(3)));
        assert_eq!(next_number(LinkNum(3), |_| true), None);
    }
}
