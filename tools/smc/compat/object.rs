// SPDX-License-Identifier: GPL-2.0

//! `smcr` and `smcd`: an object and a command. Both may be abbreviated.

use std::io;
use std::process::ExitCode;

use smc_tools::genl::Ueids;
use smc_tools::view::Module;

use super::failed;
use super::is_not_loaded;
use super::report;
use super::report::Filter;
use super::report::Layout;
use super::smc_stats;
use super::version;
use crate::out;

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
const OPTIONS: [&str; 5] = ["absolute", "version", "details", "ddetails", "help"];

/// Why a call fails.
enum Refused {
    /// A usage error with this message and exit code 1.
    Usage(String),
    /// Words that its object does not have, or a call for help.
    Words,
    Failed(io::Error),
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

/// What the options before the object ask for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    /// A call with this level of detail, of counters since the module was loaded or not, and the
    /// words after the options.
    Call(u32, bool, &'a [String]),
    Help,
    Version,
    Unknown(&'a str),
}

/// Parses the options. The first word that is none ends them, and `--` does.
fn options(mut arguments: &[String]) -> Asked<'_> {
    let (mut details, mut absolute) = (0, false);
    while let Some((option, rest)) = arguments.split_first() {
        let Some(letters) = option.strip_prefix('-') else {
            break;
        };
        arguments = rest;
        if letters == "-" {
            break;
        }
        let letters = letters.strip_prefix('-').unwrap_or(letters);
        if letters.starts_with("ad") || letters.starts_with("da") {
            (details, absolute) = (1, true);
            continue;
        }
        match whole(letters, &OPTIONS) {
            // Each option takes the place of those before it, as with smc-tools.
            Some("absolute") => (details, absolute) = (0, true),
            Some("details") => (details, absolute) = (1, false),
            Some("ddetails") => (details, absolute) = (2, false),
            Some("help") => return Asked::Help,
            Some(_) => return Asked::Version,
            None => return Asked::Unknown(option),
        }
    }
    Asked::Call(details, absolute, arguments)
}

pub(super) fn run(name: &str, arguments: &[String]) -> ExitCode {
    let (details, absolute, words) = match options(arguments) {
        Asked::Call(details, absolute, words) => (details, absolute, words),
        Asked::Help => {
            out::error(usage(name));
            return ExitCode::SUCCESS;
        }
        Asked::Version => {
            out::error(version(name));
            return ExitCode::from(MINUS_ONE);
        }
        Asked::Unknown(option) => {
            out::error(format_args!(
                "Error: Option \"{option}\" is unknown, try \"{name} help\"."
            ));
            return ExitCode::from(MINUS_ONE);
        }
    };
    let call = Call {
        is_smcd: name == "smcd",
        details,
        absolute,
    };
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match call.run(name, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refused::Usage(text)) => {
            out::error(format_args!("Error: {text}, try \"{name} help\"."));
            ExitCode::FAILURE
        }
        Err(Refused::Words) => {
            out::error(usage(name));
            ExitCode::from(MINUS_ONE)
        }
        Err(Refused::Failed(error)) => {
            let code = failed("Error", &error);
            match is_not_loaded(&error) {
                true => code,
                false => ExitCode::from(MINUS_ONE),
            }
        }
        Err(Refused::NoSeid) => {
            // It ends with an error in any case.
            let _ = out::line("Error: System EID not available");
            ExitCode::from(MINUS_ONE)
        }
    }
}

fn usage(name: &str) -> String {
    let head = format!("Usage: {name} [-v] [-d] [-dd] [-a] OBJECT {{COMMAND | help}}");
    let (groups, devices, seid) = match name {
        "smcd" => (
            "  linkgroup [show] [all | LG-ID]",
            "  device [show] [all]",
            "\n  seid [show | enable | disable]",
        ),
        _ => (
            "  linkgroup [show | link-show] [all | LG-ID] [ibdev NAME] [netdev NAME]",
            "  device [show] [all] [ibdev NAME] [netdev NAME]",
            "",
        ),
    };
    let lines = [
        &head,
        groups,
        devices,
        "  info [show]",
        "  stats [show | reset | json]",
        "  ueid [show | add EID | del EID | flush]",
    ];
    lines.join("\n") + seid
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
            out::error(usage(name));
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
                out::error(usage(name));
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
        let filter = self.filter(rest)?;
        let mut module = Module::open()?;
        match (self.is_smcd, command) {
            // Groups of shared memory have no links.
            (true, _) => report::smcd_groups(&mut module, &filter, self.layout())?,
            (false, "show") => report::groups(&mut module, &filter, self.layout())?,
            (false, _) => report::links(&mut module, &filter, self.layout())?,
        }
        Ok(())
    }

    fn devices(&self, words: &[&str]) -> Result<(), Refused> {
        let filter = self.filter(command(words, &["show"]).1)?;
        if filter.group.is_some() {
            return Err(Refused::Words);
        }
        let mut module = Module::open()?;
        match self.is_smcd {
            true => report::smcd_devices(&mut module)?,
            false => report::devices(&mut module, &filter, self.layout())?,
        }
        Ok(())
    }

    /// Parses what limits a list.
    fn filter(&self, words: &[&str]) -> Result<Filter, Refused> {
        /// Without the number of a link in its group, which is the last byte of a link's UID.
        const GROUP_ID: u32 = 0xffff_ff00;
        let mut filter = Filter::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().map(|name| (*name).to_string());
            match whole(word, &["help", "all", "ibdev", "netdev"]) {
                Some("help") => return Err(Refused::Words),
                Some("all") => {}
                Some(_) if self.is_smcd => return Err(Refused::Words),
                Some("ibdev") => filter.device = value(),
                Some(_) => filter.netdev = value(),
                None => match u32::from_str_radix(word.trim_start_matches("0x"), 16) {
                    Ok(id) if self.is_smcd => filter.group = Some(id),
                    Ok(id) => filter.group = Some(id & GROUP_ID),
                    Err(_) => return Err(Refused::Words),
                },
            }
        }
        Ok(filter)
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

fn ueid(words: &[&str]) -> Result<(), Refused> {
    let (command, rest) = command(words, &["show", "add", "delete", "flush"]);
    let mut ueids = Ueids::open()?;
    match (command, rest) {
        ("show", []) => out::lines(ueids.list()?)?,
        ("flush", []) => ueids.flush()?,
        ("add", [eid]) => change(ueids.add(eid))?,
        ("delete", [eid]) => change(ueids.remove(eid))?,
        _ => return Err(Refused::Words),
    }
    Ok(())
}

/// Converts errors of adding or removing an EID to messages.
fn change(result: io::Result<()>) -> io::Result<()> {
    result.map_err(|error| {
        let text = match error.raw_os_error() {
            Some(libc::ENOENT) => "specified User EID is not defined",
            Some(libc::EEXIST) => "specified User EID is already defined",
            Some(libc::EINVAL) => {
                "specified User EID is invalid: up to 32 of A-Z, 0-9, '.' and '-', of which the first is no \
                 sign, without '..'"
            }
            Some(libc::ERANGE) => "maximum number of User EIDs is defined already",
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
        ("show", Some((seid, true))) => out::line(format_args!("{seid} [enabled]"))?,
        ("show", Some((seid, false))) => out::line(format_args!("{seid} [disabled]"))?,
        ("show", None) => out::line("n/a")?,
        (_, None) => return Err(Refused::NoSeid),
        ("enable", Some(_)) => module.call(smc_uapi::SMC_NETLINK_ENABLE_SEID)?,
        (_, Some(_)) => module.call(smc_uapi::SMC_NETLINK_DISABLE_SEID)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::definitions::options_of;
    use super::*;

    #[test]
    fn each_tool_helps_with_its_own_words() {
        let (smcr, smcd) = (usage("smcr"), usage("smcd"));
        assert!(smcr.contains("link-show") && smcr.contains("ibdev") && !smcr.contains("seid"));
        assert!(smcd.ends_with("\n  seid [show | enable | disable]"));
        assert!(!smcd.contains("link-show") && !smcd.contains("ibdev"));
    }

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

    fn filter(name: &str, words: &[&str]) -> Result<Filter, Refused> {
        let call = Call {
            is_smcd: name == "smcd",
            details: 0,
            absolute: false,
        };
        call.filter(words)
    }

    #[test]
    fn a_filter_takes_names_and_a_hexadecimal_id() {
        let Ok(filtered) = filter("smcr", &["00000100", "ibdev", "mlx5_0"]) else {
            panic!("refused");
        };
        assert_eq!(filtered.group, Some(0x100));
        assert_eq!(filtered.device.as_deref(), Some("mlx5_0"));
        assert!(filter("smcr", &["nonsense"]).is_err());
    }

    #[test]
    fn the_uid_of_a_link_stands_for_its_group() {
        let group = |name, id| filter(name, &[id]).ok().and_then(|filter| filter.group);
        assert_eq!(group("smcr", "00000103"), Some(0x100));
        assert_eq!(group("smcr", "0x103"), Some(0x100));
        assert_eq!(group("smcd", "00000103"), Some(0x103));
    }

    #[test]
    fn shared_memory_has_no_devices_to_filter_by() {
        for words in [["ibdev", "mlx5_0"], ["netdev", "eth0"]] {
            assert!(filter("smcr", &words).is_ok(), "{words:?}");
            assert!(filter("smcd", &words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn each_option_of_the_manual_page_is_taken() {
        for call in ["smcr", "smcd"].into_iter().flat_map(options_of) {
            let asked = options(&call);
            assert!(!matches!(asked, Asked::Unknown(_)), "{asked:?}");
            assert_ne!(asked, Asked::Call(0, false, &[]), "{call:?}");
        }
    }

    #[test]
    fn options_come_before_the_object() {
        let words = |line: &str| Vec::from_iter(line.split_whitespace().map(str::to_owned));
        let check = |line: &str, details, absolute, rest: &str| {
            let (given, rest) = (words(line), words(rest));
            assert_eq!(
                options(&given),
                Asked::Call(details, absolute, &rest),
                "{line}"
            );
        };
        check("info", 0, false, "info");
        check("-d stats json", 1, false, "stats json");
        check("--details stats", 1, false, "stats");
        check("-dd link all", 2, false, "link all");
        check("-a -d stats", 1, false, "stats");
        check("-d -a stats", 0, true, "stats");
        check("-ad stats", 1, true, "stats");
        check("-- -d", 0, false, "-d");
        check("ueid add -A", 0, false, "ueid add -A");
        check("info -d", 0, false, "info -d");
        assert_eq!(options(&words("-v info")), Asked::Version);
        assert_eq!(options(&words("-d --version")), Asked::Version);
        assert_eq!(options(&words("-h")), Asked::Help);
        for option in ["-V", "-x", "-", "--nonsense"] {
            assert_eq!(options(&words(option)), Asked::Unknown(option));
        }
    }
}
