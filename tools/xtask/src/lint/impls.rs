// SPDX-License-Identifier: GPL-2.0
//! The methods of a type stand in few files. Where they do not, `Documentation/layers.md` says why.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Context, Result};
use regex::Regex;

use super::Finding;

/// Crates by their folder, inner ones first.
const CRATES: &[&str] = &["net/smc/proto/", "net/smc/", "rust/kernel/"];
/// Files with `impl` blocks of one type that need no reason. Implementations of traits do not count.
const FEW: usize = 3;
/// The section of `layers.md` with the reasons, a table whose first column names the types.
const SECTION: &str = "## Types with methods in many files";

/// What was found of each type; types of one name in one crate are told apart by the file that defines them.
pub(super) struct Impls {
    block: Regex,
    definition: Regex,
    explained: HashSet<String>,
    blocks: BTreeMap<(&'static str, String), BTreeSet<String>>,
    definitions: BTreeMap<(&'static str, String), BTreeSet<String>>,
}

impl Impls {
    pub(super) fn new(layers: &str) -> Result<Self> {
        let section = layers.split(SECTION).nth(1);
        let section = section.with_context(|| format!("layers.md has no section {SECTION:?}"))?;
        let section = section.split("\n## ").next().unwrap_or_default();
        let first_cells = section.lines().filter_map(|line| line.split('|').nth(1));
        let names = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        Ok(Self {
            block: Regex::new(r"(?m)^(?:unsafe )?impl(?:<[^{\n]*?>)? ([A-Z]\w*)(?:<[^{\n]*>)? \{")?,
            definition: Regex::new(r"(?m)^(?:pub(?:\(\w+\))? )?(?:struct|enum|union) ([A-Z]\w*)")?,
            explained: names.map(str::to_owned).collect(),
            blocks: BTreeMap::new(),
            definitions: BTreeMap::new(),
        })
    }

    pub(super) fn add(&mut self, path: &str, text: &str) {
        let Some(root) = CRATES.iter().find(|root| path.starts_with(**root)) else {
            return;
        };
        for (found, all) in [
            (&self.block, &mut self.blocks),
            (&self.definition, &mut self.definitions),
        ] {
            for name in found.captures_iter(text).map(|found| found[1].to_owned()) {
                all.entry((root, name)).or_default().insert(path.to_owned());
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Vec<Finding>) {
        let none = BTreeSet::new();
        for (key, files) in &self.blocks {
            let definitions = self.definitions.get(key).unwrap_or(&none);
            // A file with a definition of its own means that.
            let others = files.difference(definitions).count();
            let count = others + usize::from(others < files.len());
            if count > FEW && !self.explained.contains(&key.1) {
                let what = format!("methods in {count} files, and layers.md does not say why");
                let path = definitions.first().or(files.first());
                let path = path.map_or(key.0, String::as_str);
                findings.push(Finding::at(path, 0, format!("`{}`: {what}", key.1)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(layers: &str, files: &[(&str, &str)]) -> usize {
        let mut impls = Impls::new(layers).unwrap();
        files.iter().for_each(|(path, text)| impls.add(path, text));
        let mut findings = Vec::new();
        impls.check(&mut findings);
        findings.len()
    }

    #[test]
    fn many_files_need_a_reason() {
        let files = [
            (
                "net/smc/a.rs",
                "pub(crate) struct A<T>(T);\nimpl<T> A<T> {\n}\n",
            ),
            ("net/smc/a/b.rs", "impl A<u8> {\n}\n"),
            ("net/smc/a/c.rs", "impl A<u8> {\n}\n"),
            ("net/smc/a/d.rs", "impl<T: Copy> A<T> {\n}\n"),
            ("net/smc/a/e.rs", "impl Drop for A {\n}\n"),
        ];
        let reason = format!("{SECTION}\n| type | why |\n| --- | --- |\n| `A`, `B` | so |\n");
        let other = format!("{SECTION}\n\n## Other\n| `A` | so |\n");
        assert_eq!(findings(SECTION, &files), 1);
        assert_eq!(findings(&other, &files), 1);
        assert_eq!(findings(&reason, &files), 0);
        assert_eq!(findings(SECTION, &files[..3]), 0);
        assert_eq!(findings(SECTION, &files[1..]), 0);
    }

    #[test]
    fn types_of_one_name_are_several() {
        let text = "struct M;\nimpl M {\n}\n";
        let paths = [
            "rust/kernel/a.rs",
            "rust/kernel/b.rs",
            "rust/kernel/c.rs",
            "rust/kernel/d.rs",
        ];
        let files = paths.map(|path| (path, text));
        assert_eq!(findings(SECTION, &files), 0);
    }
}
