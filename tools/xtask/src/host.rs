// SPDX-License-Identifier: GPL-2.0
//! Tests that need no guest: runs `cargo test` and counts the results.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::run::run;
use crate::suite::Tally;

/// Builds the programs that go into guests and run on the host.
pub(crate) fn build_tools(dirs: &Dirs) -> Result<()> {
    let mut cmd = Command::new("cargo");
    cmd.args(["build", "--release", "--workspace", "--quiet"])
        .current_dir(&dirs.repo);
    run(&mut cmd).context("the user tools do not build")
}

/// Runs the tests of the workspace.
pub(crate) fn test(dirs: &Dirs) -> Result<Tally> {
    let mut cmd = Command::new("cargo");
    cmd.args(["test", "--no-fail-fast", "--workspace"])
        .current_dir(&dirs.repo);
    cmd.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = cmd.spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut count = Count::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if !count.take(&line) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    let mut tally = Tally {
        passed: count.passed,
        skipped: count.ignored,
        failed: count.names,
        ..Tally::default()
    };
    if !status.success() && tally.failed.is_empty() {
        tally.failed.push(format!("cargo test ended with {status}"));
    }
    let verdict = if tally.failed.is_empty() {
        "ok"
    } else {
        "FAILED"
    };
    println!(
        "{verdict:<6} host tests: {} passed, {} failed",
        tally.passed,
        tally.failed.len()
    );
    Ok(tally)
}

/// Results of libtest, parsed from its output.
#[derive(Default)]
struct Count {
    passed: usize,
    ignored: usize,
    names: Vec<String>,
}

impl Count {
    /// Parses one line; returns false if it should be printed.
    fn take(&mut self, line: &str) -> bool {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.passed += number_before(rest, " passed");
            self.ignored += number_before(rest, " ignored");
            return true;
        }
        if let Some(name) = line.strip_prefix("test ") {
            if let Some(name) = name.strip_suffix(" ... FAILED") {
                self.names.push(name.to_owned());
                return false;
            }
            return true;
        }
        line.is_empty() || line.starts_with("running ")
    }
}

fn number_before(text: &str, word: &str) -> usize {
    let Some((before, _)) = text.split_once(word) else {
        return 0;
    };
    before
        .rsplit(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            count.take(line);
        }
        assert_eq!((count.passed, count.ignored), (13, 2));
        assert_eq!(count.names, ["a::c"]);
    }
}
