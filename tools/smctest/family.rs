// SPDX-License-Identifier: GPL-2.0

//! The socket families that a test can run against.

use std::net::IpAddr;

use clap::ValueEnum;
pub(crate) use smc_uapi::AF_SMC;
pub(crate) use smc_uapi::IPPROTO_SMC;
use smc_user::Result;
use smc_user::Socket;

/// How a socket is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// AF_SMC, protocol 0 or 1 after the IP version
    Smc,
    /// AF_INET or AF_INET6 with IPPROTO_SMC
    Ipproto,
    /// TCP, made SMC by TCP_ULP
    Ulp,
    /// Plain TCP, the reference
    Tcp,
    /// The same, also under `smc run`, which does not see the call
    Bare,
}

impl Family {
    /// Returns the arguments of socket(2) for the IP version of `ip`.
    pub(crate) fn triple(self, ip: IpAddr) -> (i32, i32, i32) {
        let inet = if ip.is_ipv6() {
            libc::AF_INET6
        } else {
            libc::AF_INET
        };
        match self {
            Self::Smc => (AF_SMC, libc::SOCK_STREAM, i32::from(ip.is_ipv6())),
            Self::Ipproto => (inet, libc::SOCK_STREAM, IPPROTO_SMC),
            Self::Ulp | Self::Tcp | Self::Bare => (inet, libc::SOCK_STREAM, libc::IPPROTO_TCP),
        }
    }

    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open(self, ip: IpAddr) -> Result<Socket> {
        let (domain, kind, protocol) = self.triple(ip);
        let socket = match self {
            Self::Bare => Socket::open_bare(domain, kind, protocol)?,
            _ => Socket::open(domain, kind, protocol)?,
        };
        if self == Self::Ulp {
            socket.set_option(libc::SOL_TCP, libc::TCP_ULP, b"smc")?;
        }
        Ok(socket)
    }

    /// Returns the value's name on the command line, for child processes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Smc => "smc",
            Self::Ipproto => "ipproto",
            Self::Ulp => "ulp",
            Self::Tcp => "tcp",
            Self::Bare => "bare",
        }
    }
}
