// SPDX-License-Identifier: GPL-2.0
//! RMBEs that are replaced while a connection is in use.

mod common;

use std::cell::Cell;

use common::{
    duo::Duo,
    pair::{
        Pair,
        Plan, //
    },
    rng::{
        for_seeds,
        Rng, //
    },
    ReadNext as _,
    Side::{
        self,
        Client,
        Server, //
    },
};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Arrivals,
    Cdc,
    CdcHold,
    Fault,
    ProducerFlags,
    RmbeNum,
    RmbeRefs,
    RxVerdict,
    SendFlags,
    StateFlags,
    Stream, //
};
use smc_proto::cursor::Cursor;
use smc_proto::error::PeerMisbehaved;
use smc_proto::id::RmbeIndex;
use smc_proto::lgr::LinkIdx;
use smc_proto::link::Transport;

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

fn class(code: u8) -> SizeClass {
    SizeClass::from_code(code).unwrap()
}

const INDEX: RmbeIndex = RmbeIndex::FIRST;

/// Two ends that replace RMBEs, and take immediate data.
fn duo() -> Duo {
    let mut duo = Duo::new();
    for side in Side::BOTH {
        duo.at(side).set_replaceable();
        duo.at(side).set_immediate(true);
    }
    duo
}

/// `side` offers an RMBE, and the peer adopts it.
fn replace(duo: &mut Duo, side: Side, size: SizeClass) {
    duo.at(side).offer_rmbe(size, INDEX);
    duo.post(side);
    duo.arrive(side);
    let offer = duo.effects[side.peer().index()].offer.take();
    assert_eq!(offer.map(|offer| offer.size), Some(size));
    duo.at(side.peer()).adopt_rmbe(size);
}

#[test]
fn a_larger_one_has_more_room_at_once() {
    let mut duo = duo();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive(Client);
    assert!(duo.server().is_rmbe_short());
    replace(&mut duo, Server, class(2));
    duo.write(Client, RING);
    let plans = duo.post(Client);
    // At the place that the stream position has there, not at the start.
    assert_eq!(plans[0].writes().next().unwrap().dst_offset, RING);
    assert_eq!(plans[0].immediate(), None, "a message names the RMBE");
    duo.arrive(Client);
    assert!(duo.effects[Server.index()].replaced);
    assert_eq!(duo.server().readable(), 2 * RING);
    // First what is in the one before.
    assert!(duo.server().is_in_replaced(0) && duo.server().is_in_replaced(RING - 1));
    assert!(!duo.server().is_in_replaced(RING));
    assert!(duo.server().needs_replaced());
    let chunks = duo.server().peek_chunks(0, u32::MAX);
    assert_eq!(chunks[0].len + chunks[1].len, RING);
    duo.server().consume_next(RING);
    assert!(!duo.server().needs_replaced());
    assert_eq!(duo.read(Server), RING);
    duo.settle();
    assert_eq!(duo.client().rings(class(0)).peer_rmbe, 4 * RING);
}

#[test]
fn a_smaller_one_waits_until_all_fits() {
    let mut duo = duo();
    replace(&mut duo, Server, class(1));
    duo.settle();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive(Client);
    duo.write(Client, 1);
    duo.post(Client);
    duo.arrive(Client);
    duo.server().offer_rmbe(class(0), INDEX);
    duo.settle();
    assert_eq!(duo.effects[Client.index()].offer.take(), None);
    duo.read(Server);
    duo.settle();
    assert!(duo.effects[Client.index()].offer.is_some());
}

#[test]
fn nothing_is_offered_while_the_one_before_is_needed() {
    let mut duo = duo();
    duo.write(Client, 10);
    duo.post(Client);
    duo.arrive(Client);
    replace(&mut duo, Server, class(2));
    assert!(!duo.server().may_offer_rmbe(), "it was not adopted");
    duo.settle();
    assert!(!duo.server().may_offer_rmbe(), "10 bytes are unread");
    duo.read(Server);
    assert!(duo.server().may_offer_rmbe());
    duo.client().close(true);
    duo.settle();
    assert!(!duo.server().may_offer_rmbe(), "the peer has closed");
}

#[test]
fn immediate_data_follow_the_message_that_names_the_new_one() {
    let mut duo = duo();
    replace(&mut duo, Server, class(2));
    duo.write(Client, 100);
    assert_eq!(duo.post(Client)[0].immediate(), None);
    duo.arrive(Client);
    duo.write(Client, 100);
    assert!(duo.post(Client)[0].immediate().is_some());
    duo.arrive(Client);
    assert_eq!(duo.read(Server), 200);
}

#[test]
fn a_message_that_was_lost_is_repeated_with_the_data() {
    let mut duo = duo();
    duo.write(Client, 100);
    duo.post(Client);
    duo.lose(Client);
    replace(&mut duo, Server, class(2));
    duo.write(Client, 100);
    duo.post(Client);
    duo.lose(Client);
    duo.client().on_link_switch();
    let repeated = duo.post(Client);
    assert_eq!(repeated[1].len(), 200);
    duo.arrive(Client);
    assert!(
        !duo.server().needs_replaced(),
        "all of it is in the new one"
    );
    assert_eq!(duo.read(Server), 200);
}

#[test]
fn a_peer_that_cannot_hears_nothing_of_it() {
    let mut duo = Duo::new();
    assert!(!duo.server().may_offer_rmbe());
    duo.write(Client, 1);
    assert_eq!(duo.post(Client)[0].cdc.rmbes, RmbeRefs::default());
    // And what it says there is not for us.
    let refs = RmbeRefs {
        prod: RmbeNum(7),
        cons: RmbeNum(9),
        ..RmbeRefs::default()
    };
    let strange = Cdc {
        seq: 1,
        rmbes: refs,
        ..Cdc::default()
    };
    assert!(duo.server().on_cdc(&strange).is_ok());
}

#[test]
fn what_a_peer_says_is_checked() {
    let unknown = Err(Fault::Misbehaved(PeerMisbehaved::UnknownRmbe));
    let overrun = Err(Fault::Misbehaved(PeerMisbehaved::ProducerOverrun));
    let said = |prod: u8, cons: u8, since: u32, cursor: u32| Cdc {
        seq: 1,
        prod: Cursor {
            wrap: 0,
            offset: cursor,
        },
        rmbes: RmbeRefs {
            prod: RmbeNum(prod),
            cons: RmbeNum(cons),
            since,
            offer: None,
        },
        ..Cdc::default()
    };
    let answer = |offers: bool, cdc: &Cdc| {
        let mut duo = duo();
        if offers {
            duo.server().offer_rmbe(class(2), INDEX);
        }
        duo.server().on_cdc(cdc).map(|fx| fx.replaced)
    };
    assert_eq!(answer(false, &said(1, 0, 0, 0)), unknown, "never offered");
    assert_eq!(answer(true, &said(2, 0, 0, 0)), unknown, "not the next");
    assert_eq!(answer(true, &said(0, 1, 0, 0)), unknown, "never used");
    assert_eq!(
        answer(true, &said(1, 0, 9, 8)),
        unknown,
        "before it is used"
    );
    assert_eq!(answer(true, &said(1, 0, 20_000, 30_000)), overrun);
    assert_eq!(
        answer(true, &said(1, 0, 0, 65_536)),
        Err(Fault::Misbehaved(PeerMisbehaved::CursorOutsideRing))
    );
    assert_eq!(answer(true, &said(1, 0, 8, 30_000)), Ok(true));
    assert_eq!(answer(true, &said(0, 0, 5, 9)), Ok(false));
}

#[test]
fn a_connection_that_ends_offers_and_adopts_nothing() {
    let mut duo = duo();
    duo.server().offer_rmbe(class(2), INDEX);
    duo.client().close(true);
    duo.settle();
    assert_eq!(duo.effects[Client.index()].offer, None);
    let closed = Cdc {
        seq: 9,
        state: StateFlags::CLOSED,
        ..Cdc::default()
    };
    assert!(duo.server().on_cdc(&closed).is_ok());
}

/// A mixed plan with more to send, and more kinds of chunks and small sizes.
fn mixed_plan(pair_seed: u64, salt: u64) -> Plan {
    let mut rng = Rng::new(!(pair_seed * 2 + salt));
    Plan {
        send: u64::from(rng.below(400_000)),
        chunk: *rng.pick(&[300, 3_000, 20_000, 100_000]),
        rmbe: class(rng.between(0, 2) as u8),
        sndbuf: class(rng.between(0, 2) as u8),
        ..Plan::mixed(pair_seed, salt)
    }
}

const KINDS: [[Transport; 2]; 4] = [
    [Transport::Roce, Transport::Roce],
    [Transport::Iwarp, Transport::Iwarp],
    [Transport::Roce, Transport::Iwarp],
    [Transport::Iwarp, Transport::Roce],
];

/// Bytes are at their place, in their order, and nothing is written to an RMBE that was released, while links fail and
/// connections move.
#[test]
fn every_byte_arrives_while_rmbes_are_replaced() {
    let total = Cell::new(0);
    for_seeds(80, |seed| {
        for kinds in KINDS {
            let mut pair = Pair::over(kinds, seed, mixed_plan(seed, 0), mixed_plan(seed, 1));
            pair.offers = 12;
            pair.handovers = (seed % 3 * 5) as u32;
            pair.failures = (seed % 5) as u32;
            total.set(total.get() + pair.run_to_the_end().adopted);
        }
    });
    assert!(total.get() > 800, "{}", total.get());
}

/// An end that replaces RMBEs.
fn stream() -> Stream {
    let mut stream = Stream::new(class(0));
    stream.set_replaceable();
    stream.establish(class(0));
    stream
}

fn write(stream: &mut Stream, len: u32) {
    if stream.needs_sndbuf() {
        stream.attach_sndbuf(class(2));
    }
    stream.reserve(len);
    stream.commit(len, SendFlags::default());
}

#[test]
fn what_arrived_in_the_one_before_is_repeated_if_that_is_heard_late() {
    let (mut client, mut server) = (stream(), stream());
    write(&mut client, 100);
    let first = client.plan().unwrap();
    server.offer_rmbe(class(2), INDEX);
    let offer = server.plan().unwrap();
    assert!(client.on_cdc(&offer.cdc).unwrap().offer.is_some());
    client.adopt_rmbe(class(2));
    client.on_link_switch();
    let validation = client.plan().unwrap();
    assert!(validation.cdc.is_validation());
    // By the link before, whose queue the server has not looked at.
    client.on_sent(&first.record, true);
    let second = client.plan().unwrap();
    assert_eq!(second.len(), 100);
    for cdc in [validation.cdc, second.cdc] {
        server.on_cdc(&cdc).unwrap();
    }
    assert_eq!(server.readable(), 100);
    assert!(!server.is_in_replaced(0));
}

#[test]
fn an_offer_is_made_again_to_a_peer_that_waits_for_room() {
    let (mut client, mut server) = (stream(), stream());
    write(&mut client, 40_000);
    let first = client.plan().unwrap();
    // It has something to repeat.
    client.on_link_switch();
    server.on_cdc(&first.cdc).unwrap();
    server.offer_rmbe(class(2), INDEX);
    let offer = server.plan().unwrap();
    assert_eq!(client.on_cdc(&offer.cdc).unwrap().offer, None);
    client.on_sent(&first.record, false);
    while let Some(plan) = client.plan() {
        server.on_cdc(&plan.cdc).unwrap();
        client.on_sent(&plan.record, true);
    }
    assert!(server.is_rmbe_short());
    let again = server.plan().expect("the offer");
    assert!(client.on_cdc(&again.cdc).unwrap().offer.is_some());
    // Nobody waits: once in a while.
    assert!(!server.has_work());
    assert!(server.repeat_offer() && server.has_work());
}

#[test]
fn data_in_both_are_synchronised_where_they_are_read() {
    let mut server = stream();
    let (first, second) = (LinkIdx::ALL[0], LinkIdx::ALL[1]);
    let (mut arrivals, mut cdc_hold) = (Arrivals::default(), CdcHold::default());
    let data = |seq, offset, num, since| Cdc {
        seq,
        prod: Cursor { wrap: 0, offset },
        rmbes: RmbeRefs {
            prod: RmbeNum(num),
            since,
            ..RmbeRefs::default()
        },
        ..Cdc::default()
    };
    let begin = data(1, 50, 0, 0);
    server.on_cdc(&begin).unwrap();
    arrivals.took(first, &begin, &server);
    server.offer_rmbe(class(2), INDEX);
    let validation = Cdc {
        seq: 1,
        prod: Cursor { wrap: 2, offset: 0 },
        flags: ProducerFlags::FAILOVER,
        ..Cdc::default()
    };
    // 50 to 120 came by the first link, and were repeated in the other RMBE by the second one.
    let held = [
        (second, validation),
        (first, data(2, 120, 0, 0)),
        (second, data(3, 200, 1, 50)),
    ];
    for (link, cdc) in held {
        let verdict = cdc_hold.filter(&cdc, &mut server, true);
        assert_ne!(verdict, RxVerdict::Deliver);
        assert!(arrivals.hold(link, &cdc, &server));
    }
    cdc_hold.begin_flush();
    let parts: Vec<_> = arrivals.release(&server).into_iter().flatten().collect();
    for cdc in cdc_hold.release().iter().flatten() {
        server.on_cdc(cdc).unwrap();
    }
    assert!(!server.is_in_replaced(50));
    let read = server.peek_chunks(50, u32::MAX);
    assert_eq!((read[0].offset, read[0].len), (50, 150));
    let (link, arrived) = parts[1];
    assert_eq!((link, arrived.offered), (second, read));
}
