// SPDX-License-Identifier: GPL-2.0

//! Conditions for the reuse of an existing link group by a new connection.
//!
//! The server decides, and signals it by the first contact flag of its ACCEPT; the client must find the same group or
//! report that the two are out of sync (RFC 7609 section 3.5.2; C functions `smc_conn_create`, `smcr_lgr_match`).

use core::net::IpAddr;

use super::{LinkIdx, LinkMap, Role, MAX_LINKS};
use crate::id::{Gid, Mac, PeerId, QpNum};
use crate::link;
use crate::time::{Duration, Instant};

/// Addresses of a handshake's TCP connection. A peer can forge the contents of handshake messages; these addresses were
/// verified by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEnds {
    /// Our network namespace, by its unique cookie (`SO_NETNS_COOKIE`).
    pub namespace: u64,
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub peer: IpAddr,
    /// Interface index for link-local addresses, otherwise 0.
    pub scope: u32,
}

impl TcpEnds {
    /// Returns true if a connection between these ends may use the link group whose first contact was between `first`.
    ///
    /// Groups are not shared between our namespaces or between addresses of the peer. The server also separates its own
    /// addresses: the client identifies the server by them and would not find the group otherwise.
    pub fn may_join(&self, role: Role, first: &Self) -> bool {
        self.namespace == first.namespace
            && self.peer == first.peer
            && self.scope == first.scope
            && (role == Role::Client || self.local == first.local)
    }

    /// Returns the instance id that we name to the peer (RFC 7609 appendix A.2.1), from random numbers of this host.
    ///
    /// A C server offers a group to every client of the same peer id and port, whatever the addresses. So what a client
    /// does not share, as [`TcpEnds::may_join`] says, has another instance id. Two of them may still have the same by
    /// chance: then the client declines, as long as the other group lives.
    pub fn instance(&self, secret: [u8; 8]) -> [u8; 2] {
        let peer = match self.peer {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let parts = secret
            .into_iter()
            .chain(self.namespace.to_be_bytes())
            .chain(self.scope.to_be_bytes())
            .chain(peer.octets());
        // FNV-1a.
        let hash = parts.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
        [a ^ c ^ e ^ g, b ^ d ^ f ^ h]
    }
}

/// Properties of the link group that a handshake requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LgrKey {
    /// The peer's system identifier.
    pub peer: PeerId,
    /// The peer's port: from the PROPOSAL at the server, from the ACCEPT at the client.
    pub peer_gid: Gid,
    /// The peer's Ethernet address if it is compared: in version 1 only.
    pub peer_mac: Option<Mac>,
    /// The queue pair that the server named; set at the client, `None` at the server.
    pub peer_qp: Option<QpNum>,
    /// VLAN of the connection, 0 for none.
    pub vlan: u16,
    /// The TCP connection.
    pub ends: TcpEnds,
}

impl LgrKey {
    /// Returns our role in the link group.
    pub const fn role(&self) -> Role {
        match self.peer_qp {
            Some(_) => Role::Client,
            None => Role::Server,
        }
    }
}

/// The properties of a link group that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct LgrView<'a> {
    /// Our role in it.
    pub role: Role,
    /// The peer's system identifier.
    pub peer: PeerId,
    /// VLAN of the group, 0 for none.
    pub vlan: u16,
    /// Addresses of the TCP connection of its first contact.
    pub ends: TcpEnds,
    /// Room for another connection: below the limit, and with a free row for its buffer.
    pub has_room: bool,
    /// Its links.
    pub links: &'a LinkEnds,
}

/// The links of a group by index, in any state.
pub type LinkEnds = LinkMap<Option<LinkEnd>>;

/// The peer's side of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    /// State of the link.
    pub state: link::LinkState,
    /// Whether the namespace of the new connection may use the link's device.
    pub is_visible: bool,
    /// The peer's queue pair.
    pub peer_qp: QpNum,
    /// The peer's port.
    pub peer_gid: Gid,
    /// The Ethernet address of the peer's port.
    pub peer_mac: Mac,
}

impl LinkEnd {
    /// Returns true if the handshake names this end, whatever the link's state.
    pub fn is_named_by(&self, wanted: &LgrKey) -> bool {
        wanted.peer_qp.is_none_or(|qp| qp == self.peer_qp)
            && wanted.peer_gid == self.peer_gid
            && wanted.peer_mac.is_none_or(|mac| mac == self.peer_mac)
    }

    /// Returns true if both have the same queue pair of the peer. A queue pair number is unique within a device at a
    /// time.
    pub fn is_same_queue_pair(&self, other: &Self) -> bool {
        self.peer_qp == other.peer_qp && self.peer_gid == other.peer_gid
    }
}

impl LgrView<'_> {
    /// Returns true if the new connection uses this group.
    ///
    /// The client does not check for room: the server has done so. An active link whose device the namespace may not
    /// use excludes the group, unless an earlier link matched.
    pub fn matches(&self, wanted: &LgrKey) -> bool {
        self.is_with(wanted)
            && (self.role == Role::Client || self.has_room)
            && self.has_link(wanted)
            && wanted.ends.may_join(self.role, &self.ends)
    }

    /// Returns true if the handshake names a link of this group, or one of its `former` links, whether or not the
    /// connection can use it: the link is going, the group is full, or it is for other TCP connections. Then a client
    /// declines with [`crate::reason::Reason::NoServerLink`]: out of sync would end the group of its other users.
    pub fn is_named(&self, former: &FormerLinks, wanted: &LgrKey, now: Instant) -> bool {
        let mut links = self.links.iter().flatten();
        self.is_with(wanted)
            && (links.any(|link| link.is_named_by(wanted)) || former.has(wanted, now))
    }

    fn is_with(&self, wanted: &LgrKey) -> bool {
        self.role == wanted.role() && self.peer == wanted.peer && self.vlan == wanted.vlan
    }

    fn has_link(&self, wanted: &LgrKey) -> bool {
        let links = self.links.iter().flatten();
        links
            .filter(|link| link.state.is_active())
            .take_while(|link| link.is_visible)
            .any(|link| link.is_named_by(wanted))
    }
}

/// The peer's sides of the links that a group has lost last. An ACCEPT that names one of them may have been on its way
/// when the two ends agreed on its deletion.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormerLinks([Option<(LinkEnd, Instant)>; MAX_LINKS]);

impl FormerLinks {
    /// How long one counts: a client does not wait longer for an ACCEPT.
    pub(crate) const KEPT: Duration = Duration::from_secs(6);

    /// Notes that the link to `end` goes at `now`.
    pub fn note(&mut self, end: LinkEnd, now: Instant) {
        self.0.rotate_right(1);
        if let Some(newest) = self.0.first_mut() {
            *newest = Some((end, now));
        }
    }

    /// Returns true if the handshake names one that was there a short time before `now`.
    fn has(&self, wanted: &LgrKey, now: Instant) -> bool {
        let mut links = self.0.iter().flatten();
        links.any(|(end, gone)| end.is_named_by(wanted) && now.saturating_since(*gone) < Self::KEPT)
    }
}

/// Returns the index of the link that the server named, for a client that reuses the group; `None` means
/// [`crate::reason::Reason::NoServerLink`].
pub fn named_link(links: &LinkEnds, wanted: &LgrKey) -> Option<LinkIdx> {
    let is_it = |link: &LinkEnd| link.state.is_active() && link.is_named_by(wanted);
    links.position(|link| link.as_ref().is_some_and(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId([1, 2, 2, 0, 0, 0, 0, 9]);

    fn end(qp: u32) -> LinkEnd {
        LinkEnd {
            state: link::LinkState::Active,
            is_visible: true,
            peer_qp: QpNum::from_low_bits(qp),
            peer_gid: Gid([7; 16]),
            peer_mac: Mac([2, 0, 0, 0, 0, 9]),
        }
    }

    fn ends() -> TcpEnds {
        TcpEnds {
            namespace: 3,
            local: [10, 0, 0, 1].into(),
            peer: [10, 0, 0, 2].into(),
            scope: 0,
        }
    }

    /// Places these links in a group, each before a gap.
    fn links(ends: &[LinkEnd]) -> LinkEnds {
        let mut links = LinkEnds::default();
        for (link, end) in links.0.iter_mut().step_by(2).zip(ends) {
            *link = Some(*end);
        }
        links
    }

    fn group(role: Role, links: &LinkEnds) -> LgrView<'_> {
        LgrView {
            role,
            peer: PEER,
            vlan: 5,
            ends: ends(),
            has_room: true,
            links,
        }
    }

    fn wanted(qp: Option<u32>) -> LgrKey {
        LgrKey {
            peer: PEER,
            peer_gid: Gid([7; 16]),
            peer_mac: Some(Mac([2, 0, 0, 0, 0, 9])),
            peer_qp: qp.map(QpNum::from_low_bits),
            vlan: 5,
            ends: ends(),
        }
    }

    /// Whether the group has a link that the handshake names, and no former ones.
    fn is_named(group: &LgrView<'_>, wanted: &LgrKey) -> bool {
        group.is_named(&FormerLinks::default(), wanted, Instant::ZERO)
    }

    #[test]
    fn every_criterion_counts() {
        let links = links(&[end(1)]);
        let server = group(Role::Server, &links);
        assert!(server.matches(&wanted(None)));

        let spoil: [fn(&mut LgrView<'_>, &mut LgrKey); 6] = [
            |g, _| g.role = Role::Client,
            |_, w| w.peer = PeerId::NONE,
            |_, w| w.vlan = 0,
            |g, _| g.has_room = false,
            |_, w| w.peer_gid = Gid::NONE,
            |_, w| w.peer_mac = Some(Mac::NONE),
        ];
        for spoil in spoil {
            let (mut group, mut wanted) = (server, wanted(None));
            spoil(&mut group, &mut wanted);
            assert!(!group.matches(&wanted), "{group:?} {wanted:?}");
        }
    }

    #[test]
    fn a_group_is_of_one_address_of_the_peer_and_one_namespace() {
        let links = links(&[end(1)]);
        type Change = fn(&mut TcpEnds);
        let changes: [(Change, bool); 4] = [
            (|ends| ends.namespace = 4, false),
            (|ends| ends.peer = [10, 0, 0, 3].into(), false),
            (|ends| ends.scope = 7, false),
            // Compared by the server only.
            (|ends| ends.local = [10, 0, 0, 3].into(), true),
        ];
        for (change, joins_as_client) in changes {
            for (role, qp) in [(Role::Server, None), (Role::Client, Some(1))] {
                let mut wanted = wanted(qp);
                change(&mut wanted.ends);
                let group = group(role, &links);
                let joins = role == Role::Client && joins_as_client;
                assert_eq!(group.matches(&wanted), joins, "{role:?} {wanted:?}");
                assert!(is_named(&group, &wanted));
            }
        }
    }

    #[test]
    fn connections_that_share_no_group_have_other_instance_ids() {
        let secret = [1, 2, 3, 4, 5, 6, 7, 8];
        let first = ends().instance(secret);
        let here = TcpEnds {
            local: [10, 0, 0, 3].into(),
            ..ends()
        };
        assert_eq!(here.instance(secret), first);
        let changes: [fn(&mut TcpEnds); 4] = [
            |ends| ends.namespace = 4,
            |ends| ends.peer = [10, 0, 0, 3].into(),
            |ends| ends.peer = "fd00::2".parse().unwrap(),
            |ends| ends.scope = 7,
        ];
        for change in changes {
            let mut other = ends();
            change(&mut other);
            assert!(!other.may_join(Role::Client, &ends()));
            assert_ne!(other.instance(secret), first, "{other:?}");
        }
        // They change when the module is loaded again.
        assert_ne!(ends().instance([0; 8]), first);
    }

    #[test]
    fn instance_ids_are_spread() {
        let mut seen = std::collections::BTreeSet::new();
        for host in 0..=255u8 {
            let peer = [10, 0, 0, host].into();
            seen.insert(TcpEnds { peer, ..ends() }.instance([9; 8]));
        }
        // Of 256 drawn from 65,536, one is drawn twice in every other run; this run is always the same.
        assert!(seen.len() >= 254, "{}", seen.len());
    }

    #[test]
    fn version_2_ignores_the_ethernet_address() {
        let links = links(&[end(1)]);
        let w = LgrKey {
            peer_mac: None,
            ..wanted(None)
        };
        assert!(group(Role::Server, &links).matches(&w));
    }

    #[test]
    fn the_client_needs_the_named_queue_pair_and_no_room() {
        let links = links(&[end(1), end(2)]);
        let mut client = group(Role::Client, &links);
        client.has_room = false;
        assert!(client.matches(&wanted(Some(2))));
        assert_eq!(named_link(&links, &wanted(Some(2))), Some(LinkIdx::ALL[2]));
        assert!(!client.matches(&wanted(Some(3))));
        assert_eq!(named_link(&links, &wanted(Some(3))), None);
    }

    #[test]
    fn only_active_links_count() {
        for state in link::LinkState::ALL {
            let links = links(&[LinkEnd { state, ..end(1) }]);
            let matches = group(Role::Client, &links).matches(&wanted(Some(1)));
            assert_eq!(matches, state == link::LinkState::Active);
        }
    }

    #[test]
    fn a_group_that_lives_is_not_out_of_sync() {
        let states = link::LinkState::ALL.into_iter();
        let going = states.map(|state| LinkEnd { state, ..end(1) });
        let hidden = LinkEnd {
            is_visible: false,
            ..end(1)
        };
        for link in going.chain([hidden]) {
            let links = links(&[link, end(2)]);
            let mut group = group(Role::Client, &links);
            for has_room in [true, false] {
                group.has_room = has_room;
                assert!(is_named(&group, &wanted(Some(1))), "{link:?}");
            }
            assert!(!is_named(&group, &wanted(Some(3))));
            let spoil: [fn(&mut LgrKey); 4] = [
                |wanted| wanted.peer = PeerId::NONE,
                |wanted| wanted.vlan = 0,
                |wanted| wanted.peer_gid = Gid::NONE,
                |wanted| wanted.peer_qp = None,
            ];
            for spoil in spoil {
                let mut wanted = wanted(Some(1));
                spoil(&mut wanted);
                assert!(!is_named(&group, &wanted), "{wanted:?}");
            }
        }
    }

    #[test]
    fn an_accept_may_name_a_link_that_went_while_it_was_on_its_way() {
        let links = links(&[end(1)]);
        let group = group(Role::Client, &links);
        let mut former = FormerLinks::default();
        let at = |secs| Instant::ZERO.saturating_add(Duration::from_secs(secs));
        let is_named = |former: &FormerLinks, qp, now| {
            assert!(!group.matches(&wanted(Some(qp))));
            group.is_named(former, &wanted(Some(qp)), now)
        };
        assert!(!is_named(&former, 2, at(10)));
        former.note(end(2), at(10));
        former.note(end(3), at(11));
        assert!(is_named(&former, 2, at(10)) && is_named(&former, 3, at(16)));
        // A queue pair that a peer made later has its number.
        assert!(!is_named(&former, 2, at(16)));
        (4..4 + MAX_LINKS as u32).for_each(|qp| former.note(end(qp), at(12)));
        assert!(!is_named(&former, 3, at(12)) && is_named(&former, 4, at(12)));
    }

    #[test]
    fn a_link_of_an_invisible_device_rules_the_group_out() {
        let hidden = LinkEnd {
            is_visible: false,
            ..end(1)
        };
        assert!(!group(Role::Client, &links(&[hidden, end(2)])).matches(&wanted(Some(2))));
        assert!(group(Role::Client, &links(&[end(2), hidden])).matches(&wanted(Some(2))));
    }
}
