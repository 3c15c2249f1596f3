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
    to_any(target, resolve(target)?)
}

/// Resolves `HOST:PORT`; an IPv6 address is in brackets and may have a scope, as `[fe80::1%eth0]:80`.
fn resolve(target: &str) -> io::Result<Vec<SocketAddr>> {
    let named = |error: io::Error| {
        let text = format!("{target}: {error} (HOST:PORT is wanted)");
        io::Error::new(error.kind(), text)
    };
    let parts = target
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let no_port = || named(io::Error::new(io::ErrorKind::InvalidInput, "no port"));
    let (host, port) = parts.ok_or_else(no_port)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    // Without brackets the last number could be a part of the address.
    if bare.is_none() && host.contains(':') {
        return Err(no_port());
    }
    let addresses = (bare.unwrap_or(host), port).to_socket_addrs();
    Ok(addresses.map_err(named)?.collect())
}

/// Connects to the first of these addresses that is reachable over TCP.
pub(crate) fn to_any(target: &str, addresses: Vec<SocketAddr>) -> io::Result<Attempt> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_host_and_a_port() {
        let first = |target: &str| Some(resolve(target).ok()?.first()?.to_string());
        for target in ["10.9.0.2:7000", "[fd00:9::2]:7000"] {
            assert_eq!(first(target).as_deref(), Some(target));
        }
        for target in [
            "10.9.0.2",
            "10.9.0.2:x",
            "[fd00:9::2]",
            "fd00:9::2:7000",
            ":70000",
        ] {
            assert_eq!(first(target), None, "{target}");
        }
    }

    #[test]
    fn an_address_of_one_interface_has_its_name() {
        for target in ["[fe80::1%lo]:80", "[fe80::1%1]:80"] {
            let address = resolve(target).unwrap().remove(0);
            assert!(
                matches!(address, SocketAddr::V6(v6) if v6.scope_id() == 1 && v6.port() == 80),
                "{address}"
            );
        }
    }
}
