// SPDX-License-Identifier: GPL-2.0
//! Reports of KCSAN: which of them are about our module. The kernel has races of its own, which are
//! counted.

use std::collections::BTreeMap;

use regex::Regex;

const HEADING: &str = "BUG: KCSAN: ";
/// Stands before and after a report, which the kernel prints in one go.
const RULE: &str = "================================";
/// A function of one of our modules, or of those with planted faults, in a call trace.
const OURS: &str = r"^ \S+\+0x[0-9a-f]+/0x[0-9a-f]+ \[(smc|smc_diag|planted|planted_c)\]";
/// A function in a call trace.
const FRAME: &str = r"^ \S+\+0x[0-9a-f]+/0x[0-9a-f]+";
/// So many functions of a call trace may be ours: what the module has memcpy() or list_add() access is its own, and
/// what TCP does several calls further is not.
const DEPTH: usize = 3;
/// The line before the call trace of an access.
const ACCESS: &str = r"^(race at unknown origin, with )?(assert no )?(accesses|read|write).* to 0x[0-9a-f]+ of \d+ bytes by ";

/// What a line of the log means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It is not of a report.
    Other,
    /// It is of a report that goes on, or that was about other code.
    Report,
    /// It ended a report about our module, of which this is the gist.
    Ours(String),
}

/// Reads a kernel log.
pub(super) struct Kcsan {
    ours: Regex,
    frame: Regex,
    access: Regex,
    report: Option<Report>,
    /// The number of reports about other code, by their headings.
    elsewhere: BTreeMap<String, usize>,
}

/// A report that has begun.
struct Report {
    heading: String,
    /// The first of our functions in each of the call traces.
    frames: Vec<String>,
    /// Functions of the call trace being read that may still be ours.
    left: usize,
}

impl Report {
    /// Returns the gist of a report about our module.
    fn gist(&self) -> Option<String> {
        match self.frames.is_empty() {
            true => None,
            false => Some(format!("{} ({})", self.heading, self.frames.join(", "))),
        }
    }
}

impl Kcsan {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            ours: Regex::new(OURS)?,
            frame: Regex::new(FRAME)?,
            access: Regex::new(ACCESS)?,
            report: None,
            elsewhere: BTreeMap::new(),
        })
    }

    /// Takes what the kernel said in a line.
    pub(super) fn take(&mut self, said: &str) -> Line {
        if said.starts_with(HEADING) {
            // Of a report before this one the end is missing.
            let before = self.end();
            self.report = Some(Report {
                heading: said.to_owned(),
                frames: Vec::new(),
                left: 0,
            });
            return before.map_or(Line::Report, Line::Ours);
        }
        let Some(report) = &mut self.report else {
            return Line::Other;
        };
        if said.starts_with(RULE) {
            return self.end().map_or(Line::Report, Line::Ours);
        }
        if self.access.is_match(said) {
            report.left = DEPTH;
        } else if report.left > 0 && self.frame.is_match(said) {
            report.left -= 1;
            if self.ours.is_match(said) {
                report.frames.push(said.trim().to_owned());
                report.left = 0;
            }
        } else {
            // Other messages may come between the lines.
            return Line::Other;
        }
        Line::Report
    }

    /// Ends the report that has begun, and returns its gist if it is about our module.
    pub(super) fn end(&mut self) -> Option<String> {
        let report = self.report.take()?;
        let gist = report.gist();
        if gist.is_none() {
            *self.elsewhere.entry(report.heading).or_default() += 1;
        }
        gist
    }

    /// Returns the number of reports about other code, by their headings.
    pub(super) fn elsewhere(&self) -> &BTreeMap<String, usize> {
        &self.elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report as the kernel prints it, with these call traces.
    fn report(read: &[&str], write: &[&str]) -> Vec<String> {
        let mut lines = vec![
            "==================================================================".to_owned(),
            "BUG: KCSAN: data-race in f / g".to_owned(),
            String::new(),
            "write to 0xffff888003f2c4a8 of 8 bytes by interrupt on cpu 0:".to_owned(),
        ];
        lines.extend(write.iter().map(|f| format!(" {f}")));
        lines.push(String::new());
        lines.push("read to 0xffff888003f2c4a8 of 8 bytes by task 77 on cpu 1:".to_owned());
        lines.extend(read.iter().map(|f| format!(" {f}")));
        lines.extend(
            [
                "",
                "value changed: 0x0000000000000000 -> 0x0000000000000001",
                "",
                "Reported by Kernel Concurrency Sanitizer on:",
                "CPU: 1 UID: 0 PID: 77 Comm: x Tainted: G           O        7.3.4-smc #1",
                "==================================================================",
            ]
            .map(str::to_owned),
        );
        lines
    }

    fn gists(kcsan: &mut Kcsan, lines: &[String]) -> Vec<String> {
        let took = lines.iter().map(|line| kcsan.take(line));
        took.filter_map(|line| match line {
            Line::Ours(gist) => Some(gist),
            Line::Other | Line::Report => None,
        })
        .collect()
    }

    #[test]
    fn a_race_of_ours_is_told_with_our_functions() {
        let mut kcsan = Kcsan::new().unwrap();
        let lines = report(
            &["f+0x1/0x2", "a+0x1/0x2 [smc]", "b+0x1/0x2 [smc]"],
            &["g+0x3/0x4 [smc]"],
        );
        let gist = "BUG: KCSAN: data-race in f / g (g+0x3/0x4 [smc], a+0x1/0x2 [smc])";
        assert_eq!(gists(&mut kcsan, &lines), [gist]);
        assert!(kcsan.elsewhere().is_empty());
    }

    #[test]
    fn a_race_of_others_is_counted() {
        let mut kcsan = Kcsan::new().unwrap();
        let lines = report(
            &["f+0x1/0x2 [rdma_rxe]"],
            &["g+0x3/0x4", "h+0x1/0x2 [smc_x]"],
        );
        assert!(gists(&mut kcsan, &lines).is_empty());
        assert!(gists(&mut kcsan, &lines).is_empty());
        let counts: Vec<_> = kcsan.elsewhere().values().copied().collect();
        assert_eq!(counts, [2]);
    }

    #[test]
    fn a_report_without_an_end_counts_all_the_same() {
        let mut kcsan = Kcsan::new().unwrap();
        let lines = report(&["f+0x1/0x2 [smc]"], &["g+0x3/0x4"]);
        let cut = &lines[..8];
        assert!(gists(&mut kcsan, cut).is_empty());
        assert_eq!(gists(&mut kcsan, cut).len(), 1);
        assert!(kcsan.end().is_some());
        assert!(kcsan.end().is_none());
    }

    #[test]
    fn what_comes_between_the_lines_is_left_to_others() {
        let mut kcsan = Kcsan::new().unwrap();
        let warning = "WARNING: net/x.c:1 at x+0x1/0x2 [smc], CPU#0: y/1";
        assert_eq!(kcsan.take(warning), Line::Other);
        kcsan.take("BUG: KCSAN: data-race in f / g");
        assert_eq!(kcsan.take(warning), Line::Other);
        // A call trace that is not of an access.
        assert_eq!(kcsan.take(" x+0x1/0x2 [smc]"), Line::Other);
        assert_eq!(kcsan.end(), None);
    }
}
