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

use crate::config::Config;

/// Replaces libc's `socket`, with the same arguments, result and `errno`.
#[no_mangle]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    match convert::smc_protocol(domain, kind, protocol) {
        Some(smc_protocol) => smc_or_tcp(domain, kind, protocol, smc_protocol),
        None => sys_socket(domain, kind, protocol),
    }
}

/// Opens an SMC socket, or the requested one where there is no SMC, with the buffer sizes that are
/// configured.
fn smc_or_tcp(domain: c_int, kind: c_int, protocol: c_int, smc_protocol: c_int) -> c_int {
    let config = config::get();
    let fd = match smc(config, domain, kind, smc_protocol) {
        Some(fd) => fd,
        None => sys_socket(domain, kind, protocol),
    };
    if fd >= 0 {
        set_buffers(fd, config);
    }
    fd
}

/// Tries an SMC socket of the requested family, then AF_SMC. `None` if there is neither; -1 for an
/// error that TCP would meet, too, for example EMFILE.
///
/// The order matters for filters by family: a service that is restricted to AF_INET may open the
/// first, and control group programs, with which `ip vrf exec` binds sockets, do not run for
/// AF_SMC. Kernels before 6.11 support AF_SMC only.
fn smc(config: &Config, domain: c_int, kind: c_int, smc_protocol: c_int) -> Option<c_int> {
    if absence::is_known() {
        return None;
    }
    let mut is_absent = true;
    for (domain, protocol) in [
        (domain, convert::IPPROTO_SMC),
        (convert::AF_SMC, smc_protocol),
    ] {
        let fd = sys_socket(domain, kind, protocol);
        if fd >= 0 {
            message::mapped(config, fd);
            return Some(fd);
        }
        let error = errno();
        if !convert::is_unavailable(error) {
            return Some(fd);
        }
        is_absent &= convert::is_absent(error);
    }
    message::unavailable(config, errno());
    if is_absent {
        absence::note();
    }
    None
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
