// SPDX-License-Identifier: GPL-2.0

//! `smc switch`: converts the TCP sockets of selected cgroups and programs to SMC sockets, by a BPF
//! program that the kernel calls to choose the protocol of each new socket. Needs no library in the
//! program, and so also works for static programs and those that make system calls directly.

mod choice;
mod holder;
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

use crate::libbpf::failed;
use crate::table::json;
use choice::Cgroup;
use choice::Name;
use holder::Entered;
use program::Attached;

/// Directory of the pinned objects (link, program, maps) while the switch is on.
const FOLDER: &str = "/sys/fs/bpf/smc";

/// The cgroups and programs to add or remove.
#[derive(clap::Args, Debug, Default, PartialEq, Eq)]
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
    /// Switch what a file lists, and nothing else
    #[command(
        after_help = "A line is what show prints: `cgroup PATH` or `program NAME`. Empty lines, and those that \
                            begin with #, do not count."
    )]
    Load {
        /// The file
        file: PathBuf,
    },
    /// Switch nothing any more
    Off,
    /// Keeps the switch of one `smc run --bpf`
    #[command(hide = true)]
    Keep(holder::Arguments),
}

/// Runs the subcommand.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    match command {
        Command::Show { json } => show(*json),
        Command::Add(targets) => add(targets),
        Command::Del(targets) => remove(targets),
        Command::Load { file } => load(file),
        Command::Off => off(),
        Command::Keep(arguments) => holder::run(arguments),
    }
    .map_err(with_need)
}

/// Creates a cgroup below that of this process, converts its sockets, and enters it. Children of
/// this process belong to it from then on.
pub(crate) fn enter() -> io::Result<Entered> {
    check_module()?;
    holder::enter().map_err(with_need)
}

/// Adds the required privileges to the message of a permission error.
pub(crate) fn with_need(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let text = format!("{error}; BPF programs need root, or CAP_BPF and CAP_PERFMON");
            io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

/// Returns an error with the reason unless sockets of IPPROTO_SMC can be opened. May cause the
/// kernel to load the module.
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

/// The two maps of the BPF program.
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

    /// Opens the pinned maps; `None` if the switch is off.
    fn open(folder: &Path) -> io::Result<Option<Self>> {
        // The link is pinned last and removed first.
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

/// Adds a key to a map of the BPF program.
fn choose(map: &MapHandle, key: &[u8]) -> io::Result<()> {
    map.update(key, &[1], MapFlags::ANY).map_err(failed)
}

fn named(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn add(targets: &Targets) -> io::Result<()> {
    check_module()?;
    // Resolve all before any is changed.
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

fn load(file: &Path) -> io::Result<()> {
    let text = fs::read_to_string(file).map_err(|error| named(file, error))?;
    let targets = parse(&text).map_err(|error| named(file, error))?;
    // As in `add`: nothing changes if any cannot be resolved.
    cgroups(&targets)?;
    off()?;
    match targets == Targets::default() {
        true => Ok(()),
        false => add(&targets),
    }
}

/// Parses lines as `show` prints them.
fn parse(text: &str) -> io::Result<Targets> {
    let mut targets = Targets::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| io::Error::other(format!("line {}: {what}", number + 1));
        match line.split_once(char::is_whitespace) {
            Some(("cgroup", path)) => targets.cgroups.push(path.trim_start().into()),
            Some(("program", name)) => {
                let name = name.trim_start().parse();
                targets
                    .programs
                    .push(name.map_err(|error: String| wrong(&error))?);
            }
            _ => return Err(wrong("expected `cgroup PATH` or `program NAME`")),
        }
    }
    Ok(targets)
}

fn cgroups(targets: &Targets) -> io::Result<Vec<Cgroup>> {
    let found = targets.cgroups.iter().map(|path| Cgroup::find(path));
    found.collect()
}

/// Attaches the program and pins its link and maps.
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
    // Remove remains of an interrupted attempt, which have no effect without a link.
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

/// Unpins all, beginning with the link, which detaches the program.
fn off() -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    gone(fs::remove_file(folder.join("link")))?;
    gone(fs::remove_dir_all(folder))
}

/// The output of `show`, also as JSON.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lists_cgroups_and_programs() {
        let targets =
            parse("# all web servers\n\n  program\tnginx\ncgroup /system.slice/a b\n#program x")
                .unwrap();
        assert_eq!(targets.cgroups, [PathBuf::from("/system.slice/a b")]);
        assert_eq!(targets.programs, ["nginx".parse().unwrap()]);
        assert_eq!(parse("# nothing\n").unwrap(), Targets::default());
    }

    #[test]
    fn a_wrong_line_is_named() {
        for wrong in [
            "program nginx\nport 80",
            "\nprogram",
            "\nprogram a_name_of_16_byte",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.starts_with("line 2: "), "{error}");
        }
    }
}
