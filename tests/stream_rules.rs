// SPDX-License-Identifier: GPL-2.0
//! The rules of data transfer one by one: flags, thresholds, urgent data, and what a peer may not say.

mod common;

use common::{
    duo::Duo,
    ReadNext as _,
    Side::{
        Client,
        Server, //
    }, //
};
use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    EpollMask,
    ProducerFlags,
    Recv,
    SendFlags,
    Stream,
    UrgentState, //
};
use smc_proto::cursor::{
    Chunk,
    Cursor, //
};
use smc_proto::id::AlertToken;
use smc_proto::wire::cdc::CdcMessage;

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

const URGENT: SendFlags = SendFlags {
    oob: true,
    last: true,
    corked: false,
    autocork_bytes: 0,
};

fn vector(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/vectors/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("the vector is there")
}

fn on_wire(cdc: Cdc) -> Vec<u8> {
    CdcMessage {
        token: AlertToken(7),
        cdc,
    }
    .to_bytes()
    .to_vec()
}

// --- Messages.

#[test]
fn the_first_message_is_the_golden_one() {
    let mut duo = Duo::with_class(SizeClass::for_bytes(65_536));
    duo.write(Client, 1_000);
    let plans = duo.post(Client);
    assert_eq!(on_wire(plans[0].cdc), vector("X1"));
}

#[test]
fn the_validation_is_the_golden_one_whatever_was_lost_after_it() {
    let mut duo = Duo::new();
    duo.client().advertise_late();
    for _ in 0..65 {
        duo.write(Client, 1);
        duo.settle();
        duo.read(Server);
    }
    duo.write(Client, 1);
    duo.post(Client);
    duo.lose(Client);
    duo.client().on_link_switch();
    let plans = duo.post(Client);
    assert_eq!(on_wire(plans[0].cdc), vector("X4"));
    assert_eq!(plans[1].cdc.seq, 67, "numbers go on");
}

#[test]
fn the_first_sequence_number_is_one_and_a_failed_post_gives_it_back() {
    let mut duo = Duo::new();
    duo.write(Client, 1);
    let client = duo.client();
    let plan = client.plan().unwrap();
    assert_eq!(plan.cdc.seq, 1);
    client.plan_failed(&plan.record);
    assert_eq!(client.plan().unwrap(), plan);
}

#[test]
fn old_messages_are_ignored_and_equal_ones_are_not() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    let at = |seq, offset| Cdc {
        seq,
        prod: Cursor { wrap: 0, offset },
        ..Cdc::default()
    };
    stream.on_cdc(&at(0xfffe, 1)).unwrap();
    assert_eq!(stream.readable(), 0, "before 0, which was taken last");
    stream.on_cdc(&at(5, 10)).unwrap();
    stream.on_cdc(&at(4, 20)).unwrap();
    assert_eq!(stream.readable(), 10);
    stream.on_cdc(&at(5, 30)).unwrap();
    assert_eq!(stream.readable(), 30);
    stream.on_cdc(&at(0x8004, 40)).unwrap();
    assert_eq!(stream.readable(), 40);
}

// --- Window.

#[test]
fn writes_are_cut_at_both_ring_ends() {
    let mut duo = Duo::new();
    duo.write(Client, 10_000);
    duo.settle();
    assert!(duo.client().detach_sndbuf(false));
    duo.read(Server);
    duo.settle();
    // A new buffer starts at 0 while the peer's ring goes on at 10000.
    duo.write(Client, 9_000);
    duo.post(Client);
    duo.arrive(Client);
    duo.read(Server);
    duo.settle();
    // Now the buffer wraps at 7384 bytes, the peer's ring (at 2616) at 13768.
    duo.write(Client, 16_000);
    let plan = duo.client().plan().unwrap();
    let writes: Vec<_> = plan.writes().collect();
    let chunk = |offset, len| Chunk { offset, len };
    assert_eq!(writes.len(), 2);
    assert_eq!((writes[0].dst_offset, writes[0].len), (2_616, 13_768));
    assert_eq!(writes[0].src, [chunk(9_000, 7_384), chunk(0, 6_384)]);
    assert_eq!((writes[1].dst_offset, writes[1].len), (0, 2_232));
    assert_eq!(writes[1].src[0], chunk(6_384, 2_232));
}

#[test]
fn blocked_is_said_when_the_window_is_used_up() {
    for (len, blocked) in [(RING - 1, false), (RING, true)] {
        let mut duo = Duo::new();
        duo.write(Client, len);
        let cdc = duo.client().plan().unwrap().cdc;
        let flag = cdc.flags.contains(ProducerFlags::WRITE_BLOCKED);
        assert_eq!(flag, blocked, "{len}");
    }
}

#[test]
fn a_full_ring_is_not_an_empty_one() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.settle();
    assert_eq!(duo.server().readable(), RING);
    assert!(duo.server().is_rmbe_full());
    duo.write(Client, 1);
    assert!(duo.client().plan().is_none(), "no window");
    assert_eq!(duo.read(Server), RING);
    duo.settle();
    assert_eq!(duo.server().readable(), 1);
}

#[test]
fn autocork_holds_back_while_a_message_is_in_flight() {
    let how = SendFlags {
        autocork_bytes: 65_536,
        ..SendFlags::default()
    };
    let mut duo = Duo::new();
    assert!(duo.write_as(Client, 10, how), "the first goes at once");
    let first = duo.client().plan().unwrap();
    assert!(!duo.write_as(Client, 10, how));
    assert!(!duo.write_as(Client, RING / 2 - 10, how), "half the buffer");
    assert!(
        duo.write_as(Client, 1, how),
        "one more than half the buffer"
    );
    // When the message has left this host, and not only when the peer has acknowledged it.
    assert!(duo.client().on_local_completion().transmit);
    duo.client().plan().unwrap();
    assert!(!duo.client().on_acked(&first.record, true).transmit);

    let off = SendFlags::default();
    let mut duo = Duo::new();
    duo.write(Client, 10);
    duo.client().plan().unwrap();
    assert!(duo.write_as(Client, 10, off));
}

#[test]
fn cork_holds_back_until_less_than_a_third_is_free_or_uncorked() {
    let how = SendFlags {
        corked: true,
        ..SendFlags::default()
    };
    let mut duo = Duo::new();
    assert!(!duo.write_as(Client, 10, how));
    assert!(duo.client().uncork());
    assert!(!duo.write_as(Client, RING / 3 * 2 - 10, how));
    assert!(duo.write_as(Client, 2, how));
}

#[test]
fn writers_wait_until_a_third_is_free() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive_unconfirmed(Client);
    for (read, is_woken) in [(5_000, false), (2_400, true)] {
        duo.server().consume_next(read);
        duo.post(Server);
        duo.arrive(Server);
        assert_eq!(duo.effects[Client.index()].wake_writers, is_woken);
        assert_eq!(duo.client().has_write_space(), is_woken);
    }
    assert_eq!(duo.client().writable(), 7_400);
}

// --- Consumer updates.

/// Reads `len` of `sent` bytes; whether the peer is told.
fn update_after(class: SizeClass, sent: u32, len: u32) -> bool {
    let mut duo = Duo::with_class(class);
    let mut left = sent;
    while left > 0 {
        let part = left.min(RING);
        duo.write(Client, part);
        duo.settle();
        left -= part;
    }
    duo.server().consume_next(len).transmit
}

#[test]
fn an_update_is_due_beyond_a_tenth_of_the_ring_once_half_is_used() {
    let class = SizeClass::for_bytes(65_536);
    assert!(!update_after(class, 32_768, 6_553));
    assert!(update_after(class, 32_768, 6_554));
    assert!(!update_after(class, 32_767, 6_554), "half is free");
    // For the smallest ring the least step counts: 2304.
    assert!(!update_after(SizeClass::SMALLEST, RING - 1, 2_304));
    assert!(update_after(SizeClass::SMALLEST, RING - 1, 2_305));
}

#[test]
fn a_blocked_peer_is_told_when_the_ring_is_read_empty() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    let cdc = Cdc {
        seq: 1,
        prod: Cursor { wrap: 0, offset: 5 },
        flags: ProducerFlags::WRITE_BLOCKED,
        ..Cdc::default()
    };
    assert!(stream.on_cdc(&cdc).unwrap().wake_readers);
    assert!(!stream.consume_next(4).transmit);
    assert!(stream.consume_next(1).transmit);
}

#[test]
fn a_requested_update_is_sent_at_once() {
    let mut duo = Duo::new();
    let cdc = Cdc {
        seq: 1,
        flags: ProducerFlags::UPDATE_REQUESTED,
        ..Cdc::default()
    };
    assert!(duo.server().on_cdc(&cdc).unwrap().transmit);
    assert!(duo.server().plan().unwrap().is_empty());
    assert!(duo.server().plan().is_none(), "once");
}

#[test]
fn a_peer_that_closed_is_told_nothing_more() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.settle();
    duo.client().close(true);
    duo.settle();
    assert!(!duo.server().consume_next(RING).transmit);
}

#[test]
fn a_c_peer_is_told_one_message_late_unless_it_waits() {
    let mut duo = Duo::new();
    duo.server().advertise_late();
    let told = |duo: &mut Duo| {
        duo.write(Server, 1);
        duo.post(Server).last().unwrap().cdc.cons.offset
    };
    duo.write(Client, 100);
    duo.settle();
    duo.read(Server);
    assert_eq!(told(&mut duo), 0);
    duo.arrive(Server);
    duo.write(Client, 100);
    duo.settle();
    duo.read(Server);
    assert_eq!(told(&mut duo), 100);
    duo.arrive(Server);
    // There is room for 100 bytes less than the client has.
    duo.write(Client, RING);
    duo.settle();
    duo.read(Server);
    let plan = duo.post(Server).pop().expect("an update is due");
    let all = Cursor {
        wrap: 1,
        offset: 100,
    };
    assert_eq!(plan.cdc.cons, all);
}

// --- Urgent data.

#[test]
fn an_urgent_byte_is_announced_with_the_last_byte_of_its_send() {
    let mut duo = Duo::new();
    duo.write_as(Client, 3, URGENT);
    let flags = duo.post(Client)[0].cdc.flags;
    assert!(flags.contains(ProducerFlags::URGENT_PENDING));
    assert!(flags.contains(ProducerFlags::URGENT_PRESENT));
    duo.arrive(Client);
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(2));
    assert_eq!(duo.read(Server), 2);
    duo.settle();
    assert_eq!(duo.client().queues().unwrap().outq, 0);
}

#[test]
fn what_follows_an_urgent_byte_waits_in_the_send_buffer_for_a_c_peer_only() {
    for is_c in [false, true] {
        let mut duo = Duo::new();
        if is_c {
            duo.client().advertise_late();
        }
        duo.write_as(Client, 3, URGENT);
        assert!(duo.client().writable() > 0, "a writer never waits for it");
        assert!(duo.write(Client, 5));
        let plans = duo.post(Client);
        assert_eq!(plans[0].len(), 3, "the message ends with the urgent byte");
        assert_eq!(plans.len(), if is_c { 1 } else { 2 });
        duo.arrive(Client);
        assert_eq!(duo.server().queues().unwrap().inq, 2, "up to the mark");
        assert_eq!(duo.read_once(Server), 2);
        duo.settle();
        assert_eq!(duo.server().urgent_state(), UrgentState::Valid);
        assert!(duo.server().queues().unwrap().at_mark);
        let behind = duo.server().readable();
        assert_eq!(behind, 5, "who stands at the mark lets the peer go on");
        assert_eq!(duo.read_once(Server), 5);
        assert_eq!(duo.server().urgent_state(), UrgentState::Read);
        assert!(!duo.server().queues().unwrap().at_mark);
    }
}

#[test]
fn a_later_urgent_byte_supersedes_one_that_has_not_left() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.settle();
    duo.write_as(Client, 3, URGENT);
    duo.write_as(Client, 2, URGENT);
    assert_eq!(duo.read(Server), RING);
    duo.settle();
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(4));
    assert_eq!(duo.server().queues().unwrap().inq, 4);
}

#[test]
fn a_later_urgent_byte_supersedes_one_that_was_not_read() {
    let mut duo = Duo::new();
    duo.write_as(Client, 3, URGENT);
    duo.settle();
    duo.server().take_urgent(3);
    duo.write_as(Client, 2, URGENT);
    duo.settle();
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(4));
    // The first is part of the stream again, also if it was read by itself.
    assert_eq!(duo.server().queues().unwrap().inq, 4);
    assert_eq!(duo.read_once(Server), 4);
    assert!(duo.server().queues().unwrap().at_mark);
    // Unless the reader stands at it when the next one comes.
    duo.write_as(Client, 1, URGENT);
    duo.settle();
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(5));
    assert_eq!(duo.server().readable(), 0);
    assert!(duo.server().queues().unwrap().at_mark);
}

#[test]
fn a_c_peer_reads_each_urgent_byte_before_the_next_comes() {
    let mut duo = Duo::new();
    duo.client().advertise_late();
    for _ in 0..3 {
        duo.write_as(Client, 2, URGENT);
        duo.settle();
    }
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(1));
    assert_eq!(duo.server().queues().unwrap().inq, 1);
    assert_eq!(duo.read_once(Server), 1);
    duo.settle();
    // The second was superseded by the third before it could leave.
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(5));
}

#[test]
fn a_c_peer_that_waits_for_an_urgent_byte_to_be_read_goes_on() {
    // Nothing is before it, so that a reader who waits for data would not read it.
    let mut duo = Duo::new();
    duo.server().advertise_late();
    duo.write_as(Client, 1, URGENT);
    duo.settle();
    assert_eq!(duo.server().readable(), 0);
    assert_eq!(duo.server().urgent_state(), UrgentState::Valid);
    assert_eq!(duo.client().queues().unwrap().outq, 0, "it was told");
    // Even if it uses the place of the byte again.
    duo.server().store_urgent(b'!');
    duo.write(Client, RING);
    duo.settle();
    assert_eq!(duo.server().urgent(), Some(b'!'));
    assert_eq!(duo.read(Server), RING);
    assert_eq!(duo.server().urgent(), None);
}

#[test]
fn poll_waits_for_the_low_water_mark_and_a_send_buffer() {
    let mut duo = Duo::new();
    duo.write(Client, 3);
    duo.settle();
    let ready = |duo: &mut Duo, lowat| duo.server().readiness(lowat, true);
    assert!(!ready(&mut duo, 4).contains(EpollMask::IN));
    assert!(ready(&mut duo, 3).contains(EpollMask::IN));
    duo.write(Client, RING - 3);
    duo.settle();
    assert!(
        ready(&mut duo, u32::MAX).contains(EpollMask::IN),
        "there is no room for more"
    );
    assert!(duo.server().needs_sndbuf());
    assert!(ready(&mut duo, 1).contains(EpollMask::OUT));
    let ready = duo.server().readiness(1, false);
    assert!(!ready.contains(EpollMask::OUT), "none can be had");
}

#[test]
fn an_urgent_byte_beyond_the_window_is_pending_until_it_fits() {
    let mut duo = Duo::new();
    duo.write(Client, RING - 1);
    duo.settle();
    duo.write_as(Client, 2, URGENT);
    let flags = duo.post(Client)[0].cdc.flags;
    assert!(flags.contains(ProducerFlags::URGENT_PENDING));
    assert!(!flags.contains(ProducerFlags::URGENT_PRESENT));
    duo.arrive(Client);
    assert_eq!(duo.read(Server), RING);
    duo.settle();
    assert_eq!(duo.server().urgent_state(), UrgentState::Valid);
}

#[test]
fn an_urgent_byte_out_of_line_is_read_once_and_skipped() {
    let mut duo = Duo::new();
    duo.write_as(Client, 3, URGENT);
    duo.settle();
    let server = duo.server();
    server.store_urgent(b'!');
    // As observed on the C module: IN, PRI and OUT, two bytes to read, not at the mark.
    assert_eq!(server.readiness(1, true).bits() & 0x2017, 0x7);
    let queues = server.queues().unwrap();
    assert_eq!((queues.inq, queues.at_mark), (2, false));
    assert_eq!(server.urgent(), Some(b'!'));
    server.take_urgent(server.urgent_end());
    assert_eq!(server.urgent(), None);
    assert_eq!(duo.read(Server), 2);
    assert_eq!(duo.server().recv_state(), Recv::Wait);
    duo.settle();
    assert_eq!(duo.client().queues().unwrap().outq, 0);
}

#[test]
fn an_urgent_byte_in_line_splits_the_read_in_front_of_it() {
    let mut duo = Duo::new();
    duo.server().set_oob_inline(true);
    duo.write_as(Client, 3, URGENT);
    duo.settle();
    let server = duo.server();
    assert_eq!(server.readable(), 3);
    assert_eq!(server.urgent(), None, "EINVAL");
    assert_eq!(server.peek_chunks(0, 10)[0].len, 2);
    assert!(
        server.consume_next(2).at_mark,
        "a read ends in front of the byte"
    );
    assert!(server.queues().unwrap().at_mark);
    assert_eq!(server.peek_chunks(0, 10)[0].len, 1);
    let fx = server.consume_next(1);
    assert!(!fx.at_mark && fx.transmit);
    assert_eq!(server.urgent_state(), UrgentState::Read);
}

#[test]
fn data_behind_an_unread_urgent_byte_are_read_in_order() {
    // A Linux sender waits, others need not.
    let mut stream = Stream::new(SizeClass::SMALLEST);
    let message = |seq, offset, flags| Cdc {
        seq,
        prod: Cursor { wrap: 0, offset },
        flags,
        ..Cdc::default()
    };
    let fx = stream.on_cdc(&message(1, 3, ProducerFlags::URGENT_PRESENT));
    assert_eq!(fx.unwrap().urgent_at, Some(2));
    stream
        .on_cdc(&message(2, 8, ProducerFlags::default()))
        .unwrap();
    assert_eq!(stream.readable(), 7);
    assert_eq!(stream.peek_chunks(0, 100)[0], Chunk { offset: 0, len: 2 });
    assert_eq!(
        stream.peek_chunks(2, 100)[0].len,
        0,
        "a peek ends there, too"
    );
    stream.consume_next(2);
    assert_eq!(stream.peek_chunks(0, 100)[0], Chunk { offset: 3, len: 5 });
    assert_eq!(stream.readable(), 5);
}

#[test]
fn an_urgent_byte_at_the_ring_end_is_found_there() {
    let mut duo = Duo::new();
    duo.write_as(Client, RING, URGENT);
    duo.settle();
    assert_eq!(duo.effects[Server.index()].urgent_at, Some(RING - 1));
    assert_eq!(duo.server().readable(), RING - 1);
}

#[test]
fn a_pending_announcement_alone_marks_the_byte_as_not_here_yet() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    let cdc = Cdc {
        seq: 1,
        flags: ProducerFlags::URGENT_PENDING,
        ..Cdc::default()
    };
    stream.on_cdc(&cdc).unwrap();
    assert_eq!(stream.urgent_state(), UrgentState::NotYet);
}

#[test]
fn an_urgent_message_that_comes_twice_counts_once() {
    let mut duo = Duo::new();
    duo.write_as(Client, 3, URGENT);
    let plans = duo.post(Client);
    duo.server().on_cdc(&plans[0].cdc).unwrap();
    let again = duo.server().on_cdc(&plans[0].cdc).unwrap();
    assert_eq!(again.urgent_at, None);
    assert_eq!(duo.server().urgent_state(), UrgentState::Valid);
}

#[test]
fn an_urgent_byte_known_to_have_arrived_is_not_announced_again() {
    let mut duo = Duo::new();
    duo.write_as(Client, 3, URGENT);
    let plan = duo.client().plan().unwrap();
    duo.client().on_link_switch();
    duo.client().on_sent(&plan.record, true);
    let present = ProducerFlags::URGENT_PRESENT;
    assert!(!duo
        .post(Client)
        .iter()
        .any(|plan| plan.cdc.flags.contains(present)));

    // Lost, it is announced again.
    let mut duo = Duo::new();
    duo.write_as(Client, 3, URGENT);
    duo.post(Client);
    duo.lose(Client);
    duo.client().on_link_switch();
    assert!(duo
        .post(Client)
        .iter()
        .any(|plan| plan.cdc.flags.contains(present)));
}

// --- The send buffer.

#[test]
fn the_send_buffer_stays_while_the_application_fills_it() {
    let mut stream = Stream::new(SizeClass::SMALLEST);
    stream.establish(SizeClass::SMALLEST);
    assert!(stream.attach_sndbuf(SizeClass::SMALLEST));
    assert!(!stream.attach_sndbuf(SizeClass::SMALLEST), "one at a time");
    stream.reserve(10);
    assert!(!stream.detach_sndbuf(false));
    stream.commit(0, SendFlags::default());
    assert!(stream.detach_sndbuf(false));
    assert_eq!(stream.writable(), 0);
}
