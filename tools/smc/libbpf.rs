// SPDX-License-Identifier: GPL-2.0

//! Errors of libbpf. Its messages are not printed but collected: they contain the reason if the kernel
//! rejects a program.

use std::io;
use std::sync::Mutex;

use libbpf_rs::Error;
use libbpf_rs::ErrorKind;
use libbpf_rs::PrintLevel;

/// Messages of libbpf, one per line.
static SAID: Mutex<String> = Mutex::new(String::new());

/// From now on messages are collected.
pub(crate) fn collect() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

fn keep(_: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push_str(&text);
    }
}

/// Returns what was collected.
pub(crate) fn said() -> String {
    SAID.lock().map(|said| said.clone()).unwrap_or_default()
}

/// Returns why the verifier rejected a program: the last line of its log, which libbpf repeats, or the
/// last one before the empty line after which newer kernels print a longer explanation.
pub(crate) fn verdict(said: &str) -> Option<&str> {
    let log = said.split("-- BEGIN PROG LOAD LOG --\n").nth(1)?;
    let log = log.split("-- END PROG LOAD LOG --").next()?;
    log.lines()
        .take_while(|line| !line.is_empty() && !line.starts_with("processed "))
        .last()
}

/// Converts an error of libbpf to one of the standard library, with the kinds that callers
/// distinguish.
pub(crate) fn failed(error: Error) -> io::Error {
    failed_by(&error)
}

/// See [`failed`].
pub(crate) fn failed_by(error: &Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}
