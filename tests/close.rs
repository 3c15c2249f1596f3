// SPDX-License-Identifier: GPL-2.0
//! How connections end: states and flags step by step, what the application sees, and every order of
//! events that a seed finds.

mod common;

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
    }, //
};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    ConnState,
    EpollMask,
    IoctlQueues,
    ProducerFlags,
    Recv,
    SendError,
    StateFlags,
    Stream, //
};
use smc_proto::cursor::Cursor;
use smc_proto::link::Transport;

#[test]
fn orderly_close_by_the_client_first() {
    let mut duo = Duo::new();
    let fx = duo.client().close(true);
    assert!(fx.transmit && fx.state_changed);
    assert_eq!(duo.client().state(), ConnState::PeerCloseWait1);

    let plans = duo.post(Client);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].cdc.state, StateFlags::CLOSED);
    duo.arrive(Client);
    assert_eq!(duo.server().state(), ConnState::AppCloseWait1);
    assert!(duo.effects[Server.index()].peer_done);
    assert_eq!(duo.server().recv_state(), Recv::Eof);

    assert_eq!(duo.server().can_send(), Err(SendError::PeerClosed));
    assert!(!duo.server().has_work());

    duo.server().close(true);
    assert_eq!(duo.server().state(), ConnState::Closed);
    assert!(!duo.server().is_finished(), "its last message is not out");
    duo.settle();
    assert_eq!(duo.client().state(), ConnState::Closed);
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

#[test]
fn data_that_the_peers_close_met_are_known_to_be_lost() {
    let mut duo = Duo::new();
    duo.client().close(true);
    duo.post(Client);
    assert!(duo.write(Server, 10));
    duo.arrive(Client);
    // As over TCP, where a reset answers them.
    assert!(duo.effects[Server.index()].broken_pipe);
    assert_eq!(duo.server().can_send(), Err(SendError::Pipe));
}

#[test]
fn half_close_lets_the_other_direction_go_on() {
    let mut duo = Duo::new();
    duo.client().shutdown_write().unwrap();
    duo.settle();
    assert_eq!(duo.client().state(), ConnState::PeerCloseWait1);
    assert_eq!(duo.server().state(), ConnState::AppCloseWait1);
    assert_eq!(duo.client().can_send(), Err(SendError::Pipe));
    assert_eq!(duo.client().recv_state(), Recv::Wait);

    assert_eq!(duo.server().can_send(), Ok(()));
    assert!(duo.write(Server, 10));
    duo.settle();
    assert_eq!(duo.client().recv_state(), Recv::Ready(10));
    duo.server().shutdown_write().unwrap();
    duo.settle();
    assert_eq!(duo.client().state(), ConnState::PeerCloseWait2);
    assert_eq!(duo.server().state(), ConnState::AppCloseWait2);
    assert_eq!(duo.read(Client), 10);
    assert_eq!(duo.client().recv_state(), Recv::Eof);

    duo.client().close(true);
    duo.settle();
    assert_eq!(duo.client().state(), ConnState::PeerCloseWait2);
    duo.server().close(true);
    duo.settle();
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

#[test]
fn close_after_the_peers_half_close_waits_for_its_close() {
    let mut duo = Duo::new();
    duo.client().shutdown_write().unwrap();
    duo.settle();
    duo.server().close(true);
    assert_eq!(duo.server().state(), ConnState::PeerFinCloseWait);
    duo.settle();
    assert_eq!(duo.client().state(), ConnState::AppFinCloseWait);
    let fx = duo.client().close(true);
    assert!(fx.transmit);
    duo.settle();
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

#[test]
fn both_close_at_once() {
    let mut duo = Duo::new();
    for side in Side::BOTH {
        duo.at(side).close(true);
        duo.post(side);
    }
    for side in Side::BOTH {
        duo.arrive(side);
    }
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

#[test]
fn shutdown_of_both_directions_is_not_the_end_of_the_socket() {
    let mut duo = Duo::new();
    duo.client().close(false);
    duo.settle();
    duo.server().close(true);
    duo.settle();
    assert_eq!(duo.client().state(), ConnState::AppFinCloseWait);
    assert!(!duo.client().is_finished());
    let fx = duo.client().close(true);
    assert!(!fx.transmit, "the close was sent before");
    assert!(duo.client().is_finished());
}

#[test]
fn close_with_unread_data_aborts() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.settle();
    duo.server().close(true);
    let plans = duo.post(Server);
    assert_eq!(plans[0].cdc.state, StateFlags::ABORTED);
    duo.arrive(Server);
    assert_eq!(duo.client().state(), ConnState::ProcessAbort);
    assert!(duo.effects[Client.index()].reset);
    assert_eq!(duo.client().can_send(), Err(SendError::Pipe));
    assert_eq!(duo.client().recv_state(), Recv::Eof);

    let plans = duo.post(Client);
    assert_eq!(plans[0].cdc.state, StateFlags::ABORTED, "answered at once");
    duo.arrive(Client);
    assert!(duo.server().is_finished());
    assert!(!duo.client().close(true).transmit);
    assert!(duo.client().is_finished());
}

#[test]
fn an_abort_is_answered_once() {
    let mut duo = Duo::new();
    duo.client().shutdown_write().unwrap();
    duo.settle();
    duo.server().shutdown_write().unwrap();
    duo.settle();
    assert_eq!(duo.server().state(), ConnState::AppCloseWait2);
    duo.client().abort();
    duo.post(Client);
    duo.arrive(Client);
    assert_eq!(duo.server().state(), ConnState::Closed);
    assert_eq!(duo.post(Server).len(), 1);
    duo.arrive(Server);
    assert!(duo.post(Client).is_empty() && duo.post(Server).is_empty());
}

#[test]
fn data_unread_when_the_peer_aborts_stay_readable() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.settle();
    duo.client().abort();
    duo.settle();
    assert_eq!(duo.server().state(), ConnState::ProcessAbort);
    assert_eq!(duo.server().recv_state(), Recv::Ready(5));
    assert_eq!(duo.read(Server), 5);
    assert_eq!(duo.server().recv_state(), Recv::Eof);
}

#[test]
fn an_end_that_comes_after_our_abort_is_not_an_orderly_one() {
    let mut duo = Duo::new();
    duo.client().abort();
    // Its data are dropped, so that its end is not the end of what was read.
    duo.write(Server, 5);
    duo.server().shutdown_write().unwrap();
    duo.settle();
    assert_eq!(duo.client().recv_state(), Recv::Eof);
    assert!(!duo.client().has_ended_in_order());
}

#[test]
fn an_end_that_came_before_our_abort_is_an_orderly_one() {
    let mut duo = Duo::new();
    duo.server().shutdown_write().unwrap();
    duo.settle();
    duo.client().abort();
    duo.settle();
    assert!(duo.client().has_ended_in_order());
}

#[test]
fn an_abort_with_data_unsent_does_not_say_that_all_was_sent() {
    let mut duo = Duo::new();
    // As much as the peer has room for, and more.
    for _ in 0..2 {
        duo.write(Client, 16_384);
        duo.settle();
    }
    duo.client().shutdown_write().unwrap();
    duo.client().abort();
    let plans = duo.post(Client);
    assert!(plans[0].cdc.state.contains(StateFlags::ABORTED));
    assert!(!plans[0].cdc.state.contains(StateFlags::DONE_WRITING));
}

#[test]
fn local_abort_ends_in_closed_from_every_state_that_has_a_peer() {
    let prepare: [fn(&mut Duo); 5] = [
        |_| {},
        |duo| _ = duo.client().shutdown_write(),
        |duo| _ = duo.server().shutdown_write(),
        |duo| _ = duo.server().close(true),
        |duo| _ = duo.client().close(true),
    ];
    for prepare in prepare {
        let mut duo = Duo::new();
        prepare(&mut duo);
        duo.settle();
        assert!(duo.client().abort().transmit);
        assert!(duo.client().is_killed());
        assert_eq!(duo.client().state(), ConnState::PeerAbortWait);
        assert_eq!(duo.client().can_send(), Err(SendError::Pipe));
        let plans = duo.post(Client);
        assert!(plans[0].cdc.state.contains(StateFlags::ABORTED));
        duo.lose(Client);
        assert!(duo.client().aborted());
        assert_eq!(duo.client().state(), ConnState::Closed);
    }
}

#[test]
fn an_abort_over_a_dead_link_ends_too() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.post(Client);
    duo.client().abort();
    duo.client().aborted();
    duo.client().close(true);
    assert!(
        !duo.client().is_finished(),
        "work requests may be in flight"
    );
    duo.lose(Client);
    duo.client().set_no_link();
    assert!(duo.client().is_finished());
    assert!(duo.post(Client).is_empty(), "there is no link");
}

#[test]
fn an_aborted_connection_stays_until_the_peer_writes_no_more() {
    let mut duo = Duo::new();
    duo.write(Server, 5);
    duo.client().abort();
    duo.client().close(true);
    duo.post(Client);
    duo.post(Server);
    // The abort is on its way, and so are data of the peer, who knows nothing of it.
    duo.arrive(Server);
    duo.arrive(Client);
    assert_eq!(duo.client().state(), ConnState::Closed);
    assert!(
        !duo.client().is_finished(),
        "the peer may write to the RMBE"
    );
    assert_eq!(duo.post(Server).len(), 1, "the answer to the abort");
    duo.arrive(Server);
    assert!(duo.client().is_finished());
}

#[test]
fn an_aborted_connection_takes_no_more_data_from_the_peer() {
    let mut duo = Duo::new();
    duo.client().abort();
    duo.write(Server, 5);
    duo.post(Server);
    duo.arrive(Server);
    assert_eq!(duo.client().recv_state(), Recv::Eof);
    assert_eq!(duo.client().readable(), 0);
    let ready = duo.client().readiness(1, true);
    for bit in [EpollMask::IN, EpollMask::OUT, EpollMask::HUP] {
        assert!(ready.contains(bit), "{ready:?}");
    }
}

#[test]
fn the_close_follows_the_completion_of_the_data() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    assert!(duo.client().needs_flush());
    assert!(duo.client().close(true).transmit);
    let plans = duo.post(Client);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].len(), 100);
    assert_eq!(plans[0].cdc.state, StateFlags::default());
    assert!(!duo.client().is_finished());
    assert!(duo.client().on_sent(&plans[0].record, true).transmit);
    let plans = duo.post(Client);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].cdc.state, StateFlags::CLOSED);
}

#[test]
fn a_close_that_could_not_be_posted_is_posted_again() {
    let mut duo = Duo::new();
    let client = duo.client();
    client.close(true);
    let plan = client.plan().unwrap();
    assert!(!client.is_closing());
    client.plan_failed(&plan.record);
    assert!(client.is_closing());
    assert_eq!(client.plan().unwrap().cdc.state, StateFlags::CLOSED);
}

#[test]
fn done_writing_goes_with_the_last_data() {
    let mut duo = Duo::new();
    duo.write(Client, 16_384);
    duo.settle();
    duo.write(Client, 100);
    duo.client().shutdown_write().unwrap();
    duo.settle();
    // A message without data in between.
    let ask = Cdc {
        flags: ProducerFlags::UPDATE_REQUESTED,
        ..Cdc::default()
    };
    assert!(duo.client().on_cdc(&ask).unwrap().transmit);
    duo.settle();
    assert_eq!(duo.read(Server), 16_384);
    assert_eq!(duo.server().recv_state(), Recv::Wait, "more is to come");
    duo.settle();
    assert_eq!(duo.read(Server), 100);
    assert_eq!(duo.server().recv_state(), Recv::Eof);
}

#[test]
fn nothing_is_written_to_a_peer_that_closed() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    duo.server().close(true);
    duo.post(Server);
    duo.arrive(Server);
    let plan = duo.client().plan().expect("a reset");
    assert!(plan.is_empty(), "nobody reads it");
    assert!(duo.client().plan().is_none());
}

#[test]
fn data_of_a_failed_link_go_out_before_a_close_that_was_not_posted() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    duo.post(Client);
    duo.client().close(true);
    duo.lose(Client);
    duo.client().on_link_switch();
    duo.settle();
    assert_eq!(duo.server().recv_state(), Recv::Ready(100));
    assert_eq!(duo.server().state(), ConnState::AppCloseWait1);
}

#[test]
fn flush_is_over_when_everything_was_posted() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    assert!(duo.client().needs_flush() && duo.client().uncork());
    duo.post(Client);
    assert!(!duo.client().needs_flush(), "completion is not waited for");
}

#[test]
fn a_close_lost_with_its_link_is_repeated() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    duo.settle();
    duo.read(Server);
    duo.client().close(true);
    duo.post(Client);
    duo.lose(Client);
    assert!(duo.client().on_link_switch().transmit);
    let plans = duo.post(Client);
    assert_eq!(plans.len(), 2);
    assert_eq!(plans[0].cdc.flags, ProducerFlags::FAILOVER);
    assert_eq!(plans[1].cdc.state, StateFlags::CLOSED);
    duo.arrive(Client);
    assert_eq!(duo.server().state(), ConnState::AppCloseWait1);
}

#[test]
fn the_last_close_is_repeated_too() {
    let mut duo = Duo::new();
    duo.client().close(true);
    duo.settle();
    duo.server().close(true);
    assert_eq!(duo.server().state(), ConnState::Closed);
    duo.post(Server);
    duo.lose(Server);
    assert!(duo.server().on_link_switch().transmit);
    let plans = duo.post(Server);
    assert_eq!(plans[0].cdc.flags, ProducerFlags::FAILOVER);
    duo.arrive(Server);
    assert!(duo.client().is_finished() && duo.server().is_finished());
    assert!(
        !duo.server().on_link_switch().transmit,
        "nothing is left to say"
    );
}

#[test]
fn nothing_is_repeated_behind_a_posted_abort() {
    let mut duo = Duo::new();
    duo.write(Server, 1);
    duo.settle();
    duo.write(Client, 100);
    duo.post(Client);
    duo.client().close(true);
    duo.post(Client);
    duo.lose(Client);
    duo.client().on_link_switch();
    let plans = duo.post(Client);
    assert!(
        plans.iter().all(|plan| plan.is_empty()),
        "the RMBE may be another's"
    );
    let last = plans.last().unwrap().cdc;
    assert_eq!(last.state, StateFlags::ABORTED);
    assert_eq!(
        last.prod,
        Cursor::default(),
        "nothing is known to have arrived"
    );
    duo.arrive(Client);
    assert_eq!(duo.server().state(), ConnState::ProcessAbort);
}

#[test]
fn shutdown_is_refused_without_a_connection() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    assert_eq!(stream.shutdown_write().err(), Some(SendError::NotConnected));
    assert_eq!(stream.shutdown_read(), Err(SendError::NotConnected));
    stream.close(true);
    assert_eq!(stream.state(), ConnState::Closed);
    assert_eq!(stream.shutdown_write().err(), Some(SendError::NotConnected));
    assert!(stream.is_finished());
}

#[test]
fn a_close_that_overtakes_the_handshake_is_kept() {
    let mut server = Stream::new(SizeClass::SMALLEST);
    let mut client = Stream::new(SizeClass::SMALLEST);
    client.establish(SizeClass::SMALLEST);
    client.attach_sndbuf(SizeClass::SMALLEST);
    client.reserve(7);
    client.commit(7, Default::default());
    let data = client.plan().unwrap();
    server.on_cdc(&data.cdc).unwrap();
    client.on_sent(&data.record, true);
    client.close(true);
    server.on_cdc(&client.plan().unwrap().cdc).unwrap();
    let ask = Cdc {
        seq: 2,
        prod: Cursor { wrap: 0, offset: 7 },
        flags: ProducerFlags::UPDATE_REQUESTED,
        ..Cdc::default()
    };
    server.on_cdc(&ask).unwrap();
    assert!(server.plan().is_none(), "where to is not known yet");
    assert!(server.establish(SizeClass::SMALLEST));
    assert!(server.plan().is_some());
    assert_eq!(server.state(), ConnState::AppCloseWait1);
    assert_eq!(server.recv_state(), Recv::Ready(7));
}

#[test]
fn poll_reports_what_the_c_module_does() {
    let has = |stream: &Stream, bits: u32| {
        // What poll(2) asks for in the observations: IN, PRI, OUT, HUP, RDHUP.
        assert_eq!(stream.readiness(1, true).bits() & 0x2017, bits);
    };
    has(&Stream::new(SizeClass::SMALLEST), 0);
    let mut duo = Duo::new();
    has(duo.client(), 0x4);
    duo.write(Server, 5);
    duo.settle();
    has(duo.client(), 0x5);
    duo.read(Client);
    has(duo.client(), 0x4);
    duo.server().shutdown_write().unwrap();
    duo.settle();
    has(duo.client(), 0x2005);
    duo.client().shutdown_write().unwrap();
    has(duo.client(), 0x2015);
    duo.client().close(true);
    duo.server().close(true);
    duo.settle();
    has(duo.client(), 0x2015);
    assert!(duo.client().readiness(1, true).contains(EpollMask::HUP));
}

#[test]
fn ioctls_count_the_queues() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    let queues = |outq, outq_unsent| IoctlQueues {
        outq,
        outq_unsent,
        ..IoctlQueues::default()
    };
    assert_eq!(duo.client().queues(), Some(queues(5, 5)));
    duo.post(Client);
    assert_eq!(duo.client().queues(), Some(queues(5, 0)));
    duo.arrive(Client);
    assert_eq!(duo.client().queues(), Some(queues(0, 0)));
    assert_eq!(duo.server().queues().map(|queues| queues.inq), Some(5));
    let fresh = Stream::new(SizeClass::SMALLEST);
    assert_eq!(fresh.queues(), Some(IoctlQueues::default()));
}

/// Closes of all kinds while data flow and links fail: both ends always come to an end, and a reader that
/// saw an orderly end got everything.
#[test]
fn every_mix_of_closes_ends() {
    closes_of_all_kinds([Transport::Roce; 2]);
}

#[test]
fn every_mix_of_closes_ends_over_iwarp() {
    closes_of_all_kinds([Transport::Iwarp; 2]);
    closes_of_all_kinds([Transport::Iwarp, Transport::Roce]);
}

fn closes_of_all_kinds(kinds: [Transport; 2]) {
    for_seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let mut plan = || Plan {
            send: u64::from(rng.below(60_000)),
            close_early: rng.one_in(2),
            oob_one_in: *rng.pick(&[0, 5]),
            ..Plan::default()
        };
        let (client, server) = (plan(), plan());
        let mut pair = match kinds {
            [Transport::Roce, Transport::Roce] => Pair::new(seed, client, server),
            kinds => Pair::over(kinds, seed, client, server),
        };
        pair.failures = rng.below(3);
        pair.handovers = rng.below(3);
        pair.run();
        for side in Side::BOTH {
            let [host, peer] = [side, side.peer()].map(|side| &pair.hosts[side.index()]);
            assert_eq!(host.fault, None);
            assert!(
                host.stream.is_finished(),
                "{side:?}: {:?} {:?}",
                host.stream,
                peer.stream
            );
            if host.ended && !host.reset && peer.send_error.is_none() {
                assert_eq!(
                    host.place(),
                    peer.written,
                    "{side:?}: {:?} {:?}",
                    host.stream,
                    peer.stream
                );
            }
        }
    });
}
