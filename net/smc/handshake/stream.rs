// SPDX-License-Identifier: GPL-2.0

//! The stream of a first link over iWARP: the server opens it, or, where it cannot, the client
//! (`Documentation/iwarp.md`).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    net::TcpSocket,
    time, //
};
use smc_proto::lgr::Role;

use crate::{
    clc::{
        Exchange,
        News, //
    },
    link::{
        Link,
        Wanted, //
    }, //
};

/// From the CONFIRM on: time for the server to open the stream, ns, in which TCP may lose a packet,
const SERVER_OPENS: u64 = 1_500_000_000;
/// until the client does not await it any more, and opens one itself,
const CLIENT_AWAITS: u64 = 1_900_000_000;
/// until it gives that up,
const CLIENT_OPENS: u64 = 2_700_000_000;
/// and until the server does not await that any more.
const SERVER_AWAITS: u64 = 3_000_000_000;

/// Time between two looks at the TCP connection, ns.
const TICK: u64 = 100_000_000;

fn after(start: u64, wait: u64) -> u64 {
    start.saturating_add(wait)
}

/// The server's part, once the CONFIRM is here: has the link ready to send. The client awaits the stream at `port`;
/// we listen. May sleep.
pub(super) fn join(
    link: &Arc<Link>,
    exchange: &Exchange<'_>,
    tcp: &TcpSocket,
    wanted: &Wanted,
    port: u16,
) -> Result {
    let start = time::now_ns();
    let by = (Role::Server, port);
    let opened = link.connect(tcp.netns(), wanted, by, after(start, SERVER_OPENS));
    let Err(error) = opened else {
        return link.settle_stream();
    };
    if !link.is_up() {
        return Err(error);
    }
    link.expect(wanted, Role::Client)?;
    let end = after(start, SERVER_AWAITS);
    while !link.await_stream(after(time::now_ns(), TICK).min(end))? {
        if time::now_ns() >= end || exchange.news() != News::Nothing {
            return Err(error);
        }
    }
    link.settle_stream()?;
    // Who did not open a stream must not be the first to send.
    match link.await_word(end) {
        true => Ok(()),
        false => Err(ETIMEDOUT),
    }
}

/// The client's part, once the CONFIRM has left: if no stream comes and the server awaits one at `port`, opens that.
/// If the server has said something else meanwhile, that counts, and is looked at later. May sleep.
pub(super) fn await_or_open(
    link: &Arc<Link>,
    exchange: &Exchange<'_>,
    tcp: &TcpSocket,
    wanted: &Wanted,
    port: u16,
) -> Result {
    if port == 0 {
        return Ok(());
    }
    let start = time::now_ns();
    while time::now_ns() < after(start, CLIENT_AWAITS) {
        let is_over = exchange.news() != News::Nothing;
        let has_come = link.await_stream(after(time::now_ns(), TICK));
        if is_over || has_come? {
            return Ok(());
        }
    }
    if link.settle_stream().is_ok() {
        return Ok(());
    }
    let end = after(start, CLIENT_OPENS);
    link.connect(tcp.netns(), wanted, (Role::Client, port), end)?;
    link.greet();
    Ok(())
}
