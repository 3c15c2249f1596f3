// SPDX-License-Identifier: GPL-2.0

//! Which sockets are converted, and which errors mean that SMC is not available.

use core::ffi::c_int;

/// The address family number of SMC.
pub(crate) const AF_SMC: c_int = 43;

/// The protocol number of SMC for AF_INET and AF_INET6.
pub(crate) const IPPROTO_SMC: c_int = 256;

/// AF_SMC protocol for a socket over IPv4.
const SMCPROTO_SMC: c_int = 0;

/// AF_SMC protocol for a socket over IPv6.
const SMCPROTO_SMC6: c_int = 1;

/// The type of a socket without its SOCK_NONBLOCK and SOCK_CLOEXEC flags.
const TYPE_MASK: c_int = 0xf;

/// Returns the AF_SMC protocol for these arguments of `socket`; `None` if the socket is not
/// converted.
pub(crate) fn smc_protocol(domain: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    let is_stream = kind & TYPE_MASK == libc::SOCK_STREAM;
    let is_tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;

    match domain {
        libc::AF_INET if is_stream && is_tcp => Some(SMCPROTO_SMC),
        libc::AF_INET6 if is_stream && is_tcp => Some(SMCPROTO_SMC6),
        _ => None,
    }
}

/// Returns whether `error` means that this process cannot open such an SMC socket, while it may
/// still open another one, or TCP.
///
/// The kernel itself returns EAFNOSUPPORT and EPROTONOSUPPORT; the others are from seccomp filters
/// and security modules.
pub(crate) fn is_unavailable(error: c_int) -> bool {
    matches!(
        error,
        libc::EAFNOSUPPORT
            | libc::EPROTONOSUPPORT
            | libc::ESOCKTNOSUPPORT
            | libc::EINVAL
            | libc::ENOSYS
            | libc::EPERM
            | libc::EACCES
    )
}

/// Returns whether `error` means that the kernel has no such sockets at all, after it looked for a
/// module.
pub(crate) fn is_absent(error: c_int) -> bool {
    matches!(
        error,
        libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_over_both_ip_versions_is_converted() {
        for protocol in [0, libc::IPPROTO_TCP] {
            let v4 = smc_protocol(libc::AF_INET, libc::SOCK_STREAM, protocol);
            let v6 = smc_protocol(libc::AF_INET6, libc::SOCK_STREAM, protocol);
            assert_eq!((v4, v6), (Some(SMCPROTO_SMC), Some(SMCPROTO_SMC6)));
        }
    }

    #[test]
    fn flags_in_the_type_do_not_hide_a_stream() {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        assert_eq!(smc_protocol(libc::AF_INET, kind, 0), Some(SMCPROTO_SMC));
    }

    #[test]
    fn everything_else_passes() {
        assert_eq!(smc_protocol(libc::AF_INET, libc::SOCK_DGRAM, 0), None);
        assert_eq!(smc_protocol(libc::AF_INET, libc::SOCK_RAW, 0), None);
        assert_eq!(smc_protocol(libc::AF_UNIX, libc::SOCK_STREAM, 0), None);
        assert_eq!(smc_protocol(AF_SMC, libc::SOCK_STREAM, 0), None);
        let mptcp = smc_protocol(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
        assert_eq!(mptcp, None);
    }

    #[test]
    fn lack_of_descriptors_is_not_lack_of_smc() {
        assert!(is_unavailable(libc::EAFNOSUPPORT));
        assert!(!is_unavailable(libc::EMFILE));
        assert!(!is_unavailable(libc::ENOBUFS));
    }
}
