// SPDX-License-Identifier: GPL-2.0

//! Output that cannot be written is a failure with a message.

use std::fs::File;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

/// Calls the command by `name`; nothing can be written to its standard output.
fn on_full_disk(name: &str, arguments: &[&str]) -> Output {
    let full = File::options().write(true).open("/dev/full").unwrap();
    Command::new("bash")
        .args(["-c", "exec -a \"$0\" \"$@\"", name])
        .arg(env!("CARGO_BIN_EXE_smc"))
        .args(arguments)
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

#[test]
fn a_full_disk_is_named() {
    for (name, arguments) in [
        ("smc", &["completions", "bash"][..]),
        ("smc", &["man"]),
        ("smc", &["--help"]),
        ("smc_run", &["-h"]),
        ("smc_run", &["-v"]),
        ("smcss", &["--help"]),
    ] {
        let output = on_full_disk(name, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{name} {arguments:?}: {said}"
        );
        assert!(
            said.starts_with(name) && said.contains("No space left on device"),
            "{said}"
        );
    }
}

#[test]
fn wrong_words_end_with_two_whether_or_not_anybody_hears_it() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_smc"))
        .arg("nonsense")
        .stderr(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
}
