// SPDX-License-Identifier: GPL-2.0

//! `libsmc_preload.so`: makes an unmodified TCP program use SMC sockets.
//!
//! Loaded with `LD_PRELOAD` (which `smc run` sets), it replaces only the libc function `socket`. A
//! stream socket of AF_INET or AF_INET6 with protocol 0 or IPPROTO_TCP becomes one of IPPROTO_SMC
//! or, if that is not available, an AF_SMC socket of protocol 0 or 1; other calls pass unchanged.
//! Without SMC in the kernel, the program gets a TCP socket, and the kernel is not asked again for a
//! while: each time it would look for a module.
//!
//! Environment variables, as in smc-tools:
//!
//! - `SMC_DEBUG`: any value that does not begin with `0` enables messages on standard error.
//! - `SMC_SNDBUF`, `SMC_RCVBUF`: buffer sizes of these sockets, whether they could be converted or
//!   not, with an optional suffix `k` or `m`.
//!
//! `socket` must work in a signal handler and in any thread. Therefore the environment is read once
//! when the library is loaded, and nothing after that allocates or locks. System calls are made
//! directly, so that no symbol has to be resolved.

mod absence;
mod config;
mod convert;
mod message;

use core::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::sockopt::set_socket_send_buffer_size_force;

use crate::absence::Absence;
use crate::config::Config;

/// Replaces libc's `socket`, with the same arguments, result and `errno`.
#[no_mangle]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let Some(smc_protocol) = convert::smc_protocol(domain, kind, protocol) else {
        return sys_socket(domain, kind, protocol);
    };
    let config = config::get();
    let request = Request {
        domain,
        kind,
        protocol,
        smc_protocol,
    };
    let fd = request.open(config, &absence::KNOWN, sys_socket);
    if fd >= 0 {
        set_buffers(fd, config);
    }
    fd
}

/// A socket that a program asks for, and that can be one of SMC.
struct Request {
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    /// The protocol of AF_SMC.
    smc_protocol: c_int,
}

/// Why there is no SMC socket.
struct Refusal {
    /// The last error.
    error: c_int,
    /// Whether the kernel knew neither protocol nor family.
    is_absent: bool,
}

impl Request {
    /// Opens an SMC socket, or the requested one where there is no SMC, by `open`, which is [`sys_socket`] but in
    /// tests.
    fn open(
        &self,
        config: &Config,
        absence: &Absence,
        open: impl Fn(c_int, c_int, c_int) -> c_int,
    ) -> c_int {
        let tcp = || open(self.domain, self.kind, self.protocol);
        if absence.is_known() {
            return tcp();
        }
        let refusal = match self.smc(config, &open) {
            Ok(fd) => return fd,
            Err(refusal) => refusal,
        };
        let fd = tcp();
        // Where TCP has no such socket either, as without IPv6, nothing is known about SMC.
        if fd >= 0 {
            message::unavailable(config, refusal.error);
            if refusal.is_absent {
                absence.note();
            }
        }
        fd
    }

    /// Tries an SMC socket of the requested family, then AF_SMC. That ends with an error that TCP may meet, too, for
    /// example EMFILE, or that is of this moment, as the module is just being loaded or unloaded (ENODEV, ENOMEM).
    ///
    /// The order matters for filters by family: a service that is restricted to AF_INET may open the
    /// first, and control group programs, with which `ip vrf exec` binds sockets, do not run for
    /// AF_SMC. Kernels before 6.11 support AF_SMC only.
    fn smc(
        &self,
        config: &Config,
        open: impl Fn(c_int, c_int, c_int) -> c_int,
    ) -> Result<c_int, Refusal> {
        let mut refusal = Refusal {
            error: 0,
            is_absent: true,
        };
        for (domain, protocol) in [
            (self.domain, convert::IPPROTO_SMC),
            (convert::AF_SMC, self.smc_protocol),
        ] {
            let fd = open(domain, self.kind, protocol);
            if fd >= 0 {
                message::mapped(config, fd);
                return Ok(fd);
            }
            refusal.error = errno();
            refusal.is_absent &= convert::is_absent(refusal.error);
            if !convert::is_unavailable(refusal.error) {
                break;
            }
        }
        Err(refusal)
    }
}

/// Sets the buffer sizes, beyond the system limit if permitted, else up to it. Preserves `errno`.
///
/// On failure the kernel's default remains.
fn set_buffers(fd: c_int, config: &Config) {
    // SAFETY: the caller has just opened it, and has not given it away yet.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Some(size) = config.sndbuf {
        let _ = set_socket_send_buffer_size_force(fd, size)
            .or_else(|_| set_socket_send_buffer_size(fd, size));
    }
    if let Some(size) = config.rcvbuf {
        let _ = set_socket_recv_buffer_size_force(fd, size)
            .or_else(|_| set_socket_recv_buffer_size(fd, size));
    }
}

/// Calls the kernel directly. rustix would truncate families and types, which must be passed
/// unchanged, and does not set `errno`.
fn sys_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: socket(2) takes three integers and no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) };
    // CAST: a file descriptor, or -1.
    fd as c_int
}

fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;

    /// Makes a call fail with `error`.
    fn fail(error: c_int) -> c_int {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = error };
        -1
    }

    /// Opens a socket of TCP, of which the kernel knows those families; no SMC. Returns the result, `errno` if it
    /// failed, and what the kernel was asked for.
    fn opened(
        domain: c_int,
        absence: &Absence,
        known: &[c_int],
    ) -> (Result<c_int, c_int>, Vec<(c_int, c_int)>) {
        let asked = RefCell::new(Vec::new());
        let kernel = |domain, _, protocol| {
            asked.borrow_mut().push((domain, protocol));
            match (known.contains(&domain), protocol) {
                (false, _) => fail(libc::EAFNOSUPPORT),
                (true, 0) => 7,
                (true, _) => fail(libc::EPROTONOSUPPORT),
            }
        };
        let kind = libc::SOCK_STREAM;
        let request = Request {
            domain,
            kind,
            protocol: 0,
            smc_protocol: convert::smc_protocol(domain, kind, 0).unwrap(),
        };
        let fd = request.open(&Config::default(), absence, kernel);
        let result = if fd < 0 { Err(errno()) } else { Ok(fd) };
        (result, asked.into_inner())
    }

    #[test]
    fn an_error_of_the_moment_is_no_error_of_tcp() {
        let request = Request {
            domain: libc::AF_INET,
            kind: libc::SOCK_STREAM,
            protocol: 0,
            smc_protocol: 0,
        };
        for error in [libc::ENODEV, libc::ENOMEM, libc::ENOBUFS] {
            let absence = Absence::new();
            let kernel = |_, _, protocol| match protocol {
                convert::IPPROTO_SMC => fail(error),
                _ => 7,
            };
            assert_eq!(request.open(&Config::default(), &absence, kernel), 7);
            assert!(!absence.is_known());
        }
        let full = |_, _, _| fail(libc::EMFILE);
        let fd = request.open(&Config::default(), &Absence::new(), full);
        assert_eq!((fd, errno()), (-1, libc::EMFILE));
    }

    #[test]
    fn a_kernel_without_smc_is_asked_once() {
        let (absence, both) = (Absence::new(), [libc::AF_INET, libc::AF_INET6]);
        let (result, asked) = opened(libc::AF_INET, &absence, &both);
        let all = [
            (libc::AF_INET, convert::IPPROTO_SMC),
            (convert::AF_SMC, 0),
            (libc::AF_INET, 0),
        ];
        assert_eq!((result, asked.as_slice()), (Ok(7), &all[..]));
        let (result, asked) = opened(libc::AF_INET6, &absence, &both);
        assert_eq!((result, asked), (Ok(7), vec![(libc::AF_INET6, 0)]));
    }

    #[test]
    fn lack_of_ipv6_is_not_lack_of_smc() {
        let absence = Absence::new();
        let (result, asked) = opened(libc::AF_INET6, &absence, &[libc::AF_INET]);
        assert_eq!((result, asked.len()), (Err(libc::EAFNOSUPPORT), 3));
        assert!(!absence.is_known());
        assert_eq!(opened(libc::AF_INET, &absence, &[libc::AF_INET]).1.len(), 3);
        assert!(absence.is_known());
    }
}
