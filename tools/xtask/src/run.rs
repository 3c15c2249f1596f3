// SPDX-License-Identifier: GPL-2.0
//! Running other programs, with errors that say what was run and what it said.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

/// The command as one would type it.
pub(crate) fn show(cmd: &Command) -> String {
    let mut words = vec![cmd.get_program().to_string_lossy().into_owned()];
    words.extend(cmd.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command with its output on the terminal.
pub(crate) fn run(cmd: &mut Command) -> Result<()> {
    let status = cmd
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run `{}`", show(cmd)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", show(cmd));
    }
    Ok(())
}

/// Runs a command silently and returns what it wrote to standard output.
pub(crate) fn output(cmd: &mut Command) -> Result<String> {
    let out = cmd
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{}`", show(cmd)))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("`{}` failed ({}): {}", show(cmd), out.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The first line that a command prints, if it runs at all.
pub(crate) fn first_line(program: &Path, arg: &str) -> Option<String> {
    let text = output(Command::new(program).arg(arg)).ok()?;
    text.lines().next().map(str::to_owned)
}
