// SPDX-License-Identifier: GPL-2.0

//! `smc`: runs programs over SMC, shows the state of the module and the reasons of fallbacks, and
//! changes its tables.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod compat;
mod counters;
mod hs_ctrl;
mod libbpf;
mod listen;
mod metrics;
mod networks;
mod out;
mod pages;
mod policy;
mod run;
mod show;
mod sockets;
mod switch;
mod table;
mod top;
mod trace;
mod ueid;
mod why;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;

#[derive(Parser)]
#[command(
    name = "smc",
    about,
    version,
    after_help = "Exit codes: 0 done, 1 failed (the module is not loaded, no permission, ...), 2 wrong usage; \
                  run has those of its command, 127 if there is no such command and 126 if it cannot be started; \
                  why has one more (smc why --help)."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a TCP program with SMC sockets
    Run(run::Arguments),
    /// Say why a connection is, or would be, TCP, and what to change
    Why(why::Arguments),
    /// Look over this machine before SMC is used on it, and try a connection between two
    Check(check::Arguments),
    /// List the SMC sockets with the path of each and, for TCP, the reason
    #[command(alias = "sockets")]
    Ss(sockets::Arguments),
    /// List the link groups
    Lgr(show::Arguments),
    /// List the links
    Link(show::Arguments),
    /// List the RDMA devices
    Dev(show::Arguments),
    /// Show what this machine can do
    Info(show::Arguments),
    /// Show the counters of this network namespace, and why connections went over TCP
    Stats(counters::Arguments),
    /// Show or change which devices are on which physical network
    #[command(subcommand)]
    Pnet(networks::Command),
    /// Show or change rules about which connections of this network namespace may use SMC
    #[command(subcommand)]
    Policy(policy::Command),
    /// Load BPF programs that decide about TCP's SMC option, show them, or use one in this network namespace
    #[command(subcommand)]
    HsCtrl(hs_ctrl::Command),
    /// Show or change the enterprise IDs that two hosts need in common for SMC version 2
    #[command(subcommand)]
    Ueid(ueid::Command),
    /// Show what happens now, like top(1)
    Top(top::Arguments),
    /// Show or change whose TCP sockets become SMC sockets without a library (needs root)
    #[command(subcommand)]
    Switch(switch::Command),
    /// Show what the tracepoints of the module tell, until Ctrl-C (needs root)
    Trace(trace::Arguments),
    /// Print what a shell reads to complete this command
    Completions(pages::Completions),
    /// Print the manual page of this command, or write those of all commands into a folder
    Man(pages::Man),
}

/// Raised when the reader of the output closes it.
const SIGPIPE: i32 = 13;

/// Exit code for words that the command does not have.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    // A failure only means an additional error message.
    let _ = smc_user::restore_signal(SIGPIPE);
    let called: Vec<_> = std::env::args_os().collect();
    if let Some(code) = compat::run(&called) {
        return code;
    }
    let done = match Arguments::try_parse_from(called) {
        Ok(arguments) => carry_out(arguments.command),
        Err(answer) => out::answer(&answer).map(|()| match answer.use_stderr() {
            true => ExitCode::from(WRONG_USAGE),
            false => ExitCode::SUCCESS,
        }),
    };
    done.unwrap_or_else(|error| {
        out::error(format_args!("smc: {error}"));
        ExitCode::FAILURE
    })
}

fn carry_out(command: Command) -> io::Result<ExitCode> {
    match command {
        Command::Run(arguments) => return run::run(&arguments),
        Command::Why(arguments) => return why::run(&arguments),
        Command::Check(arguments) => return check::run(&arguments),
        Command::Ss(arguments) => sockets::run(&arguments),
        Command::Lgr(arguments) => show::groups(&arguments),
        Command::Link(arguments) => show::links(&arguments),
        Command::Dev(arguments) => show::devices(&arguments),
        Command::Info(arguments) => show::info(&arguments),
        Command::Stats(arguments) => counters::run(&arguments),
        Command::Pnet(command) => networks::run(&command),
        Command::Policy(command) => policy::run(&command),
        Command::HsCtrl(command) => hs_ctrl::run(&command),
        Command::Ueid(command) => ueid::run(&command),
        Command::Top(arguments) => top::run(&arguments),
        Command::Switch(command) => switch::run(&command),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Completions(arguments) => pages::completions(&arguments),
        Command::Man(arguments) => pages::man(&arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}
