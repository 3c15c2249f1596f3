// SPDX-License-Identifier: GPL-2.0
//! Programs that run beside this one, each in a process group of its own, so that nothing is left of them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use procfs::process::{all_processes, Stat};

use crate::run::show;

/// All groups, for [`stop_all`].
struct Groups {
    ids: Vec<Pid>,
    /// No further one may start.
    is_closed: bool,
}

static GROUPS: Mutex<Groups> = Mutex::new(Groups {
    ids: Vec::new(),
    is_closed: false,
});

/// Kills all groups, and lets none start any more: when this program is interrupted, or when the first failure ends a
/// run.
pub(crate) fn stop_all() {
    let mut groups = groups();
    groups.is_closed = true;
    for id in groups.ids.drain(..) {
        let _ = killpg(id, Signal::SIGKILL);
    }
}

fn groups() -> MutexGuard<'static, Groups> {
    // The list is consistent after each statement that changes it.
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that was started; dropping it kills all its processes.
pub(crate) struct Group {
    pub(crate) child: Child,
    id: Pid,
}

impl Group {
    pub(crate) fn start(cmd: &mut Command) -> Result<Self> {
        cmd.process_group(0);
        let mut groups = groups();
        ensure!(!groups.is_closed, "nothing starts any more");
        let child = cmd
            .spawn()
            .with_context(|| format!("cannot run `{}`", show(cmd)))?;
        let id = Pid::from_raw(i32::try_from(child.id())?);
        groups.ids.push(id);
        Ok(Self { child, id })
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Returns the time that its processes have spent on processors, with their children that have ended; to be called
    /// before it is dropped.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let stats = all_processes()?.filter_map(|process| process.ok()?.stat().ok());
        let own = stats.filter(|stat| stat.pgrp == self.id.as_raw());
        let ticks: u64 = own.map(|stat| ticks(&stat)).sum();
        Ok(Duration::from_secs_f64(
            ticks as f64 / procfs::ticks_per_second() as f64,
        ))
    }
}

fn ticks(stat: &Stat) -> u64 {
    let of_children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    stat.utime + stat.stime + of_children
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(self.id, Signal::SIGKILL);
        let _ = self.child.wait();
        groups().ids.retain(|id| *id != self.id);
    }
}

/// Sends each line of a program's output, whatever bytes it has, until that ends or nobody receives them.
pub(crate) fn read_lines(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line)
                .trim_end_matches('\r')
                .to_owned();
            if to.send(line).is_err() {
                return;
            }
        }
    });
}
