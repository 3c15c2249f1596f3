// SPDX-License-Identifier: GPL-2.0

//! `smctest sameness`: every option of a socket, set and read in every state, and what it does, compared with TCP in
//! the same run.
//!
//! There are no expected answers: TCP's are the right ones. What may differ is in [`differences`], with a reason each.

mod differences;
mod document;
mod effects;
mod judge;
mod options;
mod probe;
mod states;
mod survey;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Result;

use crate::context::Context;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::semantics::Rig;
use survey::Finding;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The server's address of the other IP version
    #[arg(long)]
    other_addr: Option<IpAddr>,

    /// Only options whose name contains this
    #[arg(long, default_value = "")]
    only: String,

    /// Also print each call that differs
    #[arg(long)]
    verbose: bool,

    /// Only print the table as a document
    #[arg(long)]
    document: bool,

    /// Only print the names of all options
    #[arg(long)]
    names: bool,
}

const FAMILIES: [Family; 3] = [Family::Smc, Family::Ipproto, Family::Ulp];

/// Compares all options; prints KTAP, a result for each option.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.names {
        options::all().for_each(|entry| println!("{}", entry.name));
        return Ok(());
    }
    if arguments.document {
        print!("{}", document::render());
        return Ok(());
    }
    let ips: Vec<_> = std::iter::once(context.addr)
        .chain(arguments.other_addr)
        .collect();
    for ip in &ips {
        check_paths(context, *ip)?;
    }
    let survey = survey::take(context, &FAMILIES, &ips, &arguments.only);
    if arguments.verbose {
        survey.findings.iter().for_each(print);
    }
    println!("# what options do over TCP");
    survey
        .effects
        .iter()
        .for_each(|seen| println!("#     {seen}"));
    println!("# {} answers compared", survey.compared);
    let names: Vec<_> = options::all()
        .map(|entry| entry.name)
        .filter(|name| name.contains(&arguments.only))
        .collect();
    let mut ktap = Ktap::start(names.len() + 1);
    for name in names {
        let findings: Vec<_> = survey
            .findings
            .iter()
            .filter(|f| f.option == name)
            .collect();
        ktap.result(name, judge::judge(name, &findings));
    }
    let errors = match survey.errors.is_empty() {
        true => Ok(()),
        false => Err(survey.errors.join("\n")),
    };
    ktap.result("all states and effects could be had", errors);
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

/// Fails unless the connections of each kind go over SMC.
fn check_paths(context: &Context, addr: IpAddr) -> Result<()> {
    for family in FAMILIES {
        let context = Context {
            addr,
            family,
            server_family: None,
            ..context.clone()
        };
        let path = Rig::new(&context, Duration::ZERO)?.path()?;
        ensure!(path.is_smc(), "{} to {addr} goes by {path}", family.name());
    }
    Ok(())
}

fn print(finding: &Finding) {
    let Finding {
        option,
        family,
        place,
        ip,
        call,
        tcp,
        here,
    } = finding;
    let (family, version) = (family.name(), if ip.is_ipv6() { 6 } else { 4 });
    println!("# {option} | {family} | {version} | {place} | {call} | {here} | TCP {tcp}");
}
