// SPDX-License-Identifier: GPL-2.0

//! `smc switch`: turns the TCP sockets of chosen cgroups and programs into SMC sockets, by a BPF program
//! that the kernel asks for the protocol of each new socket. It needs no library in the program, so it
//! covers static programs and those that make their system calls themselves.

mod choice;
mod keeper;
mod program;

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use clap::Subcommand;
use libbpf_rs::ErrorKind;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use serde::Serialize;
use smc_user::Errno;
use smc_user::Socket;

use crate::table::json;
use choice::Cgroup;
use choice::Name;
use keeper::Entered;
use program::failed;
use program::Attached;

/// Where the parts of the switch have names while it is on.
const FOLDER: &str = "/sys/fs/bpf/smc";

/// What to turn on or off.
#[derive(clap::Args)]
pub(crate) struct Targets {
    /// A cgroup (version 2): its folder, or its path below the root; those below it count as well
    #[arg(
        long = "cgroup",
        value_name = "PATH",
        required_unless_present = "programs"
    )]
    cgroups: Vec<PathBuf>,

    /// A program, by the name in /proc/PID/comm (the first 15 bytes of its file's name)
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<Name>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print what is switched
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// From now on new TCP sockets of these are SMC sockets
    Add(Targets),
    /// From now on new TCP sockets of these are TCP sockets again
    Del(Targets),
    /// Switch nothing any more
    Off,
    /// Keeps the switch of one `smc run --bpf`
    #[command(hide = true)]
    Keep(keeper::Arguments),
}

/// Carries the command out.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    match command {
        Command::Show { json } => show(*json),
        Command::Add(targets) => add(targets),
        Command::Del(targets) => remove(targets),
        Command::Off => off(),
        Command::Keep(arguments) => keeper::run(arguments),
    }
    .map_err(with_need)
}

/// Makes a cgroup below that of this process, has its sockets switched, and enters it. What is started from
/// here on belongs to it.
pub(crate) fn enter() -> io::Result<Entered> {
    check_module()?;
    keeper::enter().map_err(with_need)
}

/// Says who may, to those who may not.
fn with_need(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let text = format!("{error}; BPF programs need root, or CAP_BPF and CAP_PERFMON");
            io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

/// Fails, with what is missing, unless SMC sockets can be made by the protocol. Loads the module if the
/// system does so for a socket.
fn check_module() -> io::Result<()> {
    match Socket::open(libc::AF_INET, libc::SOCK_STREAM, smc_uapi::IPPROTO_SMC) {
        Ok(_) => Ok(()),
        Err(Errno::EPROTONOSUPPORT) => Err(io::Error::other(
            "the SMC module is not loaded, or has no IPPROTO_SMC",
        )),
        Err(error) => Err(io::Error::other(format!(
            "no SMC socket can be made: {error}"
        ))),
    }
}

/// The two maps of the switch.
struct Tables {
    cgroups: MapHandle,
    programs: MapHandle,
}

impl Tables {
    fn of(map: impl Fn(&str) -> io::Result<MapHandle>) -> io::Result<Self> {
        Ok(Self {
            cgroups: map("cgroups")?,
            programs: map("programs")?,
        })
    }

    /// Those of the switch that is on; `None` if it is off.
    fn open(folder: &Path) -> io::Result<Option<Self>> {
        // The link comes last and goes first.
        if !folder.join("link").try_exists()? {
            return Ok(None);
        }
        let open = |name: &str| {
            let path = folder.join(name);
            MapHandle::from_pinned_path(&path).map_err(|error| named(&path, failed(error)))
        };
        Self::of(open).map(Some)
    }

    fn is_empty(&self) -> bool {
        self.cgroups
            .keys()
            .chain(self.programs.keys())
            .next()
            .is_none()
    }
}

/// Has the program in the kernel find a key.
fn choose(map: &MapHandle, key: &[u8]) -> io::Result<()> {
    map.update(key, &[1], MapFlags::ANY).map_err(failed)
}

fn named(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn add(targets: &Targets) -> io::Result<()> {
    check_module()?;
    // All are looked at before any is changed.
    let cgroups = cgroups(targets)?;
    let folder = Path::new(FOLDER);
    let tables = match Tables::open(folder)? {
        Some(tables) => tables,
        None => install(folder)?,
    };
    for cgroup in &cgroups {
        choose(&tables.cgroups, &cgroup.key())?;
    }
    for program in &targets.programs {
        choose(&tables.programs, &program.key())?;
    }
    Ok(())
}

fn cgroups(targets: &Targets) -> io::Result<Vec<Cgroup>> {
    let found = targets.cgroups.iter().map(|path| Cgroup::find(path));
    found.collect()
}

/// Attaches the program and names its parts.
fn install(folder: &Path) -> io::Result<Tables> {
    let parent = folder.parent().unwrap_or(folder);
    if !choice::mounted("bpf")?.iter().any(|place| place == parent) {
        let text = format!(
            "no BPF file system keeps the switch: mount -t bpf bpf {}",
            parent.display()
        );
        return Err(io::Error::other(text));
    }
    let Attached {
        mut link,
        mut tables,
    } = Attached::now()?;
    // Left over by one that was interrupted: without a link it does nothing.
    off()?;
    fs::create_dir(folder)?;
    let failed = |error| named(folder, failed(error));
    tables.cgroups.pin(folder.join("cgroups")).map_err(failed)?;
    tables
        .programs
        .pin(folder.join("programs"))
        .map_err(failed)?;
    link.pin(folder.join("link")).map_err(failed)?;
    Ok(tables)
}

fn remove(targets: &Targets) -> io::Result<()> {
    let Some(tables) = Tables::open(Path::new(FOLDER))? else {
        return Err(io::Error::other("the switch is off"));
    };
    let del = |map: &MapHandle, key: &[u8], what: &str| {
        map.delete(key).map_err(|error| match error.kind() {
            ErrorKind::NotFound => io::Error::other(format!("{what} is not switched")),
            _ => failed(error),
        })
    };
    for path in &targets.cgroups {
        let cgroup = Cgroup::find(path)?;
        del(&tables.cgroups, &cgroup.key(), &path.to_string_lossy())?;
    }
    for program in &targets.programs {
        del(&tables.programs, &program.key(), &program.to_string())?;
    }
    match tables.is_empty() {
        true => off(),
        false => Ok(()),
    }
}

/// Takes the names away; the program goes with the link's, which is the first.
fn off() -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    gone(fs::remove_file(folder.join("link")))?;
    gone(fs::remove_dir_all(folder))
}

/// What is switched, for people and for JSON.
#[derive(Debug, Default, Serialize)]
struct Shown {
    on: bool,
    cgroups: Vec<String>,
    programs: Vec<String>,
}

fn show(as_json: bool) -> io::Result<()> {
    let mut shown = Shown::default();
    if let Some(tables) = Tables::open(Path::new(FOLDER))? {
        shown.on = true;
        let ids: Vec<u64> = tables
            .cgroups
            .keys()
            .filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)))
            .collect();
        shown.cgroups = choice::paths(&ids);
        let names = tables.programs.keys();
        shown.programs = names.map(|key| choice::text(&key)).collect();
        shown.programs.sort_unstable();
    }
    if as_json {
        return json(&shown);
    }
    match shown.on {
        true => println!("The switch is on."),
        false => println!("The switch is off."),
    }
    shown
        .cgroups
        .iter()
        .for_each(|path| println!("cgroup {path}"));
    shown
        .programs
        .iter()
        .for_each(|name| println!("program {name}"));
    Ok(())
}
