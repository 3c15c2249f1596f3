// SPDX-License-Identifier: GPL-2.0

//! A test connection.

use std::io;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::time::Duration;

use smc_tools::path::Path;
use smc_uapi::AF_SMC;
use smc_user::Errno;
use smc_user::Socket;

use super::facts::Facts;
use super::finding::Finding;

/// Time limit of a connection; the time limits of a handshake add up to less, but for a SYN that is not answered.
const WAIT: Duration = Duration::from_secs(30);

/// Time limit of a TCP connection.
const TCP_WAIT: Duration = Duration::from_secs(5);

/// The result of an attempt.
enum Outcome {
    /// AF_SMC sockets are not available.
    NoFamily(Errno),
    /// TCP cannot connect, either.
    NoTcp(io::Error),
    /// TCP connects, but an SMC socket does not.
    NoHandshake(Errno),
    /// Connected; the socket stays open until the report is complete.
    Made(Path, Option<SocketAddr>, Socket),
}

/// The result of connecting to one address.
pub(crate) struct Attempt(Outcome);

/// Connects to the first address of `HOST:PORT` that is reachable over TCP.
pub(crate) fn make(target: &str) -> io::Result<Attempt> {
    let addresses = target.to_socket_addrs().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{target}: {error} (HOST:PORT is wanted)"),
        )
    })?;
    let mut last = None;
    for address in addresses {
        match connect(address)? {
            Outcome::NoTcp(error) => last = Some(Outcome::NoTcp(error)),
            outcome => return Ok(Attempt(outcome)),
        }
    }
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("{target} has no address"));
    last.map(Attempt).ok_or_else(none)
}

fn connect(address: SocketAddr) -> io::Result<Outcome> {
    let protocol = i32::from(address.is_ipv6());
    let socket = match Socket::open(AF_SMC, libc::SOCK_STREAM, protocol) {
        Ok(socket) => socket,
        Err(errno) => return Ok(Outcome::NoFamily(errno)),
    };
    socket.set_timeout(WAIT)?;
    if let Err(errno) = socket.connect(address) {
        return Ok(match TcpStream::connect_timeout(&address, TCP_WAIT) {
            Ok(_) => Outcome::NoHandshake(errno),
            Err(error) => Outcome::NoTcp(error),
        });
    }
    let local = socket.local_address().ok().and_then(|local| local.to_ip());
    Ok(Outcome::Made(Path::of(&socket)?, local, socket))
}

impl Attempt {
    /// Returns the local address.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match &self.0 {
            Outcome::Made(_, local, _) => *local,
            Outcome::NoFamily(_) | Outcome::NoTcp(_) | Outcome::NoHandshake(_) => None,
        }
    }

    /// Returns the peer's address.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match &self.0 {
            Outcome::Made(_, _, socket) => socket.peer_address().ok()?.to_ip(),
            Outcome::NoFamily(_) | Outcome::NoTcp(_) | Outcome::NoHandshake(_) => None,
        }
    }

    /// Returns whether the server may have seen a connection.
    pub(crate) fn is_tried(&self) -> bool {
        !matches!(self.0, Outcome::NoFamily(_))
    }

    /// Returns the socket, if it is connected.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.0 {
            Outcome::Made(_, _, socket) => Some(socket),
            Outcome::NoFamily(_) | Outcome::NoTcp(_) | Outcome::NoHandshake(_) => None,
        }
    }

    /// Returns the finding.
    pub(crate) fn finding(&self, facts: &Facts) -> Finding {
        match &self.0 {
            Outcome::NoFamily(errno) => Finding::no_family(&errno.to_string()),
            Outcome::NoTcp(error) => Finding::no_tcp(&error.to_string()),
            Outcome::NoHandshake(errno) => Finding::no_handshake(&errno.to_string()),
            Outcome::Made(path, _, _) => Finding::of_path(path, facts),
        }
    }
}
