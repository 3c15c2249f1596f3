// SPDX-License-Identifier: GPL-2.0

//! A test connection.

use std::io;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::time::Duration;

use smc_tools::path::Path;
use smc_tools::socket;
use smc_tools::socket::Refused;
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
    /// SMC sockets are not available.
    NoFamily(Refused),
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
    let socket = match socket::open(address.is_ipv6()) {
        Ok(socket) => socket,
        Err(refused) => return Ok(Outcome::NoFamily(refused)),
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
            Outcome::NoFamily(refused) => Finding::no_family(&refused.to_string()),
            Outcome::NoTcp(error) => Finding::no_tcp(&error.to_string()),
            Outcome::NoHandshake(errno) => Finding::no_handshake(&errno.to_string()),
            Outcome::Made(path, _, _) => Finding::of_path(path, facts),
        }
    }
}
