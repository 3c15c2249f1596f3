// SPDX-License-Identifier: GPL-2.0
//! A remote memory buffer is an RMB, as in RFC 7609, and has no other name.

use anyhow::Result;
use regex::Regex;

use super::Finding;

/// Where it is spoken of.
const FOLDERS: &[&str] = &[
    "net/smc/",
    "rust/",
    "include/",
    "tests/",
    "tools/testing/",
    "Documentation/",
    "README.md",
];
/// Where the receive buffer is that of a socket (`SO_RCVBUF`).
const SOCKETS: &str = "tools/testing/";

/// Its other names.
pub(super) struct OtherNames(Regex);

impl OtherNames {
    pub(super) fn new() -> Result<Self> {
        // A memory region is what verbs register.
        let names = r"(?i)(?<what>memory[ _])?(\b|_)(regions?|(?:receive|ring)[ _]buffers?|receive rings?)(\b|_)";
        Ok(Self(Regex::new(names)?))
    }

    pub(super) fn check(&self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        if !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
            return;
        }
        for (n, line) in text.lines().enumerate() {
            let found = self.0.captures_iter(line);
            let found = found.filter(|found| found.name("what").is_none());
            let found = found.filter(|found| {
                !path.starts_with(SOCKETS) || found[3].to_lowercase().starts_with("region")
            });
            for name in found.filter_map(|found| found.get(3)) {
                let what = format!("`{}`: an RMB has no other name", name.as_str());
                findings.push(Finding::at(path, n + 1, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rmb_is_an_rmb() {
        let names = OtherNames::new().unwrap();
        let found = |path: &str, text: &str| {
            let mut findings = Vec::new();
            names.check(path, text, &mut findings);
            findings.len()
        };
        assert_eq!(
            found(
                "net/smc/a.rs",
                "// the region, a receive buffer\nfn map_regions() {}\n"
            ),
            3
        );
        assert_eq!(
            found(
                "net/smc/a.rs",
                "// the memory region of an RMB\n// regional\n"
            ),
            0
        );
        assert_eq!(found("rust/kernel/a.rs", "// the region\n"), 1);
        assert_eq!(found("tools/smc/a.rs", "// the receive buffer\n"), 0);
        let text = "# the receive buffer of a socket\n# a region\n";
        assert_eq!(found("tools/testing/selftests/net/smc/a.sh", text), 1);
    }
}
