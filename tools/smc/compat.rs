// SPDX-License-Identifier: GPL-2.0

//! The names by which administrators know SMC's tools, with the options, columns and exit codes of
//! smc-tools: `smcss`, `smcr`, `smcd`, `smc_pnet`, `smc_run`, by the name under which this program is called.

mod object;
mod report;
mod smc_pnet;
mod smc_run;
mod smc_stats;
mod smcss;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Arg;
use clap::ArgAction;
use clap::Parser;

/// Runs the tool that the program was called as; `None` if that is none of them.
pub(crate) fn run(arguments: &[String]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    match name {
        "smcss" => Some(smcss::run(rest)),
        "smc_pnet" => Some(smc_pnet::run(rest)),
        "smc_run" => Some(smc_run::run(rest)),
        "smcr" | "smcd" => Some(object::run(name, rest)),
        _ => None,
    }
}

/// The release of smc-tools whose options these are, as `-v` prints it after the name.
const RELEASE: &str = "utility, smc-tools-1.8.5";

/// What `-v` prints.
fn version(name: &str) -> String {
    format!("{name} {RELEASE}")
}

/// Reads the options of a tool; the exit code if that is all there is to do.
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
        .arg(version);
    let matches = command.try_get_matches_from(arguments);
    matches
        .and_then(|matches| T::from_arg_matches(&matches))
        .map_err(|error| {
            let _ = error.print();
            ExitCode::from(u8::from(error.use_stderr()))
        })
}

/// Ends with 1 and a sentence for the errors that every tool may meet.
fn failed(error: &io::Error) -> ExitCode {
    const EPERM: i32 = 1;
    const EOPNOTSUPP: i32 = 95;
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, None) => eprintln!("Error: SMC module not loaded"),
        (_, Some(EOPNOTSUPP)) => eprintln!("Error: Operation not supported by kernel"),
        (_, Some(EPERM)) => eprintln!("Error: Operation not permitted"),
        _ => eprintln!("Error: {error}"),
    }
    ExitCode::FAILURE
}
