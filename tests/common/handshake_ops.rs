// SPDX-License-Identifier: GPL-2.0
//! Both sides of the handshake against a peer that says anything, decoded from bytes.
//!
//! Fuzzing and the seeded test share it. The promises: whatever is agreed on was offered and lies
//! within the limits of both sides, what is sent can be read, and a server tries each way once.

use std::net::{
    IpAddr,
    Ipv4Addr, //
};

use smc_proto::handshake::client::{
    ClientCaps,
    V1Port,
    V2Port, //
};
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::server::{
    Chosen,
    ServerCaps, //
};
use smc_proto::handshake::{
    Disposition,
    Failure,
    OwnInfo,
    RELEASE, //
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
    Role,
    TcpEnds, //
};
use smc_proto::reason::Reason;
use smc_proto::wire::clc::{
    ClcMessage,
    Endpoint,
    Hostname,
    IpPrefix,
    Limits,
    Mode,
    SmcR,
    MAX_LEN, //
};
use smc_proto::wire::{
    List,
    Version, //
};

/// The TCP connection of all handshakes, as its receiver sees it.
pub const ENDS: TcpEnds = TcpEnds {
    namespace: 1,
    local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    scope: 0,
};

/// Runs one side against the two messages in `bytes`: a byte of circumstances, the length of the
/// first message as two bytes, the messages.
pub fn run(bytes: &[u8]) {
    let [circumstances, high, low, rest @ ..] = bytes else {
        return;
    };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (first, second) = rest.split_at(len.min(rest.len()));
    match circumstances & 1 {
        0 => client(*circumstances, first),
        _ => server(*circumstances, first, second),
    }
}

fn eids() -> Ueids {
    let mut eids = Ueids::DEFAULT;
    let test = smc_proto::id::Eid::from_name(b"SMCV2-TEST");
    eids.add(test.expect("a valid one")).expect("there is room");
    eids
}

const OWN_LIMITS: Limits = Limits {
    max_conns: 100,
    max_links: 2,
};

fn end() -> SmcR {
    SmcR {
        peer_id: PeerId([1, 2, 2, 0, 0, 0, 0, 1]),
        gid: Gid::from_ipv4(Ipv4([192, 168, 1, 1])),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        qp_num: QpNum::default(),
        rkey: Rkey(1),
        rmbe_index: RmbeIndex::FIRST,
        token: AlertToken(1),
        rmbe_size: smc_proto::buffer::SizeClass::SMALLEST,
        mtu: Mtu::B2048,
        rmb_addr: RemoteAddr(0),
        psn: Psn::default(),
    }
}

fn check_sent(message: &ClcMessage<'_>) {
    let mut buf = [0; MAX_LEN];
    let bytes = message.emit(&mut buf).expect("it fits");
    assert_eq!(ClcMessage::parse(bytes).as_ref(), Ok(message));
}

/// A failure never leaves the application with a connection that nobody knows how to use.
fn check_failure(failure: Failure) {
    let actions = failure.actions();
    match actions.disposition {
        Disposition::Fallback(Reason::PeerDeclined) => assert_eq!(actions.decline, None),
        // Each end has had a message of the other.
        Disposition::Fallback(_) if failure == Failure::BothClients => {
            assert_eq!(actions.decline, None);
        }
        Disposition::Fallback(reason) => assert_eq!(actions.decline, Some(reason)),
        Disposition::Reconnect(_) | Disposition::Fail(_) => assert_eq!(actions.decline, None),
    }
}

fn client(circumstances: u8, answer: &[u8]) {
    let eids = eids();
    let mac = end().mac;
    let caps = ClientCaps {
        smcd: None,
        peer_id: end().peer_id,
        v1: (circumstances & 2 != 0).then_some(V1Port {
            gid: Gid([7; 16]),
            mac,
        }),
        v2: (circumstances & 4 != 0).then_some(V2Port {
            gid: end().gid,
            mac,
        }),
        iwarp: None,
        prefix: Some(IpPrefix::V4 {
            subnet: Ipv4([192, 168, 1, 0]),
            len: 24,
        }),
        eids: List::new(eids.as_slice()).expect("two fit"),
        limits: OWN_LIMITS,
    };
    let Ok((proposed, proposal)) = caps.propose() else {
        assert_eq!(circumstances & 6, 0);
        return;
    };
    check_sent(&ClcMessage::Proposal(proposal));
    let Ok(message) = ClcMessage::parse(answer) else {
        return;
    };
    let accepted = match proposed.on_message(&message) {
        Ok(accepted) => accepted,
        Err(failure) => return check_failure(failure),
    };
    match accepted.version() {
        Version::V1 => assert!(caps.v1.is_some() && accepted.eid().is_none()),
        Version::V2 => {
            assert!(caps.v2.is_some());
            assert!(accepted
                .eid()
                .is_some_and(|eid| eids.as_slice().contains(&eid)));
        }
    }
    if let Some(new) = accepted.new_lgr() {
        assert!(new.release <= RELEASE);
        assert!(new.limits.max_conns >= 16);
        assert!((1..=2).contains(&new.limits.max_links));
        assert_eq!(
            (new.version(), new.eid),
            (accepted.version(), accepted.eid())
        );
        assert_eq!(accepted.peer().is_some(), new.version() == Version::V2);
    }
    let wanted = accepted.wanted(0, ENDS);
    assert_eq!(wanted.role(), Role::Client);
    let is_mac_needed = accepted.version() == Version::V1;
    assert_eq!(
        wanted.peer_mac,
        is_mac_needed.then_some(accepted.server().mac)
    );
    let gids = [end().gid];
    let gids = List::new(&gids).expect("one fits");
    let confirm = accepted.confirm(end(), own(), gids);
    let Endpoint::SmcR(sent) = confirm.endpoint else {
        panic!("another technology");
    };
    assert_eq!(sent.mtu, end().mtu.min(accepted.server().mtu));
    let mut buf = [0; MAX_LEN];
    let bytes = ClcMessage::Confirm(confirm)
        .emit(&mut buf)
        .expect("it fits");
    let Ok(ClcMessage::Confirm(read)) = ClcMessage::parse(bytes) else {
        panic!("the confirm cannot be read");
    };
    assert_eq!((read.endpoint, read.mode), (confirm.endpoint, confirm.mode));
}

fn server(circumstances: u8, first: &[u8], second: &[u8]) {
    let eids = eids();
    let caps = ServerCaps {
        eids: &eids,
        limits: OWN_LIMITS,
        has_ipsec: false,
        has_interface: circumstances & 2 == 0,
        iwarp: None,
    };
    let Ok(ClcMessage::Proposal(proposal)) = ClcMessage::parse(first) else {
        return;
    };
    let mut asked = 0;
    let chosen = caps.evaluate(&proposal, |_| {
        asked += 1;
        circumstances & 4 == 0
    });
    assert!(asked <= usize::from(proposal.v1().is_some()));
    let Ok(chosen) = chosen else {
        return;
    };
    let chosen = match circumstances & 8 {
        0 => chosen,
        _ => match chosen.next_after(Reason::Memory) {
            Ok(next) => {
                assert_eq!(
                    (chosen.version(), next.version()),
                    (Version::V2, Version::V1)
                );
                assert!(next.next_after(Reason::NoSmcDevice).is_err());
                next
            }
            Err(_) => return,
        },
    };
    check_chosen(&chosen, &eids);
    let new = chosen.new_lgr(circumstances & 32 == 0);
    let new = (circumstances & 16 == 0).then_some((new, own()));
    let (accepted, accept) = chosen.accept(end(), new);
    check_sent(&ClcMessage::Accept(accept));
    let Ok(answer) = ClcMessage::parse(second) else {
        return;
    };
    match accepted.on_message(&answer) {
        Err(failure) => check_failure(failure),
        Ok(confirmed) => {
            assert_eq!(confirmed.mtu(), end().mtu.min(confirmed.client().mtu));
            let ClcMessage::Confirm(confirm) = answer else {
                panic!("agreed without a CONFIRM");
            };
            let new = new.filter(|_| chosen.version() == Version::V2);
            assert_eq!(confirmed.peer().is_some(), new.is_some());
            if let (Some((new, _)), Mode::V2 { first_contact, .. }) = (new, confirm.mode) {
                let peer = first_contact.expect("what begins a group");
                assert_eq!(peer.release, new.release);
                assert!(peer.limits().is_none_or(|limits| limits == new.limits));
            }
        }
    }
}

fn own() -> OwnInfo {
    OwnInfo {
        hostname: Hostname::new(b"fuzzed"),
        listener: None,
    }
}

fn check_chosen(chosen: &Chosen, eids: &Ueids) {
    let new = chosen.new_lgr(true);
    assert!(new.release <= RELEASE);
    assert!(new.limits.max_conns >= 16);
    assert!((1..=2).contains(&new.limits.max_links));
    assert_eq!((new.version(), new.eid), (chosen.version(), chosen.eid()));
    assert_eq!(chosen.wanted(0, ENDS).role(), Role::Server);
    match chosen.version() {
        Version::V1 => assert!(chosen.eid().is_none()),
        Version::V2 => assert!(chosen
            .eid()
            .is_some_and(|eid| eids.as_slice().contains(&eid))),
    }
}
