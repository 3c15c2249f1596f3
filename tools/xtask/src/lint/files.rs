// SPDX-License-Identifier: GPL-2.0
//! Rules for every kind of file: the licence line, a length one can read in one go, and comments that fit a window.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::Finding;
use crate::run::output;

const SPDX: &str = "SPDX-License-Identifier: ";
/// Lines in a source file.
const MAX_LINES: usize = 600;
/// Columns of a line of a comment.
const MAX_COLUMNS: usize = 120;
/// Endings of the files that are written by hand and take comments.
const SOURCES: &[&str] = &["rs", "c", "h", "sh", "py", "toml", "config"];

/// Every file under version control or about to be, relative to the top.
pub(super) fn list(repo: &Path) -> Result<Vec<String>> {
    let args = [
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ];
    Ok(output(Command::new("git").args(args).current_dir(repo))?
        .lines()
        .map(str::to_owned)
        .collect())
}

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let file = Path::new(path);
    let by_ending = file
        .extension()
        .and_then(|e| e.to_str())
        .is_some_and(|e| SOURCES.contains(&e));
    let by_name = file
        .file_name()
        .and_then(|n| n.to_str())
        .is_some_and(|n| ["Makefile", "Kbuild"].contains(&n));
    // The kernel's own, kept as it is.
    if (!by_ending && !by_name) || path == ".rustfmt.toml" {
        return;
    }
    // A script's first line is its interpreter.
    if !text.lines().take(2).any(|l| l.contains(SPDX)) {
        findings.push(Finding::at(
            path,
            1,
            "no SPDX-License-Identifier in the first two lines",
        ));
    }
    for (n, line) in text.lines().enumerate() {
        let is_comment = line.trim_start().starts_with(['#', '/', '*']);
        if is_comment && line.chars().count() > MAX_COLUMNS {
            let what = format!("a comment of more than {MAX_COLUMNS} columns");
            findings.push(Finding::at(path, n + 1, what));
        }
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        findings.push(Finding::at(
            path,
            lines,
            format!("{lines} lines; {MAX_LINES} are the limit"),
        ));
    }
    for (n, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t']) {
            findings.push(Finding::at(path, n + 1, "blanks at the end of the line"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(path, text, &mut findings);
        findings.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn licence_and_length() {
        assert_eq!(whats("a/b.rs", "//! x\n").len(), 1);
        assert!(whats("x.sh", "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\n").is_empty());
        let long = format!("// SPDX-License-Identifier: GPL-2.0\n{}", "x\n".repeat(600));
        assert!(whats("a.rs", &long)[0].starts_with("601 lines"));
        assert!(whats("vectors/A1.bin", "x").is_empty());
        let wide = "x".repeat(120);
        let text = |start| format!("// SPDX-License-Identifier: GPL-2.0\n    {start}{wide}\n");
        assert_eq!(whats("a.rs", &text("/// ")).len(), 1);
        assert!(whats("a.rs", &text("let x = ")).is_empty());
        assert_eq!(
            whats("Kbuild", "# SPDX-License-Identifier: GPL-2.0\nx := y \n").len(),
            1
        );
    }
}
