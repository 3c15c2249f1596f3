// SPDX-License-Identifier: GPL-2.0
//! Words that were used once and were replaced by the field's own: `Documentation/glossary.md` lists them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use regex::Regex;

use super::Finding;

/// Where they may not stand.
const FOLDERS: &[&str] = &[
    "net/smc/",
    "rust/",
    "include/",
    "tests/",
    "tools/",
    "packaging/",
    "Documentation/",
    "README.md",
];
/// Which names them.
const GLOSSARY: &str = "Documentation/glossary.md";

/// The last column of the glossary.
pub(super) struct Words {
    retired: HashSet<String>,
    word: Regex,
}

impl Words {
    pub(super) fn read(repo: &Path) -> Result<Self> {
        let text = fs::read_to_string(repo.join(GLOSSARY))
            .with_context(|| format!("cannot read {GLOSSARY}"))?;
        let retired = table(&text);
        ensure!(!retired.is_empty(), "{GLOSSARY} lists no retired words");
        Ok(Self {
            retired,
            word: Regex::new(r"\w+")?,
        })
    }

    pub(super) fn check(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        if path == GLOSSARY || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
            return;
        }
        for (n, line) in text.lines().enumerate() {
            let words = self.word.find_iter(line).map(|found| found.as_str());
            for word in words.filter(|word| self.retired.contains(*word)) {
                let what = format!("`{word}` is retired: see {GLOSSARY}");
                findings.push(Finding::at(path, n + 1, what));
            }
        }
    }
}

/// The words between backticks in the last cell of each row of the first table.
fn table(text: &str) -> HashSet<String> {
    let is_row = |line: &&str| line.starts_with('|');
    let rows = text
        .lines()
        .skip_while(|line| !is_row(line))
        .take_while(is_row);
    let cells = rows.filter_map(|row| row.strip_suffix('|')?.rsplit('|').next());
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_word_is_found_where_it_is_one() {
        let retired = table(
            "x\n| here | old |\n| --- | --- |\n| `New` | `Old`, `older` |\n\n| `A` | `B` |\n",
        );
        assert_eq!(retired.len(), 2);
        let words = Words {
            retired,
            word: Regex::new(r"\w+").unwrap(),
        };
        let found = |path: &str, text: &str| {
            let mut findings = Vec::new();
            words.check(path, text, &mut findings);
            findings.len()
        };
        assert_eq!(
            found("net/smc/a.rs", "struct Old;\n// older: Older, Olds\n"),
            2
        );
        assert_eq!(found("tools/a.rs", "struct Old;\n"), 1);
        assert_eq!(found("Cargo.toml", "Old\n"), 0);
        assert_eq!(found(GLOSSARY, "| `New` | `Old` |\n"), 0);
    }
}
