// SPDX-License-Identifier: GPL-2.0

//! The options common to all subcommands: socket family, server address, namespaces of both ends.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::SocketAddrV6;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use clap::Args;
use clap::ValueEnum;
use smc_tools::path::Path;
use smc_user::Errno;
use smc_user::Socket;

use crate::family::Family;
use crate::netns;

/// How long a call may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Attempts to connect after ECONNREFUSED, until the first one succeeds: the server may still be starting.
const CONNECT_ATTEMPTS: u32 = 50;

/// Whether a connection was made: a listener that refuses one after that is at fault.
static HAS_CONNECTED: AtomicBool = AtomicBool::new(false);

/// The path (SMC or TCP) that a test requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Expected {
    /// Either way
    Any,
    /// SMC
    Smc,
    /// SMC-D: both ends are on this kernel
    Smcd,
    /// TCP, after a fallback or from the beginning
    Tcp,
}

#[derive(Args, Clone)]
pub(crate) struct Context {
    /// Family of the client's socket
    #[arg(long, global = true, default_value = "smc")]
    pub(crate) family: Family,

    /// Family of the server's socket, if it is another
    #[arg(long, global = true)]
    pub(crate) server_family: Option<Family>,

    /// Server's address
    #[arg(long, global = true, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) addr: IpAddr,

    /// Server's port
    #[arg(long, global = true, default_value_t = 7000)]
    pub(crate) port: u16,

    /// Network namespace of the client
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) client_netns: Option<String>,

    /// Network namespace of the server
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) server_netns: Option<String>,

    /// The server runs elsewhere (`smctest serve`): do not start one
    #[arg(long, global = true)]
    pub(crate) remote: bool,

    /// Fail unless the data goes this way
    #[arg(long, global = true, default_value = "any")]
    pub(crate) expect: Expected,

    /// Traffic class of the sockets, IP_TOS or IPV6_TCLASS
    #[arg(long, global = true, value_name = "CLASS")]
    pub(crate) tos: Option<u8>,

    /// Seconds after which the whole test counts as hung
    #[arg(
        long,
        global = true,
        default_value_t = 120,
        value_name = "SECONDS",
        overrides_with = "deadline"
    )]
    pub(crate) deadline: u64,
}

impl Context {
    /// The server's socket address.
    ///
    /// A link-local address is on the interface of the calling thread's namespace that has one.
    pub(crate) fn address(&self) -> SocketAddr {
        match self.addr {
            IpAddr::V6(addr) if addr.segments()[0] == 0xfe80 => {
                SocketAddrV6::new(addr, self.port, 0, netns::link_local().unwrap_or(0)).into()
            }
            addr => SocketAddr::new(addr, self.port),
        }
    }

    /// Returns the time limit of the whole test.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline)
    }

    /// Family of the server's socket.
    pub(crate) fn server_family(&self) -> Family {
        self.server_family.unwrap_or(self.family)
    }

    /// Opens a listener at the server's address, in its namespace.
    pub(crate) fn listen(&self, backlog: i32) -> Result<Socket> {
        netns::inside(self.server_netns.as_deref(), || {
            let listener = self
                .server_family()
                .open(self.addr)
                .context("server: socket")?;
            listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            self.set_tos(&listener)?;
            listener
                .bind(self.address())
                .with_context(|| format!("server: bind to {}", self.address()))?;
            listener.listen(backlog).context("server: listen")?;
            Ok(listener)
        })
    }

    /// Has the next connect wait for the server again: another one starts at the address.
    pub(crate) fn await_another_server() {
        HAS_CONNECTED.store(false, Ordering::Relaxed);
    }

    /// Connects to the server and checks the path, SMC or TCP.
    ///
    /// The calling thread must be in the client's namespace.
    pub(crate) fn connect(&self) -> Result<Socket> {
        for _ in 0..CONNECT_ATTEMPTS {
            let socket = self.family.open(self.addr).context("client: socket")?;
            socket.set_timeout(CALL_TIMEOUT)?;
            self.set_tos(&socket)?;
            match socket.connect(self.address()) {
                Ok(()) => {
                    // ORDERING: only the flag itself is shared.
                    HAS_CONNECTED.store(true, Ordering::Relaxed);
                    self.check_path(&socket)?;
                    return Ok(socket);
                }
                Err(Errno::ECONNREFUSED) if !HAS_CONNECTED.load(Ordering::Relaxed) => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error) => bail!("client: connect: {error}"),
            }
        }
        bail!("client: nobody listens at {}", self.address())
    }

    /// Begins to connect a new nonblocking socket of that family. The attempt may be in progress on return.
    ///
    /// The calling thread must be in the client's namespace.
    pub(crate) fn begin_connect(&self, family: Family) -> Result<Socket> {
        let socket = family.open(self.addr).context("client: socket")?;
        socket.set_nonblocking(true)?;
        match socket.connect(self.address()) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
            Err(error) => bail!("client: connect: {error}"),
        }
    }

    /// Sets the traffic class of a socket, if there is to be one.
    fn set_tos(&self, socket: &Socket) -> Result<()> {
        let Some(tos) = self.tos else {
            return Ok(());
        };
        let (level, name) = match self.addr {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        Ok(socket.set_option_int(level, name, tos.into())?)
    }

    /// Fails unless the socket uses the expected path.
    pub(crate) fn check_path(&self, socket: &Socket) -> Result<()> {
        if self.expect == Expected::Any {
            return Ok(());
        }
        let path = Path::of(socket)?;
        match self.expect {
            Expected::Smc if !path.is_smc() => bail!("expected SMC, but the path is {path}"),
            Expected::Smcd if path != Path::SmcD => bail!("expected SMC-D, but the path is {path}"),
            Expected::Tcp if path.is_smc() => bail!("expected TCP, but the path is {path}"),
            _ => Ok(()),
        }
    }

    /// Returns the options with which a child process runs in the same context.
    pub(crate) fn to_options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--family={}", self.family.name()),
            format!("--server-family={}", self.server_family().name()),
            format!("--addr={}", self.addr),
            format!("--port={}", self.port),
            format!("--deadline={}", self.deadline),
            "--remote".to_string(),
        ];
        let expect = self.expect.to_possible_value();
        options.extend(expect.map(|expect| format!("--expect={}", expect.get_name())));
        options.extend(self.tos.map(|tos| format!("--tos={tos}")));
        if let Some(name) = &self.client_netns {
            options.push(format!("--client-netns={name}"));
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        context: Context,
    }

    #[test]
    fn a_child_expects_what_its_parent_does() {
        for expect in Expected::value_variants() {
            let name = expect.to_possible_value().unwrap();
            let line = Line::parse_from(["parent", "--expect", name.get_name()]);
            let child = std::iter::once("child".to_owned()).chain(line.context.to_options());
            assert_eq!(Line::parse_from(child).context.expect, *expect);
        }
    }
}
