// SPDX-License-Identifier: GPL-2.0
//! What administrators see of a stream, and the peer of what was read.

mod common;

use common::{
    duo::Duo,
    Side::{
        Client,
        Server, //
    },
};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    ProducerFlags,
    StateFlags, //
};
use smc_proto::cursor::Cursor;

#[test]
fn the_rings_show_how_far_each_side_is() {
    let at = |offset| Cursor { wrap: 0, offset };
    let class = SizeClass::SMALLEST;
    let mut duo = Duo::new();

    duo.write(Client, 10);
    let rings = duo.client().rings(class);
    assert_eq!(
        [rings.tx_prep, rings.tx_sent, rings.tx_prod],
        [at(10), at(0), at(0)]
    );
    duo.post(Client);
    let rings = duo.client().rings(class);
    assert_eq!(
        [rings.tx_sent, rings.tx_prod, rings.tx_fin],
        [at(10), at(10), at(0)]
    );
    duo.arrive(Client);
    assert_eq!(duo.client().rings(class).tx_fin, at(10));

    let rings = duo.server().rings(class);
    assert_eq!([rings.rx_prod, rings.tx_cons], [at(10), at(0)]);
    assert_eq!(rings.rmbe, class.bytes());
    duo.read(Server);
    assert_eq!(duo.server().rings(class).tx_cons, at(10));
    // So little is not worth a message.
    assert_eq!(duo.client().rings(class).rx_cons, at(0));
}

#[test]
fn the_flags_that_a_peer_set_last_are_shown() {
    let mut duo = Duo::new();
    let flags = ProducerFlags::WRITE_BLOCKED;
    let cdc = Cdc {
        seq: 1,
        flags,
        ..Cdc::default()
    };
    duo.client().on_cdc(&cdc).unwrap();
    assert_eq!(duo.client().rings(SizeClass::SMALLEST).rx_flags.0, flags);
    let cdc = Cdc {
        seq: 2,
        ..Cdc::default()
    };
    duo.client().on_cdc(&cdc).unwrap();
    let flags = duo.client().rings(SizeClass::SMALLEST).rx_flags;
    assert_eq!(flags, (ProducerFlags::default(), StateFlags::default()));
}

#[test]
fn a_peer_that_waits_is_told_of_what_was_read_before() {
    let mut duo = Duo::new();
    duo.write(Client, 6_000);
    duo.settle();
    assert_eq!(duo.read(Server), 6_000);
    duo.settle();
    // The ring has room for all, but the client knows of 10,384 bytes only.
    duo.write(Client, 12_000);
    duo.settle();
    assert_eq!(duo.server().readable(), 12_000);
}

#[test]
fn a_peer_that_is_done_writing_is_seen() {
    let mut duo = Duo::new();
    assert!(!duo.client().is_peer_done());
    let cdc = Cdc {
        seq: 1,
        state: StateFlags::DONE_WRITING,
        ..Cdc::default()
    };
    duo.client().on_cdc(&cdc).unwrap();
    assert!(duo.client().is_peer_done());
}

#[test]
fn tcp_info_tells_who_is_done_writing() {
    let mut duo = Duo::new();
    let states = |duo: &mut Duo| [Client, Server].map(|side| duo.at(side).tcp_equivalent() as u8);
    // TCP_ESTABLISHED, TCP_FIN_WAIT2 and TCP_CLOSE_WAIT, TCP_CLOSE
    assert_eq!(states(&mut duo), [1, 1]);
    duo.client().shutdown_write().unwrap();
    duo.settle();
    assert_eq!(states(&mut duo), [5, 8]);
    duo.server().shutdown_write().unwrap();
    duo.settle();
    assert_eq!(states(&mut duo), [7, 7]);
}
