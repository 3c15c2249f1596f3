// SPDX-License-Identifier: GPL-2.0
//! Runs other programs; errors contain the command and its output.

use std::fs::{self, File, OpenOptions};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Waits for and takes a lock that other instances of this program respect; it is released when
/// dropped, or when this program ends in any way.
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

/// Compiles a C file for this machine, with these options and all warnings. Who runs the old `target` keeps it.
pub(crate) fn gcc(source: &Path, target: &Path, options: &[&str]) -> Result<()> {
    compile("gcc", source, target, options)
}

/// As [`gcc`], by that compiler.
pub(crate) fn compile(
    compiler: &str,
    source: &Path,
    target: &Path,
    options: &[&str],
) -> Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let half = target.with_extension("new");
    run(Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-o")
        .args([&half, source]))?;
    fs::rename(&half, target)?;
    Ok(())
}

/// Returns the number of processors that this program may use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Formats the command as in a shell.
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

/// Returns the first line of a command's output; `None` if it fails.
pub(crate) fn first_line(program: &Path, arg: &str) -> Option<String> {
    let text = output(Command::new(program).arg(arg)).ok()?;
    text.lines().next().map(str::to_owned)
}
