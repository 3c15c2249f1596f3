// SPDX-License-Identifier: GPL-2.0
//! The faults in `tests/mutants` apply to the tree as it is, and name tests that exist.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Finding;
use crate::{mutants, suite};

/// Checks a file if it is such a fault.
pub(super) fn check(repo: &Path, path: &str, findings: &mut Vec<Finding>) -> Result<()> {
    if !path.starts_with("tests/mutants/") || !path.ends_with(".patch") {
        return Ok(());
    }
    let applied = Command::new("git")
        .args(["apply", "--check", path])
        .current_dir(repo)
        .output()
        .context("cannot run git")?;
    if !applied.status.success() {
        let why = String::from_utf8_lossy(&applied.stderr);
        let why = why.lines().next().unwrap_or_default();
        findings.push(Finding::at(path, 0, format!("does not apply: {why}")));
    }
    let text = fs::read_to_string(repo.join(path))?;
    if let Some(test) = mutants::try_first(&text).filter(|t| *t != mutants::HOST_TESTS) {
        if !repo.join(suite::TESTS).join(test).exists() {
            findings.push(Finding::at(path, 0, format!("no guest script is {test}")));
        }
    }
    Ok(())
}
