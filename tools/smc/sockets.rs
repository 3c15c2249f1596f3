// SPDX-License-Identifier: GPL-2.0

//! `smc ss`: the sockets of this network namespace and their paths.
//!
//! Uses `sock_diag`. If the module has not registered AF_SMC there, as the C module of a kernel without
//! `CONFIG_SMC_DIAG`, inspects the descriptors of all processes of this namespace that the caller may trace.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

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
        Some(pid) => Inspected::default().of_process(pid)?,
        None => listed(from_diag(), is_loaded, of_all_processes)?,
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

/// Returns the answer of `sock_diag`, or what `processes` have if it knows no AF_SMC though a module is loaded.
fn listed(
    answer: io::Result<Vec<Line>>,
    is_loaded: impl FnOnce() -> io::Result<bool>,
    processes: impl FnOnce() -> io::Result<Vec<Line>>,
) -> io::Result<Vec<Line>> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => match is_loaded()? {
            true => processes(),
            false => Err(not_loaded(error)),
        },
        answer => answer,
    }
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
    out::error(
        "smc: sock_diag knows no AF_SMC (no module smc_diag); listed are processes that you may inspect",
    );
    let own = namespace("self")?;
    let mut inspected = Inspected::default();
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may have exited, or may belong to another user.
        if namespace(pid).is_ok_and(|namespace| namespace == own) {
            lines.extend(inspected.of_process(pid).unwrap_or_default());
        }
    }
    Ok(lines)
}

/// Returns what identifies the network namespace of a process.
fn namespace(pid: impl Display) -> io::Result<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{pid}/ns/net"))?;
    Ok((file.dev(), file.ino()))
}

/// What is known while processes are inspected.
#[derive(Default)]
struct Inspected {
    /// The sockets of the namespace, if somebody had to ask for them.
    listed: OnceCell<Vec<diag::Entry>>,
    /// Inodes of the sockets that were seen: several processes may have the same, as after fork(2).
    seen: HashSet<u64>,
}

impl Inspected {
    /// Returns the sockets of a process that were not seen before.
    fn of_process(&mut self, pid: i32) -> io::Result<Vec<Line>> {
        let process = Process::open(pid)?;
        let mut lines = Vec::new();

        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let inode = target.to_str().and_then(inode_in);
            let name = entry.file_name();
            let fd = name.to_str().and_then(|name| name.parse().ok());
            let (Some(inode), Some(fd)) = (inode, fd) else {
                continue;
            };
            if self.seen.contains(&inode) {
                continue;
            }
            let Ok(socket) = process.descriptor(fd).map(Socket::from) else {
                continue;
            };
            self.seen.insert(inode);
            if let Some(Kind::Smc(path)) = Kind::of(&socket, &self.listed)? {
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
}

/// Returns the inode of a socket from what the link of its descriptor says.
fn inode_in(target: &str) -> Option<u64> {
    let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
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
    fn processes_are_listed_only_where_sock_diag_knows_no_such_family() {
        let listed = |code, is_loaded: bool| {
            let answer = Err(io::Error::from_raw_os_error(code));
            listed(answer, || Ok(is_loaded), || Ok(Vec::new()))
                .map(|lines| lines.len())
                .map_err(|error| (error.kind(), error.raw_os_error()))
        };
        assert_eq!(listed(libc::ENOENT, true), Ok(0));
        assert_eq!(
            listed(libc::ENOENT, false),
            Err((io::ErrorKind::NotFound, None))
        );
        for code in [libc::EPERM, libc::ENOMEM, libc::EAGAIN, libc::EAFNOSUPPORT] {
            assert_eq!(listed(code, true).unwrap_err().1, Some(code));
        }
    }

    #[test]
    fn a_socket_is_known_by_its_inode() {
        assert_eq!(inode_in("socket:[71]"), Some(71));
        for other in ["pipe:[71]", "socket:[]", "/tmp/socket:[71]", ""] {
            assert_eq!(inode_in(other), None, "{other}");
        }
        assert_eq!(
            namespace("self").unwrap(),
            namespace(std::process::id()).unwrap()
        );
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
