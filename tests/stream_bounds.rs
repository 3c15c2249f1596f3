// SPDX-License-Identifier: GPL-2.0
//! What a peer may not say: the list of hardening rules, held against a stream.

mod common;

use common::{duo::Duo, Side::Client};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    Fault,
    Stream, //
};
use smc_proto::cursor::Cursor;
use smc_proto::error::PeerMisbehaved;

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

// --- What a peer may not say (the list of hardening rules).

#[test]
fn cursors_that_cannot_be_true_are_refused_and_change_nothing() {
    let at = |wrap, offset| Cursor { wrap, offset };
    let prod = |cursor| Cdc {
        seq: 9,
        prod: cursor,
        ..Cdc::default()
    };
    let cons = |cursor| Cdc {
        seq: 9,
        prod: at(0, 100),
        cons: cursor,
        ..Cdc::default()
    };
    for (cdc, error) in [
        (prod(at(0, RING)), PeerMisbehaved::CursorOutsideRing),
        (prod(at(0, u32::MAX)), PeerMisbehaved::CursorOutsideRing),
        (prod(at(1, 1)), PeerMisbehaved::ProducerOverrun),
        (prod(at(2, 0)), PeerMisbehaved::ProducerOverrun),
        (prod(at(0x8000, 0)), PeerMisbehaved::CursorJump),
        (prod(at(0xfffe, 0)), PeerMisbehaved::CursorJump),
        (cons(at(0, RING)), PeerMisbehaved::CursorOutsideRing),
        (cons(at(0, 11)), PeerMisbehaved::ConsumerOverrun),
        (cons(at(1, 0)), PeerMisbehaved::ConsumerOverrun),
        (cons(at(0xfffe, 0)), PeerMisbehaved::CursorJump),
    ] {
        let mut duo = Duo::new();
        duo.write(Client, 10);
        duo.post(Client);
        let before = format!("{:?}", duo.client());
        let result = duo.client().on_cdc(&cdc);
        assert_eq!(result, Err(Fault::Misbehaved(error)), "{cdc:?}");
        assert_eq!(format!("{:?}", duo.client()), before);
    }
}

#[test]
fn the_furthest_cursors_that_can_be_true_are_taken() {
    let mut duo = Duo::new();
    duo.write(Client, 10);
    duo.post(Client);
    let cdc = Cdc {
        seq: 1,
        prod: Cursor { wrap: 1, offset: 0 },
        cons: Cursor {
            wrap: 0,
            offset: 10,
        },
        ..Cdc::default()
    };
    duo.client().on_cdc(&cdc).unwrap();
    assert_eq!(duo.client().readable(), RING);
}

#[test]
fn a_consumer_cursor_before_any_data_were_sent_is_refused() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    let cdc = Cdc {
        seq: 1,
        cons: Cursor { wrap: 0, offset: 1 },
        ..Cdc::default()
    };
    let error = Fault::Misbehaved(PeerMisbehaved::ConsumerOverrun);
    assert_eq!(stream.on_cdc(&cdc), Err(error));
}

#[test]
fn a_peer_that_changed_links_may_go_back_to_what_it_knows() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    let at = |seq, offset| Cdc {
        seq,
        prod: Cursor { wrap: 0, offset },
        ..Cdc::default()
    };
    stream.on_cdc(&at(1, 100)).unwrap();
    assert!(!stream.on_cdc(&at(2, 40)).unwrap().wake_readers);
    assert_eq!(stream.readable(), 100);
    stream.on_cdc(&at(3, 120)).unwrap();
    assert_eq!(stream.readable(), 120);
}
