// SPDX-License-Identifier: GPL-2.0

//! The choices of the handshake, as functions of both sides' messages.

use super::RELEASE;
use crate::error::PeerIncompatible;
use crate::id::Ipv4;
use crate::lgr;
use crate::reason::Reason;
use crate::wire::clc::{
    IpPrefix,
    Ipv6Prefix,
    Limits,
    Release, //
};

/// An address of the interface that the TCP connection uses, with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4 {
        /// The address, with or without its host part.
        address: Ipv4,
        /// Length of the mask in bits.
        len: u8,
    },
    /// IPv6. The caller leaves link-local ones out.
    V6 {
        /// The address, with or without its host part.
        address: [u8; 16],
        /// Length of the prefix in bits.
        len: u8,
    },
}

impl Address {
    /// Whether the client's PROPOSAL names the subnet of this address: of the same family,
    /// with a mask of the same length and with equal bits.
    pub fn is_in(&self, offered: &IpPrefix<'_>) -> bool {
        match (self, offered) {
            (
                Self::V4 { address, len },
                IpPrefix::V4 {
                    subnet,
                    len: theirs,
                },
            ) => len == theirs && address.masked(*len) == subnet.masked(*len),
            (Self::V6 { address, len }, IpPrefix::V6(prefixes)) => prefixes.iter().any(|prefix| {
                *len == prefix.len && masked_v6(*address, *len) == masked_v6(prefix.address, *len)
            }),
            (Self::V4 { .. } | Self::V6 { .. }, _) => false,
        }
    }
}

impl Ipv6Prefix {
    /// The prefix of an address, of that length in bits.
    pub const fn of(address: [u8; 16], len: u8) -> Self {
        Self {
            address: masked_v6(address, len).to_be_bytes(),
            len,
        }
    }
}

/// Clears the host part of an IPv6 address.
const fn masked_v6(address: [u8; 16], len: u8) -> u128 {
    // CAST: u8 to u32 in a const fn.
    let host_bits = 128u32.saturating_sub(len as u32);
    let mask = match u128::MAX.checked_shl(host_bits) {
        Some(mask) => mask,
        None => 0,
    };
    u128::from_be_bytes(address) & mask
}

/// Chooses the release for a client that offers `offered`: the newest that both speak.
pub fn release(offered: Release) -> Release {
    offered.min(RELEASE)
}

/// Chooses the limits at the server: the lower of both sides'.
///
/// # Errors
///
/// [`PeerIncompatible::MaxConns`] and [`PeerIncompatible::MaxLinks`] decline the whole connection,
/// even if version 1 would be possible.
pub fn limits(offered: Limits, own: Limits) -> Result<Limits, PeerIncompatible> {
    let chosen = Limits {
        max_conns: offered.max_conns.min(own.max_conns),
        max_links: offered.max_links.min(own.max_links),
    };
    if chosen.max_conns < lgr::MIN_CONNS {
        return Err(PeerIncompatible::MaxConns);
    }
    if chosen.max_links < lgr::MIN_LINKS {
        return Err(PeerIncompatible::MaxLinks);
    }
    Ok(chosen)
}

/// Checks, at the client, the limits that the server chose.
///
/// More connections than offered are accepted: the server alone counts them. More links are not.
///
/// # Errors
///
/// [`PeerIncompatible::MaxConns`] and [`PeerIncompatible::MaxLinks`].
pub fn check_limits(chosen: Limits, offered: Limits) -> Result<Limits, PeerIncompatible> {
    if chosen.max_conns < lgr::MIN_CONNS {
        return Err(PeerIncompatible::MaxConns);
    }
    if chosen.max_links < lgr::MIN_LINKS || chosen.max_links > offered.max_links {
        return Err(PeerIncompatible::MaxLinks);
    }
    Ok(chosen)
}

/// How packets of a link in version 2 reach the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Within the subnet, to the Ethernet address of the peer's port.
    Direct,
    /// Through a gateway, to the Ethernet address of the next hop.
    Gateway,
}

/// Decides, at the client, how to reach a server that has sent whether it reaches us directly.
///
/// `route` is the local lookup of the server's address, needed only if it does
/// not: `None` without route or neighbour, else the path of the route.
///
/// # Errors
///
/// [`Reason::NoRoute`] and [`Reason::NoIndirect`].
pub fn path(is_direct: bool, route: impl FnOnce() -> Option<Route>) -> Result<Route, Reason> {
    if is_direct {
        return Ok(Route::Direct);
    }
    match route() {
        None => Err(Reason::NoRoute),
        Some(Route::Direct) => Err(Reason::NoIndirect),
        Some(Route::Gateway) => Ok(Route::Gateway),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::wire::List;

    const fn lim(max_conns: u8, max_links: u8) -> Limits {
        Limits {
            max_conns,
            max_links,
        }
    }

    #[test]
    fn subnets_match_by_family_length_and_bits() {
        let have = |last, len| Address::V4 {
            address: Ipv4([10, 0, 0, last]),
            len,
        };
        let offered = |last, len| IpPrefix::V4 {
            subnet: Ipv4([10, 0, 0, last]),
            len,
        };
        assert!(have(1, 24).is_in(&offered(0, 24)));
        assert!(!have(1, 24).is_in(&offered(0, 25)));
        assert!(!have(1, 32).is_in(&offered(2, 32)));
        assert!(have(1, 0).is_in(&offered(99, 0)));
        assert!(!have(1, 24).is_in(&IpPrefix::V6(List::EMPTY)));
    }

    #[test]
    fn one_of_several_prefixes_is_enough() {
        let address = |last| [0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let have = |last, len| Address::V6 {
            address: address(last),
            len,
        };
        let list = [
            Ipv6Prefix {
                address: [9; 16],
                len: 64,
            },
            Ipv6Prefix {
                address: address(0),
                len: 64,
            },
        ];
        let offered = IpPrefix::V6(List::new(&list).unwrap());
        assert!(have(7, 64).is_in(&offered));
        assert!(!have(7, 65).is_in(&offered));
        assert!(!have(7, 64).is_in(&IpPrefix::V6(List::EMPTY)));
    }

    #[test]
    fn the_lower_limit_counts_and_has_a_floor() {
        assert_eq!(limits(lim(255, 2), lim(100, 1)), Ok(lim(100, 1)));
        assert_eq!(limits(lim(16, 1), lim(255, 8)), Ok(lim(16, 1)));
        assert_eq!(
            limits(lim(15, 1), lim(255, 2)),
            Err(PeerIncompatible::MaxConns)
        );
        assert_eq!(
            limits(lim(255, 0), lim(255, 2)),
            Err(PeerIncompatible::MaxLinks)
        );
    }

    #[test]
    fn a_server_may_lower_links_but_not_raise_them() {
        assert_eq!(check_limits(lim(16, 1), lim(255, 2)), Ok(lim(16, 1)));
        assert_eq!(check_limits(lim(255, 1), lim(64, 1)), Ok(lim(255, 1)));
        assert_eq!(
            check_limits(lim(15, 1), lim(255, 2)),
            Err(PeerIncompatible::MaxConns)
        );
        assert_eq!(
            check_limits(lim(64, 2), lim(255, 1)),
            Err(PeerIncompatible::MaxLinks)
        );
        assert_eq!(
            check_limits(lim(64, 0), lim(255, 1)),
            Err(PeerIncompatible::MaxLinks)
        );
    }

    #[test]
    fn a_detour_that_only_the_server_sees_is_declined() {
        assert_eq!(path(true, || None), Ok(Route::Direct));
        assert_eq!(path(false, || None), Err(Reason::NoRoute));
        assert_eq!(path(false, || Some(Route::Direct)), Err(Reason::NoIndirect));
        assert_eq!(path(false, || Some(Route::Gateway)), Ok(Route::Gateway));
    }
}
