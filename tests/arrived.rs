// SPDX-License-Identifier: GPL-2.0
//! Data that have arrived are read before the error with which a connection ends.

mod common;

use common::{
    duo::Duo,
    Side::{
        self,
        Client,
        Server, //
    },
};
use smc_proto::conn::{
    ConnState,
    EpollMask,
    Recv,
    SendError,
    StateFlags, //
};

#[test]
fn data_that_arrived_before_a_reset_are_read_before_its_end() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.settle();
    duo.server().abort();
    assert!(duo.server().readiness(1, true).contains(EpollMask::IN));
    assert_eq!(duo.server().recv_state(), Recv::Ready(5));
    duo.settle();
    assert!(duo.server().aborted());
    assert_eq!(duo.server().recv_state(), Recv::Ready(5));
    assert_eq!(duo.server().queues().map(|queues| queues.inq), Some(5));
    assert_eq!(duo.read(Server), 5);
    assert_eq!(duo.server().recv_state(), Recv::Eof);
}

#[test]
fn data_that_arrived_before_the_peers_abort_are_read_after_a_half_close_too() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.client().shutdown_write().unwrap();
    duo.settle();
    duo.server().shutdown_write().unwrap();
    duo.settle();
    duo.client().abort();
    duo.settle();
    assert_eq!(duo.server().state(), ConnState::Closed);
    assert_eq!(duo.server().recv_state(), Recv::Ready(5));
}

#[test]
fn nothing_is_read_after_a_close_of_ours() {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.settle();
    duo.server().close(true);
    duo.server().abort();
    duo.settle();
    duo.server().aborted();
    assert_eq!(duo.server().recv_state(), Recv::Eof);
}

#[test]
fn shutdown_of_both_directions_leaves_unread_data_to_be_read() {
    let mut duo = Duo::new();
    assert!(duo.write(Server, 10));
    duo.settle();
    duo.client().close(false);
    duo.settle();
    assert_eq!(duo.server().recv_state(), Recv::Eof);
    assert!(!duo.effects[Server.index()].reset);
    assert!(!duo.effects[Server.index()].broken_pipe);
    assert_eq!(duo.client().recv_state(), Recv::Ready(10));
    duo.server().close(true);
    duo.settle();
    assert_eq!(duo.client().recv_state(), Recv::Ready(10));
    assert!(!duo.client().is_finished(), "the socket is still there");
    duo.client().close(true);
    assert_eq!(duo.client().recv_state(), Recv::Eof);
    duo.settle();
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

/// The client has unread data and shuts down both directions; its close flag waits behind data for which the server has
/// no room.
fn shut_down_with_all_unread() -> Duo {
    let mut duo = Duo::new();
    assert!(duo.write(Server, 10));
    duo.settle();
    for _ in 0..20 {
        duo.write(Client, 1000);
        duo.settle();
    }
    duo.client().close(false);
    duo.settle();
    duo
}

#[test]
fn data_that_arrive_after_a_shutdown_of_both_directions_are_refused() {
    let mut duo = shut_down_with_all_unread();
    assert!(!duo.effects[Server.index()].reset, "what was unread before");
    assert!(duo.write(Server, 10));
    duo.settle();
    assert!(duo.effects[Server.index()].reset);
}

#[test]
fn a_close_after_a_shutdown_of_both_directions_resets_if_data_are_unread() {
    let mut duo = shut_down_with_all_unread();
    // Nothing may arrive any more, if the server has no room to write.
    duo.client().close(true);
    duo.settle();
    assert!(duo.effects[Server.index()].reset);
    duo.server().close(true);
    duo.settle();
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

/// A client that has shut down both directions, or closed, and told so.
fn ended_in_order(is_released: bool) -> Duo {
    let mut duo = Duo::new();
    duo.write(Client, 5);
    duo.settle();
    duo.client().close(is_released);
    duo.settle();
    assert_eq!(duo.server().can_send(), Err(SendError::PeerClosed));
    duo
}

#[test]
fn data_for_a_peer_that_has_shut_down_both_directions_reset_it() {
    let mut duo = ended_in_order(false);
    assert!(duo.server().discard_after_close());
    assert_eq!(duo.server().can_send(), Err(SendError::Pipe));
    assert!(duo.server().readiness(1, true).contains(EpollMask::HUP));
    let plans = duo.post(Server);
    assert!(plans.len() == 1 && plans[0].is_empty(), "no data");
    assert_eq!(plans[0].cdc.state, StateFlags::ABORTED);
    duo.arrive(Server);
    assert!(duo.effects[Client.index()].reset);
    assert!(!duo.client().is_connected() && !duo.client().has_ended_in_order());
    // What was sent before the end is read, and the end.
    assert_eq!(duo.read(Server), 5);
    assert_eq!(duo.server().recv_state(), Recv::Eof);
    assert!(duo.server().has_ended_in_order());
    for side in Side::BOTH {
        duo.at(side).close(true);
        duo.settle();
        assert!(duo.at(side).is_finished());
    }
}

#[test]
fn data_for_a_peer_that_has_closed_end_its_wait() {
    let mut duo = ended_in_order(true);
    assert!(!duo.client().is_finished());
    duo.server().discard_after_close();
    duo.settle();
    assert!(duo.client().is_finished() && !duo.server().is_finished());
    duo.server().close(true);
    assert!(duo.post(Server).is_empty() && duo.server().is_finished());
}

#[test]
fn data_that_were_not_sent_when_the_peers_close_came_reset_it() {
    let mut duo = Duo::new();
    duo.client().close(false);
    duo.post(Client);
    assert!(duo.write(Server, 10));
    duo.arrive(Client);
    assert!(duo.effects[Server.index()].broken_pipe && duo.effects[Server.index()].transmit);
    duo.settle();
    assert!(duo.effects[Client.index()].reset);
}

#[test]
fn data_that_cross_a_close_are_a_reset() {
    for is_released in [false, true] {
        let mut duo = Duo::new();
        duo.write(Server, 10);
        duo.post(Server);
        duo.client().close(is_released);
        duo.post(Client);
        duo.arrive(Client);
        assert_eq!(duo.server().can_send(), Err(SendError::PeerClosed));
        duo.arrive(Server);
        let both = StateFlags::CLOSED.with(StateFlags::ABORTED, true);
        assert_eq!(duo.post(Client)[0].cdc.state, both);
        duo.arrive(Client);
        assert!(duo.effects[Server.index()].broken_pipe);
        assert!(duo.server().has_ended_in_order());
        assert_eq!(duo.server().can_send(), Err(SendError::Pipe));
        duo.settle();
        assert!(duo.effects[Client.index()].reset);
        duo.server().close(true);
        duo.client().close(true);
        assert!(duo.post(Server).is_empty() && duo.post(Client).is_empty());
        assert!(duo.server().is_finished() && duo.client().is_finished());
    }
}

#[test]
fn data_and_the_end_that_cross_a_close_are_a_reset_too() {
    let mut duo = Duo::new();
    duo.write(Server, 10);
    duo.server().shutdown_write().unwrap();
    duo.post(Server);
    duo.client().close(true);
    duo.post(Client);
    duo.arrive(Server);
    duo.arrive(Client);
    duo.settle();
    assert!(!duo.effects[Server.index()].reset && !duo.effects[Server.index()].broken_pipe);
    assert!(!duo.server().is_connected());
    duo.server().close(true);
    duo.settle();
    assert!(duo.client().is_finished() && duo.server().is_finished());
}
