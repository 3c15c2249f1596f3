// SPDX-License-Identifier: GPL-2.0

//! `smctest admin rules`: replaces the rules about who may use SMC in good ways, and in wrong ones, which must change
//! nothing.

use std::io;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_proto::policy::EndPattern;
use smc_proto::policy::RawRule;
use smc_proto::policy::Rule;
use smc_proto::policy::RuleAction;
use smc_proto::policy::MAX_RULES;
use smc_tools::genl::Family;
use smc_tools::netlink::put_attribute;
use smc_tools::rules::Table;
use smc_uapi::SMC_RS_A_GENERATION;
use smc_uapi::SMC_RS_A_RULES;
use smc_uapi::SMC_RS_CMD_SET_RULES;
use smc_uapi::SMC_RS_GENL_NAME;

/// A rule that denies everything.
const DENY: Rule = Rule {
    action: RuleAction::Deny,
    role: None,
    local: EndPattern::ANY,
    peer: EndPattern::ANY,
};

/// The number of an attribute and its value.
type Attribute<'a> = (u16, &'a [u8]);

/// Sends the requests; fails at the first wrong answer.
pub(super) fn run() -> Result<()> {
    let (mut table, mut family) = (Table::open()?, Family::open(SMC_RS_GENL_NAME)?);
    table.replace(&[DENY], None)?;
    let before = table.list()?;
    ensure!(before.rules == [DENY], "{before:?}");

    let good = RawRule::from(&DENY);
    let wrong = RawRule { action: 7, ..good };
    let none = u16::MAX >> 4;
    let too_many = good.bytes().repeat(MAX_RULES + 1);
    let stale = before.generation.wrapping_sub(1).to_ne_bytes();
    let requests: [(&str, &[Attribute<'_>], i32); 8] = [
        ("no rules are named", &[], libc::EINVAL),
        (
            "half a rule",
            &[(SMC_RS_A_RULES, &good.bytes()[..26])],
            libc::EINVAL,
        ),
        (
            "no action of that number",
            &[(SMC_RS_A_RULES, wrong.bytes())],
            libc::EINVAL,
        ),
        (
            "the second of two is wrong",
            &[(SMC_RS_A_RULES, &[good.bytes(), wrong.bytes()].concat())],
            libc::EINVAL,
        ),
        (
            "one rule too many",
            &[(SMC_RS_A_RULES, &too_many)],
            libc::E2BIG,
        ),
        (
            "another generation",
            &[
                (SMC_RS_A_RULES, good.bytes()),
                (SMC_RS_A_GENERATION, &stale),
            ],
            libc::ESTALE,
        ),
        (
            "a generation of two bytes",
            &[
                (SMC_RS_A_RULES, good.bytes()),
                (SMC_RS_A_GENERATION, &[0; 2]),
            ],
            libc::EINVAL,
        ),
        (
            "an attribute that there is not",
            &[(SMC_RS_A_RULES, good.bytes()), (none, &[])],
            libc::EINVAL,
        ),
    ];
    for (what, attributes, errno) in requests {
        let answer = set(&mut family, attributes);
        println!("# {what}: {answer:?}");
        let error = answer.err().and_then(|error| error.raw_os_error());
        ensure!(error == Some(errno), "{what}: {error:?}");
        ensure!(table.list()? == before, "{what}: the rules have changed");
    }

    table
        .replace(&[DENY; MAX_RULES], Some(before.generation))
        .context("as many as may be")?;
    let after = table.list()?;
    ensure!(after.rules == [DENY; MAX_RULES] && after.generation != before.generation);
    table.replace(&[], None)?;
    ensure!(table.list()?.rules.is_empty());
    Ok(())
}

fn set(family: &mut Family, attributes: &[Attribute<'_>]) -> io::Result<()> {
    let mut message = Vec::new();
    for (kind, value) in attributes {
        put_attribute(&mut message, *kind, value);
    }
    family.call(SMC_RS_CMD_SET_RULES, &message).map(drop)
}
