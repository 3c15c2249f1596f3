// SPDX-License-Identifier: GPL-2.0

//! `smc ss`: the sockets of this network namespace and their paths.
//!
//! Uses `sock_diag`. If the module has not registered AF_SMC there, as the C module of a kernel without
//! `CONFIG_SMC_DIAG`, inspects the descriptors of all processes that the caller may trace.

use std::cell::OnceCell;
use std::fs;
use std::io;

use serde::Serialize;
use smc_tools::diag;
use smc_tools::diag::Dmb;
use smc_tools::diag::State;
use smc_tools::path::Kind;
use smc_tools::path::Path;
use smc_user::inspect::Process;
use smc_user::Address;
use smc_user::Socket;

use crate::out;
use crate::table::json;
use crate::table::not_loaded;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// List listening and unconnected sockets too
    #[arg(short, long)]
    all: bool,

    /// Look at the descriptors of this process instead of asking sock_diag
    #[arg(short, long)]
    pid: Option<i32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of the list.
struct Line {
    local: String,
    peer: String,
    path: Path,
    /// Its state, if `sock_diag` tells; of a process only whether it listens or is not connected.
    state: Option<State>,
    /// The shared memory of SMC-D, if `sock_diag` tells.
    dmb: Option<Dmb>,
}

/// A line in the JSON output.
#[derive(Serialize)]
struct Record<'a> {
    local: &'a str,
    peer: &'a str,
    /// Whether data passes over RDMA or shared memory.
    smc: bool,
    /// The path as text.
    path: String,
    /// The name of its state, as in `smcss`.
    state: Option<String>,
    /// The reason codes of a fallback: own, and the peer's.
    reason: Option<(u32, u32)>,
    /// The shared memory of SMC-D. The other end of the connection has `token` as its `peer_token`.
    smcd: Option<&'a Dmb>,
}

impl Line {
    fn listens(&self) -> bool {
        self.state == Some(State::LISTEN)
    }

    fn record(&self) -> Record<'_> {
        Record {
            local: &self.local,
            peer: &self.peer,
            smc: self.path.is_smc(),
            path: self.path.to_string(),
            state: self.state.map(|state| state.to_string()),
            reason: match self.path {
                Path::Fallback(fallback) => Some((fallback.reason, fallback.peer)),
                _ => None,
            },
            smcd: self.dmb.as_ref(),
        }
    }

    /// Returns the last column. The tokens tell which socket is the other end, also one of another
    /// network namespace.
    fn path(&self) -> String {
        match &self.dmb {
            _ if self.listens() && self.path == Path::Unconnected => "listens".to_string(),
            _ if self.listens() => format!("listens; {}", self.path),
            Some(dmb) => format!(
                "{} (token {:016x}, the peer's {:016x})",
                self.path, dmb.token, dmb.peer_token
            ),
            None => self.path.to_string(),
        }
    }
}

/// Prints one line for each socket.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    let lines = match arguments.pid {
        Some(pid) => of_process(pid, &OnceCell::new())?,
        None => match from_diag() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_loaded()? => {
                return Err(not_loaded(error));
            }
            Err(_) => of_all_processes()?,
            Ok(lines) => lines,
        },
    };

    let is_shown =
        |line: &&Line| arguments.all || !(line.listens() || line.path == Path::Unconnected);
    let lines: Vec<_> = lines.iter().filter(is_shown).collect();
    if arguments.json {
        return json(&lines.iter().map(|line| line.record()).collect::<Vec<_>>());
    }
    let row = |local: &str, peer: &str, path: &str| format!("{local:<24} {peer:<24} {path}");
    out::line(row("Local address", "Peer address", "Path"))?;
    out::lines(
        lines
            .iter()
            .map(|line| row(&line.local, &line.peer, &line.path())),
    )
}

fn from_diag() -> io::Result<Vec<Line>> {
    let line = |entry: &diag::Entry| Line {
        local: entry.local.to_string(),
        peer: entry.peer.to_string(),
        path: Path::from_diag(entry),
        state: Some(entry.state),
        dmb: entry.dmb.clone(),
    };
    Ok(diag::sockets()?.iter().map(line).collect())
}

/// Returns whether a module has registered its protocols.
fn is_loaded() -> io::Result<bool> {
    Ok(has_smc(&fs::read_to_string("/proc/net/protocols")?))
}

fn has_smc(protocols: &str) -> bool {
    let mut names = protocols.lines().map(|line| line.split(' ').next());
    names.any(|name| name == Some("SMC"))
}

fn of_all_processes() -> io::Result<Vec<Line>> {
    let listed = OnceCell::new();
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process may have exited, or may belong to another user.
        lines.extend(of_process(pid, &listed).unwrap_or_default());
    }
    Ok(lines)
}

fn of_process(pid: i32, listed: &OnceCell<Vec<diag::Entry>>) -> io::Result<Vec<Line>> {
    let process = Process::open(pid)?;
    let mut lines = Vec::new();

    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let Some(fd) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if !is_socket {
            continue;
        }
        let Ok(socket) = process.descriptor(fd).map(Socket::from) else {
            continue;
        };
        if let Some(Kind::Smc(path)) = Kind::of(&socket, listed)? {
            lines.push(Line {
                local: show(socket.local_address()),
                peer: show(socket.peer_address()),
                state: state(&socket, &path),
                path,
                dmb: None,
            });
        }
    }
    Ok(lines)
}

/// Returns the state of a socket that is not connected.
fn state(socket: &Socket, path: &Path) -> Option<State> {
    match socket.option_int(libc::SOL_SOCKET, libc::SO_ACCEPTCONN) {
        Ok(1) => Some(State::LISTEN),
        _ => (*path == Path::Unconnected).then_some(State::INIT),
    }
}

fn show(address: smc_user::Result<Address>) -> String {
    match address.map(|address| address.to_ip()) {
        Ok(Some(ip)) => ip.to_string(),
        _ => "-".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_protocol() {
        let others = "protocol  size sockets\nINET_SMC  1\nMPTCP 1\nTCP  2 3\n";
        assert!(!has_smc(others));
        assert!(has_smc(&format!("{others}SMC       1200      0\n")));
    }

    #[test]
    fn a_listener_listens() {
        let line = |path, state| Line {
            local: "[::]:7000".to_string(),
            peer: "[::]:0".to_string(),
            path,
            state: Some(state),
            dmb: None,
        };
        let listener = line(Path::Unconnected, State::LISTEN);
        assert_eq!(listener.path(), "listens");
        let json = serde_json::to_value(listener.record()).unwrap();
        assert_eq!(json["state"], "LISTEN");
        let of_tcp = line(Path::Fallback(Default::default()), State::LISTEN);
        assert_eq!(of_tcp.path(), "listens; TCP: no reason given");
        assert_eq!(line(Path::Unconnected, State::INIT).path(), "not connected");
    }

    #[test]
    fn shared_memory_is_shown_with_its_tokens() {
        let mut line = Line {
            local: "10.9.0.1:7000".to_string(),
            peer: "10.9.0.2:40000".to_string(),
            path: Path::SmcD,
            state: Some(State::ACTIVE),
            dmb: Some(Dmb {
                group: 0x100,
                gid: [1, 2],
                token: 0xa1,
                peer_gid: [1, 2],
                peer_token: 0xa2,
            }),
        };
        let expected = "SMC-D (token 00000000000000a1, the peer's 00000000000000a2)";
        assert_eq!(line.path(), expected);
        let json = serde_json::to_value(line.record()).unwrap();
        assert_eq!(
            (&json["smc"], &json["path"]),
            (&true.into(), &"SMC-D".into())
        );
        assert_eq!(json["smcd"]["peer_token"], "00000000000000a2");
        line.dmb = None;
        assert_eq!(line.path(), "SMC-D");
        let json = serde_json::to_value(line.record()).unwrap();
        assert!(json["smcd"].is_null());
    }
}
