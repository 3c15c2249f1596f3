// SPDX-License-Identifier: GPL-2.0

//! Sends each command in many forms: as a single request and as a dump, without attributes, with
//! attributes that are too short, too long or unknown. The caller chooses the privileges under
//! which this runs.

use std::io;

use anyhow::Context as _;
use anyhow::Result;
use smc_tools::genl::header;
use smc_tools::genl::Family;
use smc_tools::genl::Message;
use smc_tools::genl::SMC_FAMILY;
use smc_tools::netlink::put_attribute;
use smc_tools::netlink::NLM_F_ACK;
use smc_tools::netlink::NLM_F_DUMP;
use smc_uapi::SMC_NETLINK_ADD_UEID as ADD_UEID;
use smc_uapi::SMC_NETLINK_FLUSH_UEID as FLUSH_UEID;
use smc_uapi::SMC_NETLINK_GET_DEV_SMCR;
use smc_uapi::SMC_NETLINK_GET_FBACK_STATS;
use smc_uapi::SMC_NETLINK_GET_LGR_SMCR;
use smc_uapi::SMC_NETLINK_GET_LINK_SMCR;
use smc_uapi::SMC_NETLINK_GET_STATS;
use smc_uapi::SMC_NETLINK_REMOVE_UEID as REMOVE_UEID;
use smc_uapi::SMC_NLA_EID_TABLE_ENTRY as EID;

use super::show;

/// Commands of the family, and some that it does not have.
const COMMANDS: std::ops::RangeInclusive<u8> = 0..=20;

/// Attributes whose values are not printed: none.
const HIDDEN: &[&str] = &[];

/// Lists whose content depends on earlier commands; the subcommand `lists` checks them.
const CHANGING: &[u8] = &[
    SMC_NETLINK_GET_LGR_SMCR,
    SMC_NETLINK_GET_LINK_SMCR,
    SMC_NETLINK_GET_DEV_SMCR,
    SMC_NETLINK_GET_STATS,
    SMC_NETLINK_GET_FBACK_STATS,
];

pub(super) fn run() -> Result<()> {
    let mut family = Family::open(SMC_FAMILY).context("no SMC module")?;
    for command in COMMANDS {
        let plain = header(command);
        answer(
            &mut family,
            &format!("command {command}"),
            NLM_F_ACK,
            &plain,
        );
        let list = family.ask(NLM_F_DUMP, &plain);
        match CHANGING.contains(&command) {
            true => println!("list {command}: {}", outcome(&list)),
            false => show::answer(&format!("list {command}"), HIDDEN, list),
        }
        odd(&mut family, command);
    }
    eids(&mut family);
    Ok(())
}

/// Sends malformed requests.
fn odd(family: &mut Family, command: u8) {
    let mut reserved = header(command);
    reserved[2] = 1;
    let mut with_attr = header(command);
    put_attribute(&mut with_attr, EID, &[b'A'; 33]);
    let mut unknown = header(command);
    put_attribute(&mut unknown, 9, b"x");
    let mut empty = header(command);
    put_attribute(&mut empty, EID, b"");
    let mut cut = header(command);
    // An attribute whose length field exceeds the message.
    cut.extend([200, 0, 1, 0]);
    let cases = [
        ("reserved header field", &reserved),
        ("attribute 1", &with_attr),
        ("attribute 9", &unknown),
        ("empty attribute", &empty),
        ("cut attribute", &cut),
    ];
    for (name, payload) in cases {
        for (kind, flags) in [("command", NLM_F_ACK), ("list", NLM_F_DUMP)] {
            let result = family.ask(flags, payload);
            println!("{kind} {command}, {name}: {}", outcome(&result));
        }
    }
}

/// Adds valid and invalid enterprise IDs, also to a full table.
fn eids(family: &mut Family) {
    answer(family, "flush", NLM_F_ACK, &header(FLUSH_UEID));
    let padded = |name: &str| format!("{name:32}\0").into_bytes();
    let all = [
        ("one character", padded("A")),
        ("all kinds of characters", padded("AZ09.-")),
        ("the same", padded("AZ09.-")),
        ("32 characters", padded("ABCDEFGHIJKLMNOPQRSTUVWXYZ012345")),
        ("small letters", padded("abc")),
        ("a dot first", padded(".A")),
        ("a hyphen first", padded("-A")),
        ("a digit first", padded("9A")),
        ("a blank within", padded("A B")),
        ("a blank first", padded(" A")),
        ("only blanks", padded("")),
        ("beyond ASCII", [&[0xc4; 32][..], &[0]].concat()),
        ("without NUL, 32 bytes", vec![b'A'; 32]),
        ("without NUL, 33 bytes", vec![b'A'; 33]),
        ("without NUL, 34 bytes", vec![b'A'; 34]),
        ("unpadded", b"ABC\0".to_vec()),
        ("a NUL within", [&b"A\0"[..], &[b' '; 30], &[0]].concat()),
        ("a fifth", padded("FIFTH")),
        ("a sixth", padded("SIXTH")),
    ];
    for (name, value) in &all {
        change(family, &format!("add {name}"), ADD_UEID, value);
    }
    show::answer("list", HIDDEN, family.dump(9));
    for (name, value) in &all {
        change(family, &format!("remove {name}"), REMOVE_UEID, value);
    }
    show::answer("list", HIDDEN, family.dump(9));
    answer(family, "flush", NLM_F_ACK, &header(FLUSH_UEID));
}

fn change(family: &mut Family, title: &str, command: u8, value: &[u8]) {
    let mut payload = header(command);
    put_attribute(&mut payload, EID, value);
    answer(family, title, NLM_F_ACK, &payload);
}

fn answer(family: &mut Family, title: &str, flags: u16, payload: &[u8]) {
    show::answer(title, HIDDEN, family.ask(flags, payload));
}

fn outcome(result: &io::Result<Vec<Message>>) -> String {
    match result {
        Ok(_) => "answered".to_string(),
        Err(error) => show::name(error),
    }
}
