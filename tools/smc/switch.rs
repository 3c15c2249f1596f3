// SPDX-License-Identifier: GPL-2.0

//! `smc switch`: converts the TCP sockets of selected cgroups and programs to SMC sockets, by a BPF
//! program that the kernel calls to choose the protocol of each new socket. Needs no library in the
//! program, and so also works for static programs and those that make system calls directly.

mod choice;
mod entries;
mod holder;
pub(crate) mod process;
mod program;

use std::fmt::Display;
use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use clap::Subcommand;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use nix::fcntl::Flock;
use nix::fcntl::FlockArg;
use serde::Serialize;
use smc_user::Errno;
use smc_user::Socket;

use crate::libbpf::failed;
use crate::out;
use crate::table::json;
use choice::Cgroup;
use choice::Name;
use entries::Entries;
use holder::Entered;
use program::Attached;

/// Directory of the pinned objects (link, program, maps) while the switch is on.
const FOLDER: &str = "/sys/fs/bpf/smc";

/// What the name of the cgroup of a `smc run --bpf` begins with; a number follows.
const RUN_CGROUP: &str = "smc-run-";

/// Locked while the switch is changed. Not in [`FOLDER`], which comes and goes, nor the folder above, which every user
/// could lock.
const LOCK: &str = "/run/smc-switch.lock";

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
    #[command(
        after_help = "A cgroup that was removed is named as show prints it: --cgroup 'id 123 (gone)'. Such \
                      ones go by themselves when something is added."
    )]
    Del(Targets),
    /// Switch what a file lists, in place of what a file listed before; what was added stays
    #[command(
        after_help = "A line is what show prints: `cgroup PATH` or `program NAME`. Empty lines, those that begin \
                      with #, and what else show prints do not count."
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
        Command::Add(targets) => locked(|| add(targets)),
        Command::Del(targets) => locked(|| remove(targets)),
        Command::Load { file } => locked(|| load(file)),
        Command::Off => locked(off),
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
}

/// What both maps select.
#[derive(Clone, Default)]
struct Selected {
    cgroups: Entries,
    programs: Entries,
}

impl Selected {
    fn of(tables: &Tables) -> io::Result<Self> {
        Ok(Self {
            cgroups: Entries::of(&tables.cgroups)?,
            programs: Entries::of(&tables.programs)?,
        })
    }

    /// Removes the cgroups that are not there any more, of which each restart of a service leaves one.
    fn forget_gone(&mut self) {
        if let Some(ids) = choice::all_ids() {
            self.cgroups
                .retain(|key| choice::id(key).is_none_or(|id| ids.contains(&id)));
        }
    }

    fn is_empty(&self) -> bool {
        self.cgroups.is_empty() && self.programs.is_empty()
    }

    fn check(&self) -> io::Result<()> {
        self.cgroups.check("cgroups")?;
        self.programs.check("programs")
    }

    fn write(&self, before: &Self, tables: &Tables) -> io::Result<()> {
        self.cgroups.write(&before.cgroups, &tables.cgroups)?;
        self.programs.write(&before.programs, &tables.programs)
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

/// Calls `change` while no other process changes the switch.
fn locked(change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let path = Path::new(LOCK);
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(false).mode(0o600);
    let file: File = how.open(path).map_err(|error| named(path, error))?;
    let _lock = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| named(path, io::Error::from(error)))?;
    change()
}

fn add(targets: &Targets) -> io::Result<()> {
    check_module()?;
    // Resolve all before any is changed.
    let cgroups = cgroups(targets)?;
    change(|selected| {
        for cgroup in &cgroups {
            selected.cgroups.add(&cgroup.key());
        }
        for program in &targets.programs {
            selected.programs.add(&program.key());
        }
    })
}

fn load(file: &Path) -> io::Result<()> {
    let text = fs::read_to_string(file).map_err(|error| named(file, error))?;
    let targets = parse(&text).map_err(|error| named(file, error))?;
    if targets != Targets::default() {
        check_module()?;
    }
    // As in `add`: nothing changes if any cannot be resolved.
    let cgroups: Vec<_> = cgroups(&targets)?.iter().map(Cgroup::key).collect();
    let programs: Vec<_> = targets.programs.iter().map(Name::key).collect();
    change(|selected| {
        selected.cgroups.replace(cgroups.iter().map(|key| &key[..]));
        let programs = programs.iter().map(|key| &key[..]);
        selected.programs.replace(programs);
    })
}

/// Changes what is selected. Attaches the program if something is and nothing was, and detaches it if nothing is any
/// more. Nothing changes if there is no room for all.
fn change(change: impl FnOnce(&mut Selected)) -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let tables = Tables::open(folder)?;
    let before = tables.as_ref().map(Selected::of).transpose()?;
    let before = before.unwrap_or_default();
    let mut after = before.clone();
    change(&mut after);
    after.forget_gone();
    after.check()?;
    if after.is_empty() {
        return off();
    }
    let tables = tables.map_or_else(|| install(folder), Ok)?;
    after.write(&before, &tables)
}

/// Parses lines as `show` prints them; ignores what is no cgroup or program that there is.
fn parse(text: &str) -> io::Result<Targets> {
    let mut targets = Targets::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || [ON, OFF].contains(&line) {
            continue;
        }
        let wrong = |what: &str| io::Error::other(format!("line {}: {what}", number + 1));
        match line.split_once(char::is_whitespace) {
            Some(("cgroup", path)) if choice::gone(path.trim_start()).is_some() => {}
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
    let before = Selected::of(&tables)?;
    let mut after = before.clone();
    let switched = |was: bool, what: &dyn Display| match was {
        true => Ok(()),
        false => Err(io::Error::other(format!("{what} is not switched"))),
    };
    for path in &targets.cgroups {
        let gone = path.to_str().filter(|_| !path.exists());
        let key = match gone.and_then(choice::gone) {
            Some(id) => id.to_ne_bytes(),
            None => Cgroup::find(path)?.key(),
        };
        switched(after.cgroups.remove(&key), &path.display())?;
    }
    for program in &targets.programs {
        switched(after.programs.remove(&program.key()), program)?;
    }
    match after.is_empty() {
        true => off(),
        false => after.write(&before, &tables),
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

/// First lines of `show`.
const ON: &str = "The switch is on.";
const OFF: &str = "The switch is off.";

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
            .filter_map(|key| choice::id(&key))
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
        true => out::line(ON)?,
        false => out::line(OFF)?,
    }
    out::lines(shown.cgroups.iter().map(|path| format!("cgroup {path}")))?;
    out::lines(shown.programs.iter().map(|name| format!("program {name}")))
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
    fn what_show_prints_can_be_loaded() {
        let shown = "The switch is on.\ncgroup /a\ncgroup id 17 (gone)\nprogram nginx\n";
        assert_eq!(
            parse(shown).unwrap(),
            parse("cgroup /a\nprogram nginx").unwrap()
        );
        assert_eq!(parse("The switch is off.\n").unwrap(), Targets::default());
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
