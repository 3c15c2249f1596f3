// SPDX-License-Identifier: GPL-2.0

//! The sockets of a process, and why some of them use TCP.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::net::SocketAddr;

use smc_tools::diag;
use smc_tools::path::Kind;
use smc_tools::path::Path;
use smc_tools::socket;
use smc_user::inspect::Process;
use smc_user::Address;
use smc_user::Socket;

use super::facts::Facts;
use super::finding::Finding;
use super::Report;
use crate::switch;
use crate::switch::process::By;

/// Returns a report on each TCP or SMC socket of a process; requires ptrace access to it.
pub(super) fn reports(pid: i32) -> io::Result<Vec<Report>> {
    let (facts, setup) = (Facts::look(), ProcessSetup::of(pid));
    let process = Process::open(pid)?;
    let listed = OnceCell::new();
    let mut reports = Vec::new();
    for fd in sockets(pid)? {
        // The descriptor may have been closed.
        let Ok(socket) = process.descriptor(fd).map(Socket::from) else {
            continue;
        };
        let Some(finding) = finding(&socket, &setup, &facts, &listed)? else {
            continue;
        };
        let local = ip(socket.local_address());
        let peer = ip(socket.peer_address());
        let finding = match facts.is_smcd_off(local, peer) {
            true => finding.with_smcd(),
            false => finding,
        };
        reports.push(Report {
            fd: Some(fd),
            is_tried: false,
            here: facts.that_matter(&finding, local, peer),
            local: show(local),
            peer: show(peer),
            finding,
        });
    }
    Ok(reports)
}

/// Returns the descriptors of the process that are sockets.
fn sockets(pid: i32) -> io::Result<Vec<i32>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("socket:") {
            let name = entry.file_name();
            sockets.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
        }
    }
    sockets.sort_unstable();
    Ok(sockets)
}

/// Returns the finding; `None` for a socket that is neither TCP nor SMC.
fn finding(
    socket: &Socket,
    setup: &ProcessSetup,
    facts: &Facts,
    listed: &OnceCell<Vec<diag::Entry>>,
) -> io::Result<Option<Finding>> {
    let Some(kind) = Kind::of(socket, listed)? else {
        return Ok(None);
    };
    if socket.option_int(libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0 {
        return Ok(Some(Finding::listening(&kind)));
    }
    Ok(Some(match kind {
        Kind::Tcp if socket.peer_address().is_err() => Finding::of_path(&Path::Unconnected, facts),
        Kind::Tcp => setup.finding(),
        Kind::Smc(path) => Finding::of_path(&path, facts),
    }))
}

fn ip(address: smc_user::Result<Address>) -> Option<SocketAddr> {
    address.ok()?.to_ip()
}

fn show(address: Option<SocketAddr>) -> String {
    address.map_or("-".to_string(), |address| address.to_string())
}

/// What decides whether a process can get SMC sockets.
struct ProcessSetup {
    /// Who has its sockets converted by a BPF program.
    by: Option<By>,
    /// It was started by `smc run`.
    is_run: bool,
    /// The preload library is loaded.
    has_library: bool,
    /// SMC sockets are available.
    has_family: bool,
    /// Its system calls are filtered (seccomp).
    is_filtered: bool,
}

impl ProcessSetup {
    fn of(pid: i32) -> Self {
        let read = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        Self {
            by: switch::process::by(pid),
            is_run: read("environ")
                .split(|byte| *byte == 0)
                .any(|variable| variable.starts_with(b"LD_PRELOAD=") && has_name(variable)),
            has_library: has_name(&read("maps")),
            has_family: socket::open(false).is_ok(),
            is_filtered: is_filtered(&String::from_utf8_lossy(&read("status"))),
        }
    }

    fn finding(&self) -> Finding {
        let by_library = self.has_library.then_some("smc run");
        let means = self.by.map(By::name).or(by_library);
        if let Some(means) = means.filter(|_| !self.has_family) {
            return Finding::plain(
                "NOT_SMC/no-module",
                &format!("The program runs under {means}, but this machine gives no SMC sockets, so it got a TCP socket."),
                "Load the module (modprobe smc) and start the program again.",
            );
        }
        match self.by {
            Some(By::Run) => return Finding::plain(
                "NOT_SMC/past-bpf",
                "The program runs under smc run --bpf, but got this socket by io_uring, from another process, or while the module was not loaded.",
                "Have who made the socket run under smc run --bpf, too; or have it ask for IPPROTO_SMC, or set TCP_ULP to smc on its sockets.",
            ),
            Some(By::Switch) => return Finding::plain(
                "NOT_SMC/before-switch",
                "The switch is on for the program (smc switch show), but it got this socket before that; or by io_uring, from another process, or while the module was not loaded.",
                "Restart the program: the switch is for new sockets. If that changes nothing, have it ask for IPPROTO_SMC, or set TCP_ULP to smc on its sockets.",
            ),
            None => {}
        }
        match (self.is_run, self.has_library) {
            (_, true) if self.is_filtered => Finding::plain(
                "NOT_SMC/filter",
                "The program runs under smc run, but its system calls are filtered (seccomp), and the filter may refuse SMC sockets; or it got this socket past the C library's socket(2).",
                "Have the filter allow protocol 256 (IPPROTO_SMC) for AF_INET and AF_INET6, or AF_SMC (systemd: RestrictAddressFamilies, SystemCallFilter; containers: the seccomp profile).",
            ),
            (_, true) => Finding::plain(
                "NOT_SMC/own-call",
                "The program runs under smc run, but got this socket past the C library's socket(2): by a system call of its own, as Go does, by io_uring, or from another process.",
                "Start it by smc run --bpf, but for io_uring; or have it ask for IPPROTO_SMC, or set TCP_ULP to smc on its sockets.",
            ),
            (true, false) => Finding::plain(
                "NOT_SMC/no-library",
                "The program runs under smc run, but did not load the library that this preloads: it is linked statically, is of 32 bits, or runs with more rights than its user (setuid, capabilities of its file).",
                "Start it by smc run --bpf; or have it ask for IPPROTO_SMC, or set TCP_ULP to smc on its sockets; or link it dynamically.",
            ),
            (false, false) => Finding::plain(
                "NOT_SMC/not-run",
                "Nothing turned this TCP socket into an SMC socket: the program asks for TCP, was not started by smc run, and is none for which the switch is on.",
                "Start it by smc run, or switch it on (smc switch add) and restart it; or have it ask for IPPROTO_SMC, or set TCP_ULP to smc on its sockets.",
            ),
        }
    }
}

/// Returns whether `/proc/PID/status` shows a filter: mode 2 of seccomp(2).
fn is_filtered(status: &str) -> bool {
    let mut lines = status.lines();
    lines.any(|line| {
        line.strip_prefix("Seccomp:")
            .is_some_and(|mode| mode.trim() == "2")
    })
}

/// Returns whether the name of our preload library, or that of smc-tools, occurs.
fn has_name(bytes: &[u8]) -> bool {
    let names: [&[u8]; 2] = [b"libsmc_preload", b"libsmc-preload"];
    let is_there = |name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
    names.into_iter().any(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tcp_socket_says_how_it_missed_smc() {
        let id = |is_run, has_library, has_family| {
            let setup = ProcessSetup {
                by: None,
                is_run,
                has_library,
                has_family,
                is_filtered: false,
            };
            setup.finding().id
        };
        assert_eq!(id(false, false, true), "NOT_SMC/not-run");
        assert_eq!(id(true, false, true), "NOT_SMC/no-library");
        assert_eq!(id(true, true, true), "NOT_SMC/own-call");
        assert_eq!(id(true, true, false), "NOT_SMC/no-module");
    }

    #[test]
    fn a_socket_that_missed_the_switch_is_older() {
        let finding = |by, has_family| {
            let setup = ProcessSetup {
                by: Some(by),
                is_run: false,
                has_library: false,
                has_family,
                is_filtered: true,
            };
            setup.finding()
        };
        assert_eq!(finding(By::Switch, true).id, "NOT_SMC/before-switch");
        assert_eq!(finding(By::Run, true).id, "NOT_SMC/past-bpf");
        for (by, name) in [(By::Switch, "smc switch,"), (By::Run, "smc run --bpf,")] {
            let finding = finding(by, false);
            assert_eq!(finding.id, "NOT_SMC/no-module");
            assert!(finding.sentence.contains(name), "{}", finding.sentence);
        }
    }

    #[test]
    fn a_filter_is_named_where_there_is_one() {
        let setup = ProcessSetup {
            by: None,
            is_run: true,
            has_library: true,
            has_family: true,
            is_filtered: is_filtered("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"),
        };
        assert_eq!(setup.finding().id, "NOT_SMC/filter");
        assert!(!is_filtered("Seccomp:\t0\nSeccomp_filters:\t2\n"));
    }

    #[test]
    fn both_preload_libraries_are_known() {
        assert!(has_name(b"LD_PRELOAD=/usr/lib/libsmc_preload.so"));
        assert!(has_name(b"LD_PRELOAD=:libsmc-preload.so.1"));
        assert!(!has_name(b"LD_PRELOAD=libsmc.so"));
    }
}
