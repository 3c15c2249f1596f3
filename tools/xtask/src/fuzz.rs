// SPDX-License-Identifier: GPL-2.0
//! Random input for the protocol core, by libFuzzer: `make fuzz`, and a little of it in each whole test run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::host::behind_guests;
use crate::suite::Tally;

/// How long each target runs in a test run, in seconds.
const IN_A_TEST_RUN: u64 = 5;

/// Runs each target of these names in turn, or all if there are none, with its output here; returns false if one found
/// something.
pub(crate) fn run(dirs: &Dirs, seconds: u64, names: &[String]) -> Result<bool> {
    let mut clean = true;
    let chosen = |target: &String| names.is_empty() || names.contains(target);
    for target in targets(dirs)?.into_iter().filter(chosen) {
        println!("{target}: {seconds} s");
        let mut cmd = command(dirs, &target, seconds)?;
        clean &= cmd.status().context("cannot run cargo")?.success();
    }
    Ok(clean)
}

/// Runs all targets for a short time, each as one test; prints the output of those that found something.
pub(crate) fn as_test(dirs: &Dirs) -> Result<Tally> {
    let mut tally = Tally::default();
    for target in targets(dirs)? {
        let mut cmd = command(dirs, &target, IN_A_TEST_RUN)?;
        let out = cmd.output().context("cannot run cargo")?;
        if out.status.success() {
            tally.passed += 1;
            continue;
        }
        print!("{}", String::from_utf8_lossy(&out.stderr));
        tally.failed.push(format!(
            "fuzz: {target}: see above; an input that it found is in tests/fuzz/artifacts"
        ));
    }
    println!(
        "{:<6} fuzz: {} targets, {IN_A_TEST_RUN} s each: {} failed",
        if tally.failed.is_empty() {
            "ok"
        } else {
            "FAILED"
        },
        tally.passed + tally.failed.len(),
        tally.failed.len()
    );
    Ok(tally)
}

fn folder(dirs: &Dirs) -> PathBuf {
    dirs.repo.join("tests/fuzz")
}

/// The names of all targets.
fn targets(dirs: &Dirs) -> Result<Vec<String>> {
    let manifest = folder(dirs).join("Cargo.toml");
    let text = fs::read_to_string(manifest).context("no fuzz targets")?;
    let names = text.split("[[bin]]").skip(1);
    let names = names.filter_map(|bin| Some(bin.split('"').nth(1)?.to_owned()));
    Ok(names.collect())
}

/// Returns the run of a target, which begins with the recorded messages and inputs found by earlier runs.
fn command(dirs: &Dirs, target: &str, seconds: u64) -> Result<Command> {
    let dir = folder(dirs);
    let corpus = format!("corpus/{target}");
    fs::create_dir_all(dir.join(&corpus))?;
    fs::create_dir_all(dir.join("artifacts"))?;
    let mut cmd = behind_guests("cargo");
    cmd.args(["run", "--release", "--quiet", "--bin", target, "--"]);
    cmd.args([
        &corpus,
        "../vectors",
        "-max_len=1200",
        "-artifact_prefix=artifacts/",
    ]);
    cmd.arg(format!("-max_total_time={seconds}"))
        .current_dir(dir);
    Ok(cmd)
}
