// SPDX-License-Identifier: GPL-2.0
//! `Documentation/locking.md` names each lock of the module, and no other.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use regex::Regex;

use super::Finding;

/// The document with the order of locks.
const DOCUMENT: &str = "Documentation/locking.md";
/// Where the locks are that it has to name.
const FOLDER: &str = "net/smc/";

/// The names of locks in the code, with a place for each, and in the document.
pub(super) struct Locks {
    class: Regex,
    name: Regex,
    made: BTreeMap<String, (String, usize)>,
    named: BTreeSet<String>,
}

impl Locks {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            class: Regex::new(r#"new_(?:mutex|spinlock(?:_bh)?)!\([^"]*"smc::(\w+::\w+)""#)?,
            name: Regex::new(r"`([A-Z]\w*::[a-z_]+)`")?,
            made: BTreeMap::new(),
            named: BTreeSet::new(),
        })
    }

    pub(super) fn add(&mut self, path: &str, text: &str) {
        if path == DOCUMENT {
            let names = self.name.captures_iter(text).map(|name| name[1].to_owned());
            self.named.extend(names);
        }
        if path.starts_with(FOLDER) {
            for found in self.class.captures_iter(text) {
                let at = found.get(1).map_or(0, |name| name.start());
                let line = text
                    .get(..at)
                    .map_or(0, |before| before.matches('\n').count())
                    + 1;
                self.made
                    .insert(found[1].to_owned(), (path.to_owned(), line));
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Vec<Finding>) {
        for (name, (path, line)) in &self.made {
            if !self.named.contains(name) {
                let what = format!("{DOCUMENT} does not say when the lock `{name}` may be taken");
                findings.push(Finding::at(path, *line, what));
            }
        }
        let types: BTreeSet<_> = self
            .made
            .keys()
            .filter_map(|name| name.split("::").next())
            .collect();
        for name in &self.named {
            let is_of_ours = name
                .split("::")
                .next()
                .is_some_and(|first| types.contains(first));
            if is_of_ours && !self.made.contains_key(name) {
                findings.push(Finding::at(
                    DOCUMENT,
                    0,
                    format!("there is no lock `{name}`"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(document: &str) -> Vec<String> {
        let mut locks = Locks::new().unwrap();
        let code = "\n    inner <- new_mutex!(0, \"smc::A::inner\"),\n\
            table <- new_spinlock!(\n        f(\n), \"smc::A::table\"),\n";
        locks.add("net/smc/a.rs", code);
        locks.add("rust/kernel/b.rs", "new_mutex!(0, \"smc::B::other\")");
        locks.add(DOCUMENT, document);
        let mut findings = Vec::new();
        locks.check(&mut findings);
        let texts = findings.iter().map(|f| format!("{}:{}", f.path, f.line));
        texts.collect()
    }

    #[test]
    fn each_lock_is_named_and_no_other() {
        assert_eq!(findings("`A::inner`, `A::table`, `C::method`"), [""; 0]);
        assert_eq!(findings("`A::inner`"), ["net/smc/a.rs:5"]);
        assert_eq!(
            findings("`A::inner`, `A::table`, `A::gone`"),
            ["Documentation/locking.md:0"]
        );
    }
}
