// SPDX-License-Identifier: GPL-2.0

//! `smctest refusing`: runs a command under a filter that refuses sockets of one family.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of the family
    #[arg(long)]
    number: u32,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    smc_user::refuse_family(arguments.number).context("filter")?;
    let (program, rest) = arguments.command.split_first().context("no command")?;
    Err(Command::new(program).args(rest).exec().into())
}
