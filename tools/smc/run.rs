// SPDX-License-Identifier: GPL-2.0

//! `smc run`: starts a program with the preload library, as `smc_run` of smc-tools does, or with a
//! BPF program that converts its sockets.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;

use crate::out;
use crate::switch;

/// The preload library's file name.
const LIBRARY: &str = "libsmc_preload.so";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Say on standard error what happens to each socket
    #[arg(short = 'd', long)]
    debug: bool,

    /// Switch its sockets by a BPF program instead of a library; for static programs, those that make
    /// their system calls themselves, are of 32 bits, are setuid or have capabilities. Needs root
    #[arg(long, conflicts_with_all = ["debug", "rcvbuf", "sndbuf"])]
    bpf: bool,

    /// Receive buffer of the sockets, in bytes or with k or m
    #[arg(short = 'r', long, value_name = "SIZE", value_parser = size)]
    rcvbuf: Option<String>,

    /// Send buffer of the sockets, in bytes or with k or m
    #[arg(short = 't', long, value_name = "SIZE", value_parser = size)]
    sndbuf: Option<String>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The program to start, and its settings.
pub(crate) struct Start<'a> {
    pub(crate) debug: bool,
    pub(crate) rcvbuf: Option<&'a str>,
    pub(crate) sndbuf: Option<&'a str>,
    pub(crate) command: &'a [OsString],
}

/// Replaces this process with the command; returns only on failure.
///
/// An error is one of this program's own; a command that could not be started has an exit code.
pub(crate) fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let error = match arguments.bpf {
        true => start_switched(&arguments.command)?,
        false => start(&Start {
            debug: arguments.debug,
            rcvbuf: arguments.rcvbuf.as_deref(),
            sndbuf: arguments.sndbuf.as_deref(),
            command: &arguments.command,
        }),
    };
    out::error(format_args!("smc: {error}"));
    Ok(not_started(&error))
}

/// As [`start`], in a cgroup whose sockets are converted; fails if there can be none.
fn start_switched(command: &[OsString]) -> io::Result<io::Error> {
    let Some((program, rest)) = command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let _entered = switch::enter()?;
    Ok(become_command(Command::new(program).args(rest)))
}

/// Replaces this process with the command and its settings; returns the error.
pub(crate) fn start(how: &Start<'_>) -> io::Error {
    let Some((program, rest)) = how.command.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    let list = match preload_list(env::var_os("LD_PRELOAD"), &library()) {
        Ok(list) => list,
        Err(error) => return error,
    };
    let mut command = Command::new(program);

    command
        .args(rest)
        .env("LD_PRELOAD", list)
        .env("SMC_DEBUG", if how.debug { "1" } else { "0" });
    if let Some(size) = how.rcvbuf {
        command.env("SMC_RCVBUF", size);
    }
    if let Some(size) = how.sndbuf {
        command.env("SMC_SNDBUF", size);
    }

    become_command(&mut command)
}

/// Returns the exit code of a command that could not be started, as shells and env(1) have it.
pub(crate) fn not_started(error: &io::Error) -> ExitCode {
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    })
}

/// Replaces this process, and leaves it an ignored SIGPIPE; returns the error.
fn become_command(command: &mut Command) -> io::Error {
    let error = smc_user::exec(command);
    let program = Path::new(command.get_program());
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}

/// Finds the library in the directory of this program or in `lib/smc-rs` next to that.
///
/// Otherwise returns the file name, for which the dynamic linker searches.
fn library() -> PathBuf {
    let beside = |exe: &Path| {
        let folder = exe.parent()?;
        let places = [
            folder.join(LIBRARY),
            folder.join("../lib/smc-rs").join(LIBRARY),
        ];
        places.into_iter().find(|place| place.exists())
    };

    env::current_exe()
        .ok()
        .and_then(|exe| beside(&exe))
        .unwrap_or_else(|| PathBuf::from(LIBRARY))
}

/// Appends `library` to the value of LD_PRELOAD; fails if the dynamic linker would take its path for several, as it
/// divides the list at blanks and colons.
fn preload_list(before: Option<OsString>, library: &Path) -> io::Result<OsString> {
    let path = library.as_os_str().as_bytes();
    if path
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
    {
        let text = format!(
            "{}: a library in a folder with a blank or a colon in its name cannot be preloaded",
            library.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(match before {
        Some(mut list) if !list.is_empty() => {
            list.push(":");
            list.push(library);
            list
        }
        _ => library.into(),
    })
}

/// Returns how many bytes a size is, which may be in KiB (`k`) or MiB (`m`).
pub(crate) fn bytes(size: &str) -> Option<u64> {
    let number = size.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match size.get(number.len()..)? {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        _ => return None,
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number
        .parse::<u64>()
        .ok()
        .filter(|_| is_number)?
        .checked_mul(unit)
}

/// Checks that the library accepts the size.
fn size(text: &str) -> Result<String, String> {
    /// The kernel takes an `int`.
    const MOST: u64 = i32::MAX as u64;
    match bytes(text) {
        Some(1..=MOST) => Ok(text.to_string()),
        _ => Err(format!(
            "expected a number of bytes, with k or m if you like, up to {MOST}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_before_stays_first() {
        let list = |before: Option<&str>| {
            preload_list(before.map(OsString::from), Path::new("/lib/a.so")).unwrap()
        };
        assert_eq!(list(None), "/lib/a.so");
        assert_eq!(list(Some("")), "/lib/a.so");
        assert_eq!(list(Some("b.so")), "b.so:/lib/a.so");
    }

    #[test]
    fn a_library_that_would_be_taken_for_two_is_refused() {
        for path in ["/my tools/a.so", "/opt/1:2/a.so", "/opt/x\ty/a.so"] {
            let error = preload_list(Some("b.so".into()), Path::new(path)).unwrap_err();
            assert!(error.to_string().starts_with(path), "{error}");
            assert_eq!(not_started(&error), ExitCode::from(126));
        }
    }

    #[test]
    fn sizes_that_the_library_would_ignore_are_refused() {
        assert!(size("65536").is_ok() && size("64k").is_ok() && size("1M").is_ok());
        assert!(size("").is_err() && size("0").is_err() && size("64kk").is_err());
        assert!(size("2047m").is_ok() && size("2147483647").is_ok());
        assert!(size("2048m").is_err() && size("2147483648").is_err());
    }
}
