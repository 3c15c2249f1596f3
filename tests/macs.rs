// SPDX-License-Identifier: GPL-2.0
//! Which Ethernet address belongs to which port: the PROPOSAL has one, for two versions.

mod common;

use common::handshake_ops::ENDS;
use common::host::Config;
use common::Side;
use smc_proto::handshake::client::{
    ClientCaps,
    V1Port,
    V2Port, //
};
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::server::ServerCaps;
use smc_proto::id::{
    Eid,
    Gid,
    Ipv4,
    Mac,
    PeerId, //
};
use smc_proto::wire::clc::{
    ClcMessage,
    IpPrefix,
    ProposedModes, //
};
use smc_proto::wire::List;

#[test]
fn a_port_for_version_1_is_offered_with_its_own_mac_alone() {
    let [one, other] = [1, 2].map(|last| Mac([2, 0, 0, 0, 0, last]));
    let eids = [Eid::from_name(b"SMCV2-TEST").unwrap()];
    let offers_v1 = |v1_mac, v2_mac: Option<Mac>| {
        let caps = ClientCaps {
            smcd: None,
            peer_id: PeerId([1; 8]),
            v1: Some(V1Port {
                gid: Gid([7; 16]),
                mac: v1_mac,
            }),
            v2: v2_mac.map(|mac| V2Port {
                gid: Gid::from_ipv4(Ipv4([192, 168, 1, 1])),
                mac,
            }),
            iwarp: None,
            prefix: Some(IpPrefix::V4 {
                subnet: Ipv4([192, 168, 1, 0]),
                len: 24,
            }),
            eids: List::new(&eids).unwrap(),
            limits: Config::new(Side::Client).limits,
        };
        let (_, proposal) = caps.propose().unwrap();
        // Servers send to that one.
        assert_eq!(proposal.mac, v2_mac.unwrap_or(v1_mac));
        let ProposedModes::V2 { v1, .. } = proposal.modes else {
            panic!("{proposal:?}");
        };
        v1.is_some()
    };
    assert!(offers_v1(one, Some(one)));
    assert!(offers_v1(one, None));
    assert!(!offers_v1(one, Some(other)));
}

#[test]
fn only_version_1_asks_for_the_ethernet_address_of_the_peer() {
    let bytes = std::fs::read("tests/vectors/P3.bin").unwrap();
    let Ok(ClcMessage::Proposal(proposal)) = ClcMessage::parse(&bytes) else {
        panic!("not a proposal");
    };
    let mut eids = Ueids::EMPTY;
    eids.add(Eid::from_name(b"SMCV2-TEST").unwrap()).unwrap();
    let config = Config::new(Side::Server);
    let caps = ServerCaps {
        eids: &eids,
        limits: config.limits,
        has_ipsec: false,
        has_interface: true,
        iwarp: None,
    };
    let version_2 = caps.evaluate(&proposal, |_| true).unwrap();
    assert_eq!(version_2.wanted(0, ENDS).peer_mac, None);
    assert_eq!(version_2.wanted(7, ENDS).vlan, 7);
    let version_1 = version_2.next_without_port().unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    assert_eq!(version_1.wanted(0, ENDS).peer_mac, Some(mac));
    // Which is that of the port for version 1.
    let other = Mac([2, 0, 0, 0, 0, 7]);
    assert_eq!(version_1.peer_mac(other), mac);
    assert_eq!(version_2.peer_mac(other), other);
    assert_ne!(
        version_1.wanted(0, ENDS).peer_gid,
        version_2.wanted(0, ENDS).peer_gid
    );
}
