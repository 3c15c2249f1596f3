// SPDX-License-Identifier: GPL-2.0

//! The switch of one `smc run --bpf`: a cgroup of its own, and a process that keeps the program attached
//! for as long as somebody is in there.
//!
//! The command replaces the process that was called, as with the preload library, so that its signals and
//! its exit code are its own. The keeper is no child of it, or the command would find one that it does not
//! know.

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

/// What the keeper says once the program is attached.
const READY: &str = "ready";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Start the keeper and end
    #[arg(long)]
    fork: bool,
    /// The cgroup, which is removed at the end
    cgroup: PathBuf,
}

/// This process in a cgroup of its own, whose new TCP sockets are SMC sockets.
pub(crate) struct Entered {
    /// The keeper begins to watch the cgroup once this is closed.
    _hold: ChildStdin,
}

/// See [`super::enter`].
pub(super) fn enter() -> io::Result<Entered> {
    let own = Cgroup::own()?;
    let cgroup = own.path.join(format!("smc-run-{}", std::process::id()));
    fs::create_dir(&cgroup).map_err(|error| named(&cgroup, error))?;
    let entered = keep(&cgroup).and_then(|hold| {
        let file = cgroup.join("cgroup.procs");
        fs::write(&file, "0").map_err(|error| named(&file, error))?;
        Ok(Entered { _hold: hold })
    });
    if entered.is_err() {
        // The keeper does it too, if there is one.
        let _ = fs::remove_dir(&cgroup);
    }
    entered
}

/// Starts the keeper and waits until the program is attached.
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

/// The keeper itself, and the process between it and its user.
pub(super) fn run(arguments: &Arguments) -> io::Result<()> {
    if arguments.fork {
        // Neither keys nor the end of the terminal concern it.
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
    // The end comes when the user has entered and becomes the command, or has given up.
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

/// Waits until neither the cgroup nor one below it has a process.
fn await_empty(cgroup: &Path) -> io::Result<()> {
    loop {
        let mut events = match File::open(cgroup.join("cgroup.events")) {
            // Somebody else has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let mut text = String::new();
        events.read_to_string(&mut text)?;
        if text.lines().any(|line| line == "populated 0") {
            return Ok(());
        }
        // Whether it is told or not, it is looked at again.
        let _ = poll_fd(&events, libc::POLLPRI, Duration::from_secs(60));
    }
}

/// Removes the cgroup and those that its processes made below it.
fn remove(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    // The last process may still be leaving.
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
