// SPDX-License-Identifier: GPL-2.0

//! Which links make a group more redundant: what the server offers, what the client accepts, and which link is
//! superfluous (RFC 7609 sections 2.2.2 and 4.4.3; C functions `smc_llc_cli_add_link`, `smc_llc_srv_add_link`,
//! `smc_llc_find_asym_link`).
//!
//! A further link is worth its queue pair if it has a port that no other link of the group has, on either side. The C
//! module compares with one link only and is limited to two; here all links are compared, so two hosts with eight ports
//! each get eight links.

use super::{
    LgrType,
    LinkIdx,
    LinkMap,
    MAX_LINKS, //
};
use crate::id::{
    Gid,
    Mac, //
};
use crate::wire::llc::RejectReason;

/// A port of an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its GID.
    pub gid: Gid,
    /// Its Ethernet address; [`Mac::NONE`] in version 2, where it is not compared.
    pub mac: Mac,
}

/// The two ports of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPorts {
    /// Ours.
    pub local: Port,
    /// The peer's.
    pub peer: Port,
}

/// The active links of a group, by index.
pub type ActiveLinks = LinkMap<Option<LinkPorts>>;

/// Our port for a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// One that no link of the group uses.
    Unused,
    /// One that a link of the group uses, by which the peer is reached.
    Same,
}

impl LgrType {
    /// Returns the kind of a group with these active links.
    pub fn of(links: &ActiveLinks) -> Self {
        let mut all = links.iter().flatten();
        let Some(first) = all.next() else {
            return Self::None;
        };
        let others = || links.iter().flatten();
        if all.next().is_none() {
            Self::Single
        } else if others().any(|a| others().any(|b| a.local != b.local && a.peer != b.peer)) {
            Self::Symmetric
        } else if others().all(|link| link.local == first.local) {
            Self::AsymmetricLocal
        } else {
            Self::AsymmetricPeer
        }
    }
}

/// Returns true if another link may be added. An asymmetric link may exceed the limit briefly: it is deleted when the
/// link that replaces it is active.
pub fn has_room(links: &ActiveLinks, max_links: u8) -> bool {
    let count = links.iter().flatten().count();
    let limit = usize::from(max_links).min(MAX_LINKS);
    match LgrType::of(links) {
        LgrType::None => false,
        LgrType::Single | LgrType::Symmetric => count < limit,
        LgrType::AsymmetricPeer | LgrType::AsymmetricLocal => count <= limit && count < MAX_LINKS,
    }
}

/// Returns true if a port of ours that became active calls for another link. Not if the peer has one port only.
pub fn wants_link(links: &ActiveLinks, max_links: u8) -> bool {
    LgrType::of(links) != LgrType::AsymmetricPeer && has_room(links, max_links)
}

/// Why the server considers another link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddLinkTrigger {
    /// The group got its first link, a port became active, or a link was lost.
    OwnPort,
    /// The client has announced a port for it.
    Invitation,
}

/// Returns which port the server offers; `None` for no offer.
///
/// A second link on a port already in use keeps connections alive if the client has another port. This is possible for
/// the second link of a group, and if the client had one port and announces a second.
pub fn offer(
    links: &ActiveLinks,
    max_links: u8,
    has_unused: bool,
    why: AddLinkTrigger,
) -> Option<PortChoice> {
    let may_share = match (LgrType::of(links), why) {
        (LgrType::Single, _) | (LgrType::AsymmetricPeer, AddLinkTrigger::Invitation) => true,
        (LgrType::AsymmetricPeer, AddLinkTrigger::OwnPort) => false,
        (LgrType::None | LgrType::Symmetric | LgrType::AsymmetricLocal, _) => false,
    };
    let which = match has_unused {
        true => Some(PortChoice::Unused),
        false => may_share.then_some(PortChoice::Same),
    };
    which.filter(|_| has_room(links, max_links))
}

/// Decides the client's answer to an offer of the peer's `port`.
///
/// # Errors
///
/// The reason for the rejection, which is sent to the server.
pub fn answer(
    links: &ActiveLinks,
    max_links: u8,
    port: Port,
    has_unused: bool,
) -> Result<PortChoice, RejectReason> {
    let is_known = links.iter().flatten().any(|link| link.peer == port);
    let kind = LgrType::of(links);
    let is_useful = match (is_known, has_unused) {
        (false, true) => true,
        // Asymmetric, or the end of that: one of the links on the shared port is superfluous then.
        (false, false) => matches!(kind, LgrType::Single | LgrType::AsymmetricPeer),
        (true, true) => matches!(kind, LgrType::Single | LgrType::AsymmetricLocal),
        (true, false) => false,
    };
    match has_unused {
        _ if !is_useful || !has_room(links, max_links) => Err(RejectReason::NO_ALTERNATE_PATH),
        true => Ok(PortChoice::Unused),
        false => Ok(PortChoice::Same),
    }
}

/// Returns the index of a link that the server deletes because other links use both its ports.
pub fn superfluous(links: &ActiveLinks) -> Option<LinkIdx> {
    let is_superfluous = |&(idx, ends): &(LinkIdx, &LinkPorts)| {
        let others = || links.present().filter(move |(at, _)| *at != idx);
        others().any(|(_, link)| link.local == ends.local)
            && others().any(|(_, link)| link.peer == ends.peer)
    };
    Some(links.present().find(is_superfluous)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u8) -> Port {
        Port {
            gid: Gid([number; 16]),
            mac: Mac::NONE,
        }
    }

    /// Links between our port and the peer's.
    fn links(ends: &[(u8, u8)]) -> ActiveLinks {
        let mut links = ActiveLinks::default();
        for (link, (local, peer)) in links.0.iter_mut().zip(ends) {
            *link = Some(LinkPorts {
                local: port(*local),
                peer: port(*peer),
            });
        }
        links
    }

    #[test]
    fn the_ports_of_the_links_make_the_kind() {
        let cases: [(&[(u8, u8)], LgrType); 7] = [
            (&[], LgrType::None),
            (&[(1, 1)], LgrType::Single),
            (&[(1, 1), (2, 2)], LgrType::Symmetric),
            (&[(1, 1), (1, 2)], LgrType::AsymmetricLocal),
            (&[(1, 1), (2, 1)], LgrType::AsymmetricPeer),
            (&[(1, 1), (1, 2), (2, 2)], LgrType::Symmetric),
            (&[(1, 1), (2, 2), (3, 3)], LgrType::Symmetric),
        ];
        for (ends, kind) in cases {
            assert_eq!(LgrType::of(&links(ends)), kind, "{ends:?}");
        }
    }

    #[test]
    fn what_a_server_sees_as_its_own_lack_the_client_sees_as_the_peers() {
        for ends in [(1, 2), (2, 1)] {
            let here = LgrType::of(&links(&[(1, 1), ends]));
            let there = LgrType::of(&links(&[(1, 1), (ends.1, ends.0)]));
            assert!(here.is_asymmetric() && there.is_asymmetric() && here != there);
        }
    }

    #[test]
    fn a_server_offers_a_port_of_its_own_or_a_second_link_on_the_only_one() {
        use AddLinkTrigger::{Invitation, OwnPort};
        let single = links(&[(1, 1)]);
        assert_eq!(offer(&single, 2, true, OwnPort), Some(PortChoice::Unused));
        assert_eq!(offer(&single, 2, false, OwnPort), Some(PortChoice::Same));
        assert_eq!(offer(&single, 1, true, OwnPort), None);
        let symmetric = links(&[(1, 1), (2, 2)]);
        assert_eq!(offer(&symmetric, 2, true, OwnPort), None);
        assert_eq!(
            offer(&symmetric, 8, true, OwnPort),
            Some(PortChoice::Unused)
        );
        assert_eq!(offer(&symmetric, 8, false, OwnPort), None);
        let local = links(&[(1, 1), (1, 2)]);
        assert_eq!(offer(&local, 2, true, OwnPort), Some(PortChoice::Unused));
        assert_eq!(offer(&local, 2, false, OwnPort), None);
        assert_eq!(offer(&links(&[]), 2, true, OwnPort), None);
        let peer = links(&[(1, 1), (2, 1)]);
        assert_eq!(offer(&peer, 2, false, OwnPort), None);
        assert_eq!(offer(&peer, 2, false, Invitation), Some(PortChoice::Same));
    }

    #[test]
    fn a_client_accepts_what_brings_a_port_to_the_group() {
        let single = links(&[(1, 1)]);
        let no = Err(RejectReason::NO_ALTERNATE_PATH);
        assert_eq!(answer(&single, 2, port(2), true), Ok(PortChoice::Unused));
        assert_eq!(answer(&single, 2, port(2), false), Ok(PortChoice::Same));
        assert_eq!(answer(&single, 2, port(1), true), Ok(PortChoice::Unused));
        assert_eq!(answer(&single, 2, port(1), false), no);
        assert_eq!(answer(&single, 1, port(2), true), no);
        let asymmetric = links(&[(1, 1), (2, 1)]);
        assert_eq!(answer(&asymmetric, 2, port(1), true), no);
        assert_eq!(
            answer(&asymmetric, 2, port(2), true),
            Ok(PortChoice::Unused)
        );
        assert_eq!(answer(&asymmetric, 2, port(2), false), Ok(PortChoice::Same));
        let asymmetric = links(&[(1, 1), (1, 2)]);
        assert_eq!(
            answer(&asymmetric, 2, port(1), true),
            Ok(PortChoice::Unused)
        );
        assert_eq!(answer(&asymmetric, 2, port(1), false), no);
    }

    #[test]
    fn an_asymmetric_link_is_replaced_even_at_the_limit() {
        let asymmetric = links(&[(1, 1), (1, 2)]);
        assert!(has_room(&asymmetric, 2));
        let both = links(&[(1, 1), (1, 2), (2, 2)]);
        assert_eq!(LgrType::of(&both), LgrType::Symmetric);
        assert!(!has_room(&both, 2));
        assert_eq!(superfluous(&both), Some(LinkIdx::ALL[1]));
        assert_eq!(superfluous(&asymmetric), None);
        assert_eq!(superfluous(&links(&[(1, 1), (2, 2)])), None);
        assert_eq!(
            superfluous(&links(&[(1, 1), (2, 1), (2, 2)])),
            Some(LinkIdx::ALL[1])
        );
    }

    #[test]
    fn only_a_group_that_gains_by_it_looks_for_a_link() {
        assert!(wants_link(&links(&[(1, 1)]), 2));
        assert!(!wants_link(&links(&[(1, 1)]), 1));
        assert!(wants_link(&links(&[(1, 1), (1, 2)]), 2));
        assert!(!wants_link(&links(&[(1, 1), (2, 1)]), 2));
        assert!(!wants_link(&links(&[(1, 1), (2, 2)]), 2));
        assert!(wants_link(&links(&[(1, 1), (2, 2)]), 3));
    }

    #[test]
    fn eight_links_are_the_most() {
        let ends: [(u8, u8); 8] = core::array::from_fn(|i| (i as u8, i as u8));
        assert!(!has_room(&links(&ends), 255));
        assert!(has_room(&links(&ends[..7]), 255));
    }
}
