// SPDX-License-Identifier: GPL-2.0

//! Output. `println!` and `eprintln!` would panic where nothing can be written, as on a full disk.

use std::fmt::Display;
use std::io;
use std::io::Write;

/// Prints a line.
pub(crate) fn line(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Prints lines.
pub(crate) fn lines<T: Display>(lines: impl IntoIterator<Item = T>) -> io::Result<()> {
    lines.into_iter().try_for_each(line)
}

/// Prints text that need not end with a line.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a line on standard error. If that cannot be written to, there is nobody to tell.
pub(crate) fn error(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints what clap answers to the words of a command: help, the version, or what is wrong with them.
pub(crate) fn answer(answer: &clap::Error) -> io::Result<()> {
    match answer.print() {
        Err(_) if answer.use_stderr() => Ok(()),
        printed => printed,
    }
}
