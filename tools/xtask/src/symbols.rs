// SPDX-License-Identifier: GPL-2.0
//! The symbols of a module: none may be longer than the kernel's table of symbols allows.

use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::run::output;

/// Bytes of the kernel's buffers for the name of a symbol, with the NUL (`KSYM_NAME_LEN`, linux/kallsyms.h).
///
/// A longer name in a module is not just cut: `module_address_lookup` returns the error of strscpy() as a length, and
/// whatever prints the address (an oops, /proc/PID/stack) writes before its buffer.
const KSYM_NAME_LEN: usize = 512;

/// Checks that each symbol of a module fits into the kernel's table of symbols.
pub(crate) fn check(ko: &Path) -> Result<()> {
    let names = output(Command::new("nm").arg("--format=just-symbols").arg(ko))
        .with_context(|| format!("cannot list the symbols of {}", ko.display()))?;
    let long = too_long(&names);
    ensure!(
        long.is_empty(),
        "{}: symbols of {KSYM_NAME_LEN} bytes or more, which the kernel cannot look up; chains of iterator adapters \
         make such names:\n{}",
        ko.display(),
        long.join("\n")
    );
    Ok(())
}

fn too_long(names: &str) -> Vec<&str> {
    names
        .lines()
        .filter(|name| name.len() >= KSYM_NAME_LEN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{too_long, KSYM_NAME_LEN};

    #[test]
    fn a_name_must_leave_room_for_the_nul() {
        let (fits, long) = ("a".repeat(KSYM_NAME_LEN - 1), "b".repeat(KSYM_NAME_LEN));
        assert_eq!(too_long(&format!("init_module\n{fits}\n{long}\n")), [long]);
    }
}
