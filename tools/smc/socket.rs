// SPDX-License-Identifier: GPL-2.0

//! Opens SMC sockets in the ways in which `smc run` does for its program.

use std::fmt;

use smc_uapi::AF_SMC;
use smc_uapi::IPPROTO_SMC;
use smc_user::Errno;
use smc_user::Socket;

/// Why no SMC socket can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// By `IPPROTO_SMC`.
    pub protocol: Errno,
    /// By AF_SMC.
    pub family: Errno,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPPROTO_SMC: {}, AF_SMC: {}", self.protocol, self.family)
    }
}

/// Opens an SMC socket for connections by IPv4 or IPv6: by `IPPROTO_SMC`, which needs no family beyond those of IP, or
/// by AF_SMC, which is all that some kernels have.
pub fn open(is_ipv6: bool) -> Result<Socket, Refused> {
    open_by(is_ipv6, |domain, protocol| {
        Socket::open(domain, libc::SOCK_STREAM, protocol)
    })
}

fn open_by<T>(is_ipv6: bool, socket: impl Fn(i32, i32) -> Result<T, Errno>) -> Result<T, Refused> {
    let inet = match is_ipv6 {
        true => libc::AF_INET6,
        false => libc::AF_INET,
    };
    socket(inet, IPPROTO_SMC).or_else(|protocol| {
        socket(AF_SMC, i32::from(is_ipv6)).map_err(|family| Refused { protocol, family })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_way_is_enough() {
        let by = |wanted: Option<i32>| {
            open_by(true, |domain, protocol| match Some(domain) == wanted {
                true => Ok((domain, protocol)),
                false if domain == AF_SMC => Err(Errno::EAFNOSUPPORT),
                false => Err(Errno::EPROTONOSUPPORT),
            })
        };
        assert_eq!(by(Some(libc::AF_INET6)), Ok((libc::AF_INET6, 256)));
        assert_eq!(by(Some(AF_SMC)), Ok((AF_SMC, 1)));
        assert_eq!(
            by(None).unwrap_err().to_string(),
            "IPPROTO_SMC: EPROTONOSUPPORT, AF_SMC: EAFNOSUPPORT"
        );
    }
}
