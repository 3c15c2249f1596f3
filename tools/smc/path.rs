// SPDX-License-Identifier: GPL-2.0

//! Which way a connected socket's data goes, and why.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use smc_proto::reason::Reason;
use smc_user::Socket;

use crate::diag;
use crate::diag::Mode;
use crate::diag::State;

const SOL_SMC: i32 = 286;

/// Option of our own module at level `SOL_SMC`: four `u32`, see [`from_option`].
const SMC_PATH: i32 = 0x5201;

const SOL_SOCKET: i32 = 1;
const SO_DOMAIN: i32 = 39;
const AF_SMC: i32 = 43;

/// The way that a socket's data takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// RDMA, through the link group named if known.
    SmcR(Option<u32>),
    /// Internal shared memory.
    SmcD,
    /// TCP after a fallback, with the reason on this side and the peer's diagnosis.
    Fallback(u32, u32),
    /// A TCP socket from the beginning, or one that does not tell why.
    Tcp,
    /// Not connected.
    Unconnected,
}

impl Path {
    /// Whether the data goes by SMC.
    pub fn is_smc(&self) -> bool {
        matches!(self, Self::SmcR(_) | Self::SmcD)
    }

    /// Asks the kernel about `socket`, in the caller's network namespace.
    ///
    /// Our own module answers by a socket option. The C module is asked by `sock_diag`, and if
    /// that is not loaded, by the socket's domain, which it turns into TCP's at fallback.
    pub fn of(socket: &Socket) -> io::Result<Self> {
        if let Some(path) = from_option(socket) {
            return Ok(path);
        }
        let inode = File::from(OwnedFd::from(socket.duplicate()?))
            .metadata()?
            .ino();
        let listed = diag::sockets().unwrap_or_default();
        if let Some(entry) = listed.iter().find(|entry| entry.inode == inode) {
            return Ok(Self::from_diag(entry));
        }
        if socket.option_int(SOL_SOCKET, SO_DOMAIN)? != AF_SMC {
            return Ok(Self::Tcp);
        }
        Ok(match socket.peer_address() {
            Ok(_) => Self::SmcR(None),
            Err(_) => Self::Unconnected,
        })
    }

    /// The path as `sock_diag` tells it.
    pub fn from_diag(entry: &diag::Entry) -> Self {
        match entry.mode {
            Mode::Tcp => Self::Fallback(entry.reason, entry.peer_diagnosis),
            Mode::SmcD => Self::SmcD,
            Mode::SmcR if matches!(entry.state, State::INIT | State::LISTEN) => Self::Unconnected,
            Mode::SmcR => Self::SmcR(None),
        }
    }
}

/// Reads mode (0 SMC-R, 1 fallback, 3 not connected), reason, peer diagnosis and link group.
fn from_option(socket: &Socket) -> Option<Path> {
    let mut value = [0; 16];
    if socket.option(SOL_SMC, SMC_PATH, &mut value).ok()? != value.len() {
        return None;
    }
    let word = |at| crate::netlink::get_u32(&value, at);

    match word(0)? {
        0 => Some(Path::SmcR(word(12))),
        1 => Some(Path::Fallback(word(4)?, word(8)?)),
        _ => Some(Path::Unconnected),
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SmcR(Some(group)) => write!(f, "SMC-R (link group {group:08x})"),
            Self::SmcR(None) => f.write_str("SMC-R"),
            Self::SmcD => f.write_str("SMC-D"),
            Self::Tcp => f.write_str("TCP"),
            Self::Unconnected => f.write_str("not connected"),
            Self::Fallback(reason, peer) => {
                write!(f, "TCP: {}", in_words(*reason))?;
                match peer {
                    0 => Ok(()),
                    peer => write!(f, "; the peer says: {}", in_words(*peer)),
                }
            }
        }
    }
}

/// A reason code with its sentence.
pub fn in_words(code: u32) -> String {
    match Reason::from_code(code) {
        Some(reason) => format!("{} (0x{code:08x})", reason.sentence().trim_end_matches('.')),
        None if code == 0 => "no reason given".to_string(),
        None => format!("reason 0x{code:08x}"),
    }
}
