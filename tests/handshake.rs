// SPDX-License-Identifier: GPL-2.0
//! Handshakes between two machines: what they agree on, and what happens when messages are late or
//! lost, links fail and machines crash. The reasons to decline are in `decline.rs`.

mod common;

use common::handshake_ops;
use common::host::{
    Config,
    Joined,
    Outcome,
    World, //
};
use common::net::Verdict;
use common::rng::{
    for_seeds,
    Rng, //
};
use common::Side;
use smc_proto::cause::Cause;
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::select::Route;
use smc_proto::handshake::server::ServerCaps;
use smc_proto::handshake::Fatal;
use smc_proto::id::{
    Eid,
    Ipv4, //
};
use smc_proto::reason::Reason;
use smc_proto::time::Duration;
use smc_proto::wire::clc::{
    ClcMessage,
    Limits, //
};
use smc_proto::wire::Version;

/// Says that both sides use SMC and mean the same connection; returns both views, client first.
fn joined(outcomes: [Outcome; 2]) -> [Joined; 2] {
    let [client, server] = outcomes.map(|outcome| match outcome {
        Outcome::Smc(joined) => joined,
        other => panic!("{other:?}"),
    });
    for (us, them) in [(&client, &server), (&server, &client)] {
        assert_eq!(us.peer.token, them.local.token);
        assert_eq!(us.target.rkey, them.local.rkey);
        assert_eq!(us.target.addr, them.local.rmb_addr);
        assert_eq!(us.peer.rmbe_index, them.local.rmbe_index);
    }
    assert_eq!(client.first, server.first);
    assert_eq!(client.version, server.version);
    assert_eq!(client.link_num, server.link_num);
    assert!(client.link_num.is_link());
    assert_eq!(client.limits, server.limits);
    [client, server]
}

#[test]
fn two_equal_machines_agree_on_version_2() {
    let [client, _] = joined(World::with(1, |_, _| {}).outcomes());
    assert_eq!(client.version, Version::V2);
    assert!(client.first);
    let limits = Limits {
        max_conns: 255,
        max_links: 1,
    };
    assert_eq!(client.limits, limits);
}

#[test]
fn the_lower_limits_hold() {
    let mut world = World::with(1, |client, server| {
        client.limits.max_conns = 20;
        client.limits.max_links = 8;
        server.limits.max_conns = 30;
        server.limits.max_links = 2;
    });
    let [client, _] = joined(world.outcomes());
    let limits = Limits {
        max_conns: 20,
        max_links: 2,
    };
    assert_eq!(client.limits, limits);
}

#[test]
fn what_one_side_lacks_for_version_2_leads_to_version_1() {
    let spoil: [fn(&mut Config, &mut Config); 5] = [
        |client, _| client.v2 = None,
        |_, server| server.v2 = None,
        |client, _| client.eids = Ueids::EMPTY,
        |_, server| server.eids = Ueids::EMPTY,
        |client, _| {
            client.eids = Ueids::EMPTY;
            client.eids.add(Eid::from_name(b"OTHER").unwrap()).unwrap();
        },
    ];
    for (number, spoil) in spoil.into_iter().enumerate() {
        let [client, _] = joined(World::with(1, spoil).outcomes());
        assert_eq!(client.version, Version::V1, "case {number}");
        assert_eq!(
            client.limits.max_links, 2,
            "version 1 has no limits to agree on"
        );
    }
}

#[test]
fn version_2_crosses_subnets_and_goes_without_a_version_1_port() {
    let mut world = World::with(1, |client, server| {
        client.v1 = None;
        client.address = Some((Ipv4([10, 0, 0, 1]), 8));
        for config in [client, server] {
            config.route = Some(Route::Gateway);
        }
    });
    let [client, _] = joined(world.outcomes());
    assert_eq!(client.version, Version::V2);
}

#[test]
fn the_second_connection_uses_the_group_of_the_first() {
    for version_1 in [false, true] {
        let mut world = World::with(1, |client, _| {
            if version_1 {
                client.v2 = None;
            }
        });
        let [first, _] = joined(world.outcomes());
        let [second, _] = joined(world.outcomes());
        assert!(first.first && !second.first);
        assert_eq!(first.group, second.group);
        assert_ne!(first.local.token, second.local.token);
        assert_ne!(first.local.rkey, second.local.rkey);
    }
}

#[test]
fn elements_of_one_buffer_need_one_announcement() {
    let mut world = World::with(1, |client, server| {
        client.elements = 4;
        server.elements = 4;
    });
    let messages = std::rc::Rc::new(std::cell::Cell::new(0));
    let counter = messages.clone();
    world.net.add_rule(move |packet| {
        if packet.channel < 100 {
            counter.set(counter.get() + 1);
        }
        Verdict::Pass
    });
    for number in 1..=4 {
        let [client, _] = joined(world.outcomes());
        assert_eq!(client.local.rmbe_index.get(), number);
        // CONFIRM_LINK, the server's test and its word that it uses the link, each with its answer, and nothing
        // since.
        assert_eq!(messages.get(), 6);
    }
    joined(world.outcomes());
    assert_eq!(messages.get(), 10, "each side announced its second buffer");
}

#[test]
fn a_full_group_gets_a_parallel_one() {
    let mut world = World::with(1, |client, _| client.limits.max_conns = 16);
    let groups: Vec<usize> = (0..17).map(|_| joined(world.outcomes())[0].group).collect();
    assert_eq!(groups[..16], [0; 16]);
    assert_eq!(groups[16], 1);
}

#[test]
fn a_silent_link_leads_to_tcp_on_both_sides() {
    for side in Side::BOTH {
        let mut world = World::with(1, |_, _| {});
        world.net.add_rule(
            move |packet| match packet.channel < 100 && packet.from == side {
                true => Verdict::Lose,
                false => Verdict::Pass,
            },
        );
        // The server gives up first, and decides.
        let outcomes = world.outcomes();
        let silent = Outcome::Fallback(Reason::TimeoutConfirmLink);
        assert_eq!(
            outcomes,
            [Outcome::Fallback(Reason::PeerDeclined), silent],
            "{side:?}"
        );
    }
}

/// Packets of the link stop at each message of a first contact, in one direction or both.
#[test]
fn a_link_that_falls_silent_at_any_message_splits_no_connection() {
    let mut lost = Vec::new();
    for senders in [&[Side::Client][..], &[Side::Server], &Side::BOTH] {
        for count in 0..8 {
            let mut world = World::with(1, |_, _| {});
            let mut left = count;
            world.net.add_rule(move |packet| {
                if packet.channel >= 100 || !senders.contains(&packet.from) {
                    return Verdict::Pass;
                }
                let is_lost = left == 0;
                left = u32::saturating_sub(left, 1);
                match is_lost {
                    true => Verdict::Lose,
                    false => Verdict::Pass,
                }
            });
            let id = world.connect();
            world.run();
            let outcomes = world.outcomes_of(id);
            let context = format!("{count} messages of {senders:?}: {outcomes:?}");
            let is_decision_lost = matches!(outcomes, [Outcome::Reconnects(_), Outcome::Aborted]);
            if is_decision_lost {
                // The server has decided for a link on which it is not heard any more.
                lost.push((senders, count));
                continue;
            }
            let is_smc = outcomes
                .each_ref()
                .map(|outcome| matches!(outcome, Outcome::Smc(_)));
            assert_eq!(is_smc[0], is_smc[1], "{context}");
            let is_tcp = outcomes
                .each_ref()
                .map(|outcome| matches!(outcome, Outcome::Fallback(_)));
            assert_eq!(is_tcp, is_smc.map(|is_smc| !is_smc), "{context}");
            for side in Side::BOTH {
                assert_eq!(world.read(id, side), [], "{context}");
            }
        }
    }
    assert_eq!(lost, []);
}

/// As above, where TCP is slow as well, so that both sides decline.
#[test]
fn declines_that_cross_reach_no_application() {
    let crossed = std::cell::Cell::new(0);
    for_seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::with(seed, |_, _| {});
        let delay = rng.between(1, 3000);
        world.net.add_rule(move |packet| match packet.channel {
            0..100 => Verdict::Lose,
            _ => Verdict::Delay(Duration::from_millis(delay.into())),
        });
        let id = world.connect();
        world.run();
        let declines = Side::BOTH.map(|side| world.machine(side).declined.len());
        crossed.set(crossed.get() + usize::from(declines == [1, 1]));
        for side in Side::BOTH {
            let outcome = &world.outcomes_of(id)[side.index()];
            let is_tcp = matches!(outcome, Outcome::Fallback(_));
            assert!(is_tcp || delay > 2500, "{delay} ms: {outcome:?}");
            if is_tcp {
                assert_eq!(world.read(id, side), [], "{delay} ms");
            }
        }
    });
    assert!(crossed.get() > 10, "{crossed:?} of them crossed");
}

#[test]
fn a_client_that_was_restarted_says_that_it_is_out_of_sync() {
    // The server need not announce its buffer again, so that nothing tells it of the restart.
    let mut world = World::with(1, |_, server| server.elements = 9);
    joined(world.outcomes());
    world.crash(Side::Client);
    assert_eq!(
        world.outcomes(),
        [
            Outcome::Fallback(Reason::SyncError),
            Outcome::Fallback(Reason::PeerDeclined)
        ]
    );
    let decline = world.machine(Side::Client).declined[0];
    assert!(decline.out_of_sync);
    // The server gave the group up, so the next connection begins a new one.
    let [client, _] = joined(world.outcomes());
    assert!(client.first);
}

#[test]
fn a_server_that_learns_of_a_restart_in_time_begins_a_new_group() {
    let mut world = World::with(1, |_, _| {});
    joined(world.outcomes());
    world.crash(Side::Client);
    let [client, _] = joined(world.outcomes());
    assert!(client.first);
    assert_eq!(client.version, Version::V2);
}

#[test]
fn a_server_that_was_restarted_begins_a_new_group() {
    let mut world = World::with(1, |_, _| {});
    joined(world.outcomes());
    world.crash(Side::Server);
    let [client, _] = joined(world.outcomes());
    assert!(client.first);
}

#[test]
fn a_link_lost_while_a_client_waits_for_it_leads_to_tcp() {
    let mut world = World::with(1, |_, server| server.elements = 9);
    joined(world.outcomes());
    let ids = [world.connect(), world.connect(), world.connect()];
    // The client announces the buffer of one connection, the others wait for that.
    let client = Side::Client.index();
    let is_announcing = |world: &World| !world.machines[client].groups[0].llc.is_idle();
    while !is_announcing(&world) {
        assert!(world.step());
    }
    world.net.add_rule(|packet| match packet.channel < 100 {
        true => Verdict::Delay(Duration::from_millis(100)),
        false => Verdict::Pass,
    });
    for _ in 0..2 {
        world.step();
    }
    assert!(is_announcing(&world));
    world.break_link(1);
    world.run();
    let reasons: Vec<Outcome> = ids
        .iter()
        .map(|id| world.outcomes_of(*id)[client].clone())
        .collect();
    assert!(
        reasons.contains(&Outcome::Fallback(Reason::RegistrationFailed)),
        "{reasons:?}"
    );
    assert!(
        reasons.contains(&Outcome::Fallback(Reason::NoActiveLink)),
        "{reasons:?}"
    );
}

#[test]
fn a_server_that_names_another_queue_pair_is_out_of_sync() {
    let mut world = World::with(1, |_, server| {
        server.mangle_clc = |bytes| {
            // An ACCEPT that reuses a group: the queue pair is at 38.
            if bytes[4] == 2 && bytes[7] & 0x08 == 0 {
                bytes[40] ^= 0xff;
            }
        };
    });
    joined(world.outcomes());
    assert_eq!(world.outcomes()[0], Outcome::Fallback(Reason::SyncError));
}

#[test]
fn a_message_that_never_comes_ends_the_connection_or_the_client_makes_another() {
    for (from, who, outcome) in [
        (Side::Client, Side::Server, Outcome::Failed(Fatal::TimedOut)),
        (
            Side::Server,
            Side::Client,
            Outcome::Reconnects(Reason::TimeoutConfirmLink),
        ),
    ] {
        let mut world = World::with(1, |_, _| {});
        world.net.add_rule(move |packet| match packet.from == from {
            true => Verdict::Lose,
            false => Verdict::Pass,
        });
        let outcomes = world.outcomes();
        assert_eq!(outcomes[who.index()], outcome);
    }
}

#[test]
fn application_data_instead_of_a_handshake_ends_the_connection() {
    let mut world = World::with(1, |client, _| {
        client.mangle_clc = |bytes| *bytes = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    });
    let outcomes = world.outcomes();
    assert_eq!(outcomes[1], Outcome::Failed(Fatal::Protocol));
}

/// What must hold whatever the network does: both sides come to an end, and never one with SMC and
/// the other with TCP, where each would wait for bytes that the other sends elsewhere.
fn agree(world: &World, id: u8) {
    let outcomes = world.outcomes_of(id);
    let is_split = outcomes.iter().any(|o| matches!(o, Outcome::Smc(_)))
        && outcomes.iter().any(|o| matches!(o, Outcome::Fallback(_)));
    assert!(!is_split, "connection {id}: {outcomes:?}");
    if outcomes.iter().all(|o| matches!(o, Outcome::Smc(_))) {
        joined(outcomes);
    }
}

#[test]
fn late_messages_never_split_a_connection() {
    for_seeds(400, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::with(seed, |client, server| {
            client.elements = rng.between(1, 3) as u8;
            server.elements = rng.between(1, 3) as u8;
            if rng.one_in(3) {
                client.v2 = None;
            }
        });
        let mut delays = rng.clone();
        world.net.add_rule(move |_| match delays.one_in(6) {
            true => Verdict::Delay(Duration::from_millis(delays.between(1, 7000).into())),
            false => Verdict::Pass,
        });
        let mut ids = Vec::new();
        for _ in 0..rng.between(1, 12) {
            ids.push(world.connect());
            for _ in 0..rng.below(20) {
                world.step();
            }
        }
        world.run();
        for id in ids {
            agree(&world, id);
        }
    });
}

#[test]
fn failing_links_never_split_a_connection() {
    for_seeds(400, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::with(seed, |_, _| {});
        let mut ids = Vec::new();
        for _ in 0..rng.between(1, 12) {
            ids.push(world.connect());
            for _ in 0..rng.below(25) {
                world.step();
            }
            if rng.one_in(3) {
                let channel = rng.between(1, 4) as u8;
                world.break_link(channel);
            }
        }
        world.run();
        for id in ids {
            agree(&world, id);
        }
        world.net.clear_rules();
        joined(world.outcomes());
    });
}

#[test]
fn a_crash_at_any_moment_leaves_the_other_side_usable() {
    for_seeds(300, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::with(seed, |_, _| {});
        for _ in 0..rng.between(1, 4) {
            world.connect();
            for _ in 0..rng.below(25) {
                world.step();
            }
        }
        let crashed = *rng.pick(&Side::BOTH);
        world.crash(crashed);
        world.run();
        let survivor = world.machine(crashed.peer());
        for (id, conn) in &survivor.conns {
            assert!(conn.outcome.is_some(), "connection {id} hangs");
        }
        // At most one connection per lost group finds out.
        for _ in 0..6 {
            if matches!(world.outcomes(), [Outcome::Smc(_), Outcome::Smc(_)]) {
                return;
            }
        }
        panic!("no connection uses SMC any more");
    });
}

/// The golden messages with some bytes changed, to each side under all circumstances.
#[test]
fn no_peer_breaks_the_promises() {
    let read = |name: &str| std::fs::read(format!("tests/vectors/{name}.bin")).unwrap();
    let proposals = ["P1", "P2", "P3", "P4"].map(read);
    let answers = ["A1", "A2", "A3", "D1", "D2"].map(read);
    let confirms = ["C1", "C2", "D1"].map(read);
    for_seeds(20_000, |seed| {
        let mut rng = Rng::new(seed);
        let circumstances = rng.next() as u8;
        let (mut first, mut second) = match circumstances & 1 {
            0 => (rng.pick(&answers).clone(), Vec::new()),
            _ => (rng.pick(&proposals).clone(), rng.pick(&confirms).clone()),
        };
        for message in [&mut first, &mut second] {
            for _ in 0..rng.below(4) {
                if let Some(at) = message.len().checked_sub(1) {
                    let at = rng.between(7, at as u32) as usize;
                    message[at] = rng.next() as u8;
                }
            }
        }
        let mut bytes = vec![circumstances];
        bytes.extend((first.len() as u16).to_be_bytes());
        bytes.extend(first);
        bytes.extend(second);
        handshake_ops::run(&bytes);
    });
}

/// What the fuzzer has found before.
#[test]
fn what_was_found_breaks_no_promise_of_a_handshake() {
    handshake_ops::run(include_bytes!("fuzz/found/hs_sides-both-clients"));
}

#[test]
fn a_lack_of_common_eids_is_known_here_and_not_on_the_wire() {
    let bytes = std::fs::read("tests/vectors/P4.bin").unwrap();
    let Ok(ClcMessage::Proposal(proposal)) = ClcMessage::parse(&bytes) else {
        panic!("not a proposal");
    };
    let judge = |name: &[u8], has_interface| {
        let mut eids = Ueids::EMPTY;
        eids.add(Eid::from_name(name).unwrap()).unwrap();
        let config = Config::new(Side::Server);
        let caps = ServerCaps {
            eids: &eids,
            limits: config.limits,
            has_ipsec: false,
            has_interface,
            iwarp: None,
        };
        let reason = caps.evaluate(&proposal, |_| true).err();
        reason.map(|reason| (reason, caps.cause(&proposal, reason)))
    };
    assert_eq!(judge(b"SMCV2-TEST", true), None);
    let unknown = (Reason::NoSmcDevice, Some(Cause::NoCommonEid));
    assert_eq!(judge(b"OTHER", true), Some(unknown));
    assert_eq!(judge(b"OTHER", false), Some((Reason::VlanError, None)));
}
