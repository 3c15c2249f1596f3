// SPDX-License-Identifier: GPL-2.0

//! The commands of smc-tools, with their options, columns and exit codes: `smcss`, `smcr`, `smcd`,
//! `smc_pnet` and `smc_run`, selected by the name under which this program is called.

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
use clap::Parser;

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

/// Parses the options of a tool; returns the exit code if nothing else is to be done.
fn parse<T: Parser>(arguments: &[String]) -> Result<T, ExitCode> {
    let version = Arg::new("version")
        .short('v')
        .long("version")
        .help("Print the version")
        .action(ArgAction::Version);
    let command = T::command()
        .version(RELEASE)
        .disable_version_flag(true)
        .no_binary_name(true)
        // As getopt_long(3) does.
        .infer_long_args(true)
        .args_override_self(true)
        .arg(version);
    let matches = command.try_get_matches_from(arguments);
    matches
        .and_then(|matches| T::from_arg_matches(&matches))
        .map_err(|error| {
            let _ = error.print();
            ExitCode::from(u8::from(error.use_stderr()))
        })
}

/// Prints a message for errors that every tool may encounter; returns exit code 1.
fn failed(error: &io::Error) -> ExitCode {
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EOPNOTSUPP: i32 = 95;
    match (error.kind(), error.raw_os_error()) {
        // The kernel knows no such family.
        (io::ErrorKind::NotFound, None | Some(ENOENT)) => eprintln!("Error: SMC module not loaded"),
        (_, Some(EOPNOTSUPP)) => eprintln!("Error: Operation not supported by kernel"),
        (_, Some(EPERM)) => eprintln!("Error: Operation not permitted"),
        _ => eprintln!("Error: {error}"),
    }
    ExitCode::FAILURE
}
