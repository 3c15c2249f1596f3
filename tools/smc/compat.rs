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

/// What `-v` prints: the release of smc-tools whose options these are.
fn version(name: &str) -> String {
    format!("{name} utility, smc-tools-1.8.5")
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
