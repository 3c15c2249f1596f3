// SPDX-License-Identifier: GPL-2.0

//! The switch of one `smc run --bpf`: a cgroup, and a process (the holder) that keeps the BPF
//! program attached while there are processes in the cgroup.
//!
//! As with the preload library, the command replaces the calling process, so that its signals and
//! exit code are those of the command. The holder must not be a child of it, since the command
//! would have a child that it did not start.

use std::fs;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use smc_user::poll_fd;

use super::choice::Cgroup;
use super::choose;
use super::named;
use super::program::Attached;
use super::RUN_CGROUP;

/// Printed by the holder once the program is attached.
const READY: &str = "ready";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Start the holder and end
    #[arg(long)]
    fork: bool,
    /// The cgroup, which is removed at the end
    cgroup: PathBuf,
}

/// This process is in a cgroup whose new TCP sockets are SMC sockets.
pub(crate) struct Entered {
    /// When this pipe is closed, the holder begins to wait until the cgroup is empty.
    _hold: ChildStdin,
}

/// See [`super::enter`].
pub(super) fn enter() -> io::Result<Entered> {
    let own = Cgroup::own()?;
    let cgroup = own.path.join(format!("{RUN_CGROUP}{}", std::process::id()));
    fs::create_dir(&cgroup).map_err(|error| named(&cgroup, error))?;
    let entered = keep(&cgroup).and_then(|hold| {
        let file = cgroup.join("cgroup.procs");
        fs::write(&file, "0").map_err(|error| named(&file, error))?;
        Ok(Entered { _hold: hold })
    });
    if entered.is_err() {
        // The holder removes it too, if it is running.
        let _ = fs::remove_dir(&cgroup);
    }
    entered
}

/// Starts the holder and waits until the program is attached.
fn keep(cgroup: &Path) -> io::Result<ChildStdin> {
    let mut between = command(cgroup)?
        .arg("--fork")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (Some(hold), Some(says)) = (between.stdin.take(), between.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    between.wait()?;
    let mut line = String::new();
    BufReader::new(says).read_line(&mut line)?;
    match line.trim_end() {
        READY => Ok(hold),
        "" => Err(io::Error::other(
            "the process that keeps the switch does not start",
        )),
        text => Err(io::Error::other(text.to_string())),
    }
}

fn command(cgroup: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["switch", "keep"]).arg(cgroup);
    Ok(command)
}

/// Runs the holder, or the intermediate process that starts it.
pub(super) fn run(arguments: &Arguments) -> io::Result<()> {
    if arguments.fork {
        // A process group of its own receives no signals from the terminal.
        command(&arguments.cgroup)?.process_group(0).spawn()?;
        return Ok(());
    }
    let mut out = io::stdout();
    let attached = match attach(&arguments.cgroup) {
        Ok(attached) => attached,
        Err(error) => {
            writeln!(out, "{error}")?;
            return Err(error);
        }
    };
    writeln!(out, "{READY}")?;
    // The pipe is closed when the user has entered the cgroup and executes the command, or has
    // failed.
    io::stdin().read_to_end(&mut Vec::new())?;
    await_empty(&arguments.cgroup)?;
    drop(attached);
    remove(&arguments.cgroup)
}

fn attach(cgroup: &Path) -> io::Result<Attached> {
    let cgroup = Cgroup::find(cgroup)?;
    let attached = Attached::now()?;
    choose(&attached.tables.cgroups, &cgroup.key())?;
    Ok(attached)
}

/// Waits until there are no processes in the cgroup and its descendants.
fn await_empty(cgroup: &Path) -> io::Result<()> {
    loop {
        let mut events = match File::open(cgroup.join("cgroup.events")) {
            // Removed by another process.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let mut text = String::new();
        events.read_to_string(&mut text)?;
        if text.lines().any(|line| line == "populated 0") {
            return Ok(());
        }
        // Checked again after 60 s, in case no event is reported.
        let _ = poll_fd(&events, libc::POLLPRI, Duration::from_secs(60));
    }
}

/// Removes the cgroup and its descendants.
fn remove(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    // The last process may still be exiting.
    for _ in 0..50 {
        match fs::remove_dir(cgroup) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
    Ok(())
}
