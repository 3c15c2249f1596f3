// SPDX-License-Identifier: GPL-2.0
//! The ranks inside `net/smc`: a module imports lower ranks only. Rust itself allows cycles.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, Context, Result};
use regex::Regex;

use super::Finding;

const FOLDER: &str = "net/smc/";
/// A crate of its own below that folder.
const CORE: &str = "net/smc/proto/";

/// The table of `Documentation/layers.md`, which is the rule.
pub(super) struct Ranks {
    ranks: HashMap<String, u32>,
    import: Regex,
}

impl Ranks {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let ranks = table(&text)?;
        if ranks.is_empty() {
            bail!("{} has no table of ranks", path.display());
        }
        Ok(Self {
            ranks,
            import: Regex::new(r"\bcrate::(?:(\w+)|\{([^}]*)\})")?,
        })
    }

    pub(super) fn check(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        if !path.starts_with(FOLDER) || path.starts_with(CORE) {
            return;
        }
        let Some(own) = module(path) else { return };
        let Some(rank) = self.ranks.get(own) else {
            findings.push(Finding::at(
                path,
                1,
                format!("`{own}` has no rank in Documentation/layers.md"),
            ));
            return;
        };
        // `use` groups may span lines; tests may look anywhere.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for found in self.import.captures_iter(text) {
            let line = text[..found.get(0).map_or(0, |m| m.start())]
                .matches('\n')
                .count()
                + 1;
            if text
                .lines()
                .nth(line - 1)
                .is_some_and(|l| l.trim_start().starts_with("//"))
            {
                continue;
            }
            let names = found
                .get(1)
                .or_else(|| found.get(2))
                .map_or("", |m| m.as_str());
            for name in group(names) {
                let Some(other) = self.ranks.get(name) else {
                    continue;
                };
                if name != own && other >= rank {
                    let what = format!("`{own}` (rank {rank}) uses `{name}` (rank {other}); only lower ranks may be used");
                    findings.push(Finding::at(path, line, what));
                }
            }
        }
    }
}

/// The first names of a `use` group: `a::B, c` gives `a` and `c`.
fn group(names: &str) -> impl Iterator<Item = &str> {
    names
        .split(',')
        .filter_map(|n| n.split("::").next())
        .map(str::trim)
}

/// `net/smc/sock/poll.rs` belongs to `sock`, `net/smc/tx.rs` is `tx`.
fn module(path: &str) -> Option<&str> {
    let below = path.strip_prefix(FOLDER)?.strip_suffix(".rs")?;
    below.split('/').next()
}

/// Rows such as ``| 7 | `clc`, `close` | ... |``.
fn table(text: &str) -> Result<HashMap<String, u32>> {
    let row = Regex::new(r"^\|\s*(\d+)\s*\|([^|]*)\|")?;
    let name = Regex::new(r"`(\w+)(?:/\*)?`")?;
    let mut ranks = HashMap::new();
    for found in text.lines().filter_map(|l| row.captures(l)) {
        let rank: u32 = found[1].parse().context("rank")?;
        for module in name.captures_iter(&found[2]) {
            ranks.insert(module[1].to_owned(), rank);
        }
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks() -> Ranks {
        let text = "| rank | modules |\n| --- | --- |\n| 8 | `sock`, `sock/*` | x |\n| 2 | `wr`, `rmb` | y |\n| 10 | `lib` | z |";
        Ranks {
            ranks: table(text).unwrap(),
            import: Regex::new(r"\bcrate::(?:(\w+)|\{([^}]*)\})").unwrap(),
        }
    }

    fn whats(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        ranks().check(path, text, &mut findings);
        findings.len()
    }

    #[test]
    fn imports_go_down() {
        assert_eq!(
            whats(
                "net/smc/sock/poll.rs",
                "use crate::wr::Slot;\nuse crate::sock::Sock;"
            ),
            0
        );
        assert_eq!(whats("net/smc/wr.rs", "use crate::sock::Sock;"), 1);
        assert_eq!(
            whats(
                "net/smc/wr.rs",
                "use crate::{\n    sock::Sock,\n    rmb,\n};"
            ),
            2
        );
        assert_eq!(whats("net/smc/wr.rs", "fn f() { crate::sock::g(); }"), 1);
        assert_eq!(
            whats("net/smc/wr.rs", "// see crate::sock\n/// [`crate::sock`]"),
            0
        );
        assert_eq!(whats("net/smc/new.rs", ""), 1);
        assert_eq!(whats("net/smc/proto/new.rs", "use crate::sock;"), 0);
    }
}
