// SPDX-License-Identifier: GPL-2.0
//! The context that a function may be called in stands on a line of its own, in one form: `/// Context: may sleep.`

use anyhow::Result;
use regex::Regex;

use super::Finding;

/// The module, whose functions are called in several contexts.
const FOLDERS: &[&str] = &["net/smc/", "rust/kernel/"];

/// The form, and what it replaces.
pub(super) struct Contexts {
    line: Regex,
    form: Regex,
    prose: Regex,
}

impl Contexts {
    pub(super) fn new() -> Result<Self> {
        let form = r"^ *///? Context: (may sleep|does not sleep|any|process)\b";
        Ok(Self {
            line: Regex::new(r"^ *///.*\bContext: ")?,
            form: Regex::new(form)?,
            prose: Regex::new(
                r"^ *///.*(May sleep|(Does|Must) not sleep|Never sleeps|Any context|Process context)\b",
            )?,
        })
    }

    pub(super) fn check(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        if !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
            return;
        }
        for (n, line) in text.lines().enumerate() {
            let is_wrong = self.line.is_match(line) && !self.form.is_match(line);
            if is_wrong || self.prose.is_match(line) {
                let what = "the context of a function is written `/// Context: may sleep.`, on a line of its own; \
                            or `does not sleep`, `process`, `any`";
                findings.push(Finding::at(path, n + 1, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        let contexts = Contexts::new().unwrap();
        contexts.check("net/smc/a.rs", text, &mut findings);
        contexts.check("tools/a.rs", text, &mut findings);
        findings.iter().map(|f| f.line).collect()
    }

    #[test]
    fn there_is_one_form() {
        assert_eq!(
            lines("/// Does it.\n/// Context: may sleep, for seconds.\n"),
            [0; 0]
        );
        assert_eq!(
            lines("    /// Context: any; reads only.\n/// `f` must not sleep.\n"),
            [0; 0]
        );
        assert_eq!(lines("/// Does it. May sleep.\n"), [1]);
        assert_eq!(lines("/// x\n/// Does it. Context: any.\n"), [2]);
        assert_eq!(lines("/// Context: softirq.\n"), [1]);
    }
}
