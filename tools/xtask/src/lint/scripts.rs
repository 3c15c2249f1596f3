// SPDX-License-Identifier: GPL-2.0
//! kselftest knows each guest script: what its Makefile does not list is neither run nor installed. And a function is
//! defined once: another one of that name takes its place without a word.

use std::collections::HashSet;
use std::path::Path;

use super::Finding;

const FOLDER: &str = "tools/testing/selftests/net/smc";
/// The list.
pub(super) const MAKEFILE: &str = "tools/testing/selftests/net/smc/Makefile";

/// Checks that the Makefile, whose text is `makefile`, lists each script of `paths`.
pub(super) fn check(paths: &[String], makefile: &str, findings: &mut Vec<Finding>) {
    let listed: Vec<_> = makefile
        .lines()
        .filter_map(|line| line.strip_prefix('\t')?.strip_suffix(" \\"))
        .collect();
    for path in paths.iter().map(Path::new) {
        let is_script = path.extension().is_some_and(|e| e == "sh" || e == "bash");
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| is_script && path.parent() == Some(Path::new(FOLDER)))
        else {
            continue;
        };
        if !listed.contains(&name) {
            let what = format!("{MAKEFILE} does not list it");
            findings.push(Finding::at(&path.to_string_lossy(), 0, what));
        }
    }
}

/// Checks that a script defines no function twice.
pub(super) fn check_functions(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !path.ends_with(".sh") && !path.ends_with(".bash") {
        return;
    }
    let mut known = HashSet::new();
    for (number, line) in text.lines().enumerate() {
        let name = line.strip_suffix("() {").filter(|name| !name.contains(' '));
        if name.is_some_and(|name| !known.insert(name)) {
            findings.push(Finding::at(
                path,
                number + 1,
                "the file has a function of that name",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_defined_once() {
        let mut findings = Vec::new();
        let text = "a() {\n\ttrue\n}\nb() {\n}\n\ta() {\n\t}\na() {\n}\n";
        check_functions("x.rs", text, &mut findings);
        assert!(findings.is_empty());
        check_functions("x.sh", text, &mut findings);
        let lines: Vec<_> = findings.iter().map(|found| found.line).collect();
        assert_eq!(lines, [8]);
    }
}
