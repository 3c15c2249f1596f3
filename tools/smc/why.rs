// SPDX-License-Identifier: GPL-2.0

//! `smc why`: explains why a connection falls, or would fall, back to TCP, and what to change.

pub(crate) mod attempt;
pub(crate) mod facts;
pub(crate) mod finding;
mod process;

use std::io;
use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::table::json;
use facts::Facts;
use finding::Finding;

/// Exit code if at least one connection uses, or would use, TCP.
const TCP: u8 = 3;

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 SMC, or no connection; 3 at least one is TCP; 1 it could not be found out, or the connection fails; 2 wrong usage."
)]
pub(crate) struct Arguments {
    /// Connect there by an SMC socket, with the handshake of SMC and without data, and print the result
    #[arg(value_name = "HOST:PORT", required_unless_present = "pid")]
    target: Option<String>,

    /// Look at the sockets of this process
    #[arg(short, long, conflicts_with = "target")]
    pid: Option<i32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The report on one connection.
#[derive(Serialize)]
struct Report {
    /// The descriptor, for a socket of another process.
    #[serde(skip_serializing_if = "Option::is_none")]
    fd: Option<i32>,
    local: String,
    peer: String,
    #[serde(flatten)]
    finding: Finding,
    /// Relevant facts about this machine.
    here: Vec<String>,
    /// Whether a connection was attempted for this report.
    #[serde(skip)]
    is_tried: bool,
}

/// Prints the reports; see [`TCP`] for the exit code.
pub(crate) fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let reports = match (&arguments.target, arguments.pid) {
        (Some(target), _) => vec![of_target(target)?],
        (None, Some(pid)) => process::reports(pid)?,
        (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    match (arguments.json, reports.as_slice()) {
        (true, [report]) if arguments.target.is_some() => json(report)?,
        (true, reports) => json(&reports)?,
        (false, reports) => print(reports)?,
    }
    let is = |smc| reports.iter().any(|report| report.finding.smc == smc);
    Ok(match arguments.target {
        _ if is(Some(false)) => ExitCode::from(TCP),
        Some(_) if is(None) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn of_target(target: &str) -> io::Result<Report> {
    let attempt = attempt::make(target)?;
    let facts = Facts::look();
    let (local, peer) = (attempt.local(), attempt.peer());
    let finding = match facts.is_smcd_off(local, peer) {
        true => attempt.finding(&facts).with_smcd(),
        false => attempt.finding(&facts),
    };
    Ok(Report {
        fd: None,
        here: facts.that_matter(&finding, local, peer),
        local: local.map_or("-".to_string(), |local| local.to_string()),
        peer: target.to_string(),
        is_tried: attempt.is_tried(),
        finding,
    })
}

fn print(reports: &[Report]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if reports.is_empty() {
        writeln!(out, "The process has no TCP or SMC sockets.")?;
    }
    for (number, report) in reports.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let finding = &report.finding;
        match report.fd {
            Some(fd) => write!(out, "{fd}: {} to {}: ", report.local, report.peer)?,
            None => write!(out, "{}: ", report.peer)?,
        }
        writeln!(out, "{}{}", finding.way(), finding.sentence)?;
        writeln!(out, "  id:     {}{}", finding.id, finding.code())?;
        if let Some(remedy) = &finding.remedy {
            writeln!(out, "  change: {remedy}")?;
        }
        for (number, fact) in report.here.iter().enumerate() {
            let head = if number == 0 { "here:" } else { "" };
            writeln!(out, "  {head:<7} {fact}")?;
        }
        if report.is_tried {
            writeln!(
                out,
                "  tried:  a connection with the handshake of SMC, without data"
            )?;
        }
    }
    Ok(())
}
