// SPDX-License-Identifier: GPL-2.0

//! `smctest refusing`: runs a command under a seccomp filter that refuses sockets of one family.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use seccompiler::apply_filter;
use seccompiler::BpfProgram;
use seccompiler::SeccompAction;
use seccompiler::SeccompCmpArgLen;
use seccompiler::SeccompCmpOp;
use seccompiler::SeccompCondition;
use seccompiler::SeccompFilter;
use seccompiler::SeccompRule;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of the family
    #[arg(long)]
    number: u32,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Executes the command in place of this process.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    refuse_family(arguments.number).context("filter")?;
    let (program, rest) = arguments.command.split_first().context("no command")?;
    Err(Command::new(program).args(rest).exec().into())
}

/// Makes socket(2) of this family fail with EAFNOSUPPORT in this thread and what it executes, as
/// systemd's `RestrictAddressFamilies` does.
fn refuse_family(family: u32) -> Result<()> {
    let (len, is) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
    let of_family = SeccompCondition::new(0, len, is, family.into())?;
    let rule = SeccompRule::new(vec![of_family])?;
    // CAST: an errno.
    let refused = SeccompAction::Errno(libc::EAFNOSUPPORT as u32);
    let rules = [(libc::SYS_socket, vec![rule])].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok(())
}
