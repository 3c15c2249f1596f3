// SPDX-License-Identifier: GPL-2.0
//! A service that chooses SMC for itself before it starts has to start without the module as well, over TCP: what is
//! shown to be written into its unit has the prefix for a command that may fail.

use regex::Regex;

use super::Finding;

/// Folders and endings of what shows units.
const SHOWN: &[&str] = &["packaging/", "debian/", "tools/smc/"];

/// A command of ours that is run before a service starts.
pub(super) struct Units(Regex);

impl Units {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Regex::new(r"ExecStartPre=([-@:+!|]*)smc\b").map(Self)
    }

    pub(super) fn check(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        if !path.ends_with(".md") && !SHOWN.iter().any(|folder| path.starts_with(folder)) {
            return;
        }
        for (n, line) in text.lines().enumerate() {
            for found in self.0.captures_iter(line) {
                if !found[1].contains('-') {
                    let what = "the service would not start without the module: ExecStartPre=-";
                    findings.push(Finding::at(path, n + 1, what));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_may_fail_has_its_prefix() {
        let text = "`ExecStartPre=+smc switch add`\nExecStartPre=-+smc switch add\n\
                    ExecStartPre=smc run x\nExecStart=smc run x\nExecStartPre=+smcd x\n";
        for (path, expected) in [
            ("a/b.md", &[1, 3][..]),
            ("packaging/x.conf", &[1, 3]),
            ("a/b.rs", &[]),
        ] {
            let mut findings = Vec::new();
            Units::new().unwrap().check(path, text, &mut findings);
            let lines: Vec<_> = findings.iter().map(|found| found.line).collect();
            assert_eq!(lines, expected, "{path}");
        }
    }
}
