// SPDX-License-Identifier: GPL-2.0

//! The golden messages in `vectors/`: parsed, compared with what they were made from, written again
//! byte for byte; cut at every byte; bent at every field that says how long something is.
//!
//! `vectors/README.md` says what they were made from.

use smc_proto::buffer::SizeClass;
use smc_proto::cursor::Cursor;
use smc_proto::error::Malformed;
use smc_proto::id::{
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
    RmbeIndex,
    Token, //
};
use smc_proto::reason::Reason;
use smc_proto::stream::{
    Cdc,
    ProducerFlags,
    StateFlags, //
};
use smc_proto::wire::{
    cdc,
    clc,
    llc,
    List,
    Received,
    Version, //
};

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("vectors/", $name, ".bin")).as_slice()
    };
}

macro_rules! vectors {
    ($($name:literal)*) => {
        [$(($name, vector!($name))),*]
    };
}

const CLC: [(&str, &[u8]); 11] = vectors!("P1" "P2" "P3" "P4" "A1" "A2" "A3" "C1" "C2" "D1" "D2");
const LLC: [(&str, &[u8]); 12] =
    vectors!("L1" "L2" "L3" "L4" "L5" "L6" "L7" "L8" "L9" "L10" "L11" "L12");
const CDC: [(&str, &[u8]); 4] = vectors!("X1" "X2" "X3" "X4");

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

fn llc_message(bytes: &[u8]) -> llc::Message<'_> {
    match Received::parse(bytes) {
        Ok(Received::Llc(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_clc_vector_is_written_as_it_was_read() {
    for (name, bytes) in CLC {
        let message = clc::Message::parse(bytes).unwrap_or_else(|e| panic!("{name}: {e:?}"));
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
        let message = cdc::Message::parse(bytes).unwrap();
        assert_eq!(message.to_bytes(), bytes, "{name}");
        assert_eq!(Received::parse(bytes), Ok(Received::Cdc(message)), "{name}");
    }
}

#[test]
fn a_header_says_how_much_to_read() {
    for (name, bytes) in CLC {
        let header = clc::Header::peek(bytes.first_chunk().unwrap()).unwrap();
        assert_eq!(
            (header.len(), header.read_len()),
            (bytes.len(), bytes.len()),
            "{name}"
        );
        assert_eq!(header.drain_len(), 0, "{name}");
    }
    let mut long = *vector!("A2").first_chunk::<8>().unwrap();
    long[5..7].copy_from_slice(&700u16.to_be_bytes());
    let header = clc::Header::peek(&long).unwrap();
    assert_eq!((header.read_len(), header.drain_len()), (clc::MAX_LEN, 48));
}

#[test]
fn the_form_of_the_rfc_is_a_proposal() {
    let v1 = clc::V1Offer {
        technologies: clc::Technologies::SmcR,
        prefix: clc::IpPrefix::V4 {
            subnet: Ipv4([192, 168, 1, 0]),
            len: 24,
        },
    };
    let expected = clc::Proposal {
        peer_id: CLIENT,
        gid: CLIENT_GID,
        mac: CLIENT_MAC,
        offer: clc::Offer::V1 { v1, area: None },
    };
    assert_eq!(clc::Proposal::parse(vector!("P1")), Ok(expected));

    let expected = clc::Proposal {
        offer: clc::Offer::V2 {
            v1: Some(v1),
            area: clc::SmcdArea::default(),
            v2: None,
        },
        ..expected
    };
    assert_eq!(clc::Proposal::parse(vector!("P2")), Ok(expected));
}

#[test]
fn version_2_may_be_offered_with_or_without_version_1() {
    let both = clc::Proposal::parse(vector!("P3")).unwrap();
    let only = clc::Proposal::parse(vector!("P4")).unwrap();
    let eids = [eid()];
    let expected = clc::V2Offer {
        technologies: clc::V2Technologies::SmcR,
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
        token: Token(7),
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
        token: Token(9),
        rmb_addr: RemoteAddr(0x5678_0000),
        psn: psn(0x01_0203),
        ..server_end(gid)
    }
}

fn first_contact(hostname: &[u8]) -> clc::FirstContact {
    clc::FirstContact {
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
    assert_eq!(clc::Accept::parse(vector!("A1")), Ok(expected));

    let expected = clc::Accept {
        endpoint: clc::Endpoint::SmcR(server_end(SERVER_V2_GID)),
        mode: clc::Mode::V2 {
            eid: eid(),
            first_contact: Some(first_contact(b"serverhost")),
        },
    };
    assert_eq!(clc::Accept::parse(vector!("A2")), Ok(expected));

    let expected = clc::Accept {
        mode: clc::Mode::V2 {
            eid: eid(),
            first_contact: None,
        },
        ..expected
    };
    assert_eq!(clc::Accept::parse(vector!("A3")), Ok(expected));
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
    assert_eq!(clc::Confirm::parse(vector!("C1")), Ok(expected));

    let gids = [CLIENT_V2_GID];
    let expected = clc::Confirm {
        endpoint: clc::Endpoint::SmcR(client_end(CLIENT_V2_GID)),
        mode: clc::Mode::V2 {
            eid: eid(),
            first_contact: Some(first_contact(b"clienthost")),
        },
        gids: List::new(&gids).unwrap(),
    };
    assert_eq!(clc::Confirm::parse(vector!("C2")), Ok(expected));
}

#[test]
fn declines_are_those_that_linux_sends() {
    let out_of_sync = clc::Decline::new(Version::V1, CLIENT, Reason::SyncError);
    assert_eq!(clc::Decline::parse(vector!("D1")), Ok(out_of_sync));
    let no_device = clc::Decline::new(Version::V2, CLIENT, Reason::NoSmcDevice);
    assert_eq!(clc::Decline::parse(vector!("D2")), Ok(no_device));
    assert_eq!(no_device.diagnosis.reason(), Some(Reason::NoSmcDevice));
}

#[test]
fn an_unknown_diagnosis_survives() {
    let mut bytes = vector!("D2").to_vec();
    bytes[16..20].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let decline = clc::Decline::parse(&bytes).unwrap();
    assert_eq!(decline.diagnosis, clc::Diagnosis(0xdead_beef));
    assert_eq!(decline.diagnosis.reason(), None);
    assert_eq!(decline.emit(&mut [0; 44]), Ok(bytes.as_slice()));
}

#[test]
fn links_are_confirmed_in_both_versions() {
    let expected = llc::Message {
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
    assert_eq!(llc_message(vector!("L1")), expected);

    let response = llc_message(vector!("L2"));
    assert_eq!(response.kind, llc::Kind::Response);
    let v21 = llc_message(vector!("L3"));
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
    }
}

#[test]
fn a_link_is_added_or_rejected() {
    let link = second_link(link_local(0x12));
    let add = llc::Body::AddLink(llc::AddLink::Link { link, v2: None });
    assert_eq!(llc_message(vector!("L4")).body, add);

    let rejection = llc::Message {
        version: Version::V1,
        kind: llc::Kind::Response,
        body: llc::Body::AddLink(llc::AddLink::Rejection {
            link,
            reason: llc::RejectReason::NO_ALTERNATE_PATH,
        }),
    };
    assert_eq!(llc_message(vector!("L5")), rejection);
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
    assert_eq!(llc_message(vector!("L6")).body, add);

    let cont = llc::Body::AddLinkCont(llc::AddLinkCont {
        link_num: LinkNum(2),
        rkeys: List::new(&rkeys).unwrap(),
        following: 0,
    });
    assert_eq!(llc_message(vector!("L7")).body, cont);
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
    assert_eq!(llc_message(vector!("L8")).body, delete);

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
    assert_eq!(llc_message(vector!("L9")).body, confirm);
    assert_eq!(
        llc_message(vector!("L10")).body,
        llc::Body::TestLink([0; 16])
    );

    let rkeys = [Rkey(0x1111).into()];
    let delete = llc::Body::DeleteRkey(llc::DeleteRkey {
        rkeys: List::new(&rkeys).unwrap(),
        negative: false,
        unknown: 0,
    });
    assert_eq!(llc_message(vector!("L11")).body, delete);

    let gids = [CLIENT_V2_GID, Gid::from_ipv4(Ipv4([192, 168, 1, 0x11]))];
    let request = llc::Body::ReqAddLink(llc::ReqAddLink {
        gids: List::new(&gids).unwrap(),
    });
    assert_eq!(llc_message(vector!("L12")).body, request);
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
    let token = Token(7);
    let parsed = |bytes| cdc::Message::parse(bytes).unwrap();
    assert_eq!(parsed(vector!("X1")), cdc::Message { token, cdc: first });

    let wrapped = parsed(vector!("X2")).cdc;
    assert_eq!((wrapped.prod.wrap, wrapped.prod.offset), (1, 16));
    assert_eq!((wrapped.cons.wrap, wrapped.cons.offset), (0, 16));
    assert_eq!(wrapped.flags, ProducerFlags::WRITE_BLOCKED);
    assert_eq!(parsed(vector!("X3")).cdc.state, StateFlags::CLOSED);
    let failover = parsed(vector!("X4")).cdc;
    assert_eq!(
        (failover.seq, failover.flags),
        (65, ProducerFlags::FAILOVER)
    );
}

#[test]
fn a_message_cut_at_any_byte_is_refused() {
    for (name, bytes) in CLC {
        for len in 0..bytes.len() {
            let cut = clc::Message::parse(&bytes[..len]);
            assert_eq!(cut, Err(Malformed::Truncated), "{name} cut to {len}");
        }
    }
    // A version 2 ADD_LINK may lack its extension and is delimited by what arrives only.
    for (name, bytes) in LLC.into_iter().chain(CDC).filter(|v| v.0 != "L6") {
        for len in 0..bytes.len() {
            let cut = Received::parse(&bytes[..len]);
            assert_eq!(cut, Err(Malformed::Truncated), "{name} cut to {len}");
        }
    }
}

#[test]
fn a_cut_add_link_has_the_keys_that_arrived() {
    let bytes = vector!("L6");
    for len in 0..bytes.len() {
        let keys = match Received::parse(&bytes[..len]) {
            Ok(Received::Llc(llc::Message {
                body: llc::Body::AddLink(llc::AddLink::Link { v2, .. }),
                ..
            })) => v2.map(|v2| v2.rkeys.len()),
            Err(error) => {
                let expected = match len {
                    0..44 => Malformed::Truncated,
                    _ => Malformed::LengthMismatch,
                };
                assert_eq!(error, expected, "cut to {len}");
                continue;
            }
            other => panic!("cut to {len}: {other:?}"),
        };
        match len {
            44..72 => assert_eq!(keys, None, "cut to {len}"),
            72 => assert_eq!(keys, Some(0)),
            _ => panic!("{len} bytes hold no whole number of keys"),
        }
    }
}

/// Sets every pair of bytes, and every byte, to extremes, and gives each result to `check`.
fn bend(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    for at in 0..bytes.len() {
        for value in [
            0, 1, 7, 8, 9, 0x0f, 0x2b, 0x2c, 0x2d, 0x7f, 0x80, 0xf0, 0xff,
        ] {
            let mut bent = bytes.to_vec();
            bent[at] = value;
            check(&bent);
            if let Some(next) = bent.get_mut(at + 1) {
                *next = 0xff;
                check(&bent);
            }
        }
    }
}

#[test]
fn no_bent_field_panics_and_what_is_accepted_can_be_written() {
    let mut buf = [0; llc::MAX_LEN];
    let (mut accepted, mut refused) = (0, 0);
    for (_, bytes) in CLC {
        bend(bytes, |bent| match clc::Message::parse(bent) {
            Ok(message) => {
                let written = message.emit(&mut buf).unwrap();
                assert_eq!(clc::Message::parse(written), Ok(message));
                accepted += 1;
            }
            Err(_) => refused += 1,
        });
    }
    for (_, bytes) in LLC.into_iter().chain(CDC) {
        bend(bytes, |bent| match Received::parse(bent) {
            Ok(Received::Llc(message)) => {
                let written = message.emit(llc::PeerOrder::Big, &mut buf).unwrap();
                assert_eq!(Received::parse(written), Ok(Received::Llc(message)));
                accepted += 1;
            }
            Ok(Received::Cdc(message)) => {
                assert_eq!(cdc::Message::parse(&message.to_bytes()), Ok(message));
                accepted += 1;
            }
            Ok(Received::Unknown(kind)) => assert_eq!(kind, bent[0]),
            Err(_) => refused += 1,
        });
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}

/// A vector with bytes from `at` replaced, and what is wrong with it.
#[track_caller]
fn refused(name: &str, at: usize, with: &[u8], error: Malformed) {
    let (_, bytes) = CLC
        .into_iter()
        .chain(LLC)
        .chain(CDC)
        .find(|v| v.0 == name)
        .unwrap();
    let mut bytes = bytes.to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    let result = match name.as_bytes()[0] {
        b'L' | b'X' => Received::parse(&bytes).map(|_| ()),
        _ => clc::Message::parse(&bytes).map(|_| ()),
    };
    assert_eq!(result, Err(error), "{name} with {with:02x?} at {at}");
}

#[test]
fn clc_frames_are_checked() {
    for name in ["P1", "A1", "C2", "D1"] {
        refused(name, 0, b"SMCR", Malformed::EyeCatcher);
        refused(name, 4, &[0], Malformed::MessageType);
        refused(name, 4, &[5], Malformed::MessageType);
        refused(name, 5, &[0, 0], Malformed::LengthMismatch);
        refused(name, 5, &[0, 11], Malformed::LengthMismatch);
        refused(name, 5, &[0, 12], Malformed::LengthMismatch);
        refused(name, 5, &[0xff, 0xff], Malformed::Truncated);
        refused(name, 7, &[0x00], Malformed::Version);
    }
    refused("P1", 48, b"SMCR", Malformed::Trailer);
    refused("A3", 104, b"SMCR", Malformed::Trailer);
}

#[test]
fn offsets_and_counts_of_a_proposal_are_checked() {
    // Where the IP prefixes are.
    refused("P1", 38, &[0, 1], Malformed::Truncated);
    refused("P1", 38, &[0, 41], Malformed::Offset);
    refused("P3", 38, &[0xff, 0xff], Malformed::Offset);
    refused("P3", 38, &[0, 0], Malformed::Offset);
    refused("P3", 38, &[0, 39], Malformed::Offset);
    // How many IPv6 prefixes.
    refused("P2", 87, &[1], Malformed::Truncated);
    refused("P2", 87, &[8], Malformed::Truncated);
    refused("P2", 87, &[9], Malformed::Count);
    refused("P2", 87, &[255], Malformed::Count);
    // Where the version 2 extension is.
    for offset in [0u16, 1, 35, 37, 172, 173, 0xffff] {
        refused("P3", 50, &offset.to_be_bytes(), Malformed::Offset);
        refused("P4", 50, &offset.to_be_bytes(), Malformed::Offset);
    }
    // How many enterprise ids.
    refused("P4", 80, &[0], Malformed::LengthMismatch);
    refused("P4", 80, &[2], Malformed::Truncated);
    refused("P4", 80, &[8], Malformed::Truncated);
    refused("P4", 80, &[9], Malformed::Count);
    refused("P4", 80, &[255], Malformed::Count);
    // SMC-D offered, its extension absent.
    refused("P4", 7, &[0x26], Malformed::Offset);
    refused("P4", 7, &[0x2e], Malformed::Offset);
    // Neither technology in version 1; none at all where an area is.
    refused("P1", 7, &[0x12], Malformed::Technology);
    refused("P2", 7, &[0x2a], Malformed::LengthMismatch);
}

#[test]
fn fields_of_accept_and_confirm_are_checked() {
    refused("A1", 7, &[0x1a], Malformed::Technology);
    refused("A1", 7, &[0x1b], Malformed::Technology);
    refused("A1", 7, &[0x28], Malformed::Truncated);
    refused("A3", 7, &[0x28], Malformed::Truncated);
    refused("A3", 7, &[0x10], Malformed::LengthMismatch);
    refused("A1", 45, &[0], Malformed::RmbeIndex);
    for mtu in [0, 6, 7, 15] {
        refused("A2", 50, &[0x20 | mtu], Malformed::Mtu);
        refused("C2", 50, &[0x20 | mtu], Malformed::Mtu);
    }
    refused("C2", 156, &[2], Malformed::Truncated);
    refused("C2", 156, &[255], Malformed::Truncated);
}

#[test]
fn a_decline_has_the_length_of_its_version() {
    refused("D1", 7, &[0x20], Malformed::LengthMismatch);
    refused("D2", 7, &[0x10], Malformed::LengthMismatch);
    let mut bytes = vector!("D1").to_vec();
    bytes[24..].copy_from_slice(b"----");
    assert!(
        clc::Decline::parse(&bytes).is_ok(),
        "its trailer is not looked at"
    );
}

#[test]
fn lengths_and_counts_of_llc_messages_are_checked() {
    for (name, bytes) in LLC {
        match bytes[0] >> 4 {
            0 => {
                refused(name, 1, &[43], Malformed::LengthMismatch);
                refused(name, 1, &[45], Malformed::LengthMismatch);
            }
            // Any other two bytes are 44 or more in one byte order or the other.
            _ => refused(name, 1, &[0, 0], Malformed::LengthMismatch),
        }
    }
    refused("L9", 4, &[8], Malformed::Count);
    refused("L9", 4, &[255], Malformed::Count);
    refused("L11", 4, &[0], Malformed::Count);
    refused("L11", 4, &[9], Malformed::Count);
    refused("L11", 4, &[255], Malformed::Count);
    refused("L12", 24, &[3], Malformed::Truncated);
    refused("L12", 24, &[255], Malformed::Truncated);
    refused("L4", 4, &[0; 40], Malformed::Empty);
    refused("L4", 4, &[0; 28], Malformed::Empty);
    refused("X1", 1, &[43], Malformed::LengthMismatch);
}

#[test]
fn the_length_of_version_2_is_taken_in_either_byte_order() {
    let mut bytes = vector!("L3").to_vec();
    let little = llc_message(vector!("L3"));
    bytes[1..3].copy_from_slice(&44u16.to_be_bytes());
    assert_eq!(llc_message(&bytes), little);
    let mut buf = [0; 44];
    assert_eq!(
        little.emit(llc::PeerOrder::Linux, &mut buf),
        Ok(bytes.as_slice())
    );
}

#[test]
fn the_count_of_keys_is_written_as_the_peer_reads_it() {
    let message = llc_message(vector!("L6"));
    let mut buf = [0; 88];
    for (order, field) in [
        (llc::PeerOrder::Big, [0, 1]),
        (llc::PeerOrder::Little, [1, 0]),
        (llc::PeerOrder::Linux, [1, 1]),
    ] {
        assert_eq!(message.emit(order, &mut buf).unwrap()[70..72], field);
        assert_eq!(llc_message(&buf), message);
    }
    // What a machine with the other byte order would take for none.
    buf[70..72].copy_from_slice(&[0, 0]);
    assert_eq!(llc_message(&buf), message);
}

#[test]
fn types_that_nobody_defined_are_ignored() {
    for first in [
        0x00, 0x0a, 0x05, 0x11, 0x23, 0x28, 0x2a, 0x31, 0x80, 0xfd, 0xff,
    ] {
        assert_eq!(Received::parse(&[first]), Ok(Received::Unknown(first)));
        assert_eq!(Received::parse(&[first; 44]), Ok(Received::Unknown(first)));
    }
    assert_eq!(Received::parse(&[]), Err(Malformed::Truncated));
}

#[test]
fn a_longer_accept_of_a_later_release_is_understood() {
    let mut bytes = vector!("A2").to_vec();
    let trailer = bytes.split_off(156);
    bytes.extend([0xee; 600]);
    bytes.extend(trailer);
    let len = u16::try_from(bytes.len()).unwrap();
    bytes[5..7].copy_from_slice(&len.to_be_bytes());
    let expected = clc::Accept::parse(vector!("A2"));
    assert_eq!(clc::Accept::parse(&bytes), expected);
    // The same, cut at the longest that is read.
    assert_eq!(clc::Accept::parse(&bytes[..clc::MAX_LEN]), expected);
    assert_eq!(
        clc::Accept::parse(&bytes[..clc::MAX_LEN - 1]),
        Err(Malformed::Truncated)
    );
}

#[test]
fn a_buffer_too_small_by_one_byte_is_noticed() {
    for (name, bytes) in CLC {
        let message = clc::Message::parse(bytes).unwrap();
        let mut buf = vec![0; bytes.len() - 1];
        assert!(message.emit(&mut buf).is_err(), "{name}");
    }
    for (name, bytes) in LLC {
        let mut buf = vec![0; bytes.len() - 1];
        let written = llc_message(bytes).emit(llc::PeerOrder::Big, &mut buf);
        assert!(written.is_err(), "{name}");
    }
}
