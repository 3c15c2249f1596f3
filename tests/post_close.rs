// SPDX-License-Identifier: GPL-2.0
//! A C peer that closes with data unsent, and sends them after its close: all that its application gave is read,
//! or an error is, never a clean end before.

mod common;

use common::{
    c_peer::WithC,
    duo::Duo,
    rng::{
        for_seeds,
        Rng, //
    },
    Side::{
        Client,
        Server, //
    },
};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    EpollMask,
    Recv,
    SendError,
    StateFlags, //
};
use smc_proto::cursor::Ring;

const RING: u32 = 16_384;

fn pair() -> WithC {
    WithC::new(SizeClass::SMALLEST, SizeClass::for_bytes(65_536))
}

fn read_all(pair: &mut WithC) {
    while let Recv::Ready(_) = pair.we_read(u32::MAX) {
        pair.settle();
    }
}

/// What the peer has said so far arrives.
fn we_hear_all(pair: &mut WithC) {
    for _ in 0..3 {
        pair.we_hear();
    }
}

/// The reader gets so many bytes in all, and then the end.
fn is_all(pair: &mut WithC, len: u64) {
    pair.settle();
    read_all(pair);
    assert_eq!((pair.read, pair.we_read(1)), (len, Recv::Eof));
}

#[test]
fn what_a_full_window_held_back_is_read_after_the_close() {
    let mut pair = pair();
    assert_eq!(pair.c_sends(50_000, false), 50_000);
    pair.c_closes();
    pair.settle();
    read_all(&mut pair);
    assert_eq!(pair.read, 50_000);
    assert_eq!(pair.we_read(1), Recv::Eof);
    pair.we_close();
    pair.settle();
    pair.c_goes();
    assert!(pair.ours.is_finished() && pair.peer.is_gone);
}

#[test]
fn a_reader_that_has_read_what_is_here_waits_for_the_rest() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_closes();
    we_hear_all(&mut pair);
    assert_eq!(pair.we_read(RING), Recv::Ready(RING));
    assert_eq!(pair.we_read(RING), Recv::Wait);
    let ready = pair.ours.readiness(1, true);
    assert!(!ready.contains(EpollMask::IN) && !ready.contains(EpollMask::RDHUP));
}

#[test]
fn data_that_just_fit_are_followed_by_the_end() {
    let mut pair = pair();
    pair.c_sends(RING.into(), false);
    pair.c_closes();
    is_all(&mut pair, RING.into());
}

#[test]
fn what_was_corked_is_read_after_a_close_that_does_not_tell_of_it() {
    for is_corked in [false, true] {
        let mut pair = pair();
        pair.c_sends(100, false);
        pair.c_sends(100, is_corked);
        pair.c_closes();
        we_hear_all(&mut pair);
        assert_eq!(pair.we_read(u32::MAX), Recv::Ready(100));
        assert_eq!(pair.we_read(u32::MAX), Recv::Wait, "the close is here");
        is_all(&mut pair, 200);
    }
}

#[test]
fn the_end_of_a_half_close_with_room_is_known_at_once() {
    let mut pair = pair();
    pair.c_sends(100, false);
    pair.c_is_done();
    we_hear_all(&mut pair);
    assert_eq!(pair.we_read(u32::MAX), Recv::Ready(100));
    assert_eq!(pair.we_read(1), Recv::Eof);
}

#[test]
fn what_a_full_window_held_back_is_read_after_a_half_close() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_is_done();
    is_all(&mut pair, 50_000);
}

#[test]
fn a_peer_that_waits_for_room_is_told_that_its_data_are_lost() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_closes();
    we_hear_all(&mut pair);
    // All that is here, of which the peer was not told.
    assert_eq!(pair.we_read(RING), Recv::Ready(RING));
    pair.we_close();
    assert!(!pair.ours.is_finished());
    pair.settle();
    assert!(pair.ours.is_finished(), "{:?}", pair.ours);
}

#[test]
fn our_last_message_does_not_make_the_peer_write() {
    let mut pair = pair();
    pair.c_sends(100, false);
    pair.settle();
    pair.we_read(100);
    pair.c_closes();
    pair.we_hear();
    pair.ours.close(true);
    let plan = pair.ours.plan().expect("our close");
    assert_eq!(plan.cdc.state, StateFlags::CLOSED);
    assert_eq!(plan.cdc.cons, Default::default(), "the cursor stands");
    pair.ours.on_sent(&plan.record, true);
    assert!(!pair.ours.is_finished(), "something may be on its way");
    assert!(pair.ours.begin_echo());
    pair.ours.on_silence();
    assert!(pair.ours.is_finished());
}

#[test]
fn an_answer_counts_for_what_was_asked_last() {
    let mut pair = pair();
    let c_says = |seq, state| Cdc {
        seq,
        state,
        ..Cdc::default()
    };
    pair.ours.on_cdc(&c_says(1, StateFlags::CLOSED)).unwrap();
    assert!(pair.ours.begin_echo() && !pair.ours.begin_echo());
    pair.ours.on_cdc(&c_says(2, StateFlags::CLOSED)).unwrap();
    assert!(!pair.ours.on_silence().wake_readers);
    assert_eq!(pair.ours.recv_state(), Recv::Wait);
    assert!(pair.ours.begin_echo());
    assert!(pair.ours.on_silence().wake_readers);
    assert_eq!(pair.ours.recv_state(), Recv::Eof);
}

#[test]
fn an_answer_by_another_link_says_nothing_and_the_reader_may_miss_data() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_closes();
    we_hear_all(&mut pair);
    assert!(pair.ours.may_miss_data_after_close());
    pair.we_read(RING);
    pair.ours.on_link_switch();
    assert!(!pair.ours.on_silence().wake_readers);
}

#[test]
fn peers_of_ours_end_at_once() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.settle();
    duo.client().close(true);
    duo.settle();
    assert_eq!(duo.read(Server), RING);
    assert_eq!(duo.server().recv_state(), Recv::Eof);
    assert!(!duo.server().begin_echo() && !duo.server().may_miss_data_after_close());
}

/// The peer's last messages arrive; returns what the reader gets, and whether that is the whole stream in order.
fn read_to_the_end(pair: &mut WithC) -> (u64, bool) {
    pair.settle();
    read_all(pair);
    assert_eq!(pair.we_read(1), Recv::Eof);
    assert_eq!(pair.ours.has_ended_in_order(), !pair.is_reset);
    (pair.read, pair.ours.has_ended_in_order())
}

#[test]
fn an_abort_before_all_was_sent_is_no_end_though_the_peer_is_done() {
    // The peer's shutdown(2) waits for two seconds only.
    for is_apart in [false, true] {
        let mut pair = pair();
        assert_eq!(pair.c_sends(50_000, false), 50_000);
        pair.c_is_done();
        if is_apart {
            we_hear_all(&mut pair);
        }
        pair.c_aborts();
        assert_eq!(read_to_the_end(&mut pair), (RING.into(), false));
    }
}

#[test]
fn an_abort_after_all_was_sent_leaves_the_end_as_it_is() {
    let mut pair = pair();
    pair.c_sends(100, false);
    pair.c_is_done();
    pair.c_aborts();
    assert_eq!(read_to_the_end(&mut pair), (100, true));
    assert_eq!(pair.ours.can_send(), Err(SendError::Pipe));
}

#[test]
fn an_abort_after_all_was_read_leaves_the_end_as_it_is() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_is_done();
    is_all(&mut pair, 50_000);
    pair.c_aborts();
    assert_eq!(read_to_the_end(&mut pair), (50_000, true));
}

#[test]
fn an_end_that_is_told_with_an_abort_only_is_none() {
    // Its own message got lost with a link, or found no slot.
    let mut pair = pair();
    let both = StateFlags::DONE_WRITING.with(StateFlags::ABORTED, true);
    let cdc = Cdc {
        seq: 1,
        state: both,
        ..Cdc::default()
    };
    assert!(pair.ours.on_cdc(&cdc).unwrap().reset);
    assert!(!pair.ours.has_ended_in_order());
}

#[test]
fn an_abort_of_a_peer_that_closed_is_an_error_until_nothing_follows_its_close() {
    for is_proven in [false, true] {
        let mut pair = pair();
        pair.c_sends(100, false);
        pair.c_sends(100, true);
        pair.c_closes();
        let len = match is_proven {
            true => {
                pair.settle();
                200
            }
            false => {
                we_hear_all(&mut pair);
                100
            }
        };
        pair.c_aborts();
        assert_eq!(read_to_the_end(&mut pair), (len, is_proven));
    }
}

#[test]
fn data_for_a_closed_peer_do_not_reset_it_while_it_may_send() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_closes();
    we_hear_all(&mut pair);
    assert!(!pair.ours.discard_after_close());
    is_all(&mut pair, 50_000);
    assert!(pair.ours.has_ended_in_order());
}

#[test]
fn data_for_a_closed_peer_reset_it_once_nothing_follows() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_closes();
    is_all(&mut pair, 50_000);
    assert!(pair.ours.discard_after_close());
    assert_eq!(pair.ours.plan().unwrap().cdc.state, StateFlags::ABORTED);
}

#[test]
fn data_that_cross_our_close_do_not_abort_a_c_peer() {
    for is_done in [false, true] {
        let mut pair = pair();
        pair.ours.close(true);
        let close = pair.ours.plan().unwrap();
        pair.ours.on_sent(&close.record, true);
        let data = Cdc {
            seq: 1,
            prod: Ring::new(SizeClass::SMALLEST).cursor(100),
            state: StateFlags::default().with(StateFlags::DONE_WRITING, is_done),
            ..Cdc::default()
        };
        pair.ours.on_cdc(&data).unwrap();
        let said = pair.ours.plan().map(|plan| plan.cdc.state);
        // Its D flag may be on its way: with that it would give up data that it has yet to read.
        assert_eq!(said, None);
    }
}

#[test]
fn who_sent_after_the_peers_close_is_told_of_an_abort_too() {
    let mut pair = pair();
    pair.c_sends(50_000, false);
    pair.c_closes();
    we_hear_all(&mut pair);
    assert_eq!(pair.ours.can_send(), Err(SendError::PeerClosed));
    pair.ours.discard_after_close();
    pair.c_aborts();
    assert_eq!(read_to_the_end(&mut pair), (RING.into(), false));
}

/// A C peer that sends in pieces of any size and goes without a warning; a reader who is slow, and may go, too.
#[test]
fn every_byte_or_no_end() {
    for_seeds(500, |seed| {
        let mut rng = Rng::new(seed);
        let classes = [SizeClass::SMALLEST, SizeClass::for_bytes(32_768)];
        let (rmbe, sndbuf) = (*rng.pick(&classes), *rng.pick(&classes));
        let mut pair = WithC::new(rmbe, sndbuf);
        let total = u64::from(match rng.below(4) {
            0 => rmbe.bytes() * rng.between(1, 4),
            1 => rng.below(1_000),
            _ => rng.below(100_000),
        });
        let (leaves_early, is_half) = (rng.one_in(4), rng.one_in(4));
        let aborts = rng.one_in(4);
        let (mut is_done, mut is_closed, mut has_closed) = (false, false, false);
        for _ in 0..100_000 {
            match rng.below(6) {
                0 if pair.peer.taken < total => {
                    let len = rng.between(1, 40_000).into();
                    let rest = total - pair.peer.taken;
                    pair.c_sends(rest.min(len), rng.one_in(8));
                }
                0 if is_half && !is_done => {
                    is_done = true;
                    pair.c_is_done();
                }
                0 if !is_closed => {
                    is_closed = true;
                    match aborts {
                        true => pair.c_aborts(),
                        false => pair.c_closes(),
                    }
                }
                1 if !has_closed => {
                    let want = rng.between(1, 30_000);
                    pair.we_read(want);
                    let early = leaves_early && is_closed && rng.one_in(8);
                    if pair.has_ended || early {
                        has_closed = true;
                        pair.we_close();
                    }
                }
                _ => pair.step(&mut rng),
            }
            if pair.peer.is_gone && pair.ours.is_finished() {
                break;
            }
        }
        assert!(
            pair.peer.is_gone && pair.ours.is_finished(),
            "{:?}",
            pair.ours
        );
        if pair.has_ended && !pair.is_reset {
            assert_eq!(pair.read, total, "a clean end, and bytes are missing");
        }
        assert!(aborts || !pair.is_reset, "{:?}", pair.ours);
        assert!(leaves_early || pair.has_ended);
    });
}
