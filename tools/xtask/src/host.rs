// SPDX-License-Identifier: GPL-2.0
//! Tests that need no guest: runs `cargo test` and counts the results.

use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::groups::{read_lines, Group};
use crate::kernel::{arm64, Kernel};
use crate::run::run;
use crate::suite::Tally;

/// How long no test may end. The longest takes a minute on an idle machine.
const SILENCE: Duration = Duration::from_secs(600);

/// Builds the programs that go into guests and run on the host.
pub(crate) fn build_tools(dirs: &Dirs) -> Result<()> {
    let mut cmd = Command::new("cargo");
    cmd.args(["build", "--release", "--workspace", "--quiet"])
        .current_dir(&dirs.repo);
    run(&mut cmd).context("the user tools do not build")
}

/// Builds those for guests with this kernel that cannot run this machine's.
pub(crate) fn build_tools_for(dirs: &Dirs, kernel: &Kernel) -> Result<()> {
    match &kernel.root {
        Some(root) => arm64::build_programs(dirs, root),
        None => Ok(()),
    }
}

/// Returns a command that runs `program` with less priority than guests, which have to answer each other in time.
pub(crate) fn behind_guests(program: &str) -> Command {
    let mut cmd = Command::new("nice");
    cmd.args(["-n", "5", program]);
    cmd
}

/// Runs the tests of the workspace.
pub(crate) fn test(dirs: &Dirs) -> Result<Tally> {
    // Beside guests this may take longer than a test may be silent. What does not build, the next one tells.
    let mut build = cargo(dirs, &["build", "--tests", "--workspace"]);
    Group::start(build.stdin(Stdio::null()))?.child.wait()?;
    let mut cmd = cargo(dirs, &["test", "--no-fail-fast", "--workspace"]);
    let mut count = Count::default();
    let status = follow(&mut cmd, SILENCE, |line| {
        if !count.take(line) {
            println!("{line}");
        }
    })?;
    let mut tally = Tally {
        passed: count.passed,
        skipped: count.ignored,
        failed: count.names,
        ..Tally::default()
    };
    match status {
        None => {
            let minutes = SILENCE.as_secs() / 60;
            tally.failed.push(format!(
                "cargo test: no test ended for {minutes} min, those that run were stopped"
            ));
        }
        Some(status) if !status.success() && tally.failed.is_empty() => {
            tally.failed.push(format!("cargo test ended with {status}"));
        }
        Some(_) => {}
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

fn cargo(dirs: &Dirs, args: &[&str]) -> Command {
    let mut cmd = behind_guests("cargo");
    cmd.args(args).current_dir(&dirs.repo);
    cmd
}

/// Runs a command and hands over each line of its output. Returns how it ended, or `None` if it wrote nothing for as
/// long as `silence` and was killed, with all that it had started.
fn follow(
    cmd: &mut Command,
    silence: Duration,
    mut take: impl FnMut(&str),
) -> Result<Option<ExitStatus>> {
    cmd.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut group = Group::start(cmd)?;
    let stdout = group.child.stdout.take().context("no output")?;
    let (send, lines) = channel();
    read_lines(stdout, send);
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => take(&line),
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(group.child.wait()?)),
            Err(RecvTimeoutError::Timeout) => return Ok(None),
        }
    }
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
    fn what_says_nothing_is_killed() {
        let run = |script, silence| {
            let mut lines = Vec::new();
            let mut cmd = Command::new("sh");
            cmd.args(["-c", script]);
            let status = follow(&mut cmd, silence, |line| lines.push(line.to_owned())).unwrap();
            (lines, status.map(|status| status.success()))
        };
        let long = Duration::from_secs(60);
        assert_eq!(
            run("echo a; echo b", long),
            (vec!["a".to_owned(), "b".to_owned()], Some(true))
        );
        assert_eq!(run("exit 3", long), (vec![], Some(false)));
        let short = Duration::from_secs(3);
        assert_eq!(
            run("echo a; sleep 60; echo b", short),
            (vec!["a".to_owned()], None)
        );
    }

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
