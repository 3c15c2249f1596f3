// SPDX-License-Identifier: GPL-2.0

//! `smc ueid`: the user-defined enterprise IDs of this machine.

use std::io;

use clap::Subcommand;
use smc_tools::genl::Ueids;

use crate::out;
use crate::table::json;
use crate::table::not_loaded;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print them, one a line
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add one: up to 32 upper-case letters, digits, dots and hyphens
    Add { eid: String },
    /// Remove one
    Del { eid: String },
    /// Remove all
    Flush,
}

/// Runs the subcommand; errors contain the kernel's reason.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    let mut ueids = Ueids::open().map_err(not_loaded)?;

    match command {
        Command::Show { json: true } => json(&ueids.list()?)?,
        Command::Show { json: false } => out::lines(ueids.list()?)?,
        Command::Add { eid } => ueids.add(eid)?,
        Command::Del { eid } => ueids.remove(eid)?,
        Command::Flush => ueids.flush()?,
    }
    Ok(())
}
