// SPDX-License-Identifier: GPL-2.0

//! Compares constants and structures with the C headers, by assertions for the C compiler.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::mem::size_of;
use std::process::Command;
use std::process::Stdio;

use smc_proto::cause::Cause;
use smc_proto::policy::RawEnd;
use smc_proto::policy::RawRule;
use smc_proto::policy::MAX_RULES;
use smc_uapi::DiagCause;
use smc_uapi::Info;

const HEADER: &str = include_str!("../../../include/uapi/linux/smc_rs.h");

/// Compiles assertions after the headers.
fn check(assertions: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../include/uapi");
    let mut compiler = Command::new("cc")
        .args(["-fsyntax-only", "-Wall", "-Werror", "-x", "c", "-", "-I"])
        .arg(folder)
        .stdin(Stdio::piped())
        .spawn()
        .expect("rustc needs cc, too");
    let mut source = compiler.stdin.take().unwrap();
    let headers = "#include <stddef.h>\n#include <sys/socket.h>\n#include <linux/in.h>\n\
        #include <linux/smc.h>\n#include <linux/smc_diag.h>\n#include <linux/smc_rs.h>\n";
    write!(source, "{headers}{assertions}").unwrap();
    drop(source);
    assert!(compiler.wait().unwrap().success(), "{assertions}");
}

fn equal(name: &str, value: impl Into<i128>) -> String {
    format!("_Static_assert({name} == {}, \"{name}\");\n", value.into())
}

#[test]
fn numbers_are_those_of_the_headers() {
    let mut assertions = String::new();
    for (name, value) in smc_uapi::NUMBERS {
        assertions += &equal(name, *value);
    }
    assertions +=
        "#include <linux/version.h>\n#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)\n";
    for (name, value) in smc_uapi::NUMBERS_6_14 {
        assertions += &equal(name, *value);
    }
    assertions += "#endif\n";
    for (name, value) in smc_uapi::MACROS {
        write!(assertions, "#ifdef {name}\n{}#endif\n", equal(name, *value)).unwrap();
    }
    check(&assertions);
}

#[test]
fn the_header_has_every_cause_and_no_other() {
    let name = |cause: &Cause| {
        let name = cause.name().replace('-', "_").to_uppercase();
        format!("SMC_CAUSE_{name}")
    };
    let causes = Cause::ALL.iter();
    check(
        &causes
            .map(|cause| equal(&name(cause), cause.code()))
            .collect::<String>(),
    );
    let defined = HEADER.lines().filter_map(|line| line.split_once('='));
    let names = defined.map(|(name, _)| name.trim());
    let names: Vec<_> = names
        .filter(|name| name.starts_with("SMC_CAUSE_"))
        .collect();
    assert_eq!(names, Cause::ALL.iter().map(name).collect::<Vec<_>>());
}

#[test]
fn the_numbers_of_rules_are_those_of_the_header() {
    let mut assertions = equal("SMC_RULES_MAX", i64::try_from(MAX_RULES).unwrap());
    for (name, value) in [
        ("SMC_RULE_ALLOW", RawRule::ALLOW),
        ("SMC_RULE_DENY", RawRule::DENY),
        ("SMC_ROLE_CLIENT", RawRule::CLIENT),
        ("SMC_ROLE_SERVER", RawRule::SERVER),
    ] {
        assertions += &equal(name, value);
    }
    check(&assertions);
    let name = format!(
        "#define SMC_RS_GENL_NAME\t\"{}\"",
        smc_uapi::SMC_RS_GENL_NAME
    );
    assert!(HEADER.contains(&name));
}

#[test]
fn structures_are_those_of_the_header() {
    let mut assertions = String::new();
    macro_rules! same {
        ($type:ty, $c:literal, $($field:ident),+) => {
            let size = u32::try_from(size_of::<$type>()).unwrap();
            assertions += &equal(concat!("sizeof(struct ", $c, ")"), size);
            $(
                let offset = u32::try_from(offset_of!($type, $field)).unwrap();
                let of_c = concat!("offsetof(struct ", $c, ", ", stringify!($field), ")");
                assertions += &equal(of_c, offset);
            )+
        };
    }
    same!(
        Info,
        "smc_info",
        mode,
        reason,
        peer_diagnosis,
        lgr_id,
        cause,
        role
    );
    same!(
        RawEnd,
        "smc_rule_end",
        family,
        prefix_len,
        reserved,
        port_first,
        port_last,
        addr
    );
    same!(RawRule, "smc_rule", action, role, reserved, local, peer);
    same!(DiagCause, "smc_diag_cause", cause, role);
    check(&assertions);
}
