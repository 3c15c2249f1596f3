// SPDX-License-Identifier: GPL-2.0
//! Running other programs, with errors that say what was run and what it said.

use std::fs::{File, OpenOptions};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Takes a lock that other runs of this program respect, after waiting for them if need be; it
/// is released when dropped, and when this program ends in whatever way.
pub(crate) fn lock(path: &Path, what: &str) -> Result<Flock<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, Errno::EWOULDBLOCK)) => {
            eprintln!("another {what} is under way; waiting for it");
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e.into())
        }
        Err((_, e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Processors that this program may use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

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
