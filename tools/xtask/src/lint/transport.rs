// SPDX-License-Identifier: GPL-2.0
//! Above a link nobody asks which transport carries it: `net/smc/link/transport.rs` says by capabilities what
//! layers above have to know.

use super::Finding;

/// Where links are used,
const FOLDER: &str = "net/smc/";
/// but for the protocol core, which knows no links, and what links are made of.
const EXEMPT: [&str; 3] = ["net/smc/proto/", "net/smc/link/", "net/smc/link.rs"];
/// The question.
const REFUSED: &str = "is_iwarp";

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !path.starts_with(FOLDER) || EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
        return;
    }
    for (n, line) in text.lines().enumerate() {
        if line.contains(REFUSED) {
            let what = format!("`{REFUSED}` above a link: ask for a capability of the link");
            findings.push(Finding::at(path, n + 1, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_knows_its_transport() {
        let found = |path: &str| {
            let mut findings = Vec::new();
            check(path, "if link.is_iwarp() {\n}\n", &mut findings);
            findings.len()
        };
        assert_eq!(found("net/smc/conn/transmit.rs"), 1);
        assert_eq!(found("net/smc/link_work/add.rs"), 1);
        assert_eq!(found("net/smc/link/transport.rs"), 0);
        assert_eq!(found("net/smc/proto/handshake/client.rs"), 0);
        assert_eq!(found("tests/common/rdma.rs"), 0);
    }
}
