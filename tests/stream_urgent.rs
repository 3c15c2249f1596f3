// SPDX-License-Identifier: GPL-2.0
//! Urgent data, and SO_OOBINLINE set while a reader copies.

mod common;

use common::{
    duo::Duo,
    Side::Client, //
};
use smc_proto::conn::SendFlags;
use smc_proto::cursor::Chunk;

const URGENT: SendFlags = SendFlags {
    oob: true,
    last: true,
    corked: false,
    autocork_bytes: 0,
};

/// A reader in front of the urgent byte, which comes next, with two bytes behind it.
fn in_front_of_the_urgent_byte(inline: bool) -> Duo {
    let mut duo = Duo::new();
    duo.server().set_oob_inline(inline);
    duo.write_as(Client, 1, URGENT);
    duo.write(Client, 2);
    duo.settle();
    assert_eq!(duo.server().readable(), if inline { 3 } else { 2 });
    duo
}

#[test]
fn no_byte_is_lost_when_the_urgent_one_comes_out_of_line_while_it_is_copied() {
    let mut duo = in_front_of_the_urgent_byte(true);
    let server = duo.server();
    server.skip_urgent();
    let at = server.read_position();
    let [urgent, _] = server.peek_chunks(0, 1);
    assert_eq!(urgent, Chunk { offset: 0, len: 1 });
    // setsockopt(2) while the reader copies.
    server.set_oob_inline(false);
    server.consume(at, 1);
    assert_eq!(server.peek_chunks(0, 10)[0], Chunk { offset: 1, len: 2 });
    assert_eq!(server.readable(), 2);
    assert_eq!(server.urgent(), None, "it was read");
}

#[test]
fn no_byte_is_read_twice_when_the_urgent_one_comes_in_line_while_others_are_copied() {
    let mut duo = in_front_of_the_urgent_byte(false);
    let server = duo.server();
    server.skip_urgent();
    let at = server.read_position();
    assert_eq!(server.peek_chunks(0, 1)[0], Chunk { offset: 1, len: 1 });
    server.set_oob_inline(true);
    server.consume(at, 1);
    assert_eq!(server.peek_chunks(0, 10)[0], Chunk { offset: 2, len: 1 });
    assert_eq!(server.readable(), 1);
}

#[test]
fn the_next_urgent_byte_may_pass_the_one_that_is_copied() {
    let mut duo = in_front_of_the_urgent_byte(true);
    let at = duo.server().read_position();
    assert_eq!(duo.server().peek_chunks(0, 1)[0].len, 1);
    duo.server().set_oob_inline(false);
    duo.write_as(Client, 1, URGENT);
    duo.settle();
    duo.server().consume(at, 1);
    assert_eq!(duo.server().peek_chunks(0, 10)[0].len, 2);
    assert_eq!(duo.server().readable(), 2);
}

#[test]
fn an_urgent_byte_that_comes_while_an_earlier_one_is_copied_is_not_taken_for_read() {
    let mut duo = Duo::new();
    duo.write_as(Client, 1, URGENT);
    duo.settle();
    let end = duo.server().urgent_end();
    duo.write_as(Client, 1, URGENT);
    duo.settle();
    let server = duo.server();
    server.take_urgent(end);
    assert!(server.urgent().is_some(), "the second one");
    server.take_urgent(server.urgent_end());
    assert_eq!(server.urgent(), None);
}

#[test]
fn what_is_behind_the_mark_is_there_to_read() {
    let mut duo = Duo::new();
    duo.write(Client, 3);
    duo.write_as(Client, 1, URGENT);
    duo.write(Client, 3);
    duo.settle();
    let server = duo.server();
    let at = server.read_position();
    server.consume(at, 3);
    assert_eq!(server.queues().unwrap().inq, 0, "FIONREAD");
    assert!(server.inq_hint() >= 3, "TCP_INQ");
}
