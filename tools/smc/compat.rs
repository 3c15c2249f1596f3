// SPDX-License-Identifier: GPL-2.0

//! The commands of smc-tools, with their options, columns and exit codes: `smcss`, `smcr`, `smcd`,
//! `smc_pnet` and `smc_run`, selected by the name under which this program is called.

mod definitions;
mod object;
mod report;
mod smc_pnet;
mod smc_run;
mod smc_stats;
mod smcss;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Arg;
use clap::ArgAction;
use clap::Command;
use clap::Parser;

use crate::out;

pub(crate) use definitions::commands;

/// Runs the tool that the program was called as; `None` if it is another name.
pub(crate) fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    if name == "smc_run" {
        return Some(smc_run::run(rest));
    }
    let words = rest.iter().map(|word| word.to_string_lossy().into_owned());
    let rest = &Vec::from_iter(words);
    match name {
        "smcss" => Some(smcss::run(rest)),
        "smc_pnet" => Some(smc_pnet::run(rest)),
        "smcr" | "smcd" => Some(object::run(name, rest)),
        _ => None,
    }
}

/// The release of smc-tools that is compatible, as `-v` prints it after the name.
const RELEASE: &str = "utility, smc-tools-1.8.5";

/// Returns the output of `-v`.
fn version(name: &str) -> String {
    format!("{name} {RELEASE}")
}

/// Returns the definition of a tool with its option for the version.
fn with_version(tool: Command) -> Command {
    let version = Arg::new("version")
        .short('v')
        .long("version")
        .help("Print the version")
        .action(ArgAction::Version);
    tool.version(RELEASE)
        .disable_version_flag(true)
        .arg(version)
}

/// Parses the options of a tool; returns the exit code if nothing else is to be done.
fn parse<T: Parser>(arguments: &[String]) -> Result<T, ExitCode> {
    let command = with_version(T::command())
        .no_binary_name(true)
        // As getopt_long(3) does.
        .infer_long_args(true)
        .args_override_self(true);
    let matches = command.try_get_matches_from(arguments);
    matches
        .and_then(|matches| T::from_arg_matches(&matches))
        .map_err(|answer| match out::answer(&answer) {
            Ok(()) => ExitCode::from(u8::from(answer.use_stderr())),
            Err(error) => failed(T::command().get_name(), &error),
        })
}

/// Prints a message after `prefix` for errors that every tool may encounter; returns exit code 1.
fn failed(prefix: &str, error: &io::Error) -> ExitCode {
    out::error(format_args!("{prefix}: {}", message(error)));
    ExitCode::FAILURE
}

/// Returns whether no SMC module is loaded: the kernel knows no such family.
fn is_not_loaded(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && error.raw_os_error().is_none()
}

/// Returns the words that smc-tools has for an error, most of which are those of libnl.
fn message(error: &io::Error) -> String {
    let words = match error.raw_os_error() {
        None if is_not_loaded(error) => "SMC module not loaded",
        Some(libc::EOPNOTSUPP) => "Operation not supported by kernel",
        Some(libc::EPERM) => "Operation not permitted",
        Some(libc::ENOENT) => "Object not found",
        Some(libc::EEXIST) => "Object exists",
        Some(libc::EINVAL) => "Invalid input data or parameter",
        _ => return error.to_string(),
    };
    words.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_is_not_a_module_that_is_not_there() {
        let text = |code| message(&io::Error::from_raw_os_error(code));
        assert_eq!(
            message(&io::ErrorKind::NotFound.into()),
            "SMC module not loaded"
        );
        assert_eq!(text(libc::ENOENT), "Object not found");
        assert!(is_not_loaded(&io::ErrorKind::NotFound.into()));
        assert!(!is_not_loaded(&io::Error::from_raw_os_error(libc::ENOENT)));
        assert_eq!(text(libc::EEXIST), "Object exists");
        assert_eq!(text(libc::EINVAL), "Invalid input data or parameter");
        assert_eq!(text(libc::EPERM), "Operation not permitted");
        assert_eq!(text(libc::EOPNOTSUPP), "Operation not supported by kernel");
        assert_eq!(message(&io::Error::other("specified")), "specified");
    }
}
