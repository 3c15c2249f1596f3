// SPDX-License-Identifier: GPL-2.0
//! TCP_USER_TIMEOUT: which data wait for the peer, and for how long.

mod common;

use common::{
    duo::Duo,
    ReadNext as _,
    Side::{
        Client,
        Server, //
    }, //
};
use smc_proto::conn::{
    Look,
    UserTimeout, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

/// TCP_USER_TIMEOUT. TCP's own 200 ms come first, so data wait for 400 ms.
const OPTION: Duration = Duration::from_millis(200);

fn at(ms: u64) -> Instant {
    Instant::ZERO.saturating_add(Duration::from_millis(ms))
}

/// The client's limit, as it sends at 0.
fn watch(duo: &mut Duo) -> UserTimeout {
    let mut timeout = UserTimeout::default();
    timeout.set(OPTION);
    assert!(timeout.needs_begin());
    let delay = timeout.begin(duo.client().progress(), at(0));
    assert_eq!(delay, Some(Duration::from_millis(100)));
    assert!(!timeout.needs_begin());
    timeout
}

/// Looks each time when that is due; returns when it is over, and how.
fn over(duo: &mut Duo, timeout: &mut UserTimeout, confirmed_later: bool) -> (Instant, Look) {
    let mut now = at(100);
    loop {
        let progress = duo.client().progress_if_waiting(confirmed_later);
        match timeout.look(progress, now) {
            Look::Again(next) => {
                assert!(next > now);
                now = next;
            }
            end => return (now, end),
        }
    }
}

#[test]
fn data_that_nothing_confirms_end_the_connection() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    let mut timeout = watch(&mut duo);
    duo.post(Client);
    assert_eq!(
        over(&mut duo, &mut timeout, false),
        (at(400), Look::Expired)
    );
}

#[test]
fn data_that_arrive_do_not_even_if_nobody_reads() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    let mut timeout = watch(&mut duo);
    duo.post(Client);
    duo.arrive(Client);
    assert_eq!(over(&mut duo, &mut timeout, false), (at(100), Look::Done));
    assert!(timeout.needs_begin(), "the next data are watched");
}

#[test]
fn a_peer_without_room_ends_the_connection() {
    for confirmed_later in [false, true] {
        let mut duo = Duo::new();
        duo.write(Client, RING);
        duo.post(Client);
        duo.arrive(Client);
        duo.write(Client, 1);
        let mut timeout = watch(&mut duo);
        duo.post(Client);
        let end = over(&mut duo, &mut timeout, confirmed_later);
        assert_eq!(end, (at(400), Look::Expired));
    }
}

#[test]
fn each_progress_begins_the_time_anew() {
    let mut duo = Duo::new();
    duo.write(Client, RING);
    duo.post(Client);
    duo.arrive(Client);
    duo.write(Client, RING);
    let mut timeout = watch(&mut duo);
    let mut look = |duo: &mut Duo, ms| {
        let progress = duo.client().progress_if_waiting(false);
        timeout.look(progress, at(ms))
    };
    for ms in [100, 200, 300] {
        assert_eq!(look(&mut duo, ms), Look::Again(at(ms + 100)));
    }
    // The peer reads half, for which there are data at once.
    duo.server().consume_next(RING / 2);
    duo.post(Server);
    duo.arrive(Server);
    duo.post(Client);
    for ms in [400, 500, 600, 700] {
        assert_eq!(look(&mut duo, ms), Look::Again(at(ms + 100)));
    }
    assert_eq!(look(&mut duo, 800), Look::Expired);
}

#[test]
fn time_in_which_this_host_stood_still_does_not_count() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    let mut timeout = watch(&mut duo);
    duo.post(Client);
    let mut look = |ms| timeout.look(duo.client().progress_if_waiting(false), at(ms));
    assert_eq!(look(100), Look::Again(at(200)));
    assert_eq!(look(5200), Look::Again(at(5300)));
    assert_eq!(look(5300), Look::Again(at(5400)));
    // Also in the last quarter: what has come meanwhile is seen first.
    assert_eq!(look(6400), Look::Again(at(6500)));
    assert_eq!(look(6510), Look::Expired);
}

#[test]
fn data_on_a_link_that_confirms_late_do_not_wait() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    let mut timeout = watch(&mut duo);
    duo.post(Client);
    assert_eq!(over(&mut duo, &mut timeout, true), (at(100), Look::Done));
}

#[test]
fn setting_it_again_does_not_begin_the_time_anew() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    let mut timeout = watch(&mut duo);
    duo.post(Client);
    timeout.set(OPTION);
    timeout.begin(duo.client().progress(), at(90));
    let end = over(&mut duo, &mut timeout, false);
    assert_eq!(end, (at(400), Look::Expired));
}

#[test]
fn without_a_limit_nothing_is_watched() {
    let mut duo = Duo::new();
    duo.write(Client, 100);
    let mut timeout = watch(&mut duo);
    timeout.set(Duration::ZERO);
    duo.post(Client);
    assert_eq!(over(&mut duo, &mut timeout, false), (at(100), Look::Done));
    assert!(!timeout.needs_begin());
    assert_eq!(timeout.begin(duo.client().progress(), at(0)), None);
}
