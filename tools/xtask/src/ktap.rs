// SPDX-License-Identifier: GPL-2.0
//! Reads KTAP, the kernel's form of the Test Anything Protocol, from a guest's console.

use crate::table::Tables;

/// What a script reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    /// The lines of failed tests.
    pub(crate) failed: Vec<String>,
    planned: Option<usize>,
    /// What it put into tables.
    pub(crate) tables: Tables,
}

impl Report {
    /// Takes one line of output; other lines than results and plans are none of its business.
    pub(crate) fn take(&mut self, line: &str) {
        let line = line.trim_end();
        self.tables.take(line);
        if let Some(plan) = line.strip_prefix("1..") {
            self.planned = plan.split_whitespace().next().and_then(|n| n.parse().ok());
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            if numbered(rest) {
                self.failed.push(line.to_owned());
            }
        } else if let Some(rest) = line.strip_prefix("ok ") {
            if numbered(rest) {
                if rest.to_ascii_uppercase().contains("# SKIP") {
                    self.skipped += 1;
                } else {
                    self.passed += 1;
                }
            }
        }
    }

    /// How many tests reported.
    pub(crate) fn seen(&self) -> usize {
        self.passed + self.skipped + self.failed.len()
    }

    /// What is wrong with the report as a whole, if anything: a test that did not report is
    /// as bad as one that failed.
    pub(crate) fn gap(&self) -> Option<String> {
        match self.planned {
            Some(n) if n != self.seen() => {
                Some(format!("planned {n} tests, {} reported", self.seen()))
            }
            _ if self.seen() == 0 => Some("reported no test".to_owned()),
            _ => None,
        }
    }
}

/// Whether a test number follows, which ordinary prose does not have.
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
    }
}
