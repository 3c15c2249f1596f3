// SPDX-License-Identifier: GPL-2.0
//! Parses KTAP, the kernel's variant of the Test Anything Protocol, from a guest's console.

use std::collections::VecDeque;

use crate::table::Tables;

/// Number of lines before a failed test that are printed with it: what it said comes first, then the counters of all
/// devices.
const BEFORE: usize = 60;

/// The results of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    /// Failed tests, each with the last lines that were printed before.
    pub(crate) failed: Vec<String>,
    planned: Option<usize>,
    /// Lines since the last result.
    before: VecDeque<String>,
    /// Cells for tables.
    pub(crate) tables: Tables,
}

impl Report {
    /// Parses one line of output.
    pub(crate) fn take(&mut self, line: &str) {
        let line = line.trim_end();
        self.tables.take(line);
        if let Some(plan) = line.strip_prefix("1..") {
            self.planned = plan.split_whitespace().next().and_then(|n| n.parse().ok());
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            if numbered(rest) {
                let before = self.before.drain(..);
                let told = std::iter::once(line.to_owned()).chain(before.map(|l| format!("  {l}")));
                self.failed.push(told.collect::<Vec<_>>().join("\n    "));
            }
        } else if let Some(rest) = line.strip_prefix("ok ") {
            if numbered(rest) {
                self.before.clear();
                if rest.to_ascii_uppercase().contains("# SKIP") {
                    self.skipped += 1;
                } else {
                    self.passed += 1;
                }
            }
        } else {
            if self.before.len() == BEFORE {
                self.before.pop_front();
            }
            self.before.push_back(line.to_owned());
        }
    }

    /// Returns the number of tests that reported a result.
    pub(crate) fn seen(&self) -> usize {
        self.passed + self.skipped + self.failed.len()
    }

    /// Returns what is wrong with the report as a whole, if anything: a missing result is a
    /// failure.
    pub(crate) fn gap(&self) -> Option<String> {
        match self.planned {
            Some(n) if n != self.seen() => {
                Some(format!("planned {n} tests, {} reported", self.seen()))
            }
            _ if self.seen() == 0 => Some("reported no test".to_owned()),
            None => Some(format!("{} tests reported, but no plan", self.seen())),
            Some(_) => None,
        }
    }
}

/// Returns whether a test number follows, unlike in other text.
fn numbered(rest: &str) -> bool {
    rest.split_whitespace()
        .next()
        .is_some_and(|w| w.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|l| report.take(l));
        report
    }

    #[test]
    fn results_are_counted() {
        let report = read("TAP version 13\n1..4\nok 1 - a\r\nnot ok 2 b\nok 3 c # SKIP no device\nok 4\n# ok 9 diag");
        assert_eq!(
            (report.passed, report.skipped, report.failed.len()),
            (2, 1, 1)
        );
        assert_eq!(report.gap(), None);
        assert_eq!(report.failed, ["not ok 2 b"]);
    }

    #[test]
    fn a_failure_is_told_with_what_led_to_it() {
        let report = read("# first\nok 1 a\n# seed 7\nno route\nnot ok 2 b\n# last\nnot ok 3 c");
        assert_eq!(
            report.failed,
            [
                "not ok 2 b\n      # seed 7\n      no route",
                "not ok 3 c\n      # last"
            ]
        );
        let long = (0..BEFORE + 20)
            .map(|n| format!("line {n}\n"))
            .collect::<String>()
            + "not ok 1 a";
        let lines: Vec<_> = read(&long).failed[0].lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 1 + BEFORE);
        assert_eq!(lines[BEFORE], format!("      line {}", BEFORE + 19));
    }

    #[test]
    fn prose_is_not_a_result() {
        assert_eq!(read("ok then\nnot ok at all\nok").seen(), 0);
    }

    #[test]
    fn silence_is_a_gap() {
        assert_eq!(read("hello").gap().as_deref(), Some("reported no test"));
        assert_eq!(
            read("1..3\nok 1\nok 2").gap().as_deref(),
            Some("planned 3 tests, 2 reported")
        );
        assert_eq!(
            read("ok 1\nok 2").gap().as_deref(),
            Some("2 tests reported, but no plan")
        );
    }
}
