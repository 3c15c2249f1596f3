// SPDX-License-Identifier: GPL-2.0
//! Data that the peer had no room for when their application closed.

mod common;

use common::{
    duo::Duo,
    Side::{
        Client,
        Server, //
    },
};
use smc_proto::conn::{
    Recv,
    StateFlags, //
};

/// A client that has closed, of whose data the peer has no room for the last 100 bytes.
fn closed_without_room() -> Duo {
    let mut duo = Duo::new();
    duo.write(Client, 16_384);
    duo.settle();
    duo.write(Client, 100);
    assert!(!duo.client().close(true).transmit);
    assert!(duo.client().is_closing());
    duo
}

#[test]
fn a_close_follows_data_that_the_peer_has_no_room_for() {
    let mut duo = closed_without_room();
    assert_eq!(duo.post(Client), []);
    assert_eq!(duo.read(Server), 16_384);
    duo.settle();
    assert_eq!(duo.server().recv_state(), Recv::Ready(100));
    duo.read(Server);
    duo.settle();
    assert_eq!(duo.server().recv_state(), Recv::Eof);
    assert!(!duo.client().is_closing());
    duo.server().close(true);
    duo.settle();
    assert!(duo.client().is_finished());
}

#[test]
fn a_close_waits_no_longer_when_the_peer_closes() {
    let mut duo = closed_without_room();
    duo.read(Server);
    duo.server().close(true);
    duo.post(Server);
    duo.arrive(Server);
    assert!(duo.effects[Client.index()].transmit);
    let plans = duo.post(Client);
    assert!(plans.len() == 1 && plans[0].is_empty(), "nobody reads it");
    assert_eq!(plans[0].cdc.state, StateFlags::CLOSED);
    duo.arrive(Client);
    assert!(duo.client().is_finished() && duo.server().is_finished());
}

#[test]
fn data_that_come_while_a_close_waits_are_refused() {
    let mut duo = closed_without_room();
    duo.write(Server, 10);
    duo.post(Server);
    duo.arrive(Server);
    let plans = duo.post(Client);
    assert_eq!(plans[0].cdc.state, StateFlags::ABORTED);
    duo.arrive(Client);
    assert!(duo.effects[Server.index()].reset);
}

#[test]
fn an_application_that_does_not_linger_resets() {
    let mut duo = Duo::new();
    duo.write(Client, 16_384);
    duo.settle();
    duo.write(Client, 100);
    duo.client().reset();
    duo.client().close(true);
    assert_eq!(duo.post(Client)[0].cdc.state, StateFlags::ABORTED);
}
