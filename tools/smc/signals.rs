// SPDX-License-Identifier: GPL-2.0

//! `smc run` and `smc_run`: SIGPIPE is for the program as it is for who called them.

use std::process::Command;

/// SIGPIPE in the masks of `/proc/PID/status`, where signal 1 is the lowest bit.
const PIPE: u64 = 1 << 12;

/// Returns a mask of signals in the status of a program that is started by `name`, by options of env(1).
fn mask(name: &str, options: &[&str], field: &str) -> u64 {
    let mut started = Command::new("env");
    started
        .args(options)
        .args(["bash", "-c", "exec -a \"$0\" \"$@\"", name])
        .arg(env!("CARGO_BIN_EXE_smc"));
    if name == "smc" {
        started.arg("run");
    }
    let output = started.args(["cat", "/proc/self/status"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let line = line.unwrap_or_else(|| panic!("{output:?}"));
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn an_ignored_sigpipe_stays_ignored() {
    for name in ["smc", "smc_run"] {
        let ignored = mask(name, &["--ignore-signal=PIPE"], "SigIgn:");
        assert_ne!(ignored & PIPE, 0, "{name}");
    }
}

#[test]
fn a_sigpipe_that_ends_programs_stays_so() {
    for name in ["smc", "smc_run"] {
        let ignored = mask(name, &["--default-signal=PIPE"], "SigIgn:");
        assert_eq!(ignored & PIPE, 0, "{name}");
    }
}
