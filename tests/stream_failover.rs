// SPDX-License-Identifier: GPL-2.0
//! The rules of data transfer for a connection that moves to another link, one by one.

mod common;

use common::{
    c_peer::WithC,
    duo::Duo,
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
    Fault,
    ProducerFlags,
    Recv,
    StateFlags, //
};
use smc_proto::cursor::Cursor;

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

#[test]
fn unconfirmed_data_are_written_again_in_the_same_place() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    duo.settle();
    duo.write(Client, 50);
    let before = duo.post(Client);
    duo.lose(Client);
    duo.client().on_link_switch();
    let after = duo.post(Client);
    assert!(after[1].writes().eq(before[0].writes()));
    duo.arrive(Client);
    assert_eq!(duo.read(Server), 150);
}

#[test]
fn what_the_peer_has_read_is_not_written_again() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive_unconfirmed(Client);
    duo.server().consume_next(6_000);
    duo.post(Server);
    duo.arrive(Server);
    assert!(duo.effects[Client.index()].wake_writers);
    assert_eq!(duo.client().writable(), 6_000);
    assert!(duo.client().on_link_switch().transmit);
    assert_eq!(duo.client().writable(), 6_000);
    let plans = duo.post(Client);
    assert_eq!(plans[1].len(), RING - 6_000);
    duo.arrive(Client);
    assert_eq!(duo.server().readable(), RING - 6_000);
}

#[test]
fn an_answer_that_overtakes_the_repetition_makes_it_needless() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive_unconfirmed(Client);
    duo.client().on_link_switch();
    assert_eq!(duo.client().writable(), 0);
    duo.read(Server);
    duo.post(Server);
    duo.arrive(Server);
    assert!(duo.effects[Client.index()].wake_writers);
    assert_eq!(duo.client().writable(), RING);
    assert!(duo.post(Client).iter().all(|plan| plan.is_empty()));
}

#[test]
fn what_the_peer_repeats_is_not_called_read_before() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive_unconfirmed(Client);
    duo.client().on_link_switch();
    let plans: Vec<_> = std::iter::from_fn(|| duo.client().plan()).collect();
    let [validation, repetition] = plans.as_slice() else {
        panic!("{plans:?}");
    };
    duo.server().on_cdc(&validation.cdc).unwrap();
    assert!(!duo.server().consume_next(RING).transmit);
    // Where a message has to go out all the same, it says what the last one said.
    duo.write(Server, 1);
    assert_eq!(duo.server().plan().unwrap().cdc.cons, Cursor::default());
    duo.server().on_cdc(&repetition.cdc).unwrap();
    let told = duo.server().plan().unwrap().cdc.cons;
    assert_eq!(told, Cursor { wrap: 1, offset: 0 });
}

#[test]
fn a_validation_that_comes_after_what_followed_it_holds_nothing_up() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    duo.settle();
    duo.client().on_link_switch();
    let late = duo.client().plan().unwrap();
    assert!(late.cdc.is_validation());
    duo.client().on_sent(&late.record, true);
    // It lies in a queue while the client goes over to another link.
    duo.write(Client, RING - 100);
    duo.post(Client);
    duo.arrive(Client);
    assert!(duo.server().is_stale(&late.cdc));
    duo.server().on_cdc(&late.cdc).unwrap();
    duo.read(Server);
    duo.settle();
    assert_eq!(duo.client().writable(), RING);
    // The word of a C peer, which has anything there, is taken as it is.
    duo.server().advertise_late();
    assert!(!duo.server().is_stale(&late.cdc));
}

/// What `side` says was read, with a byte that it writes for that.
fn told(duo: &mut Duo, side: Side) -> Cursor {
    duo.write(side, 1);
    duo.post(side).last().expect("a message").cdc.cons
}

/// A server whose client is a C peer that has sent 100 bytes and knows that they arrived.
fn with_c_client() -> Duo {
    let mut duo = Duo::new();
    duo.server().advertise_late();
    duo.write(Client, 100);
    duo.settle();
    duo.write(Client, 100);
    duo.settle();
    duo
}

#[test]
fn a_c_peer_that_will_move_is_not_told_what_is_read_meanwhile() {
    let mut duo = with_c_client();
    duo.server().on_link_switch();
    duo.read(Server);
    assert_eq!(told(&mut duo, Server), Cursor::default());
    duo.client().on_link_switch();
    duo.settle();
    assert_eq!(told(&mut duo, Server).offset, 100);
    duo.arrive(Server);
    // The same when the next link goes.
    duo.write(Client, 100);
    duo.settle();
    duo.server().on_link_switch();
    duo.read(Server);
    assert_eq!(told(&mut duo, Server).offset, 100);
}

#[test]
fn a_c_peer_that_has_moved_is_not_waited_for() {
    let mut duo = with_c_client();
    duo.client().on_link_switch();
    duo.settle();
    duo.server().on_link_switch();
    duo.read(Server);
    assert_eq!(told(&mut duo, Server).offset, 100);
}

#[test]
fn a_c_peer_that_may_move_without_a_word_is_not_waited_for() {
    let mut duo = with_c_client();
    duo.client().shutdown_write().unwrap();
    duo.settle();
    duo.server().on_link_switch();
    duo.read(Server);
    assert_ne!(told(&mut duo, Server), Cursor::default());
    // Any message by the new link shows where it is.
    let mut duo = with_c_client();
    duo.server().on_link_switch();
    duo.read(Server);
    duo.write(Client, 100);
    duo.settle();
    assert_ne!(told(&mut duo, Server), Cursor::default());
}

/// Reads all that the C peer has to send. Returns the number of bytes read so far.
fn read_from_c(pair: &mut WithC) -> u64 {
    pair.settle();
    while let Recv::Ready(_) = pair.we_read(5_000) {
        pair.settle();
    }
    pair.read
}

#[test]
fn a_c_peer_with_a_full_window_moves_and_goes_on() {
    for completes in [true, false] {
        let mut pair = WithC::new(SizeClass::SMALLEST, SizeClass::for_bytes(65_536));
        pair.c_sends(50_000, false);
        if completes {
            pair.settle();
        }
        pair.c_moves();
        assert_eq!(read_from_c(&mut pair), 50_000, "completes: {completes}");
    }
}

#[test]
fn a_c_peer_whose_reader_reads_before_and_after_it_moves() {
    for first in [1, 5_000, 12_000, RING] {
        for moves in 1..3 {
            let mut pair = WithC::new(SizeClass::SMALLEST, SizeClass::for_bytes(65_536));
            pair.c_sends(50_000, false);
            pair.settle();
            for _ in 0..moves {
                pair.we_read(first);
                pair.c_moves();
            }
            assert_eq!(
                read_from_c(&mut pair),
                50_000,
                "{first} bytes, {moves} moves"
            );
        }
    }
}

#[test]
fn a_c_peer_that_moves_at_any_time_loses_nothing() {
    for_seeds(500, |seed| {
        let mut rng = Rng::new(seed);
        let mut pair = WithC::new(SizeClass::SMALLEST, SizeClass::for_bytes(65_536));
        let mut sent = 0;
        for _ in 0..rng.below(200) {
            match rng.below(16) {
                0..3 => sent += pair.c_sends(rng.below(30_000).into(), rng.below(4) == 0),
                3..6 => drop(pair.we_read(rng.below(20_000) + 1)),
                6 => pair.c_moves(),
                _ => pair.step(&mut rng),
            }
        }
        // Corked data go out with others.
        sent += pair.c_sends(1, false);
        assert_eq!(read_from_c(&mut pair), sent);
    });
}

#[test]
fn a_second_failover_does_not_claim_what_the_first_one_lost() {
    let mut duo = Duo::new();
    duo.write(Client, 10);
    duo.settle();
    for _ in 0..3 {
        duo.write(Client, 10);
        duo.post(Client);
        duo.lose(Client);
    }
    duo.client().on_link_switch();
    // The validation is completed, the repeated data are not; then this link fails too.
    let plans = duo.post(Client);
    duo.server().on_cdc(&plans[0].cdc).unwrap();
    duo.client().on_sent(&plans[0].record, true);
    duo.client().on_sent(&plans[1].record, false);
    duo.client().on_link_switch();
    let plan = duo.client().plan().unwrap();
    assert_eq!(plan.cdc.seq, 1);
    assert!(duo.server().on_cdc(&plan.cdc).is_ok());
}

#[test]
fn a_completed_validation_changes_no_number() {
    let mut duo = Duo::new();
    // Beyond half of the numbers, where 0 counts as later.
    for _ in 0..40_000 {
        duo.write(Client, 1);
        duo.settle();
        duo.read(Server);
    }
    for _ in 0..2 {
        duo.client().on_link_switch();
        let plans = duo.post(Client);
        assert_eq!(plans[0].cdc.seq, 40_000);
        duo.arrive(Client);
    }
}

#[test]
fn messages_lost_with_a_link_end_the_connection() {
    let mut duo = Duo::new();
    duo.write(Client, 10);
    // Completed, but lost at the peer: its adapter died.
    let plans = duo.post(Client);
    duo.client().on_sent(&plans[0].record, true);
    duo.client().on_link_switch();
    let plan = duo.client().plan().unwrap();
    assert_eq!(duo.server().on_cdc(&plan.cdc), Err(Fault::LostMessages));
    assert!(duo.server().abort().transmit);
    let abort = duo.server().plan().unwrap().cdc;
    assert_eq!(abort.state, StateFlags::ABORTED);
    assert!(duo.client().on_cdc(&abort).unwrap().reset);
}

#[test]
fn an_idle_connection_says_only_that_it_moved() {
    let mut duo = Duo::new();
    duo.write(Client, 10);
    duo.settle();
    duo.client().on_link_switch();
    let plans = duo.post(Client);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].cdc.flags, ProducerFlags::FAILOVER);
}

#[test]
fn the_send_buffer_stays_while_a_failed_link_may_read_it() {
    let mut duo = Duo::new();
    duo.write(Client, 10);
    let lost = duo.client().plan().unwrap();
    duo.client().on_link_switch();
    duo.post(Client);
    duo.arrive(Client);
    assert_eq!(duo.client().queues().unwrap().outq, 0);
    assert!(!duo.client().may_release_sndbuf());
    duo.client().on_sent(&lost.record, false);
    assert!(duo.client().may_release_sndbuf());
}
