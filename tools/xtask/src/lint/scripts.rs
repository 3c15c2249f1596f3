// SPDX-License-Identifier: GPL-2.0
//! kselftest knows each guest script: what its Makefile does not list is neither run nor installed.

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
