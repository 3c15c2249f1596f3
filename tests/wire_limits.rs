// SPDX-License-Identifier: GPL-2.0

//! Messages that are not quite right: cut at every byte, bent at every field that says how long
//! something is, longer than is known, of unknown types. Each is refused with its own error or read
//! as far as it goes, and none panics.

mod vectors;

use smc_proto::error::Malformed;
use smc_proto::wire::{
    cdc,
    clc,
    llc,
    Received, //
};

use vectors::{
    llc_message,
    vector,
    CDC,
    CLC,
    LLC, //
};

#[test]
fn a_message_cut_at_any_byte_is_refused() {
    for (name, bytes) in CLC {
        for len in 0..bytes.len() {
            let cut = clc::ClcMessage::parse(&bytes[..len]);
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
    let bytes = vector("L6");
    for len in 0..bytes.len() {
        let keys = match Received::parse(&bytes[..len]) {
            Ok(Received::Llc(llc::LlcMessage {
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
        bend(bytes, |bent| match clc::ClcMessage::parse(bent) {
            Ok(message) => {
                let written = message.emit(&mut buf).unwrap();
                assert_eq!(clc::ClcMessage::parse(written), Ok(message));
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
                assert_eq!(cdc::CdcMessage::parse(&message.to_bytes()), Ok(message));
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
    let mut bytes = vector(name).to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    let result = match name.as_bytes()[0] {
        b'L' | b'X' => Received::parse(&bytes).map(|_| ()),
        _ => clc::ClcMessage::parse(&bytes).map(|_| ()),
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
    let mut bytes = vector("D1").to_vec();
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
fn an_answer_may_count_keys_that_it_leaves_out() {
    // Linux clears the keys of a version 2 answer and keeps the count.
    for (first, keys) in [(0x09, 8), (0x29, 9)] {
        let mut bytes = vector("L11").to_vec();
        bytes[0] = first;
        bytes[3] = 0xa0;
        bytes[4..6].copy_from_slice(&[200, 150]);
        let llc::Body::DeleteRkey(answer) = llc_message(&bytes).body else {
            panic!("another message");
        };
        assert!(answer.negative);
        assert_eq!((answer.rkeys.len(), answer.unknown), (keys, 150));
    }
}

#[test]
fn a_cdc_message_is_not_read_from_another() {
    let other = cdc::CdcMessage::parse(vector("L10"));
    assert_eq!(other, Err(Malformed::MessageType));
}

#[test]
fn the_length_of_version_2_is_taken_in_either_byte_order() {
    let mut bytes = vector("L3").to_vec();
    let little = llc_message(vector("L3"));
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
    let message = llc_message(vector("L6"));
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
    let mut bytes = vector("A2").to_vec();
    let trailer = bytes.split_off(156);
    bytes.extend([0xee; 600]);
    bytes.extend(trailer);
    let len = u16::try_from(bytes.len()).unwrap();
    bytes[5..7].copy_from_slice(&len.to_be_bytes());
    let expected = clc::Accept::parse(vector("A2"));
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
        let message = clc::ClcMessage::parse(bytes).unwrap();
        let mut buf = vec![0; bytes.len() - 1];
        assert!(message.emit(&mut buf).is_err(), "{name}");
    }
    for (name, bytes) in LLC {
        let mut buf = vec![0; bytes.len() - 1];
        let written = llc_message(bytes).emit(llc::PeerOrder::Big, &mut buf);
        assert!(written.is_err(), "{name}");
    }
}
