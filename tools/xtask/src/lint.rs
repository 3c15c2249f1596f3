// SPDX-License-Identifier: GPL-2.0
//! The repository's own rules, those that no compiler checks.

mod circles;
mod claims;
mod context;
mod files;
mod impls;
mod locks;
mod patches;
mod ranks;
mod rmb;
mod rust;
mod scripts;
mod transport;
mod types;
mod units;
mod words;

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::dirs::Dirs;
use crate::suite::Tally;

/// A broken rule: where, and which.
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1; 0 if it concerns the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

/// Checks every file of the repository; true if no rule is broken.
pub(crate) fn run(dirs: &Dirs) -> Result<bool> {
    let (checked, findings) = check(dirs)?;
    for f in &findings {
        println!("{}:{}: {}", f.path, f.line, f.what);
    }
    println!("{checked} files, {} findings", findings.len());
    Ok(findings.is_empty())
}

/// The lint as one test of the test run.
pub(crate) fn as_test(dirs: &Dirs) -> Result<Tally> {
    let (_, findings) = check(dirs)?;
    let failed: Vec<String> = findings
        .iter()
        .map(|f| format!("lint: {}:{}: {}", f.path, f.line, f.what))
        .collect();
    let passed = usize::from(failed.is_empty());
    println!(
        "{:<6} lint: {} findings",
        if passed == 1 { "ok" } else { "FAILED" },
        failed.len()
    );
    Ok(Tally {
        passed,
        failed,
        ..Tally::default()
    })
}

fn check(dirs: &Dirs) -> Result<(usize, Vec<Finding>)> {
    let layers = fs::read_to_string(dirs.repo.join("Documentation/layers.md"))?;
    let ranks = ranks::Ranks::read(&dirs.repo.join("Documentation/layers.md"))?;
    let rmb = rmb::OtherNames::new()?;
    let contexts = context::Contexts::new()?;
    let mut impls = impls::Impls::new(&layers)?;
    let words = words::Words::read(&dirs.repo)?;
    let units = units::Units::new()?;
    let mut circles = circles::Crates::default();
    let mut claims = claims::Claims::new()?;
    let mut locks = locks::Locks::new()?;
    let mut types = types::Types::new()?;
    let mut findings = Vec::new();
    let paths = files::list(&dirs.repo)?;
    for path in &paths {
        let Ok(text) = fs::read_to_string(dirs.repo.join(path)) else {
            continue;
        };
        files::check(path, &text, &mut findings);
        patches::check(&dirs.repo, path, &mut findings)?;
        scripts::check_functions(path, &text, &mut findings);
        claims.add(path, &text);
        locks.add(path, &text);
        words.check(path, &text, &mut findings);
        rmb.check(path, &text, &mut findings);
        units.check(path, &text, &mut findings);
        if Path::new(path).extension().is_some_and(|e| e == "rs") {
            rust::check(path, &text, &mut findings);
            transport::check(path, &text, &mut findings);
            contexts.check(path, &text, &mut findings);
            ranks.check(path, &text, &mut findings);
            circles.add(path, &text, &mut findings);
            impls.add(path, &text);
            types.add(path, &text);
        }
    }
    let makefile = fs::read_to_string(dirs.repo.join(scripts::MAKEFILE))?;
    scripts::check(&paths, &makefile, &mut findings);
    circles.check(&mut findings);
    claims.check(&mut findings);
    impls.check(&mut findings);
    types.check(&mut findings);
    locks.check(&mut findings);
    Ok((paths.len(), findings))
}
