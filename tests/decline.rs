// SPDX-License-Identifier: GPL-2.0
//! Every reason not to use SMC: found by the right side, told to the other, and TCP for both.

mod common;

use std::collections::BTreeSet;

use common::host::{
    Config,
    Outcome,
    World, //
};
use common::Side;
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::select::Route;
use smc_proto::id::Ipv4;
use smc_proto::reason::Reason;

/// One way not to get SMC.
struct Case {
    /// Who finds out.
    by: Side,
    reason: Reason,
    change: fn(&mut Config, &mut Config),
}

const fn client(reason: Reason, change: fn(&mut Config, &mut Config)) -> Case {
    Case {
        by: Side::Client,
        reason,
        change,
    }
}

const fn server(reason: Reason, change: fn(&mut Config, &mut Config)) -> Case {
    Case {
        by: Side::Server,
        reason,
        change,
    }
}

/// Byte 4 of a CLC message: its kind.
fn is_clc(bytes: &[u8], kind: u8) -> bool {
    bytes[4] == kind
}

/// Takes the version 2 types out of a PROPOSAL's offer and leaves others.
fn offer_types(bytes: &mut [u8], types: u8) {
    if is_clc(bytes, 1) {
        bytes[7] = bytes[7] & 0xf0 | types;
    }
}

const CASES: &[Case] = &[
    client(Reason::Memory, |c, _| c.has_memory = false),
    server(Reason::Memory, |_, s| s.has_memory = false),
    client(Reason::ConfigError, |c, _| {
        c.v2 = None;
        c.address = None;
    }),
    client(Reason::Ipsec, |c, _| c.has_ipsec = true),
    server(Reason::Ipsec, |_, s| s.has_ipsec = true),
    client(Reason::NoSmcDevice, |c, _| {
        c.v1 = None;
        c.v2 = None;
    }),
    client(Reason::NoSmcDevice, |c, _| {
        c.v1 = None;
        c.eids = Ueids::EMPTY;
    }),
    // No way is left, and none failed for a reason of its own.
    server(Reason::NoSmcDevice, |c, s| {
        c.v1 = None;
        s.eids = Ueids::EMPTY;
    }),
    server(Reason::NoSmcDevice, |c, s| {
        c.v2 = None;
        s.v1 = None;
    }),
    // The first failure is told, not the last.
    server(Reason::NoSmcrDevice, |_, s| {
        s.v1 = None;
        s.v2 = None;
    }),
    server(Reason::DifferentPrefix, |c, s| {
        c.address = Some((Ipv4([10, 0, 0, 1]), 24));
        s.v2 = None;
    }),
    server(Reason::DifferentPrefix, |c, _| {
        c.v2 = None;
        c.address = Some((Ipv4([192, 168, 1, 1]), 25));
    }),
    server(Reason::DifferentPrefix, |c, s| {
        c.v2 = None;
        s.address = None;
    }),
    server(Reason::VlanError, |_, s| s.has_interface = false),
    // Nothing, version 1 or 2, is offered.
    server(Reason::PeerNoSmc, |c, _| {
        c.v2 = None;
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 1) {
                // Without types there are no prefixes.
                bytes.drain(80..88);
                bytes[6] = 84;
                bytes[7] = 0x2a;
                bytes[39] = 0;
            }
        };
    }),
    server(Reason::NoSmcdDevice, |c, _| {
        c.v2 = None;
        c.mangle_clc = |bytes| offer_types(bytes, 0x09);
    }),
    server(Reason::NoIsmV2Support, |c, _| {
        c.v1 = None;
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 1) {
                // SMC-D takes another 48 bytes before the trailer, 32 and an EID behind its offset.
                let at = bytes.len() - 4;
                bytes.splice(at..at, [0; 48]);
                bytes[6] += 48;
                bytes[7] = 0x26;
                bytes[80 + 7] = 64;
            }
        };
    }),
    server(Reason::NoUeid, |c, _| {
        c.v1 = None;
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 1) {
                bytes.drain(120..152);
                bytes[6] -= 32;
                bytes[80] = 0;
            }
        };
    }),
    server(Reason::MaxConnsError, |_, s| s.limits.max_conns = 15),
    server(Reason::MaxConnsError, |c, _| c.limits.max_conns = 0),
    server(Reason::MaxLinksError, |c, _| c.limits.max_links = 0),
    // ACCEPT: release at 105, limits at 140.
    client(Reason::ReleaseError, |_, s| {
        s.mangle_clc = |bytes| bytes[105] = 0x22;
    }),
    client(Reason::MaxConnsError, |_, s| {
        s.mangle_clc = |bytes| bytes[140] = 15;
    }),
    client(Reason::MaxLinksError, |_, s| {
        s.mangle_clc = |bytes| bytes[141] = 2;
    }),
    client(Reason::ModeUnsupported, |_, s| {
        s.mangle_clc = |bytes| bytes[64] = b'X';
    }),
    client(Reason::ModeUnsupported, |c, s| {
        c.v2 = None;
        s.mangle_clc = |bytes| {
            if is_clc(bytes, 2) {
                let at = bytes.len() - 4;
                bytes.splice(at..at, [0; 40]);
                bytes[6] = 108;
                bytes[7] = 0x20;
            }
        };
    }),
    client(Reason::ModeUnsupported, |_, s| {
        s.mangle_clc = |bytes| bytes[50] &= 0xf0;
    }),
    client(Reason::ModeUnsupported, |_, s| {
        s.mangle_clc = |bytes| bytes[45] = 0;
    }),
    // CONFIRM: the same offsets.
    server(Reason::ReleaseError, |c, _| {
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 3) {
                bytes[105] = 0x20;
            }
        };
    }),
    server(Reason::MaxConnsError, |c, _| {
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 3) {
                bytes[140] -= 1;
            }
        };
    }),
    server(Reason::MaxLinksError, |c, _| {
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 3) {
                bytes[141] += 1;
            }
        };
    }),
    server(Reason::ModeUnsupported, |c, _| {
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 3) {
                bytes[45] = 0;
            }
        };
    }),
    // A CONFIRM of version 1 after an ACCEPT of version 2.
    server(Reason::ModeUnsupported, |c, _| {
        c.mangle_clc = |bytes| {
            if is_clc(bytes, 3) {
                let at = bytes.len() - 4;
                bytes.drain(64..at);
                bytes[6] = 68;
                bytes[7] = 0x10;
            }
        };
    }),
    // SMC-D in version 1 and in another subnet: the subnet comes first.
    server(Reason::DifferentPrefix, |c, _| {
        c.v2 = None;
        c.address = Some((Ipv4([10, 0, 0, 1]), 24));
        c.mangle_clc = |bytes| offer_types(bytes, 0x09);
    }),
    client(Reason::NoRoute, |c, s| {
        c.route = None;
        s.route = Some(Route::Gateway);
    }),
    client(Reason::NoIndirect, |_, s| s.route = Some(Route::Gateway)),
    client(Reason::NoRtoken, |c, _| c.rows = 0),
    server(Reason::NoRtoken, |_, s| s.rows = 0),
    client(Reason::LinkNotReady, |c, _| c.link_gets_ready = false),
    server(Reason::LinkNotReady, |_, s| s.link_gets_ready = false),
    client(Reason::RegistrationFailed, |c, _| {
        c.buffer_registers = false
    }),
    server(Reason::RegistrationFailed, |_, s| {
        s.buffer_registers = false
    }),
    // CONFIRM_LINK: flags at 3.
    client(Reason::RmbeEyeCatcher, |_, s| {
        s.mangle_llc = |bytes| bytes[3] &= 0xfc;
    }),
    server(Reason::RmbeEyeCatcher, |c, _| {
        c.mangle_llc = |bytes| bytes[3] &= 0xfc;
    }),
];

#[test]
fn every_reason_is_found_told_and_leads_to_tcp_on_both_sides() {
    for (number, case) in CASES.iter().enumerate() {
        let mut world = World::with(number as u64, case.change);
        let outcomes = world.outcomes();
        let finder = &outcomes[case.by.index()];
        let other = &outcomes[case.by.peer().index()];
        let context = format!("case {number}, {:?}: {outcomes:?}", case.reason);
        assert_eq!(*finder, Outcome::Fallback(case.reason), "{context}");
        let declined = Outcome::Fallback(Reason::PeerDeclined);
        assert_eq!(*other, declined, "{context}");
        let declined = &world.machine(case.by).declined;
        let told: Vec<_> = declined
            .iter()
            .map(|decline| decline.diagnosis.reason())
            .collect();
        assert_eq!(told, [Some(case.reason)], "{context}");
    }
}

#[test]
fn the_cases_and_the_scenarios_cover_every_reachable_reason() {
    let covered: BTreeSet<Reason> = CASES.iter().map(|case| case.reason).collect();
    // By scenarios below: timeout, lost groups and links. `PeerDeclined` is the other side's.
    let by_scenario = [
        Reason::TimeoutConfirmLink,
        Reason::NoActiveLink,
        Reason::SyncError,
        Reason::PeerDeclined,
    ];
    let unreachable = [
        // Sent by nobody.
        Reason::TimeoutAddLink,
        Reason::NoSeid,
        Reason::VersionMismatch,
        // SMC-D only.
        Reason::NoV2DExtension,
        Reason::NoSmcd2Device,
        Reason::IsmVlanError,
        Reason::DmbLimit,
        // A proposal without the extension that it announces is refused as malformed before.
        Reason::NoV2Extension,
        // By the caller alone.
        Reason::OptionUnsupported,
        Reason::Internal,
        // A link that is lost between the search for the group and its use.
        Reason::NoServerLink,
    ];
    let all = covered.iter().chain(&by_scenario).chain(&unreachable);
    let all: BTreeSet<Reason> = all.copied().collect();
    assert_eq!(all, Reason::ALL.iter().copied().collect());
    assert!(unreachable.iter().all(|reason| !covered.contains(reason)));
}
