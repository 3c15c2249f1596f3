// SPDX-License-Identifier: GPL-2.0

//! `smc_run`: runs a TCP program with SMC sockets, with the options of smc-tools.

use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;

use super::version;
use crate::out;
use crate::run;
use crate::run::bytes;
use crate::run::not_started;
use crate::run::Start;

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    debug: bool,
    help: bool,
    version: bool,
    rcvbuf: Option<String>,
    sndbuf: Option<String>,
    command: Vec<OsString>,
}

pub(super) fn run(arguments: &[OsString]) -> ExitCode {
    let call = match parse(arguments) {
        Ok(call) => call,
        Err(text) => return fail(&text),
    };
    if call.help || call.version {
        let said = match call.help {
            true => out::lines(USAGE),
            false => out::line(version("smc_run")),
        };
        return match said {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        };
    }
    for (name, size) in [("rmem_max", &call.rcvbuf), ("wmem_max", &call.sndbuf)] {
        raise(name, size.as_deref());
    }
    let start = Start {
        debug: call.debug,
        rcvbuf: call.rcvbuf.as_deref(),
        sndbuf: call.sndbuf.as_deref(),
        command: &call.command,
    };
    let error = run::start(&start);
    fail(&error.to_string());
    not_started(&error)
}

fn fail(text: &str) -> ExitCode {
    out::error(format_args!("smc_run: Error: {text}"));
    ExitCode::FAILURE
}

const USAGE: [&str; 6] = [
    "Usage: smc_run [ OPTIONS ] COMMAND",
    "  -d        say what happens to each socket",
    "  -h        print this; also --help",
    "  -r SIZE   receive buffer in bytes",
    "  -t SIZE   send buffer in bytes",
    "  -v        print the version; also --version",
];

/// Parses options as getopts of the shell does: letters may be combined, and the first argument
/// that is no option begins the command. The long words are those of the other tools.
fn parse(arguments: &[OsString]) -> Result<Call, String> {
    let mut call = Call::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let option = word.to_str().and_then(|word| word.strip_prefix('-'));
        let Some(letters) = option.filter(|rest| !rest.is_empty()) else {
            call.command = std::iter::once(word).chain(words).map(Into::into).collect();
            break;
        };
        let letters = match letters {
            "-" => {
                call.command = words.map(Into::into).collect();
                break;
            }
            "-help" => "h",
            "-version" => "v",
            letters => letters,
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let place = match letter {
                'd' => {
                    call.debug = true;
                    continue;
                }
                // What follows does not matter, even if it is wrong.
                'h' => {
                    call.help = true;
                    return Ok(call);
                }
                'v' => {
                    call.version = true;
                    return Ok(call);
                }
                'r' => &mut call.rcvbuf,
                't' => &mut call.sndbuf,
                letter => return Err(format!("Unknown option: -{letter}")),
            };
            let rest: String = letters.by_ref().collect();
            let size = Some(rest)
                .filter(|rest| !rest.is_empty())
                .or_else(|| Some(words.next()?.to_string_lossy().into_owned()));
            let size = size.ok_or_else(|| format!("Option -{letter} requires a value"))?;
            *place = Some(checked(size)?);
        }
    }
    match call.command.is_empty() {
        true => Err("Missing command parameter".to_string()),
        false => Ok(call),
    }
}

fn checked(size: String) -> Result<String, String> {
    match bytes(&size) {
        Some(_) => Ok(size),
        None => Err(format!("Invalid buffer size specified: '{size}'")),
    }
}

/// Raises a limit of `net.core` to the buffer size, if permitted.
fn raise(name: &str, size: Option<&str>) {
    let path = format!("/proc/sys/net/core/{name}");
    let Some(wanted) = size.and_then(bytes) else {
        return;
    };
    let limit = fs::read_to_string(&path).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u64>().ok());
    if limit.is_some_and(|limit| limit < wanted) {
        // Without privileges the limit remains, and restricts the buffer size.
        let _ = fs::write(&path, wanted.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::super::definitions::options_of;
    use super::*;

    fn parsed(line: &str) -> Result<Call, String> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        parse(&words)
    }

    #[test]
    fn the_options_of_the_command_are_its_own() {
        let call = parsed("-d -r 65536 iperf3 -c host -t 3").unwrap();
        assert!(call.debug && call.sndbuf.is_none());
        assert_eq!(call.rcvbuf.as_deref(), Some("65536"));
        assert_eq!(call.command, ["iperf3", "-c", "host", "-t", "3"]);
        let call = parsed("-dt100 -- -odd").unwrap();
        assert_eq!((call.debug, call.sndbuf.as_deref()), (true, Some("100")));
        assert_eq!(call.command, ["-odd"]);
    }

    #[test]
    fn each_option_of_the_manual_page_is_taken() {
        for mut words in options_of("smc_run") {
            words.push("ls".to_string());
            let call = parsed(&words.join(" ")).unwrap();
            assert_ne!(call, parsed("ls").unwrap(), "{words:?}");
        }
    }

    #[test]
    fn sizes_may_have_a_unit() {
        let call = parsed("-r 64K -t1m ls").unwrap();
        assert_eq!(call.rcvbuf.as_deref(), Some("64K"));
        assert_eq!(call.sndbuf.as_deref(), Some("1m"));
        assert_eq!((bytes("64K"), bytes("1m")), (Some(65_536), Some(1 << 20)));
        assert_eq!((bytes("7"), bytes("")), (Some(7), None));
    }

    #[test]
    fn wrong_calls_are_refused() {
        for line in [
            "-d",
            "-x ls",
            "-r 64g ls",
            "-r k ls",
            "-t +1 ls",
            "-r",
            "-t",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_first_of_help_and_version_ends_the_options() {
        for line in ["-v", "-vx", "-v -r", "-dv -h"] {
            let call = parsed(line).unwrap();
            assert!(call.version && !call.help, "{line}");
        }
        for line in ["-h", "-h -x", "-hv"] {
            let call = parsed(line).unwrap();
            assert!(call.help && !call.version, "{line}");
        }
        assert!(parsed("-xv").is_err());
        assert!(parsed("--help").unwrap().help && parsed("-d --version").unwrap().version);
        assert!(parsed("--debug ls").is_err());
    }
}
