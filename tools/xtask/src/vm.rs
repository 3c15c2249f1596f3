// SPDX-License-Identifier: GPL-2.0
//! Guests: boots a kernel with this machine's files, read only, runs one script, and checks the
//! script's exit code and the kernel log.

mod console;
mod init;
mod pin;
mod power;
mod qemu;
mod scan;
mod uml;

use std::collections::BTreeMap;
use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::dirs::Dirs;
use crate::durations::Took;
use crate::kernel::Kernel;
use crate::ktap::Report;

pub(crate) use power::{Fate, Power};

/// A guest to be run.
pub(crate) struct Guest<'a> {
    /// Name for the log and the run directory.
    pub(crate) name: String,
    pub(crate) kernel: &'a Kernel,
    /// The program that the guest runs, a path on this machine.
    pub(crate) script: PathBuf,
    pub(crate) args: Vec<String>,
    /// The script's environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cpus: u32,
    /// Memory size as the kernel takes it: `2G`.
    pub(crate) mem: String,
    pub(crate) timeout: Duration,
    /// Whether messages about failed allocations are expected.
    pub(crate) shortage: bool,
    /// Whether the clock counts instructions, one a nanosecond; under QEMU only.
    pub(crate) counts_instructions: bool,
    /// A network link to another guest.
    pub(crate) wire: Option<Wire>,
    /// What the guest has to do with a power loss, if one is planned.
    pub(crate) fate: Option<Fate<'a>>,
    /// A directory that the guest may write to, as `$OUT`; guests of one script share it.
    pub(crate) share: PathBuf,
    /// Whether the script's output is printed to the terminal, too.
    pub(crate) echo: bool,
}

/// One end of a network link between two guests.
pub(crate) enum Wire {
    /// Of which one may be QEMU's: a pair of UDP ports of this machine. Packets get lost while a guest gets no
    /// processor to receive them.
    Udp { here: u16, there: u16 },
    /// Of User-Mode Linux: a socket that is connected to the one of the other guest, and loses nothing.
    Socket(UnixDatagram),
}

impl Wire {
    /// Returns both ends of a new link, which one of QEMU's guests may be at.
    pub(crate) fn pair(has_qemu: bool) -> Result<(Self, Self)> {
        if !has_qemu {
            let (a, b) = UnixDatagram::pair().context("no socket pair")?;
            for end in [&a, &b] {
                end.set_nonblocking(true)?;
            }
            return Ok((Self::Socket(a), Self::Socket(b)));
        }
        // Both sockets stay open until both ports are known, so that these differ.
        let a = UdpSocket::bind("127.0.0.1:0").context("no free UDP port")?;
        let b = UdpSocket::bind("127.0.0.1:0").context("no free UDP port")?;
        let (a, b) = (a.local_addr()?.port(), b.local_addr()?.port());
        let end = |here, there| Self::Udp { here, there };
        Ok((end(a, b), end(b, a)))
    }

    /// Takes what comes for a guest that has ended, as a wire does, while `is_needed`.
    pub(crate) fn drain(&self, is_needed: impl Fn() -> bool) -> Result<()> {
        let Self::Socket(socket) = self else {
            return Ok(());
        };
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(DRAIN_LOOK))?;
        while is_needed() {
            match socket.recv(&mut []) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the largest packet, in bytes.
    fn mtu(&self) -> u16 {
        match self {
            // QEMU has buffers of 2 KiB for what it receives.
            Self::Udp { .. } => 1500,
            Self::Socket(_) => 9000,
        }
    }
}

/// How often [`Wire::drain`] looks whether it is needed.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// Whether a guest was killed by the other one of its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killed {
    /// No, nor was it to be.
    No,
    /// Yes, as planned.
    AsPlanned,
    /// No, though it was to be.
    Spared,
}

/// The outcome of a run.
pub(crate) struct Outcome {
    /// The script's exit code; `None` if the guest crashed or was stopped before.
    pub(crate) exit: Option<i32>,
    pub(crate) timed_out: bool,
    pub(crate) killed: Killed,
    /// The test results of the script.
    pub(crate) report: Report,
    /// Lines of the kernel log that indicate an error.
    pub(crate) trouble: Vec<String>,
    /// The number of data races in other code than ours, by the headings of KCSAN's reports.
    pub(crate) races_elsewhere: BTreeMap<String, usize>,
    pub(crate) took: Took,
    pub(crate) log: PathBuf,
}

impl Outcome {
    /// Returns everything wrong with the run as a whole; single tests are in the report.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
        match self.exit {
            _ if self.timed_out => all.push(format!(
                "stopped after {} s: timeout",
                self.took.time.as_secs()
            )),
            None if self.killed == Killed::AsPlanned => {}
            None => all.push("the guest ended before its script did".to_owned()),
            Some(0) => {}
            // The failed tests are reported separately.
            Some(_) if !self.report.failed.is_empty() => {}
            Some(code) => all.push(format!("the script ended with exit code {code}")),
        }
        match self.killed {
            Killed::Spared => all.push("the guest was to be killed, and was not".to_owned()),
            Killed::AsPlanned if self.exit.is_some() => {
                all.push("the script had ended before the guest was killed".to_owned());
            }
            Killed::AsPlanned | Killed::No => {}
        }
        all.extend(self.trouble.iter().map(|line| format!("kernel: {line}")));
        all
    }

    /// Returns what is wrong with the report as a whole, if anything; a guest that is killed cannot complete it.
    pub(crate) fn gap(&self) -> Option<String> {
        match self.killed {
            Killed::AsPlanned => None,
            Killed::No | Killed::Spared => self.report.gap(),
        }
    }
}

/// Boots the guest, waits until it ends, checks the result.
pub(crate) fn run(dirs: &Dirs, guest: &Guest<'_>) -> Result<Outcome> {
    let machine = prepare(dirs, guest, false)?;
    console::run(dirs, guest, machine)
}

/// Boots the guest with this terminal as its console; the log is not checked.
pub(crate) fn interact(dirs: &Dirs, guest: &Guest<'_>) -> Result<()> {
    let machine = prepare(dirs, guest, true)?;
    console::attach(machine)
}

/// The command that starts a guest.
struct Machine {
    cmd: std::process::Command,
    /// The guest's standard input; there is none without it.
    stdin: Option<Stdio>,
    /// Where the kernel writes its log, if not to the same place as the script.
    kernel_log: Option<PathBuf>,
    /// The processor that is the guest's own, if one is.
    _pin: Option<pin::Pin>,
}

fn prepare(dirs: &Dirs, guest: &Guest<'_>, interactive: bool) -> Result<Machine> {
    let run = dirs.out("vm").join(&guest.name);
    std::fs::create_dir_all(&run)?;
    std::fs::create_dir_all(&guest.share)?;
    let init = init::write(dirs, guest, &run, interactive)?;
    match guest.kernel.flavour.is_uml() {
        _ if guest.counts_instructions && !guest.kernel.flavour.counts_instructions() => {
            bail!("instructions are counted on x86-64 in QEMU only")
        }
        true => uml::machine(guest, &run, &init, interactive),
        false => qemu::machine(dirs, guest, &init, interactive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(exit: Option<i32>, killed: Killed, results: &str) -> usize {
        let mut report = Report::default();
        results.lines().for_each(|line| report.take(line));
        let outcome = Outcome {
            exit,
            timed_out: false,
            killed,
            report,
            trouble: Vec::new(),
            races_elsewhere: BTreeMap::new(),
            took: Took::default(),
            log: PathBuf::new(),
        };
        outcome.complaints().len() + usize::from(outcome.gap().is_some())
    }

    #[test]
    fn a_guest_may_die_as_planned_only() {
        assert_eq!(complaints(None, Killed::AsPlanned, "ok 1 a"), 0);
        assert_eq!(complaints(None, Killed::No, "ok 1 a\n1..1"), 1);
        assert_eq!(complaints(Some(0), Killed::AsPlanned, "ok 1 a\n1..1"), 1);
        assert_eq!(complaints(Some(0), Killed::Spared, "ok 1 a\n1..1"), 1);
        assert_eq!(complaints(Some(0), Killed::No, "ok 1 a\n1..1"), 0);
        assert_eq!(complaints(Some(0), Killed::No, "ok 1 a"), 1);
    }
}
