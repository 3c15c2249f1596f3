// SPDX-License-Identifier: GPL-2.0

//! KTAP output, version 1.

use std::fmt::Display;

/// Counts and prints the results of a run.
pub(crate) struct Ktap {
    number: usize,
    failed: usize,
}

impl Ktap {
    /// Prints the header and the plan.
    pub(crate) fn start(tests: usize) -> Self {
        println!("KTAP version 1");
        println!("1..{tests}");
        Self {
            number: 0,
            failed: 0,
        }
    }

    /// Prints one result, after the reason of a failure as comment lines.
    pub(crate) fn result(&mut self, name: impl Display, result: Result<(), String>) {
        self.number += 1;
        match result {
            Ok(()) => println!("ok {} {name}", self.number),
            Err(reason) => {
                self.failed += 1;
                for line in reason.lines() {
                    println!("# {line}");
                }
                println!("not ok {} {name}", self.number);
            }
        }
    }

    /// Prints a failure that is expected.
    pub(crate) fn expected_failure(&mut self, name: impl Display, why: &str) {
        self.number += 1;
        println!("ok {} {name} # XFAIL {why}", self.number);
    }

    /// Prints a test that does not apply here.
    pub(crate) fn skip(&mut self, name: impl Display, why: &str) {
        self.number += 1;
        println!("ok {} {name} # SKIP {why}", self.number);
    }

    /// Returns the number of failed tests, after a summary line.
    pub(crate) fn finish(self) -> usize {
        println!("# {} of {} failed", self.failed, self.number);
        self.failed
    }
}
