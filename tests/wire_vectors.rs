// SPDX-License-Identifier: GPL-2.0

//! The golden messages in `vectors/`: parsed, compared with what they were made from, written again
//! byte for byte. `vectors/README.md` says what they were made from.

mod vectors;

use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    ProducerFlags,
    StateFlags, //
};
use smc_proto::cursor::Cursor;
use smc_proto::id::{
    AlertToken,
    Eid,
    Features,
    Gid,
    Ipv4,
    LinkNum,
    LinkUid,
    Mac,
    Mtu,
    PeerId,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex, //
};
use smc_proto::reason::Reason;
use smc_proto::wire::{
    cdc,
    clc,
    llc,
    List,
    Received,
    Version, //
};

use vectors::{
    llc_message,
    vector,
    CDC,
    CLC,
    LLC, //
};

const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const CLIENT: PeerId = PeerId::new([0x12, 0x34], CLIENT_MAC);
const SERVER: PeerId = PeerId::new([0xab, 0xcd], SERVER_MAC);
const CLIENT_GID: Gid = link_local(1);
const SERVER_GID: Gid = link_local(2);
const CLIENT_V2_GID: Gid = Gid::from_ipv4(Ipv4([192, 168, 1, 1]));
const SERVER_V2_GID: Gid = Gid::from_ipv4(Ipv4([192, 168, 1, 2]));

const fn link_local(host: u8) -> Gid {
    Gid([
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, host,
    ])
}

fn eid() -> Eid {
    Eid::from_name(b"SMCV2-TEST").unwrap()
}

fn qp(number: u32) -> QpNum {
    QpNum::new(number).unwrap()
}

fn psn(number: u32) -> Psn {
    Psn::new(number).unwrap()
}

#[test]
fn every_clc_vector_is_written_as_it_was_read() {
    for (name, bytes) in CLC {
        let message = clc::ClcMessage::parse(bytes).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let mut buf = [0xa5; clc::MAX_LEN];
        assert_eq!(message.emit(&mut buf), Ok(bytes), "{name}: {message:?}");
    }
}

#[test]
fn every_llc_and_cdc_vector_is_written_as_it_was_read() {
    for (name, bytes) in LLC {
        let mut buf = [0xa5; llc::MAX_LEN];
        let written = llc_message(bytes).emit(llc::PeerOrder::Little, &mut buf);
        assert_eq!(written, Ok(bytes), "{name}");
    }
    for (name, bytes) in CDC {
        let message = cdc::CdcMessage::parse(bytes).unwrap();
        assert_eq!(message.to_bytes(), bytes, "{name}");
        assert_eq!(Received::parse(bytes), Ok(Received::Cdc(message)), "{name}");
    }
}

#[test]
fn a_header_says_how_much_to_read() {
    for (name, bytes) in CLC {
        let header = clc::Header::peek(bytes.first_chunk().unwrap()).unwrap();
        assert_eq!(
            (header.message_len(), header.read_len()),
            (bytes.len(), bytes.len()),
            "{name}"
        );
        assert_eq!(header.drain_len(), 0, "{name}");
    }
    let mut long = *vector("A2").first_chunk::<8>().unwrap();
    long[5..7].copy_from_slice(&700u16.to_be_bytes());
    let header = clc::Header::peek(&long).unwrap();
    assert_eq!((header.read_len(), header.drain_len()), (clc::MAX_LEN, 48));
}

#[test]
fn the_form_of_the_rfc_is_a_proposal() {
    let v1 = clc::V1Offer {
        technologies: clc::SmcTypes::SmcR,
        prefix: clc::IpPrefix::V4 {
            subnet: Ipv4([192, 168, 1, 0]),
            len: 24,
        },
    };
    let expected = clc::Proposal {
        peer_id: CLIENT,
        gid: CLIENT_GID,
        mac: CLIENT_MAC,
        modes: clc::ProposedModes::V1 { v1, area: None },
    };
    assert_eq!(clc::Proposal::parse(vector("P1")), Ok(expected));

    let expected = clc::Proposal {
        modes: clc::ProposedModes::V2 {
            v1: Some(v1),
            area: clc::SmcdV2Ext::default(),
            v2: None,
        },
        ..expected
    };
    assert_eq!(clc::Proposal::parse(vector("P2")), Ok(expected));
}

#[test]
fn version_2_may_be_offered_with_or_without_version_1() {
    let both = clc::Proposal::parse(vector("P3")).unwrap();
    let only = clc::Proposal::parse(vector("P4")).unwrap();
    let eids = [eid()];
    let expected = clc::V2Offer {
        technologies: clc::V2SmcTypes::SmcR,
        release: clc::Release::R1,
        gid: CLIENT_V2_GID,
        raw_limits: clc::Limits {
            max_conns: 255,
            max_links: 2,
        },
        features: Features(1),
        eids: List::new(&eids).unwrap(),
        seid: false,
    };
    assert_eq!(both.v2(), Some(&expected));
    assert_eq!(only.v2(), Some(&expected));
    assert_eq!(both.peer_id, CLIENT);
    assert!(both.v1().unwrap().technologies.has_smcr());
    assert_eq!((only.peer_id, only.v1()), (PeerId::NONE, None));
}

fn server_end(gid: Gid) -> clc::SmcR {
    clc::SmcR {
        peer_id: SERVER,
        gid,
        mac: SERVER_MAC,
        qp_num: qp(0x123),
        rkey: Rkey(0x1111),
        rmbe_index: RmbeIndex::FIRST,
        token: AlertToken(7),
        rmbe_size: SizeClass::from_code(2).unwrap(),
        mtu: Mtu::B1024,
        rmb_addr: RemoteAddr(0x1234_0000),
        psn: psn(0xab_cdef),
    }
}

fn client_end(gid: Gid) -> clc::SmcR {
    clc::SmcR {
        peer_id: CLIENT,
        gid,
        mac: CLIENT_MAC,
        qp_num: qp(0x456),
        rkey: Rkey(0x2222),
        token: AlertToken(9),
        rmb_addr: RemoteAddr(0x5678_0000),
        psn: psn(0x01_0203),
        ..server_end(gid)
    }
}

fn first_contact(hostname: &[u8]) -> clc::FirstContactExt {
    clc::FirstContactExt {
        direct: true,
        os: clc::OsType::LINUX,
        release: clc::Release::R1,
        hostname: clc::Hostname::new(hostname),
        raw_limits: clc::Limits {
            max_conns: 255,
            max_links: 2,
        },
        features: Features(1),
        vendor_options: 0,
    }
}

#[test]
fn accepts_say_what_the_server_has() {
    let expected = clc::Accept {
        endpoint: clc::Endpoint::SmcR(server_end(SERVER_GID)),
        mode: clc::Mode::V1 {
            first_contact: true,
        },
    };
    assert_eq!(clc::Accept::parse(vector("A1")), Ok(expected));

    let expected = clc::Accept {
        endpoint: clc::Endpoint::SmcR(server_end(SERVER_V2_GID)),
        mode: clc::Mode::V2 {
            eid: eid(),
            first_contact: Some(first_contact(b"serverhost")),
        },
    };
    assert_eq!(clc::Accept::parse(vector("A2")), Ok(expected));

    let expected = clc::Accept {
        mode: clc::Mode::V2 {
            eid: eid(),
            first_contact: None,
        },
        ..expected
    };
    assert_eq!(clc::Accept::parse(vector("A3")), Ok(expected));
}

#[test]
fn confirms_say_what_the_client_has() {
    let expected = clc::Confirm {
        endpoint: clc::Endpoint::SmcR(client_end(CLIENT_GID)),
        mode: clc::Mode::V1 {
            first_contact: true,
        },
        gids: List::EMPTY,
    };
    assert_eq!(clc::Confirm::parse(vector("C1")), Ok(expected));

    let gids = [CLIENT_V2_GID];
    let expected = clc::Confirm {
        endpoint: clc::Endpoint::SmcR(client_end(CLIENT_V2_GID)),
        mode: clc::Mode::V2 {
            eid: eid(),
            first_contact: Some(first_contact(b"clienthost")),
        },
        gids: List::new(&gids).unwrap(),
    };
    assert_eq!(clc::Confirm::parse(vector("C2")), Ok(expected));
}

#[test]
fn declines_are_those_that_linux_sends() {
    let out_of_sync = clc::Decline::new(Version::V1, CLIENT, Reason::SyncError);
    assert_eq!(clc::Decline::parse(vector("D1")), Ok(out_of_sync));
    let no_device = clc::Decline::new(Version::V2, CLIENT, Reason::NoSmcDevice);
    assert_eq!(clc::Decline::parse(vector("D2")), Ok(no_device));
    assert_eq!(no_device.diagnosis.reason(), Some(Reason::NoSmcDevice));
}

#[test]
fn an_unknown_diagnosis_survives() {
    let mut bytes = vector("D2").to_vec();
    bytes[16..20].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let decline = clc::Decline::parse(&bytes).unwrap();
    assert_eq!(decline.diagnosis, clc::Diagnosis(0xdead_beef));
    assert_eq!(decline.diagnosis.reason(), None);
    assert_eq!(decline.emit(&mut [0; 44]), Ok(bytes.as_slice()));
}

#[test]
fn links_are_confirmed_in_both_versions() {
    let expected = llc::LlcMessage {
        version: Version::V1,
        kind: llc::Kind::Request,
        body: llc::Body::ConfirmLink(llc::ConfirmLink {
            mac: SERVER_MAC,
            gid: SERVER_GID,
            qp_num: qp(0x123),
            link_num: LinkNum(1),
            uid: LinkUid(0x101),
            limits: clc::Limits {
                max_conns: 0,
                max_links: 2,
            },
            no_eye_catcher: true,
        }),
    };
    assert_eq!(llc_message(vector("L1")), expected);

    let response = llc_message(vector("L2"));
    assert_eq!(response.kind, llc::Kind::Response);
    let v21 = llc_message(vector("L3"));
    let llc::Body::ConfirmLink(body) = v21.body else {
        panic!("{v21:?}");
    };
    assert_eq!((v21.version, body.limits.max_conns), (Version::V2, 255));
    assert_eq!(body.gid, SERVER_V2_GID);
}

fn second_link(gid: Gid) -> llc::NewLink {
    llc::NewLink {
        mac: Mac([2, 0, 0, 0, 0, 0x12]),
        gid,
        qp_num: qp(0x124),
        link_num: LinkNum(2),
        mtu: Some(Mtu::B1024),
        psn: psn(0x11_1111),
        listen_addr: None,
    }
}

#[test]
fn a_link_is_added_or_rejected() {
    let link = second_link(link_local(0x12));
    let add = llc::Body::AddLink(llc::AddLink::Link { link, v2: None });
    assert_eq!(llc_message(vector("L4")).body, add);

    let rejection = llc::LlcMessage {
        version: Version::V1,
        kind: llc::Kind::Response,
        body: llc::Body::AddLink(llc::AddLink::Rejection {
            link,
            reason: llc::RejectReason::NO_ALTERNATE_PATH,
        }),
    };
    assert_eq!(llc_message(vector("L5")), rejection);
}

#[test]
fn a_version_2_link_comes_with_its_keys() {
    let gid = Gid::from_ipv4(Ipv4([192, 168, 1, 0x12]));
    let rkeys = [second_rkey()];
    let add = llc::Body::AddLink(llc::AddLink::Link {
        link: second_link(gid),
        v2: Some(llc::AddLinkV2 {
            direct: true,
            target_gid: gid,
            rkeys: List::new(&rkeys).unwrap(),
        }),
    });
    assert_eq!(llc_message(vector("L6")).body, add);

    let cont = llc::Body::AddLinkCont(llc::AddLinkCont {
        link_num: LinkNum(2),
        rkeys: List::new(&rkeys).unwrap(),
        following: 0,
    });
    assert_eq!(llc_message(vector("L7")).body, cont);
}

fn second_rkey() -> llc::NewLinkRkey {
    llc::NewLinkRkey::new(Rkey(0x1111), Rkey(0x3333), RemoteAddr(0x9abc_0000))
}

#[test]
fn the_other_messages_about_links_and_keys() {
    let delete = llc::Body::DeleteLink(llc::DeleteLink {
        link_num: None,
        orderly: true,
        reason: llc::DeleteReason::PROGRAM,
    });
    assert_eq!(llc_message(vector("L8")).body, delete);

    let others = [llc::LinkRkey::new(
        LinkNum(2),
        Rkey(0x3333),
        RemoteAddr(0x9abc_0000),
    )];
    let confirm = llc::Body::ConfirmRkey(llc::ConfirmRkey {
        rkey: Rkey(0x1111),
        addr: RemoteAddr(0x1234_0000),
        others: List::new(&others).unwrap(),
        following: 0,
        negative: false,
        retry: false,
    });
    assert_eq!(llc_message(vector("L9")).body, confirm);
    assert_eq!(
        llc_message(vector("L10")).body,
        llc::Body::TestLink([0; 16])
    );

    let rkeys = [Rkey(0x1111).into()];
    let delete = llc::Body::DeleteRkey(llc::DeleteRkey {
        rkeys: List::new(&rkeys).unwrap(),
        negative: false,
        unknown: 0,
    });
    assert_eq!(llc_message(vector("L11")).body, delete);

    let gids = [CLIENT_V2_GID, Gid::from_ipv4(Ipv4([192, 168, 1, 0x11]))];
    let request = llc::Body::ReqAddLink(llc::ReqAddLink {
        gids: List::new(&gids).unwrap(),
    });
    assert_eq!(llc_message(vector("L12")).body, request);
}

#[test]
fn cursors_and_flags_are_those_of_the_connection() {
    let first = Cdc {
        seq: 1,
        prod: Cursor {
            wrap: 0,
            offset: 1000,
        },
        ..Cdc::default()
    };
    let token = AlertToken(7);
    let parsed = |bytes| cdc::CdcMessage::parse(bytes).unwrap();
    assert_eq!(parsed(vector("X1")), cdc::CdcMessage { token, cdc: first });

    let wrapped = parsed(vector("X2")).cdc;
    assert_eq!((wrapped.prod.wrap, wrapped.prod.offset), (1, 16));
    assert_eq!((wrapped.cons.wrap, wrapped.cons.offset), (0, 16));
    assert_eq!(wrapped.flags, ProducerFlags::WRITE_BLOCKED);
    assert_eq!(parsed(vector("X3")).cdc.state, StateFlags::CLOSED);
    let failover = parsed(vector("X4")).cdc;
    assert_eq!(
        (failover.seq, failover.flags),
        (65, ProducerFlags::FAILOVER)
    );
}
