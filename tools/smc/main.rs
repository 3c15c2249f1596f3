// SPDX-License-Identifier: GPL-2.0

//! `smc`: runs programs over SMC, sets enterprise IDs, shows sockets and why they use TCP.

#![forbid(unsafe_code)]

mod run;
mod sockets;
mod ueid;

use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;

#[derive(Parser)]
#[command(about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a TCP program with AF_SMC sockets
    Run(run::Arguments),
    /// Show or change the enterprise IDs that two hosts need in common for SMC version 2
    #[command(subcommand)]
    Ueid(ueid::Command),
    /// List the SMC sockets with the path of each and, for TCP, the reason
    Sockets(sockets::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Ueid(command) => ueid::run(&command),
        Command::Sockets(arguments) => sockets::run(&arguments),
    };

    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("smc: {error}");
            ExitCode::FAILURE
        }
    }
}
