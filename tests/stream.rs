// SPDX-License-Identifier: GPL-2.0
//! Data transfer between two streams: every byte arrives once and in order, whatever the interleaving.

mod common;

use std::cell::Cell;

use common::{
    pair::{
        Pair,
        Plan, //
    },
    rng::{
        for_seeds,
        Rng, //
    },
    stream_ops, //
};
use smc_proto::buffer::SizeClass;
use smc_proto::link::Transport;

fn class(code: u8) -> SizeClass {
    SizeClass::from_code(code).unwrap()
}

#[test]
fn every_byte_arrives_in_order() {
    for_seeds(60, |seed| {
        Pair::run_to_the_end(Pair::new(seed, Plan::mixed(seed, 0), Plan::mixed(seed, 1)));
    });
}

#[test]
fn every_byte_arrives_although_links_fail() {
    for_seeds(120, |seed| {
        let mut pair = Pair::new(seed, Plan::mixed(seed, 0), Plan::mixed(seed, 1));
        pair.failures = 4;
        Pair::run_to_the_end(pair);
    });
}

/// Links over iWARP, alone and beside RoCE.
const KINDS: [[Transport; 2]; 3] = [
    [Transport::Iwarp, Transport::Iwarp],
    [Transport::Roce, Transport::Iwarp],
    [Transport::Iwarp, Transport::Roce],
];

#[test]
fn every_byte_arrives_over_iwarp_although_links_fail() {
    let total = Cell::new(0);
    for_seeds(120, |seed| {
        for kinds in KINDS {
            let (client, server) = (Plan::mixed(seed, 0), Plan::mixed(seed, 1));
            let mut pair = Pair::over(kinds, seed, client, server);
            pair.handovers = (seed % 2 * 10) as u32;
            pair.failures = (seed % 5) as u32;
            let pair = Pair::run_to_the_end(pair);
            total.set(total.get() + pair.handed_over);
        }
    });
    assert!(total.get() > 100, "{}", total.get());
}

#[test]
fn every_byte_arrives_although_the_load_is_spread_anew() {
    let total = Cell::new(0);
    for_seeds(120, |seed| {
        let mut pair = Pair::new(seed, Plan::mixed(seed, 0), Plan::mixed(seed, 1));
        pair.handovers = 20;
        pair.failures = (seed % 3) as u32;
        let pair = Pair::run_to_the_end(pair);
        total.set(total.get() + pair.handed_over);
    });
    assert!(total.get() > 100, "{}", total.get());
}

#[test]
fn rings_of_very_different_sizes_wrap_on_their_own() {
    for_seeds(6, |seed| {
        for (rmbe, sndbuf) in [(0, 5), (5, 0), (1, 3)] {
            let client = Plan {
                send: 1 << 20,
                rmbe: class(rmbe),
                sndbuf: class(sndbuf),
                ..Plan::default()
            };
            let server = Plan {
                send: 3,
                rmbe: class(rmbe),
                ..Plan::default()
            };
            let pair = Pair::run_to_the_end(Pair::new(seed, client, server));
            assert!(pair.fabric.writes > 1);
        }
    });
}

#[test]
fn the_last_urgent_byte_raises_a_signal() {
    let total = Cell::new(0);
    for_seeds(20, |seed| {
        let client = Plan {
            oob_one_in: 2,
            ..Plan::default()
        };
        let pair = Pair::run_to_the_end(Pair::new(seed, client, Plan::default()));
        let [client, server] = &pair.hosts;
        let (sent, last) = client.urgents_sent();
        assert!(server.signals <= sent);
        assert_eq!(server.urgent, last);
        total.set(total.get() + server.signals);
    });
    assert!(total.get() > 0);
}

#[test]
fn no_peer_breaks_the_promises_that_keep_memory_safe() {
    for_seeds(300, |seed| {
        let mut rng = Rng::new(seed);
        let bytes: Vec<u8> = (0..4_000).map(|_| rng.next() as u8).collect();
        stream_ops::run(&bytes);
    });
}
