// SPDX-License-Identifier: GPL-2.0
//! Immediate data of RDMA writes in place of CDC messages.

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
    Side::{
        self,
        Client,
        Server, //
    },
};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    CdcHold,
    ConnState,
    Fault,
    ProducerFlags,
    RxVerdict,
    SendFlags,
    StateFlags,
    Stream, //
};
use smc_proto::cursor::Cursor;
use smc_proto::error::PeerMisbehaved;
use smc_proto::link::Transport;

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

/// Two ends that take immediate data.
fn duo() -> Duo {
    let mut duo = Duo::new();
    duo.client().set_immediate(true);
    duo.server().set_immediate(true);
    duo
}

/// Writes `len` bytes, and returns whether immediate data announce them.
fn is_immediate(duo: &mut Duo, side: Side, len: u32) -> bool {
    duo.write(side, len);
    let posted = duo.post(side);
    duo.arrive(side);
    assert_eq!(posted.len(), 1);
    posted[0].immediate().is_some()
}

#[test]
fn one_write_needs_no_message() {
    let mut duo = duo();
    for len in [1, 64, 4_000] {
        assert!(is_immediate(&mut duo, Client, len));
    }
    assert_eq!(duo.read(Server), 4_065);
    assert!(is_immediate(&mut duo, Server, 100));
    assert_eq!(duo.read(Client), 100);
}

#[test]
fn a_peer_or_a_link_that_cannot_gets_messages() {
    let mut duo = Duo::new();
    assert!(!is_immediate(&mut duo, Client, 10));
    duo.client().set_immediate(true);
    assert!(
        !is_immediate(&mut duo, Client, 10),
        "the first on this link"
    );
    assert!(is_immediate(&mut duo, Client, 10));
    duo.client().set_immediate(false);
    assert!(!is_immediate(&mut duo, Client, 10));
    assert_eq!(duo.read(Server), 40);
}

/// Client and server exchange messages until the client's next one has number 0.
fn come_round(duo: &mut Duo) {
    let mut seq = 0;
    while seq != u16::MAX {
        duo.write(Client, 1);
        let posted = duo.post(Client);
        seq = posted.last().unwrap().cdc.seq;
        duo.arrive(Client);
        duo.read(Server);
        duo.post(Server);
        duo.arrive(Server);
    }
}

#[test]
fn a_number_that_comes_round_is_no_new_connection() {
    let mut duo = duo();
    come_round(&mut duo);
    assert!(is_immediate(&mut duo, Client, 1), "number 0");
    duo.read(Server);
    assert!(duo.server().is_heard());
    // On another link the first message has to be a full one.
    duo.client().set_immediate(true);
    assert!(!is_immediate(&mut duo, Client, 1));
    assert!(is_immediate(&mut duo, Client, 1));
}

#[test]
fn what_says_more_is_a_message() {
    let mut duo = duo();
    let oob = SendFlags {
        oob: true,
        last: true,
        ..SendFlags::default()
    };
    duo.write_as(Client, 1, oob);
    assert_eq!(duo.post(Client)[0].immediate(), None, "urgent data");
    duo.arrive(Client);
    duo.read(Server);
    duo.settle();
    duo.write(Client, RING);
    let plan = duo.post(Client)[0];
    assert_eq!(plan.immediate(), None, "no window is left");
    assert_eq!(plan.writes().count(), 2);
    duo.arrive(Client);
    duo.read(Server);
    duo.settle();
    duo.write(Client, 10);
    duo.client().shutdown_write().unwrap();
    assert_eq!(duo.post(Client)[0].immediate(), None, "nothing follows");
}

#[test]
fn two_writes_need_a_message() {
    let mut duo = duo();
    for _ in 0..3 {
        assert!(is_immediate(&mut duo, Client, 5_000));
        duo.read(Server);
        duo.settle();
    }
    duo.write(Client, 5_000);
    let plan = duo.post(Client)[0];
    assert_eq!((plan.writes().count(), plan.immediate()), (2, None));
}

#[test]
fn requests_and_answers_need_no_message_for_the_consumer_cursor_alone() {
    let mut duo = duo();
    let (mut messages, mut immediates) = (0, 0);
    for _ in 0..1_000 {
        for side in [Client, Server] {
            duo.write(side, 64);
            for plan in duo.post(side) {
                assert!(!plan.is_empty(), "a message without data");
                match plan.immediate() {
                    None => messages += 1,
                    Some(_) => immediates += 1,
                }
            }
            duo.arrive(side);
            assert_eq!(duo.read(side.peer()), 64);
        }
    }
    // One in 64 carries the cursor, and those at the ring's end are messages: none of 64 bytes crosses it.
    assert_eq!(messages + immediates, 2_000);
    assert!((20..=40).contains(&messages), "{messages}");
}

#[test]
fn after_a_post_that_failed_there_is_a_message() {
    let mut duo = duo();
    duo.write(Client, 10);
    let plan = duo.client().plan().unwrap();
    assert!(plan.immediate().is_some());
    duo.client().plan_failed(&plan.record);
    let again = duo.client().plan().unwrap();
    assert_eq!((again.len(), again.immediate()), (10, None));
    assert_eq!(again.cdc.seq, plan.cdc.seq);
}

#[test]
fn what_does_not_follow_the_message_before_is_a_message() {
    let mut duo = duo();
    let urgent = SendFlags {
        oob: true,
        last: true,
        ..SendFlags::default()
    };
    duo.write_as(Client, 10, urgent);
    duo.post(Client);
    duo.write(Client, 20);
    duo.post(Client);
    duo.arrive_unconfirmed(Client);
    assert_eq!(duo.read(Server), 29);
    // The move repeats all of it, first up to the urgent byte.
    duo.client().on_link_switch();
    duo.client().set_immediate(true);
    assert!(duo.client().plan().unwrap().cdc.is_validation());
    assert_eq!(duo.client().plan().unwrap().cdc.prod.offset, 10);
    // Meanwhile it becomes known that the peer has read it.
    duo.post(Server);
    duo.arrive(Server);
    duo.write(Client, 5);
    let plan = duo.client().plan().unwrap();
    assert_eq!((plan.cdc.prod.offset, plan.len()), (35, 5));
    assert_eq!(plan.immediate(), None);
}

/// A connection that received message 1, of 10 bytes.
struct Rig {
    cdc_hold: CdcHold,
    stream: Stream,
}

impl Rig {
    fn new() -> Self {
        let mut stream = Stream::new(SizeClass::SMALLEST);
        stream.establish(SizeClass::SMALLEST);
        stream.on_cdc(&data(1, 10)).unwrap();
        let cdc_hold = CdcHold::default();
        Self { cdc_hold, stream }
    }

    fn message(&mut self, cdc: &Cdc) -> RxVerdict {
        let verdict = self.cdc_hold.filter(cdc, &mut self.stream, false);
        if verdict == RxVerdict::Deliver {
            self.stream.on_cdc(cdc).unwrap();
        }
        verdict
    }

    /// `None` if they are obsolete.
    fn immediate(&mut self, seq: u16, len: u32) -> Result<Option<RxVerdict>, Fault> {
        let cdc = self.cdc_hold.expand(seq, len, &self.stream)?;
        Ok(cdc.map(|cdc| self.message(&cdc)))
    }

    fn release(&mut self) {
        self.cdc_hold.begin_flush();
        for cdc in self.cdc_hold.release().iter().flatten() {
            self.stream.on_cdc(cdc).unwrap();
        }
    }
}

fn data(seq: u16, offset: u32) -> Cdc {
    Cdc {
        seq,
        prod: Cursor { wrap: 0, offset },
        ..Cdc::default()
    }
}

fn validation(seq: u16) -> Cdc {
    Cdc {
        seq,
        prod: Cursor {
            wrap: u16::MAX / 2,
            offset: 0,
        },
        flags: ProducerFlags::FAILOVER,
        ..Cdc::default()
    }
}

#[test]
fn bytes_follow_those_of_the_message_before() {
    let mut rig = Rig::new();
    assert_eq!(rig.immediate(2, 5), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.immediate(3, 7), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.stream.readable(), 22);
    // The peer repeats from an earlier position.
    rig.message(&data(4, 12));
    assert_eq!(rig.immediate(5, 6), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.stream.readable(), 22);
    assert_eq!(rig.immediate(6, 6), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.stream.readable(), 24);
}

#[test]
fn obsolete_ones_add_nothing() {
    let mut rig = Rig::new();
    rig.message(&data(4, 40));
    for seq in [2, 3, 4, 5 + (1 << 15)] {
        assert_eq!(rig.immediate(seq, 5), Ok(None), "{seq}");
    }
    assert_eq!(rig.stream.readable(), 40);
}

#[test]
fn a_gap_means_lost_messages() {
    let mut rig = Rig::new();
    for seq in [3, 4, 1 << 15] {
        assert_eq!(rig.immediate(seq, 5), Err(Fault::LostMessages), "{seq}");
    }
    rig.stream.abort();
    assert_eq!(rig.immediate(3, 5), Ok(None), "after the abort");
}

#[test]
fn more_than_there_is_room_for_is_a_fault() {
    let overrun = Fault::Misbehaved(PeerMisbehaved::ProducerOverrun);
    let mut rig = Rig::new();
    for len in [RING + 1, 4 * RING, u32::MAX] {
        assert_eq!(rig.immediate(2, len), Err(overrun), "{len}");
    }
    let cdc = rig.cdc_hold.expand(2, RING - 9, &rig.stream);
    assert_eq!(rig.stream.on_cdc(&cdc.unwrap().unwrap()), Err(overrun));
    assert_eq!(rig.immediate(2, RING - 10), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.stream.readable(), RING);
}

#[test]
fn those_behind_a_held_message_are_held() {
    let mut rig = Rig::new();
    // The peer moves; message 2 is in the queue of the old link.
    assert_eq!(rig.message(&validation(2)), RxVerdict::HoldAndFlush);
    assert_eq!(
        rig.immediate(4, 5),
        Err(Fault::LostMessages),
        "no message yet"
    );
    assert_eq!(rig.message(&data(3, 30)), RxVerdict::Hold);
    assert_eq!(rig.immediate(4, 5), Ok(Some(RxVerdict::Hold)));
    assert_eq!(rig.immediate(5, 5), Ok(Some(RxVerdict::Hold)));
    assert_eq!(rig.immediate(4, 5), Ok(None));
    assert_eq!(rig.immediate(2, 10), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.stream.readable(), 20);
    rig.release();
    assert_eq!(rig.stream.readable(), 40);
    assert_eq!(rig.immediate(6, 1), Ok(Some(RxVerdict::Deliver)));
    assert_eq!(rig.stream.readable(), 41);
}

#[test]
fn the_state_of_the_connection_stays() {
    let mut rig = Rig::new();
    let mut done = data(2, 20);
    done.state.insert(StateFlags::DONE_WRITING);
    rig.message(&done);
    let cdc = rig.cdc_hold.expand(3, 0, &rig.stream).unwrap().unwrap();
    assert_eq!(cdc.state, StateFlags::DONE_WRITING);
}

/// Small writes through large rings.
fn small(rng: &mut Rng) -> Plan {
    Plan {
        send: u64::from(rng.below(60_000)),
        oob_one_in: *rng.pick(&[0, 0, 50]),
        cork_one_in: *rng.pick(&[0, 10]),
        chunk: *rng.pick(&[64, 500, 3_000]),
        rmbe: SizeClass::from_code(rng.between(0, 2) as u8).unwrap(),
        sndbuf: SizeClass::from_code(rng.between(0, 2) as u8).unwrap(),
        ..Plan::default()
    }
}

#[test]
fn every_byte_arrives_whatever_link_announces_it() {
    let (immediates, moves) = (Cell::new(0), Cell::new(0));
    for_seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let kinds = match rng.one_in(4) {
            true => [Transport::Roce, Transport::Iwarp],
            false => [Transport::Roce; 2],
        };
        let mut pair = Pair::over(kinds, seed, small(&mut rng), small(&mut rng));
        pair.failures = rng.between(0, 6);
        pair.handovers = rng.between(0, 30);
        pair.run();
        for side in Side::BOTH {
            let sent = pair.hosts[side.peer().index()].written;
            let host = &pair.hosts[side.index()];
            assert_eq!(host.fault, None, "{:?}", host.stream);
            assert_eq!(host.written, host.plan.send);
            assert_eq!(host.place(), sent);
            assert_eq!(host.stream.state(), ConnState::Closed);
        }
        immediates.set(immediates.get() + pair.fabric.immediates);
        moves.set(moves.get() + pair.handed_over);
    });
    assert!(immediates.get() > 2_000, "{}", immediates.get());
    assert!(moves.get() > 100, "{}", moves.get());
}
