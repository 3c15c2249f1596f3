// SPDX-License-Identifier: GPL-2.0
//! What the documentation names has to exist, and what it says works has to name the test that shows it.
//!
//! Test runs run every guest script that there is within some days, so a script that is named here has run.

use std::collections::HashSet;

use anyhow::Result;
use regex::Regex;

use super::Finding;

/// The folders whose files are named by their paths.
const TOP: &[&str] = &[
    "net/",
    "rust/",
    "tools/",
    "packaging/",
    "tests/",
    "Documentation/",
    "include/",
];
/// A name of so many words is that of a test or of a setting, and not an example.
const WORDS: usize = 5;

/// Names in the documentation, and the files and words that they may refer to.
pub(super) struct Claims {
    works: Regex,
    word: Regex,
    files: Vec<String>,
    /// Long names in all other files.
    names: HashSet<String>,
    documents: Vec<(String, String)>,
}

impl Claims {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            works: Regex::new(r"\bworks?\b[;:,. ]")?,
            word: Regex::new(r"\w+")?,
            files: Vec::new(),
            names: HashSet::new(),
            documents: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, path: &str, text: &str) {
        self.files.push(path.to_owned());
        if path.ends_with(".md") {
            self.documents.push((path.to_owned(), text.to_owned()));
            return;
        }
        let words = self.word.find_iter(text).map(|w| w.as_str());
        self.names
            .extend(words.filter(|w| is_long(w)).map(str::to_owned));
    }

    pub(super) fn check(&self, findings: &mut Vec<Finding>) {
        for (path, text) in &self.documents {
            for (n, line) in text.lines().enumerate() {
                for name in quoted(line).filter(|name| !self.is_there(name)) {
                    let what = format!("there is no `{name}`");
                    findings.push(Finding::at(path, n + 1, what));
                }
                if path == "README.md" && line.starts_with('|') && !self.is_shown(line) {
                    let what = "says that something works, and names no test";
                    findings.push(Finding::at(path, n + 1, what));
                }
            }
        }
    }

    /// Whether what is named exists, if it is a script, a path or a long name.
    fn is_there(&self, name: &str) -> bool {
        if TOP.iter().any(|top| name.starts_with(top)) && is_file_name(name) {
            let path = name.trim_end_matches('/');
            let (folder, source) = (format!("{path}/"), format!("{path}.rs"));
            return self
                .files
                .iter()
                .any(|f| f.starts_with(&folder) || *f == source || matches(path, f));
        }
        if name.ends_with(".sh") && is_file_name(name) && !name.contains('/') {
            let end = format!("/{name}");
            return self.files.iter().any(|f| matches(&end, f));
        }
        // The functions of the C module are named, too.
        if is_long(name) && !name.starts_with("smc_") {
            return self.names.contains(name);
        }
        true
    }

    /// Whether a row of a table names a test if it says that something works.
    fn is_shown(&self, row: &str) -> bool {
        let state = row.trim_end_matches('|').rsplit('|').next();
        let says = state.is_some_and(|state| self.works.is_match(&format!("{state} ")));
        !says || quoted(row).any(|name| name.ends_with(".sh") || name == "make apps")
    }
}

/// What stands between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether the text may be the name of files: `*` stands for anything.
fn is_file_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./*".contains(c))
}

fn is_long(name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(is_name) && name.split('_').filter(|w| !w.is_empty()).count() >= WORDS
}

/// Whether a path ends as the pattern says.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => path == pattern || (pattern.starts_with('/') && path.ends_with(pattern)),
        Some((before, after)) => path.find(before).is_some_and(|at| {
            let rest = &path[at + before.len()..];
            rest.len() >= after.len() && rest.ends_with(after)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(readme: &str) -> usize {
        let mut claims = Claims::new().unwrap();
        claims.add(
            "tools/testing/selftests/net/smc/interop_a.sh",
            "# guest: um",
        );
        claims.add("tests/llc.rs", "fn a_link_that_is_lost_is_replaced() {}");
        claims.add("README.md", readme);
        let mut findings = Vec::new();
        claims.check(&mut findings);
        findings.len()
    }

    #[test]
    fn what_is_named_exists() {
        for good in [
            "`interop_a.sh`, `interop_*.sh`, `tests/llc.rs`, `tests/llc`, `tests/`, `tests`, `a_link_that_is_lost_is_replaced`",
            "`net.smc.wmem`, `cargo xtask test interop_b.sh`, `a_short_name`",
        ] {
            assert_eq!(findings(good), 0, "{good}");
        }
        assert_eq!(
            findings("`interop_b.sh`\n`tests/cdc.rs` `a_link_that_is_new_is_found`"),
            3
        );
    }

    #[test]
    fn what_works_names_its_test() {
        assert_eq!(findings("| data | works |"), 1);
        assert_eq!(findings("| programs | work, all of them |"), 1);
        assert_eq!(findings("| data | works (`interop_a.sh`) |"), 0);
        assert_eq!(findings("| works elsewhere | never tried |"), 0);
    }
}
