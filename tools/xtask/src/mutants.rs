// SPDX-License-Identifier: GPL-2.0
//! Tests of the tests: plants known faults in the module, one at a time, and records which test notices each.
//!
//! A fault is a patch in `tests/mutants`, with the text above its first `diff` saying what is wrong. It is applied to a
//! clone of the last commit in `out/mutants`, where the tests run until the first failure, first of all the one that
//! the text names. What was judged is kept in `out/mutants/results`, so that an interrupted run goes on where it was.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{bail, ensure, Context, Result};

use crate::dirs::Dirs;
use crate::run::{output, run as run_command};

const FAULTS: &str = "tests/mutants";
/// The line in which a test run names a failure.
const FAILED: &str = "FAILED ";
/// Begins the line of a patch's text that names the test to try first.
const TRY_FIRST: &str = "Try first: ";
/// Stands there for the tests on the host.
pub(crate) const HOST_TESTS: &str = "host tests";

/// What became of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The test that failed first.
    Caught(String),
    Missed,
    /// The patch no longer applies, or the module no longer builds with it: nothing is known.
    Invalid(String),
}

impl Verdict {
    /// Parses what [`fmt::Display`] writes.
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(": ") {
            Some(("caught", by)) => Some(Self::Caught(by.to_owned())),
            Some(("invalid", why)) => Some(Self::Invalid(why.to_owned())),
            None if text == "missed" => Some(Self::Missed),
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(by) => write!(f, "caught: {by}"),
            Self::Missed => f.write_str("missed"),
            Self::Invalid(why) => write!(f, "invalid: {why}"),
        }
    }
}

/// A planted fault.
struct Fault {
    name: String,
    patch: PathBuf,
    /// The first line of the patch's text.
    what: String,
    /// Whether the host tests can notice it.
    is_in_core: bool,
    /// The guest script that is likely to notice it, or [`HOST_TESTS`].
    try_first: Option<String>,
}

impl Fault {
    fn read(patch: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&patch)?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy();
        let what = text.lines().next().unwrap_or_default();
        ensure!(
            !what.is_empty() && !what.starts_with("diff "),
            "{}: no text says what is wrong",
            patch.display()
        );
        Ok(Self {
            name: name.into_owned(),
            what: what.to_owned(),
            try_first: try_first(&text).map(str::to_owned),
            is_in_core: text.contains("\n+++ b/net/smc/proto/"),
            patch,
        })
    }

    /// Returns the arguments of the test runs that judge this fault, one after the other until one fails.
    fn test_runs(&self) -> Vec<Vec<&str>> {
        let mut runs = Vec::new();
        let mut whole = vec!["test", "--fail-fast", "--all"];
        if !self.is_in_core {
            whole.push("--guests");
        }
        match self.try_first.as_deref() {
            Some(HOST_TESTS) => runs.push(vec!["test", "--fail-fast", "--host"]),
            Some(script) => runs.push(vec!["test", "--fail-fast", "--guests", script]),
            None => {}
        }
        runs.push(whole);
        runs
    }
}

/// Returns the test that the text of a patch names as the one to try first: a guest script, or [`HOST_TESTS`].
pub(crate) fn try_first(patch: &str) -> Option<&str> {
    patch
        .lines()
        .take_while(|l| !l.starts_with("diff "))
        .find_map(|l| l.strip_prefix(TRY_FIRST))
}

/// Plants the faults; returns true if a test noticed each.
pub(crate) fn run(dirs: &Dirs, names: &[String], again: bool) -> Result<bool> {
    let dir = dirs.out("mutants");
    fs::create_dir_all(&dir)?;
    let mut results = match again {
        true => BTreeMap::new(),
        false => read_results(&dir),
    };
    let faults = faults(dirs, names)?;
    let open = faults
        .iter()
        .filter(|f| !results.contains_key(&f.name))
        .count();
    println!(
        "{} faults, {open} of them not yet judged; each takes 2 to 20 min",
        faults.len()
    );
    let tree = Tree::prepare(dirs, &dir)?;
    for fault in &faults {
        if results.contains_key(&fault.name) {
            continue;
        }
        let start = Instant::now();
        let verdict = tree.judge(fault)?;
        record(&dir, &fault.name, &verdict)?;
        println!(
            "{} ({}; {} s): {verdict}",
            fault.name,
            fault.what,
            start.elapsed().as_secs()
        );
        results.insert(fault.name.clone(), verdict);
    }
    Ok(close(&faults, &results))
}

/// Prints all verdicts and the sum; returns true if every fault was caught.
fn close(faults: &[Fault], results: &BTreeMap<String, Verdict>) -> bool {
    let mut caught = 0;
    println!("\n| fault | what is wrong | verdict |\n| --- | --- | --- |");
    for fault in faults {
        let Some(verdict) = results.get(&fault.name) else {
            continue;
        };
        caught += usize::from(matches!(verdict, Verdict::Caught(_)));
        println!("| {} | {} | {verdict} |", fault.name, fault.what);
    }
    println!("{caught} of {} faults caught", faults.len());
    caught == faults.len()
}

/// Returns the faults whose names contain one of these, sorted by name.
fn faults(dirs: &Dirs, names: &[String]) -> Result<Vec<Fault>> {
    let dir = dirs.repo.join(FAULTS);
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut patches: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    patches.retain(|p| p.extension().is_some_and(|e| e == "patch"));
    patches.sort();
    let mut faults = Vec::new();
    for patch in patches {
        let fault = Fault::read(patch)?;
        if names.is_empty() || names.iter().any(|n| fault.name.contains(n.as_str())) {
            faults.push(fault);
        }
    }
    Ok(faults)
}

fn read_results(dir: &Path) -> BTreeMap<String, Verdict> {
    let text = fs::read_to_string(dir.join("results")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (name, verdict) = line.split_once(' ')?;
            Some((name.to_owned(), Verdict::parse(verdict)?))
        })
        .collect()
}

fn record(dir: &Path, name: &str, verdict: &Verdict) -> Result<()> {
    let path = dir.join("results");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    writeln!(file, "{name} {verdict}").with_context(|| format!("cannot write {}", path.display()))
}

/// A clone of this repository in which faults are planted; what it builds stays from one fault to the next.
struct Tree {
    dir: PathBuf,
    logs: PathBuf,
}

impl Tree {
    fn prepare(dirs: &Dirs, dir: &Path) -> Result<Self> {
        let head = output(
            Command::new("git")
                .args(["rev-parse", "HEAD"])
                .current_dir(&dirs.repo),
        )?;
        let tree = Self {
            dir: dir.join("tree"),
            logs: dir.join("logs"),
        };
        fs::create_dir_all(&tree.logs)?;
        if !tree.dir.exists() {
            let mut clone = Command::new("git");
            clone.args(["clone", "--quiet", "--shared", "--no-checkout"]);
            run_command(clone.arg(&dirs.repo).arg(&tree.dir))?;
        }
        run_command(&mut tree.git(&["fetch", "--quiet", "origin", head.trim()]))?;
        run_command(&mut tree.git(&["checkout", "--quiet", "--force", "--detach", head.trim()]))?;
        Ok(tree)
    }

    fn git(&self, args: &[&str]) -> Command {
        let mut cmd = Command::new("git");
        cmd.args(args).current_dir(&self.dir);
        cmd
    }

    /// Runs the tests with this fault.
    fn judge(&self, fault: &Fault) -> Result<Verdict> {
        run_command(&mut self.git(&["checkout", "--quiet", "--force", "."]))?;
        let mut apply = self.git(&["apply"]);
        if output(apply.arg(&fault.patch)).is_err() {
            return Ok(Verdict::Invalid("the patch does not apply".to_owned()));
        }
        if !self.xtask(fault, "build", &["module", "um-debug"])?.0 {
            return Ok(Verdict::Invalid("the module does not build".to_owned()));
        }
        for args in fault.test_runs() {
            let (is_clean, said) = self.xtask(fault, "test", &args)?;
            if is_clean {
                continue;
            }
            return match said.lines().find_map(|l| l.strip_prefix(FAILED)) {
                Some(by) => Ok(Verdict::Caught(by.trim().to_owned())),
                None => bail!("{}: the test run failed and names no test", fault.name),
            };
        }
        Ok(Verdict::Missed)
    }

    /// Runs a task of the clone, with its output in a log; returns whether it succeeded, and the output.
    fn xtask(&self, fault: &Fault, step: &str, args: &[&str]) -> Result<(bool, String)> {
        let path = self.logs.join(format!("{}.{step}", fault.name));
        let log = File::create(&path)?;
        let mut cmd = Command::new("cargo");
        cmd.arg("xtask").args(args).current_dir(&self.dir);
        cmd.stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let status = cmd.status().context("cannot run cargo")?;
        Ok((status.success(), fs::read_to_string(&path)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_to_try_first_stands_above_the_change() {
        let patch = "A fault.\n\nTry first: endings.sh\n\ndiff --git a/x b/x\n";
        assert_eq!(try_first(patch), Some("endings.sh"));
        assert_eq!(try_first("A fault.\n\ndiff --git\nTry first: x.sh\n"), None);
    }

    #[test]
    fn a_verdict_is_read_as_written() {
        for verdict in [
            Verdict::Caught("stress.sh: not ok 3 many: x".to_owned()),
            Verdict::Missed,
            Verdict::Invalid("the patch does not apply".to_owned()),
        ] {
            assert_eq!(Verdict::parse(&verdict.to_string()), Some(verdict));
        }
        assert_eq!(Verdict::parse("perhaps"), None);
    }
}
