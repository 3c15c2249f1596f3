// SPDX-License-Identifier: GPL-2.0

//! `smcr` and `smcd`: an object and a command. Both may be abbreviated.

use std::io;
use std::process::ExitCode;

use smc_tools::genl::Ueids;
use smc_tools::view::Module;

use super::failed;
use super::report;
use super::report::Filter;
use super::report::Layout;
use super::smc_stats;
use super::version;

const OBJECTS: [&str; 7] = [
    "device",
    "linkgroup",
    "info",
    "stats",
    "ueid",
    "seid",
    "help",
];

/// The first of those that begin with what was given is meant.
const OPTIONS: [&str; 6] = ["absolute", "version", "details", "ddetails", "help", "V"];

/// Why a call fails.
enum Refused {
    /// A usage error with this message and exit code 1.
    Usage(String),
    /// Words that its object does not have, or a call for help.
    Words,
    Failed(io::Error),
    /// EIDs were not shown or changed.
    Eid(io::Error),
    /// There is no system EID to change.
    NoSeid,
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// The exit code -1, truncated to 8 bits.
const MINUS_ONE: u8 = 255;

pub(super) fn run(name: &str, arguments: &[String]) -> ExitCode {
    let (options, words): (Vec<_>, Vec<_>) = arguments
        .iter()
        .map(String::as_str)
        .partition(|word| word.starts_with('-'));
    let (mut details, mut absolute) = (0, false);
    for option in options.into_iter().filter(|option| *option != "--") {
        let letters = option.trim_start_matches('-');
        if letters.starts_with("ad") || letters.starts_with("da") {
            (details, absolute) = (1, true);
            continue;
        }
        match whole(letters, &OPTIONS) {
            // Each option takes the place of those before it, as with smc-tools.
            Some("absolute") => (details, absolute) = (0, true),
            Some("details") => (details, absolute) = (1, false),
            Some("ddetails") => (details, absolute) = (2, false),
            Some("help") => {
                println!("{}", usage(name));
                return ExitCode::SUCCESS;
            }
            Some(_) => {
                eprintln!("{}", version(name));
                return ExitCode::from(MINUS_ONE);
            }
            None => {
                eprintln!("Error: Option \"{option}\" is unknown, try \"{name} help\".");
                return ExitCode::from(MINUS_ONE);
            }
        }
    }
    let call = Call {
        is_smcd: name == "smcd",
        details,
        absolute,
    };
    match call.run(name, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refused::Usage(text)) => {
            eprintln!("Error: {text}, try \"{name} help\".");
            ExitCode::FAILURE
        }
        Err(Refused::Words) => {
            eprintln!("{}", usage(name));
            ExitCode::from(MINUS_ONE)
        }
        Err(Refused::Failed(error)) => failed(&error),
        Err(Refused::Eid(error)) => {
            failed(&error);
            ExitCode::from(MINUS_ONE)
        }
        Err(Refused::NoSeid) => {
            println!("Error: System EID not available");
            ExitCode::from(MINUS_ONE)
        }
    }
}

fn usage(name: &str) -> String {
    let mut lines = [
        format!("Usage: {name} [-v] [-d] [-dd] [-a] OBJECT {{COMMAND | help}}").as_str(),
        "  linkgroup [show | link-show] [all | LG-ID] [ibdev NAME] [netdev NAME]",
        "  device [show] [all] [ibdev NAME] [netdev NAME]",
        "  info [show]",
        "  stats [show | reset | json]",
        "  ueid [show | add EID | del EID | flush]",
    ]
    .join("\n");
    if name == "smcd" {
        lines.push_str("\n  seid [show | enable | disable]");
    }
    lines
}

/// Returns the first of `words` that begins with `cut`.
fn whole<'a>(cut: &str, words: &[&'a str]) -> Option<&'a str> {
    let found = words.iter().copied().find(|word| word.starts_with(cut));
    found.filter(|_| !cut.is_empty())
}

struct Call {
    is_smcd: bool,
    details: u32,
    /// Counters since the module was loaded.
    absolute: bool,
}

impl Call {
    fn run(&self, name: &str, words: &[&str]) -> Result<(), Refused> {
        let Some((object, rest)) = words.split_first() else {
            println!("{}", usage(name));
            return Ok(());
        };
        match whole(object, &OBJECTS) {
            Some("device") => self.devices(rest),
            Some("linkgroup") => self.groups(rest),
            Some("info") => match command(rest, &["show"]).1 {
                [] => Ok(report::info(&mut Module::open()?)?),
                _ => Err(Refused::Words),
            },
            Some("stats") => self.stats(rest),
            Some("ueid") => ueid(rest),
            Some("seid") if self.is_smcd => seid(rest),
            Some("seid") => Err(Refused::Usage(
                "Object \"seid\" is valid for SMC-D only".to_string(),
            )),
            Some(_) => {
                println!("{}", usage(name));
                Ok(())
            }
            None => Err(Refused::Usage(format!("Object \"{object}\" is unknown"))),
        }
    }

    fn layout(&self) -> Layout {
        match self.details {
            0 => Layout::Short,
            1 => Layout::Long,
            _ => Layout::Longest,
        }
    }

    fn groups(&self, words: &[&str]) -> Result<(), Refused> {
        let (command, rest) = command(words, &["show", "link-show"]);
        let filter = filter(rest)?;
        let mut module = Module::open()?;
        match (self.is_smcd, command) {
            (true, "show") => report::smcd_groups(&mut module, &filter, self.layout())?,
            (false, "show") => report::groups(&mut module, &filter, self.layout())?,
            (false, _) => report::links(&mut module, &filter, self.layout())?,
            (true, _) => return Err(Refused::Words),
        }
        Ok(())
    }

    fn devices(&self, words: &[&str]) -> Result<(), Refused> {
        let filter = filter(command(words, &["show"]).1)?;
        let mut module = Module::open()?;
        match self.is_smcd {
            true => report::smcd_devices(&mut module)?,
            false => report::devices(&mut module, &filter, self.layout())?,
        }
        Ok(())
    }

    fn stats(&self, words: &[&str]) -> Result<(), Refused> {
        let (command, rest) = command(words, &["show", "reset", "json"]);
        if !rest.is_empty() {
            return Err(Refused::Words);
        }
        let call = smc_stats::Call {
            is_smcd: self.is_smcd,
            details: self.details > 0,
            absolute: self.absolute,
            json: command == "json",
            reset: command == "reset",
        };
        Ok(call.run()?)
    }
}

/// Returns the command and the arguments after it; the first of `commands` by default.
fn command<'a, 'b>(words: &'b [&'b str], commands: &[&'a str]) -> (&'a str, &'b [&'b str]) {
    let named = words
        .split_first()
        .and_then(|(word, rest)| Some((whole(word, commands)?, rest)));
    named.unwrap_or((commands.first().copied().unwrap_or_default(), words))
}

fn filter(words: &[&str]) -> Result<Filter, Refused> {
    let mut filter = Filter::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(|name| (*name).to_string());
        match whole(word, &["help", "all", "ibdev", "netdev"]) {
            Some("help") => return Err(Refused::Words),
            Some("all") => {}
            Some("ibdev") => filter.device = value(),
            Some(_) => filter.netdev = value(),
            None => match u32::from_str_radix(word, 16) {
                Ok(id) => filter.group = Some(id),
                Err(_) => return Err(Refused::Words),
            },
        }
    }
    Ok(filter)
}

fn ueid(words: &[&str]) -> Result<(), Refused> {
    let (command, rest) = command(words, &["show", "add", "delete", "flush"]);
    let mut ueids = Ueids::open()?;
    match (command, rest) {
        ("show", []) => {
            let list = ueids.list().map_err(Refused::Eid)?;
            list.iter().for_each(|eid| println!("{eid}"));
        }
        ("flush", []) => ueids.flush().map_err(Refused::Eid)?,
        ("add", [eid]) => change(ueids.add(eid)).map_err(Refused::Eid)?,
        ("delete", [eid]) => change(ueids.remove(eid)).map_err(Refused::Eid)?,
        _ => return Err(Refused::Words),
    }
    Ok(())
}

/// Converts errors of adding or removing an EID to messages.
fn change(result: io::Result<()>) -> io::Result<()> {
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    const EINVAL: i32 = 22;
    const ERANGE: i32 = 34;
    result.map_err(|error| {
        let text = match error.raw_os_error() {
            Some(ENOENT) => "specified User EID is not defined",
            Some(EEXIST) => "specified User EID is already defined",
            Some(EINVAL) => "specified User EID is invalid",
            Some(ERANGE) => "maximum number of User EIDs is defined already",
            _ => return error,
        };
        io::Error::other(text)
    })
}

fn seid(words: &[&str]) -> Result<(), Refused> {
    let (command, []) = command(words, &["show", "enable", "disable"]) else {
        return Err(Refused::Words);
    };
    let mut module = Module::open()?;
    match (command, module.seid()?) {
        ("show", Some((seid, true))) => println!("{seid} [enabled]"),
        ("show", Some((seid, false))) => println!("{seid} [disabled]"),
        ("show", None) => println!("n/a"),
        (_, None) => return Err(Refused::NoSeid),
        ("enable", Some(_)) => module.call(smc_uapi::SMC_NETLINK_ENABLE_SEID)?,
        (_, Some(_)) => module.call(smc_uapi::SMC_NETLINK_DISABLE_SEID)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_cut() {
        assert_eq!(whole("d", &OBJECTS), Some("device"));
        assert_eq!(whole("link", &OBJECTS), Some("linkgroup"));
        assert_eq!(whole("s", &OBJECTS), Some("stats"));
        assert_eq!(whole("x", &OBJECTS), None);
        assert_eq!(whole("", &OBJECTS), None);
        let (name, rest) = command(&["link", "all"], &["show", "link-show"]);
        assert_eq!((name, rest), ("link-show", &["all"][..]));
        assert_eq!(command(&["all"], &["show"]), ("show", &["all"][..]));
    }

    #[test]
    fn a_filter_takes_names_and_a_hexadecimal_id() {
        let Ok(filter) = filter(&["00000100", "ibdev", "mlx5_0"]) else {
            panic!("refused");
        };
        assert_eq!(filter.group, Some(0x100));
        assert_eq!(filter.device.as_deref(), Some("mlx5_0"));
        assert!(super::filter(&["nonsense"]).is_err());
    }
}
