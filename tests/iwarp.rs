// SPDX-License-Identifier: GPL-2.0
//! The handshake of a link over iWARP: offered beside RoCE or alone, chosen where nothing else will do, and
//! invisible to who does not know it.

use std::net::{
    IpAddr,
    Ipv4Addr, //
};

use smc_proto::buffer::SizeClass;
use smc_proto::error::PeerMisbehaved;
use smc_proto::handshake::client::{
    self,
    ClientCaps,
    IwarpParams,
    Proposed,
    V2Port, //
};
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::server::{
    AcceptSent,
    Chosen,
    ServerCaps, //
};
use smc_proto::handshake::{
    Failure,
    OwnInfo, //
};
use smc_proto::id::{
    AlertToken,
    Gid,
    Ipv4,
    Mac,
    Mtu,
    PeerId,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex, //
};
use smc_proto::lgr::{
    LinkEnd,
    TcpEnds, //
};
use smc_proto::link::{
    LinkState,
    Transport, //
};
use smc_proto::reason::Reason;
use smc_proto::wire::clc::{
    Accept,
    ClcMessage,
    Confirm,
    Endpoint,
    Hostname,
    Limits,
    Mode,
    SmcR,
    Vendor, //
};
use smc_proto::wire::iwarp::Nonce;
use smc_proto::wire::List;

const CLIENT: Ipv4 = Ipv4([10, 9, 0, 1]);
const SERVER: Ipv4 = Ipv4([10, 9, 0, 2]);

fn named(Ipv4(address): Ipv4) -> Gid {
    Gid::of_iwarp(address.into()).unwrap()
}
/// The TCP connection of all handshakes, as its receiver sees it.
const ENDS: TcpEnds = TcpEnds {
    namespace: 1,
    local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    scope: 0,
};
const NONCE: Nonce = Nonce(*b"nonc");
const PORT: u16 = 50_000;
const SERVER_PORT: u16 = 50_001;
const LIMITS: Limits = Limits {
    max_conns: 255,
    max_links: 2,
};

fn end(gid: Gid) -> SmcR {
    SmcR {
        peer_id: PeerId([0, 7, 2, 0, 0, 0, 0, 9]),
        gid,
        mac: Mac([2, 0, 0, 0, 0, 9]),
        qp_num: QpNum::from_low_bits(17),
        rkey: Rkey(3),
        rmbe_index: RmbeIndex::new(1).unwrap(),
        token: AlertToken(5),
        rmbe_size: SizeClass::for_bytes(65536),
        mtu: Mtu::from_code(3).unwrap(),
        rmb_addr: RemoteAddr(0x1000),
        psn: Psn::from_low_bits(9),
    }
}

/// What the client has.
#[derive(Clone, Copy)]
struct Client {
    roce: bool,
    iwarp: bool,
}

/// Proposes, and has the server judge what it read off the wire.
fn propose<R>(
    client: Client,
    server_knows: bool,
    then: impl FnOnce(Proposed<'_>, Result<Chosen, Reason>) -> R,
) -> R {
    let eids = Ueids::DEFAULT;
    let caps = ClientCaps {
        smcd: None,
        peer_id: end(Gid::NONE).peer_id,
        v1: None,
        v2: client.roce.then_some(V2Port {
            gid: Gid::from_ipv4(CLIENT),
            mac: Mac([2, 0, 0, 0, 0, 9]),
        }),
        iwarp: client.iwarp.then_some(IwarpParams {
            nonce: NONCE,
            client: named(CLIENT),
            server: named(SERVER),
        }),
        prefix: None,
        eids: List::new(eids.as_slice()).unwrap(),
        limits: LIMITS,
    };
    let (proposed, proposal) = caps.propose().unwrap();
    let mut buf = [0; 1000];
    let bytes = ClcMessage::Proposal(proposal).emit(&mut buf).unwrap();
    let Ok(ClcMessage::Proposal(read)) = ClcMessage::parse(bytes) else {
        panic!("the proposal cannot be read");
    };
    let caps = ServerCaps {
        eids: &eids,
        limits: LIMITS,
        has_ipsec: false,
        has_interface: true,
        iwarp: server_knows.then_some(named(CLIENT)),
    };
    then(proposed, caps.evaluate(&read, |_| false))
}

fn info(listener: Option<u16>) -> OwnInfo {
    OwnInfo {
        hostname: Hostname::new(b"name"),
        listener,
    }
}

fn accept(chosen: Chosen, gid: Gid) -> (AcceptSent, Accept) {
    let own = info((chosen.transport() == Transport::Iwarp).then_some(SERVER_PORT));
    let (accepted, accept) = chosen.accept(end(gid), Some((chosen.new_lgr(true), own)));
    let mut buf = [0; 1000];
    let bytes = ClcMessage::Accept(accept).emit(&mut buf).unwrap();
    assert_eq!(ClcMessage::parse(bytes), Ok(ClcMessage::Accept(accept)));
    (accepted, accept)
}

const IWARP_ALONE: Client = Client {
    roce: false,
    iwarp: true,
};

/// As far as the ACCEPT, over iWARP.
fn until_accept(then: impl FnOnce(Proposed<'_>, AcceptSent, Accept)) {
    propose(IWARP_ALONE, true, |proposed, chosen| {
        let (accepted, accept) = accept(chosen.unwrap(), named(SERVER));
        then(proposed, accepted, accept);
    });
}

/// As far as the CONFIRM.
fn until_confirm(then: impl FnOnce(AcceptSent, client::Accepted)) {
    until_accept(|proposed, accepted, accept| {
        then(
            accepted,
            proposed.on_message(&ClcMessage::Accept(accept)).unwrap(),
        );
    });
}

fn confirm(agreed: &client::Accepted, gid: Gid, port: u16) -> Confirm<'static> {
    agreed.confirm(end(gid), info(Some(port)), List::EMPTY)
}

const MISBEHAVED: PeerMisbehaved = PeerMisbehaved::ModeNotOffered;

#[test]
fn two_machines_with_iwarp_alone_agree_on_it() {
    until_confirm(|sent, accepted| {
        assert_eq!(accepted.transport(), Transport::Iwarp);
        assert_eq!(accepted.iwarp().unwrap().nonce, NONCE);
        let new = accepted.new_lgr().expect("a first contact");
        assert_eq!(new.limits.max_links, 2);
        assert_eq!(accepted.listener(), SERVER_PORT);
        let confirm = confirm(&accepted, named(CLIENT), PORT);
        let confirmed = sent.on_message(&ClcMessage::Confirm(confirm)).unwrap();
        assert_eq!(confirmed.listener(), PORT);
    });
}

#[test]
fn a_link_is_known_by_port_and_queue_pair() {
    until_confirm(|sent, accepted| {
        let confirm = confirm(&accepted, named(CLIENT), PORT);
        let confirmed = sent.on_message(&ClcMessage::Confirm(confirm)).unwrap();
        let SmcR { qp_num, mac, .. } = *confirmed.client();
        let link = |peer_qp, peer_gid| LinkEnd {
            state: LinkState::Active,
            is_visible: true,
            peer_qp,
            peer_gid,
            peer_mac: mac,
        };
        let other = QpNum::new(qp_num.get() + 1).unwrap();
        assert!(confirmed.is_on(&link(qp_num, named(CLIENT))));
        // Devices number their queue pairs alike.
        assert!(!confirmed.is_on(&link(qp_num, named(SERVER))));
        assert!(!confirmed.is_on(&link(other, named(CLIENT))));
    });
}

#[test]
fn the_server_knows_the_client_by_its_tcp_address() {
    propose(IWARP_ALONE, true, |_, chosen| {
        let chosen = chosen.unwrap();
        assert_eq!(chosen.transport(), Transport::Iwarp);
        assert_eq!(chosen.nonce(), Some(NONCE));
        assert_eq!(chosen.peer_gid(), named(CLIENT));
        assert_eq!(chosen.wanted(0, ENDS).peer_gid, named(CLIENT));
        let reason = chosen.next_without_port().err();
        assert_eq!(reason, Some(Reason::NoSmcrDevice));
    });
}

#[test]
fn roce_comes_first_and_iwarp_where_it_fails() {
    let both = Client {
        roce: true,
        iwarp: true,
    };
    propose(both, true, |proposed, chosen| {
        let chosen = chosen.unwrap();
        assert_eq!(chosen.transport(), Transport::Roce);
        assert_eq!(chosen.peer_gid(), Gid::from_ipv4(CLIENT));
        assert_eq!(chosen.new_lgr(true).limits.max_links, 2);
        let (_, over_roce) = accept(chosen, Gid::from_ipv4(SERVER));
        let agreed = proposed.on_message(&ClcMessage::Accept(over_roce)).unwrap();
        assert_eq!(agreed.transport(), Transport::Roce);

        let chosen = chosen.next_without_port().unwrap();
        assert_eq!(chosen.transport(), Transport::Iwarp);
        let (_, over_iwarp) = accept(chosen, named(SERVER));
        let agreed = proposed
            .on_message(&ClcMessage::Accept(over_iwarp))
            .unwrap();
        assert_eq!(agreed.transport(), Transport::Iwarp);
    });
}

#[test]
fn who_does_not_know_iwarp_sees_an_offer_of_a_port_without_a_way_there_or_that_of_roce() {
    propose(IWARP_ALONE, false, |_, chosen| {
        let chosen = chosen.unwrap();
        assert_eq!(chosen.transport(), Transport::Roce);
        assert_eq!(chosen.peer_gid().ipv4(), None);
        assert_eq!(chosen.next_without_port(), Err(Reason::NoSmcrDevice));
    });
    let roce = Client {
        roce: true,
        iwarp: false,
    };
    propose(roce, true, |proposed, chosen| {
        let chosen = chosen.unwrap();
        assert_eq!(chosen.next_without_port(), Err(Reason::NoSmcrDevice));
        // Other vendors' options mean nothing to a client that offered none.
        let (_, mut accept) = accept(chosen, Gid::from_ipv4(SERVER));
        if let Mode::V2 {
            first_contact: Some(first),
            ..
        } = &mut accept.mode
        {
            first.vendor_options = Vendor::Iwarp {
                port: 0,
                replaces_rmbes: false,
            }
            .options();
        }
        let agreed = proposed.on_message(&ClcMessage::Accept(accept)).unwrap();
        assert_eq!(agreed.transport(), Transport::Roce);
    });
}

#[test]
fn a_server_that_names_another_end_or_does_not_say_so_is_declined() {
    let spoil: [fn(&mut SmcR, &mut u32, &mut u8); 5] = [
        |end, _, _| end.gid = named(Ipv4([10, 9, 0, 77])),
        |end, _, _| end.gid = Gid::from_ipv4(SERVER),
        |_, options, _| *options = 0,
        // The port of some service of the machine, or of another one behind its address.
        |_, options, _| {
            *options = Vendor::Iwarp {
                port: 49_151,
                replaces_rmbes: false,
            }
            .options()
        },
        |_, _, max_links| *max_links = 3,
    ];
    for (number, spoil) in spoil.into_iter().enumerate() {
        until_accept(|proposed, _, mut accept| {
            let (Endpoint::SmcR(end), Mode::V2 { first_contact, .. }) =
                (&mut accept.endpoint, &mut accept.mode)
            else {
                panic!("not SMC-R of version 2");
            };
            let first = first_contact.as_mut().unwrap();
            let max_links = &mut first.raw_limits.max_links;
            spoil(end, &mut first.vendor_options, max_links);
            let failure = proposed
                .on_message(&ClcMessage::Accept(accept))
                .unwrap_err();
            assert!(matches!(failure, Failure::Peer(_)), "case {number}");
            assert!(failure.actions().decline.is_some(), "case {number}");
        });
    }
}

#[test]
fn a_client_has_to_name_its_own_end_and_a_port() {
    for (gid, port) in [
        (named(SERVER), PORT),
        (Gid::from_ipv4(CLIENT), PORT),
        (named(CLIENT), 0),
        (named(CLIENT), 22),
        (named(CLIENT), 49_151),
    ] {
        until_confirm(|sent, accepted| {
            let confirm = confirm(&accepted, gid, port);
            let result = sent.on_message(&ClcMessage::Confirm(confirm));
            assert_eq!(result.unwrap_err(), MISBEHAVED.into());
        });
    }
    until_confirm(|sent, accepted| {
        let silent = accepted.confirm(end(named(CLIENT)), info(None), List::EMPTY);
        let result = sent.on_message(&ClcMessage::Confirm(silent));
        assert_eq!(result.unwrap_err(), MISBEHAVED.into());
    });
}

#[test]
fn a_group_is_found_again_by_the_names_of_both_ends() {
    propose(IWARP_ALONE, true, |proposed, chosen| {
        let reuse = chosen.unwrap().accept(end(named(SERVER)), None);
        let (accepted, accept) = reuse;
        let agreed = proposed.on_message(&ClcMessage::Accept(accept)).unwrap();
        assert_eq!(agreed.new_lgr(), None);
        assert_eq!(agreed.wanted(0, ENDS).peer_gid, named(SERVER));
        let confirm = agreed.confirm(end(named(CLIENT)), info(None), List::EMPTY);
        let confirmed = accepted.on_message(&ClcMessage::Confirm(confirm)).unwrap();
        assert_eq!(confirmed.listener(), 0);
    });
}

/// The ends of a link that was added are elsewhere, and may be over RoCE.
#[test]
fn a_group_is_joined_by_any_of_its_links() {
    for (theirs, ours) in [
        (named(Ipv4([10, 9, 1, 2])), named(Ipv4([10, 9, 1, 1]))),
        (Gid::from_ipv4(SERVER), Gid::from_ipv4(CLIENT)),
    ] {
        propose(IWARP_ALONE, true, |proposed, chosen| {
            let (accepted, accept) = chosen.unwrap().accept(end(theirs), None);
            let agreed = proposed.on_message(&ClcMessage::Accept(accept)).unwrap();
            assert_eq!(agreed.new_lgr(), None);
            assert_eq!(agreed.wanted(0, ENDS).peer_gid, theirs);
            let confirm = agreed.confirm(end(ours), info(None), List::EMPTY);
            let confirmed = accepted.on_message(&ClcMessage::Confirm(confirm)).unwrap();
            assert_eq!(confirmed.client().gid, ours);
        });
    }
}
