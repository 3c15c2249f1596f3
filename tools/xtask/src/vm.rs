// SPDX-License-Identifier: GPL-2.0
//! Guests: boots a kernel on this machine's own files, read only, runs one script as its only
//! task, and judges the run by the script's exit code and by what the kernel said.

mod console;
mod init;
mod qemu;
mod scan;
mod uml;

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::kernel::{Flavour, Kernel};
use crate::ktap::Report;

pub(crate) use console::stop_all;

/// One guest to run.
pub(crate) struct Guest<'a> {
    /// Names the log and the run folder.
    pub(crate) name: String,
    pub(crate) kernel: &'a Kernel,
    /// The program the guest runs, a path on this machine.
    pub(crate) script: PathBuf,
    pub(crate) args: Vec<String>,
    /// The script's environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cpus: u32,
    /// In the form that the kernel takes: `2G`.
    pub(crate) mem: String,
    pub(crate) timeout: Duration,
    /// Whether to look for leaked memory after the script.
    pub(crate) leaks: bool,
    /// A wire to another guest.
    pub(crate) wire: Option<Wire>,
    /// A folder that the guest may write to, seen in it as `$OUT`; guests on one wire share it.
    pub(crate) share: PathBuf,
    /// Whether the script's output goes to the terminal too.
    pub(crate) echo: bool,
}

/// One end of a wire between two guests: a pair of UDP ports of this machine.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    here: u16,
    there: u16,
}

impl Wire {
    /// Both ends of a new wire.
    pub(crate) fn pair() -> Result<(Self, Self)> {
        // Held until both are known, so that they differ.
        let a = UdpSocket::bind("127.0.0.1:0").context("no free UDP port")?;
        let b = UdpSocket::bind("127.0.0.1:0").context("no free UDP port")?;
        let (a, b) = (a.local_addr()?.port(), b.local_addr()?.port());
        Ok((Self { here: a, there: b }, Self { here: b, there: a }))
    }
}

/// How a run went.
pub(crate) struct Outcome {
    /// The script's exit code; `None` if the guest died or was stopped first.
    pub(crate) exit: Option<i32>,
    pub(crate) timed_out: bool,
    /// What the script reported.
    pub(crate) report: Report,
    /// Lines of the kernel's log that must not be there.
    pub(crate) trouble: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) log: PathBuf,
}

impl Outcome {
    /// Everything wrong with the run as a whole, in words; single tests are in the report.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
        match self.exit {
            _ if self.timed_out => {
                all.push(format!("stopped after {} s: timeout", self.took.as_secs()))
            }
            None => all.push("the guest ended before its script did".to_owned()),
            Some(0) => {}
            // A failed test is told by its own line.
            Some(_) if !self.report.failed.is_empty() => {}
            Some(code) => all.push(format!("the script ended with exit code {code}")),
        }
        all.extend(self.trouble.iter().map(|line| format!("kernel: {line}")));
        all
    }
}

/// Boots the guest, waits for its end, judges it.
pub(crate) fn run(dirs: &Dirs, guest: &Guest<'_>) -> Result<Outcome> {
    let machine = prepare(dirs, guest, false)?;
    console::run(dirs, guest, machine)
}

/// Boots the guest with this terminal as its console; its log is not judged.
pub(crate) fn interact(dirs: &Dirs, guest: &Guest<'_>) -> Result<()> {
    let machine = prepare(dirs, guest, true)?;
    console::attach(machine)
}

/// A command that is a machine.
struct Machine {
    cmd: std::process::Command,
    /// Where the kernel writes its messages, if not to the same place as the script.
    kernel_log: Option<PathBuf>,
}

fn prepare(dirs: &Dirs, guest: &Guest<'_>, interactive: bool) -> Result<Machine> {
    let run = dirs.out("vm").join(&guest.name);
    std::fs::create_dir_all(&run)?;
    std::fs::create_dir_all(&guest.share)?;
    let init = init::write(dirs, guest, &run, interactive)?;
    match guest.kernel.flavour {
        Flavour::Um | Flavour::UmDebug => uml::machine(guest, &run, &init, interactive),
        Flavour::X86 => qemu::machine(dirs, guest, &init, interactive),
    }
}
