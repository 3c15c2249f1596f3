// SPDX-License-Identifier: GPL-2.0
//! Links of a group that are added, deleted and lost, with two cores that talk: message by message,
//! and from many seeds with messages that are lost, late, doubled or cross the peer's own flow.

mod common;

use std::cell::Cell;

use common::links::{
    World,
    MAX_LINKS,
    WORK, //
};
use common::net::Verdict;
use common::rng::{
    for_seeds,
    Rng, //
};
use common::Side;
use smc_proto::lgr::{
    LgrType,
    LinkIdx, //
};
use smc_proto::llc::add::CONFIRM_WAIT;
use smc_proto::llc::AddLinkError;
use smc_proto::llc::{
    Finished,
    ANSWER_WAIT, //
};
use smc_proto::reason::Reason;
use smc_proto::time::Duration;
use smc_proto::wire::llc::RejectReason;
use smc_proto::wire::Version;

const VERSIONS: [Version; 2] = [Version::V1, Version::V2];

/// How a side's ADD_LINK flows ended.
fn added(world: &World, side: Side) -> Vec<Result<(), AddLinkError>> {
    let pick = |how: &Finished| match how {
        Finished::AddLink { result, .. } => Some(*result),
        _ => None,
    };
    let machine = &world.machines[side.index()];
    machine.finished.iter().filter_map(pick).collect()
}

fn kinds(world: &World) -> [LgrType; 2] {
    [0, 1].map(|side| LgrType::of(&world.machines[side].ends()))
}

fn announced(world: &mut World, side: Side, count: u8) {
    for _ in 0..count {
        world.confirm_rkey(side);
        world.run();
    }
}

#[test]
fn a_second_link_is_added_with_all_keys() {
    for version in VERSIONS {
        for count in [0, 1, 2, 3, 7] {
            let mut world = World::new(1, version, [2, 2]);
            announced(&mut world, Side::Client, count);
            announced(&mut world, Side::Server, 5);
            world.port_up(Side::Server);
            world.run();
            assert_eq!(world.view(Side::Client), world.view(Side::Server));
            assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
            for side in Side::BOTH {
                assert_eq!(added(&world, side), [Ok(())]);
                assert_eq!(world.missing_keys(side), 0, "{version:?} {count}");
            }
            // What comes later is told for both links at once.
            announced(&mut world, Side::Client, 1);
            assert_eq!(world.missing_keys(Side::Server), 0);
        }
    }
}

#[test]
fn one_port_on_a_side_makes_an_asymmetric_group() {
    for (ports, client, server) in [
        ([1, 2], LgrType::AsymmetricLocal, LgrType::AsymmetricPeer),
        ([2, 1], LgrType::AsymmetricPeer, LgrType::AsymmetricLocal),
    ] {
        let mut world = World::new(1, Version::V2, ports);
        world.port_up(Side::Server);
        world.run();
        assert_eq!(kinds(&world), [client, server]);
        world.port_up(Side::Server);
        world.run();
        assert_eq!(world.view(Side::Client).len(), 2, "a third is of no use");
    }
}

#[test]
fn a_missing_port_that_returns_makes_the_asymmetric_link_superfluous() {
    for (ports, late) in [([1, 2], Side::Client), ([2, 1], Side::Server)] {
        let mut world = World::new(1, Version::V2, ports);
        world.port_up(Side::Server);
        world.run();
        assert!(kinds(&world)[0].is_asymmetric());
        world.machine(late).ports = 2;
        world.port_up(late);
        world.run();
        assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
        assert_eq!(world.view(Side::Client), world.view(Side::Server));
        assert_eq!(world.view(Side::Client).len(), 2);
    }
}

#[test]
fn two_sides_with_one_port_each_have_one_link() {
    for version in VERSIONS {
        let mut world = World::new(1, version, [1, 1]);
        world.port_up(Side::Server);
        world.run();
        assert_eq!(kinds(&world), [LgrType::Single; 2]);
        let rejected = Err(AddLinkError::Rejected(RejectReason::NO_ALTERNATE_PATH));
        for side in Side::BOTH {
            assert_eq!(added(&world, side), [rejected]);
        }
    }
}

#[test]
fn links_are_added_up_to_the_limit_of_the_group() {
    let mut world = World::new(1, Version::V2, [8, 8]);
    world.port_up(Side::Server);
    world.run();
    assert_eq!(world.view(Side::Client), world.view(Side::Server));
    assert_eq!(world.view(Side::Client).len(), usize::from(MAX_LINKS));
}

#[test]
fn an_invitation_is_taken_up() {
    for version in VERSIONS {
        let mut world = World::new(1, version, [2, 2]);
        world.port_up(Side::Client);
        world.run();
        assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
        world.port_up(Side::Client);
        world.run();
        assert_eq!(added(&world, Side::Server).len(), 1, "one is enough");
    }
}

#[test]
fn a_lost_link_is_deleted_on_both_sides_and_added_again() {
    for version in VERSIONS {
        for (side, at) in [
            (Side::Client, 0),
            (Side::Client, 1),
            (Side::Server, 0),
            (Side::Server, 1),
        ] {
            let mut world = World::new(1, version, [2, 2]);
            announced(&mut world, Side::Client, 3);
            world.port_up(Side::Server);
            world.run();
            let before = world.view(side);
            let idx = LinkIdx::ALL[at];
            let qp = world.machine(side).links[idx].unwrap().qp;
            world.lose(side, idx);
            world.run();
            let view = world.view(side);
            assert_eq!(world.view(side.peer()), view);
            assert_eq!(kinds(&world), [LgrType::Symmetric; 2], "{side:?} {at}");
            let is_it = |link: &&(u8, u8, u8)| link.1 == qp || link.2 == qp;
            assert!(before.iter().any(|link| is_it(&link)));
            assert!(!view.iter().any(|link| is_it(&link)));
            assert_eq!(added(&world, Side::Server), [Ok(()); 2]);
            assert_eq!(world.missing_keys(Side::Server), 0);
        }
    }
}

#[test]
fn a_loss_that_both_sides_see_costs_one_link() {
    let mut world = World::new(1, Version::V2, [2, 2]);
    world.port_up(Side::Server);
    world.run();
    for side in Side::BOTH {
        world.lose(side, LinkIdx::ALL[1]);
    }
    world.run();
    assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    assert_eq!(added(&world, Side::Server).len(), 2);
    assert!(!world.machine(Side::Client).is_dead && !world.machine(Side::Server).is_dead);
}

#[test]
fn a_group_outlives_its_only_link_while_another_one_is_confirmed() {
    for (version, side) in VERSIONS
        .into_iter()
        .flat_map(|v| Side::BOTH.map(|s| (v, s)))
    {
        let (mut outlived, mut steps) = (0, 0);
        loop {
            let mut world = World::new(1, version, [2, 2]);
            announced(&mut world, Side::Client, 3);
            world.port_up(Side::Server);
            for _ in 0..steps {
                assert!(world.step());
            }
            if !added(&world, Side::Server).is_empty() {
                break;
            }
            steps += 1;
            let client_uses_it = world.machine(Side::Client).active().len() == 2;
            world.lose(side, LinkIdx::FIRST);
            world.run();
            let is_dead = Side::BOTH.map(|side| world.machine(side).is_dead);
            let what = format!("{version:?} {side:?} after {steps} steps: {is_dead:?}");
            assert!(!client_uses_it || is_dead == [false; 2], "{what}");
            if is_dead[side.index()] {
                continue;
            }
            outlived += 1;
            assert_eq!(is_dead, [false; 2], "{what}");
            assert_eq!(kinds(&world), [LgrType::Symmetric; 2], "{what}");
            assert_eq!(world.view(Side::Client), world.view(Side::Server));
            assert_eq!(world.missing_keys(Side::Server), 0, "{what}");
        }
        assert!(outlived > 0, "{version:?} {side:?}");
    }
}

#[test]
fn a_link_that_the_server_cannot_bring_up_is_tried_again() {
    for version in VERSIONS {
        let mut world = World::new(1, version, [2, 2]);
        world.machine(Side::Server).fails = 1;
        world.port_up(Side::Server);
        world.run_for(30_000);
        assert_eq!(kinds(&world), [LgrType::Single; 2]);
        let [client, server] = Side::BOTH.map(|side| added(&world, side));
        let failed = Err(AddLinkError::Failed(Reason::LinkNotReady));
        assert!((2..=4).contains(&server.len()), "{server:?}");
        assert!(server.iter().all(|how| *how == failed), "{server:?}");
        assert!(client.iter().all(|how| *how == Err(AddLinkError::Deleted)));
        world.machine(Side::Server).fails = 0;
        world.run();
        assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    }
}

#[test]
fn a_client_that_cannot_bring_a_link_up_invites_when_it_can() {
    for version in VERSIONS {
        let mut world = World::new(1, version, [2, 2]);
        world.machine(Side::Client).fails = 1;
        world.port_up(Side::Server);
        world.run_for(1000);
        let ended = added(&world, Side::Server);
        assert!(
            matches!(ended[..], [Err(AddLinkError::Rejected(_))]),
            "{ended:?}"
        );
        // It invites after a while, as it could make an end of a link then.
        world.machine(Side::Client).fails = 0;
        world.run();
        assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    }
}

#[test]
fn a_server_that_cannot_offer_a_link_tries_again() {
    for version in VERSIONS {
        let mut world = World::new(1, version, [2, 2]);
        world.machine(Side::Server).fails_to_offer = true;
        world.port_up(Side::Server);
        world.run_for(1000);
        assert_eq!(added(&world, Side::Server), []);
        world.run();
        assert_eq!(added(&world, Side::Server), [Ok(())]);
        assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    }
}

#[test]
fn an_invited_server_tries_again_where_the_client_rejects() {
    let mut world = World::new(1, Version::V2, [2, 2]);
    world.machine(Side::Client).fails = 1;
    world.net.add_rule(|packet| match packet.message[0] & 0x0f {
        // One invitation arrives.
        5 if packet.number > 20 => Verdict::Lose,
        _ => Verdict::Pass,
    });
    world.port_up(Side::Client);
    world.run_for(30_000);
    let rejected = added(&world, Side::Server).len();
    assert!((3..=5).contains(&rejected), "{rejected}");
    world.machine(Side::Client).fails = 0;
    world.run();
    assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
}

#[test]
fn a_link_on_which_nothing_arrives_is_tested_deleted_and_added_again() {
    let after = Duration::from_secs(30);
    let mut world = World::with_tests(1, Version::V2, [2, 2], after);
    world.port_up(Side::Server);
    world.run_for(100_000);
    assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    assert_eq!(added(&world, Side::Server), [Ok(())], "answers save a link");
    let qp = world.machine(Side::Server).links[LinkIdx::ALL[1]]
        .unwrap()
        .qp;
    world
        .net
        .add_rule(move |packet| match packet.channel == qp {
            true => Verdict::Lose,
            false => Verdict::Pass,
        });
    world.run_for(60_000);
    assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    assert_eq!(added(&world, Side::Server), [Ok(()); 2]);
    assert_eq!(world.view(Side::Client), world.view(Side::Server));
}

/// The types of the messages of one ADD_LINK flow, and those of the deletion of that link.
fn types_of_a_flow(version: Version) -> Vec<u8> {
    match version {
        Version::V1 => vec![1, 2, 3, 4],
        Version::V2 => vec![1, 2, 4],
    }
}

#[test]
fn whichever_message_is_lost_both_sides_agree_in_the_end() {
    for version in VERSIONS {
        for from in Side::BOTH {
            for kind in types_of_a_flow(version) {
                let mut world = World::new(1, version, [2, 2]);
                announced(&mut world, Side::Client, 3);
                world.net.add_rule(move |packet| {
                    match packet.from == from && packet.message[0] & 0x0f == kind {
                        true => Verdict::Lose,
                        false => Verdict::Pass,
                    }
                });
                world.port_up(Side::Server);
                world.run_for(20_000);
                if kind == 4 {
                    world.lose(from, LinkIdx::ALL[1]);
                    world.run_for(20_000);
                }
                let lost = world.net.lost();
                world.net.clear_rules();
                world.test_links();
                world.run();
                let views = Side::BOTH.map(|side| world.view(side));
                let case = format!("{version:?} {from:?} {kind}, {lost} lost");
                assert_eq!(views[0], views[1], "{case}");
                assert!(lost > 0, "{case}");
                // The group is none the worse for it.
                assert_eq!(kinds(&world), [LgrType::Symmetric; 2], "{case}");
            }
        }
    }
}

#[test]
fn an_offer_waits_for_the_clients_own_flow() {
    let mut world = World::new(1, Version::V2, [2, 2]);
    // The answer to the announcement is late, and the offer is here before.
    world.net.add_rule(|packet| match packet.message[0] & 0x0f {
        6 if packet.from == Side::Server => Verdict::Delay(Duration::from_millis(300)),
        _ => Verdict::Pass,
    });
    world.confirm_rkey(Side::Client);
    world.port_up(Side::Server);
    world.run();
    assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
    assert_eq!(world.missing_keys(Side::Server), 0);
    assert_eq!(world.machine(Side::Client).rmbs.len(), 1);
}

#[test]
fn an_invitation_that_nobody_answers_holds_nothing_up() {
    let mut world = World::new(1, Version::V2, [2, 2]);
    world.net.add_rule(|packet| match packet.message[0] & 0x0f {
        5 => Verdict::Lose,
        _ => Verdict::Pass,
    });
    world.port_up(Side::Client);
    world.run_for(20_000);
    assert!(world.machine(Side::Client).llc.is_idle());
    assert_eq!(world.net.lost(), 4, "it is repeated");
    world.confirm_rkey(Side::Client);
    world.run_for(1_000);
    assert_eq!(world.machine(Side::Client).rmbs.len(), 1);
    world.net.clear_rules();
    world.run();
    assert_eq!(kinds(&world), [LgrType::Symmetric; 2]);
}

/// Loses, delays and doubles messages, `one_in` so many.
fn disturb(world: &mut World, seed: u64, one_in: u32) {
    let mut rng = Rng::new(seed ^ 0xd157);
    world.net.add_rule(move |packet| {
        // The tests of links are what ends a disagreement.
        if packet.message[0] & 0x0f == 7 || !rng.one_in(one_in) {
            return Verdict::Pass;
        }
        let millis = Duration::from_millis(rng.below(3_000).into());
        match rng.below(3) {
            0 => Verdict::Lose,
            1 => Verdict::Delay(millis),
            _ => Verdict::Twice(millis),
        }
    });
}

/// One of the things that may happen.
fn operate(world: &mut World, rng: &mut Rng) {
    let side = *rng.pick(&Side::BOTH);
    let slots = world.machine(side).active();
    let idx = match slots.is_empty() {
        true => return,
        false => *rng.pick(&slots),
    };
    match rng.below(10) {
        0..=2 => world.confirm_rkey(side),
        3 => world.take_back(side),
        4..=6 => world.port_up(side),
        7 => world.lose(side, idx),
        8 => world.machine(side).ports = 1 + rng.below(4) as u8,
        _ => world.test_links(),
    }
}

/// The longest that one flow may take with so many buffers: each message its wait, each step of the
/// caller its time.
fn bound(version: Version, buffers: usize) -> u64 {
    // The worker may be about something else before.
    let steps = 4 * u64::from(WORK) * 1_000_000;
    let rounds = match version {
        Version::V1 => buffers as u64 + 2,
        Version::V2 => 0,
    };
    ANSWER_WAIT.as_nanos() * (1 + rounds) + CONFIRM_WAIT.as_nanos() + steps
}

#[test]
fn whatever_happens_both_sides_agree_and_no_flow_lasts() {
    let [runs, ended] = [Cell::new(0), Cell::new(0)];
    for_seeds(10_000, |seed| {
        let mut rng = Rng::new(seed);
        let version = VERSIONS[rng.below(2) as usize];
        let ports = [rng.between(1, 4) as u8, rng.between(1, 4) as u8];
        let mut world = World::new(seed, version, ports);
        disturb(&mut world, seed, rng.between(2, 30));
        for machine in &mut world.machines {
            machine.fails = *rng.pick(&[0, 0, 5]);
        }
        for _ in 0..rng.between(1, 12) {
            operate(&mut world, &mut rng);
            world.run_for(rng.below(4_000).into());
        }
        world.settle();
        world.net.clear_rules();
        world.test_links();
        world.settle();
        let views = Side::BOTH.map(|side| world.view(side));
        let is_over = world.machines.iter().any(|machine| machine.is_dead);
        assert!(is_over || views[0] == views[1], "{views:?}");
        runs.set(runs.get() + 1);
        ended.set(ended.get() + u32::from(is_over));
        for side in Side::BOTH {
            world.missing_keys(side);
            let machine = world.machine(side);
            assert!(machine.llc.is_idle(), "{side:?}");
            let longest = machine.longest.as_nanos();
            assert!(longest <= bound(version, 24), "{side:?} {longest} ns");
        }
    });
    // A group that ended shows nothing about its links.
    let [runs, ended] = [runs.get(), ended.get()];
    assert!(ended <= runs.div_ceil(2), "{ended} of {runs} groups ended");
}

#[test]
fn without_disturbance_no_key_is_missing() {
    for_seeds(2_000, |seed| {
        let mut rng = Rng::new(seed);
        let version = VERSIONS[rng.below(2) as usize];
        let mut world = World::new(seed, version, [3, 3]);
        for _ in 0..rng.between(2, 10) {
            match rng.below(4) {
                0 => world.port_up(Side::Server),
                1 => world.take_back(*rng.pick(&Side::BOTH)),
                _ => world.confirm_rkey(*rng.pick(&Side::BOTH)),
            }
            world.run_for(rng.below(3_000).into());
        }
        world.run();
        assert_eq!(world.view(Side::Client), world.view(Side::Server));
        for side in Side::BOTH {
            let links = world.view(side).len();
            // An announcement names three links at most here.
            if links <= 3 {
                assert_eq!(world.missing_keys(side), 0, "{side:?}");
            }
        }
    });
}
