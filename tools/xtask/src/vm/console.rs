// SPDX-License-Identifier: GPL-2.0
//! Monitors a running guest: writes its log, parses the script's exit code, stops it after the
//! timeout.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Instant;

use anyhow::{Context, Result};

use super::power::Fate;
use super::scan::Scan;
use super::{Guest, Killed, Machine, Outcome, Power};
use crate::dirs::Dirs;
use crate::durations::Took;
use crate::groups::{read_lines, Group};
use crate::ktap::Report;
use crate::run::show;

/// Number of lines of each log that are printed if a guest ends before its script.
const TAIL: usize = 12;

/// Runs a guest until it ends.
pub(super) fn run(dirs: &Dirs, guest: &Guest<'_>, mut machine: Machine) -> Result<Outcome> {
    fs::create_dir_all(dirs.logs())?;
    let log = dirs.logs().join(format!("{}.log", guest.name));
    let mut watch = Watch::new(guest, File::create(&log)?)?;
    let start = Instant::now();
    let own = guest.fate.and_then(Fate::own);
    let cmd = &mut machine.cmd;
    cmd.stdin(machine.stdin.take().unwrap_or_else(Stdio::null))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = Group::start(cmd)?;
    if let Some(power) = own {
        power.on(running.id());
    }
    let lines = lines(&mut running.child)?;
    let timed_out = watch.follow(&lines, start, guest)?;
    let killed = match own.map(Power::off) {
        None => Killed::No,
        Some(true) => Killed::AsPlanned,
        Some(false) => Killed::Spared,
    };
    let cpu = running.cpu_time()?;
    drop(running);
    // Output that was in transit when the guest ended.
    for line in lines.try_iter() {
        watch.take(&line)?;
    }
    let kernel_log = match &machine.kernel_log {
        Some(path) => {
            fs::read(path).with_context(|| format!("no kernel log in {}", path.display()))?
        }
        None => Vec::new(),
    };
    watch.kernel(&kernel_log);
    if !watch.begun {
        watch
            .trouble
            .push("(the log does not say that the script began)".to_owned());
        // What ended the boot is looked for, too.
        watch.begun = true;
        watch.kernel(&kernel_log);
    }
    let cut_off = watch.scan.end();
    watch.trouble.extend(cut_off);
    if watch.exit.is_none() && !timed_out && killed != Killed::AsPlanned {
        let last = watch.last.0.iter().chain(&watch.kernel_last.0);
        watch
            .trouble
            .extend(last.map(|line| format!("(last) {line}")));
    }
    Ok(Outcome {
        exit: watch.exit,
        timed_out,
        killed,
        report: watch.report,
        trouble: watch.trouble,
        races_elsewhere: watch.scan.races_elsewhere().clone(),
        took: Took {
            time: start.elapsed(),
            cpu,
        },
        log,
    })
}

/// Attaches the guest to this terminal, and restores the terminal settings afterwards.
pub(super) fn attach(mut machine: Machine) -> Result<()> {
    let status = machine
        .cmd
        .status()
        .with_context(|| format!("cannot run `{}`", show(&machine.cmd)));
    let _ = std::process::Command::new("stty")
        .arg("sane")
        .stderr(Stdio::null())
        .status();
    status?;
    Ok(())
}

/// Merges both outputs of a guest, line by line. The channel closes when both outputs are closed.
fn lines(child: &mut Child) -> Result<Receiver<String>> {
    let (send, receive) = channel();
    let stdout = child.stdout.take().context("the guest has no output")?;
    let stderr = child.stderr.take().context("the guest has no output")?;
    read_lines(stdout, send.clone());
    read_lines(stderr, send);
    Ok(receive)
}

/// The state of a monitored guest.
struct Watch<'a> {
    /// The guest that this one may have killed.
    peer: Option<&'a Power>,
    scan: Scan,
    log: File,
    echo: bool,
    exit: Option<i32>,
    /// Whether the boot, which is not checked, is complete.
    begun: bool,
    ended: bool,
    report: Report,
    trouble: Vec<String>,
    last: Last,
    /// Those of a kernel log that is separate.
    kernel_last: Last,
}

/// The last lines of a log.
#[derive(Default)]
struct Last(VecDeque<String>);

impl Last {
    fn push(&mut self, line: &str) {
        self.0.push_back(line.to_owned());
        if self.0.len() > TAIL {
            self.0.pop_front();
        }
    }
}

impl<'a> Watch<'a> {
    fn new(guest: &Guest<'a>, log: File) -> Result<Self> {
        Ok(Self {
            peer: guest.fate.and_then(Fate::peer),
            scan: Scan::new(guest.shortage)?,
            log,
            echo: guest.echo,
            exit: None,
            begun: false,
            ended: false,
            report: Report::default(),
            trouble: Vec::new(),
            last: Last::default(),
            kernel_last: Last::default(),
        })
    }

    /// Reads lines until the guest has ended; returns true if it was stopped by the timeout.
    fn follow(
        &mut self,
        lines: &Receiver<String>,
        start: Instant,
        guest: &Guest<'_>,
    ) -> Result<bool> {
        let deadline = start + guest.timeout;
        while !self.ended {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(&line)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Err(RecvTimeoutError::Timeout) => return Ok(true),
            }
        }
        Ok(false)
    }

    fn take(&mut self, line: &str) -> Result<()> {
        writeln!(self.log, "{line}")?;
        self.judge(line);
        if let Some(said) = line.strip_prefix("smc-vm: ") {
            if let Some(code) = said.strip_prefix("exit ") {
                self.exit = code.trim().parse().ok();
            }
            if said.trim() == "kill peer" && !self.peer.is_some_and(Power::cut) {
                self.trouble.push(
                    "(asks for a guest to be killed that is not to be, or is not there)".to_owned(),
                );
            }
            self.ended |= said.trim() == "end";
            return Ok(());
        }
        // After the exit line there are only leak reports and kernel messages.
        if self.exit.is_none() && !self.scan.is_kernel(line) {
            self.report.take(line);
            if self.echo && self.begun {
                println!("{line}");
            }
        }
        self.last.push(line);
        Ok(())
    }

    fn judge(&mut self, line: &str) {
        self.begun |= line.ends_with("smc-vm: begin");
        if !self.begun {
            return;
        }
        if let Some(said) = self.scan.trouble(line) {
            self.trouble.push(said);
        }
    }

    /// Checks a kernel log that was separate from the script's output.
    fn kernel(&mut self, text: &[u8]) {
        for line in String::from_utf8_lossy(text).lines() {
            self.judge(line);
            self.kernel_last.push(line);
        }
    }
}
