// SPDX-License-Identifier: GPL-2.0

//! `smctest refusing`: runs a command under a seccomp filter that refuses sockets of one family and, if asked to, of
//! one protocol.

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

    /// Number of the protocol, of whatever family
    #[arg(long)]
    protocol: Option<u32>,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Executes the command in place of this process.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    refuse(arguments.number, arguments.protocol).context("filter")?;
    let (program, rest) = arguments.command.split_first().context("no command")?;
    Err(Command::new(program).args(rest).exec().into())
}

/// Makes socket(2) of this family and protocol fail with EAFNOSUPPORT in this thread and what it executes, as
/// systemd's `RestrictAddressFamilies` does.
fn refuse(family: u32, protocol: Option<u32>) -> Result<()> {
    // The first argument is the family, the third one the protocol.
    let which = std::iter::once((0, family)).chain(protocol.map(|protocol| (2, protocol)));
    let rules = which
        .map(|(argument, number)| {
            let (len, is) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let is_it = SeccompCondition::new(argument, len, is, number.into())?;
            Ok(SeccompRule::new(vec![is_it])?)
        })
        .collect::<Result<Vec<_>>>()?;
    // CAST: an errno.
    let refused = SeccompAction::Errno(libc::EAFNOSUPPORT as u32);
    let rules = [(libc::SYS_socket, rules)].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok(())
}
