// SPDX-License-Identifier: GPL-2.0
//! The runner's test of itself: a script passes while the kernel's checkers find planted faults, all
//! of which must be noticed.

use std::path::PathBuf;

use anyhow::{Context, Result};
use regex::Regex;

use crate::dirs::Dirs;
use crate::guests::{Booted, GuestSpec, ScriptRun};
use crate::kernel::{Flavour, Kernel};
use crate::module;
use crate::toolchain::Toolchain;
use crate::vm::Outcome;

/// Returns the script with planted faults for a kernel; none for one that runs no tests.
fn script(dirs: &Dirs, flavour: Flavour) -> Option<PathBuf> {
    let name = match flavour {
        Flavour::UmDebug | Flavour::UmNoSmc => "planted.sh",
        Flavour::X86 | Flavour::Debian73 | Flavour::Debian72 | Flavour::Arm64 => {
            "planted_x86_64.sh"
        }
        Flavour::X86Kcsan => "planted_kcsan.sh",
        Flavour::Um | Flavour::Um612 | Flavour::X86Coverage | Flavour::X86SameHost => return None,
    };
    Some(dirs.repo.join("tools/xtask/guest").join(name))
}

/// The test in one kind of guest.
pub(crate) struct SelfTest {
    pub(crate) script: PathBuf,
    pub(crate) spec: GuestSpec,
}

impl SelfTest {
    /// Returns the test for a kernel; `None` if there is none.
    pub(crate) fn new(dirs: &Dirs, flavour: Flavour) -> Result<Option<Self>> {
        let Some(script) = script(dirs, flavour) else {
            return Ok(None);
        };
        let mut spec = GuestSpec::read(&script)?.context("no header")?;
        spec.flavour = flavour;
        spec.peer_flavour = flavour;
        Ok(Some(Self { script, spec }))
    }

    /// Builds the module with planted faults and runs the test on the same kernel. Returns the outcome and what went
    /// unnoticed, which is nothing if it passed.
    pub(crate) fn run(
        &self,
        dirs: &Dirs,
        tools: &Toolchain,
        kernel: &Kernel,
    ) -> Result<(Outcome, Vec<String>)> {
        let planted = module::planted(dirs, tools, kernel)?;
        let booted = Booted {
            kernel,
            module: None,
        };
        let script_run = ScriptRun {
            env: vec![("PLANTED_KO".to_owned(), planted)],
            ..ScriptRun::new(self.script.clone(), self.spec.clone(), vec![booted])?
        };
        let outcome = script_run.run(dirs)?.pop().context("no outcome")?;
        let mut failed = unnoticed(&self.spec.trouble, &outcome.trouble)?;
        if outcome.exit != Some(0) || outcome.report.passed != 1 || outcome.report.gap().is_some() {
            failed.push("the script did not end as it should".to_owned());
        }
        Ok((outcome, failed))
    }
}

/// Returns a message for each of the patterns that no line matches.
fn unnoticed(patterns: &[String], lines: &[String]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for pattern in patterns {
        let regex = Regex::new(pattern).with_context(|| format!("trouble: {pattern}"))?;
        if !lines.iter().any(|line| regex.is_match(line)) {
            missing.push(format!("planted fault was not noticed: {pattern}"));
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_no_line_tells_is_missing() {
        let lines = ["BUG: KASAN: slab-use-after-free in f".to_owned()];
        let all = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|p| (*p).to_owned()).collect();
            unnoticed(&patterns, &lines).unwrap().len()
        };
        assert_eq!(all(&["KASAN: slab-.* in f"]), 0);
        assert_eq!(all(&["KASAN", "kmemleak", "circular"]), 2);
        assert!(unnoticed(&["(".to_owned()], &lines).is_err());
    }
}
