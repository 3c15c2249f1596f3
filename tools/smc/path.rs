// SPDX-License-Identifier: GPL-2.0

//! The path of a connected socket's data, SMC or TCP, and the reason.

use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use smc_proto::cause::Cause;
use smc_proto::reason::Reason;
use smc_uapi::AF_SMC;
use smc_uapi::IPPROTO_SMC;
use smc_uapi::SMC_INFO;
use smc_uapi::SMC_INFO_MODE_SMCD;
use smc_uapi::SMC_INFO_MODE_SMCR;
use smc_uapi::SMC_INFO_MODE_TCP;
use smc_uapi::SOL_SMC;
use smc_user::Socket;
use zerocopy::FromBytes as _;

use crate::diag;
use crate::diag::Mode;
use crate::diag::State;

/// The path of a socket's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// RDMA; with the link group if known.
    SmcR(Option<u32>),
    /// Internal shared memory.
    SmcD,
    /// TCP after a fallback.
    Fallback(Fallback),
    /// TCP without a fallback, or the reason is unknown.
    Tcp,
    /// Not connected.
    Unconnected,
}

/// Why a connection fell back, as reason codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallback {
    /// The reason on this side.
    pub reason: u32,
    /// The reason in the peer's DECLINE; 0 if it did not decline.
    pub peer: u32,
    /// What exactly was missing here; 0 if unknown, as always with the C module.
    pub cause: u32,
    /// The role: one of `SMC_ROLE_*`; 0 if unknown.
    pub end: u32,
}

impl Path {
    /// Returns whether the data passes over SMC.
    pub fn is_smc(&self) -> bool {
        matches!(self, Self::SmcR(_) | Self::SmcD)
    }

    /// Returns the path of `socket`, which must belong to the caller's network namespace.
    ///
    /// Our module provides it by a socket option. For the C module, `sock_diag` is used, and if
    /// that is not loaded, the domain of the socket, which a fallback changes to that of TCP.
    pub fn of(socket: &Socket) -> io::Result<Self> {
        Self::among(socket, &OnceCell::new())
    }

    /// As [`Path::of`], for many sockets: `listed` caches the list of the namespace.
    pub fn among(socket: &Socket, listed: &OnceCell<Vec<diag::Entry>>) -> io::Result<Self> {
        if let Some(path) = from_option(socket) {
            return Ok(path);
        }
        let inode = File::from(OwnedFd::from(socket.duplicate()?))
            .metadata()?
            .ino();
        let listed = listed.get_or_init(|| diag::sockets().unwrap_or_default());
        if let Some(entry) = listed.iter().find(|entry| entry.inode == inode) {
            return Ok(Self::from_diag(entry));
        }
        if !is_made_for_smc(socket)? {
            return Ok(Self::Tcp);
        }
        Ok(match socket.peer_address() {
            Ok(_) => Self::SmcR(None),
            Err(_) => Self::Unconnected,
        })
    }

    /// Converts an entry of `sock_diag`.
    pub fn from_diag(entry: &diag::Entry) -> Self {
        match entry.mode {
            Mode::Tcp => Self::Fallback(Fallback {
                reason: entry.reason,
                peer: entry.peer_diagnosis,
                cause: entry.cause,
                end: entry.end,
            }),
            Mode::SmcD => Self::SmcD,
            Mode::SmcR if matches!(entry.state, State::INIT | State::LISTEN) => Self::Unconnected,
            Mode::SmcR => Self::SmcR(None),
        }
    }
}

/// What a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An SMC socket, by AF_SMC, by `IPPROTO_SMC`, or by `TCP_ULP`; with its path.
    Smc(Path),
    /// A TCP socket.
    Tcp,
}

impl Kind {
    /// Returns what `socket` is; `None` if it is neither. `listed` is as for [`Path::among`].
    pub fn of(socket: &Socket, listed: &OnceCell<Vec<diag::Entry>>) -> io::Result<Option<Self>> {
        let option = |name| socket.option_int(libc::SOL_SOCKET, name);
        let is_smc = is_made_for_smc(socket)?;
        let is_tcp = [libc::AF_INET, libc::AF_INET6].contains(&option(libc::SO_DOMAIN)?)
            && option(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
        if option(libc::SO_TYPE)? != libc::SOCK_STREAM || !(is_smc || is_tcp) {
            return Ok(None);
        }
        Ok(Some(match Path::among(socket, listed)? {
            Path::Tcp if is_tcp => Self::Tcp,
            path => Self::Smc(path),
        }))
    }
}

/// Returns whether the socket was made as an SMC socket, and has not been converted to one.
fn is_made_for_smc(socket: &Socket) -> io::Result<bool> {
    let option = |name| socket.option_int(libc::SOL_SOCKET, name);
    Ok(option(libc::SO_DOMAIN)? == AF_SMC || option(libc::SO_PROTOCOL)? == IPPROTO_SMC)
}

/// Reads the socket option of our module.
fn from_option(socket: &Socket) -> Option<Path> {
    let mut value = [0; size_of::<smc_uapi::Info>()];
    if socket.option(SOL_SMC, SMC_INFO, &mut value).ok()? != value.len() {
        return None;
    }
    let info = smc_uapi::Info::read_from_bytes(&value).ok()?;
    Some(match info.mode {
        SMC_INFO_MODE_SMCR => Path::SmcR(Some(info.lgr_id)),
        SMC_INFO_MODE_SMCD => Path::SmcD,
        SMC_INFO_MODE_TCP => Path::Fallback(Fallback {
            reason: info.reason,
            peer: info.peer_diagnosis,
            cause: info.cause,
            end: info.role,
        }),
        _ => Path::Unconnected,
    })
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SmcR(Some(group)) => write!(f, "SMC-R (link group {group:08x})"),
            Self::SmcR(None) => f.write_str("SMC-R"),
            Self::SmcD => f.write_str("SMC-D"),
            Self::Tcp => f.write_str("TCP"),
            Self::Unconnected => f.write_str("not connected"),
            Self::Fallback(fallback) => {
                match Cause::from_code(fallback.cause) {
                    Some(cause) => {
                        let sentence = cause.sentence().trim_end_matches('.');
                        write!(f, "TCP: {sentence} (0x{:08x})", fallback.reason)?;
                    }
                    None => write!(f, "TCP: {}", in_words(fallback.reason))?,
                }
                match fallback.peer {
                    0 => Ok(()),
                    peer => write!(f, "; the peer says: {}", in_words(peer)),
                }
            }
        }
    }
}

/// Returns the description of a reason code.
pub fn in_words(code: u32) -> String {
    match Reason::from_code(code) {
        Some(reason) => format!("{} (0x{code:08x})", reason.sentence().trim_end_matches('.')),
        None if code == 0 => "no reason given".to_string(),
        None => format!("reason 0x{code:08x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_neither_smc_nor_tcp_is_none_of_both() {
        let kind = |domain, kind| {
            let socket = Socket::open(domain, kind, 0).unwrap();
            Kind::of(&socket, &OnceCell::from(Vec::new())).unwrap()
        };
        assert_eq!(kind(libc::AF_INET, libc::SOCK_STREAM), Some(Kind::Tcp));
        assert_eq!(kind(libc::AF_INET, libc::SOCK_DGRAM), None);
        assert_eq!(kind(libc::AF_UNIX, libc::SOCK_STREAM), None);
    }
}
