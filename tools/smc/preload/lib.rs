// SPDX-License-Identifier: GPL-2.0

//! `libsmc_preload.so`: gives a TCP program SMC sockets without changing it.
//!
//! Loaded by `LD_PRELOAD` (which `smc run` sets), it takes the place of the one libc function
//! `socket`. A stream socket of AF_INET or AF_INET6 with protocol 0 or IPPROTO_TCP becomes one of
//! IPPROTO_SMC or, where that cannot be had, an AF_SMC socket of protocol 0 or 1; every other call
//! passes unchanged. Where the kernel has no SMC the program gets the TCP socket that it asked for.
//!
//! Environment, with the meaning that smc-tools gave it:
//!
//! - `SMC_DEBUG`: anything but a leading `0` writes what happens to standard error.
//! - `SMC_SNDBUF`, `SMC_RCVBUF`: buffer sizes for the sockets converted, `k` and `m` understood.
//!
//! `socket` must work in a signal handler and in any thread, so the environment is read once when
//! the library is loaded, and nothing after that allocates or locks. The kernel is called directly:
//! there is no symbol to look up, hence none to look up too early.

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

/// Replaces libc's `socket`: the same arguments, the same result and `errno`.
#[no_mangle]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    match convert::smc_protocol(domain, kind, protocol) {
        Some(smc_protocol) => smc_or_tcp(domain, kind, protocol, smc_protocol),
        None => sys_socket(domain, kind, protocol),
    }
}

/// Tries an SMC socket of the family asked for, then AF_SMC, then the socket that the program asked for.
///
/// In this order since filters refuse families: a service that may have AF_INET may have the first, and programs
/// of control groups, by which `ip vrf exec` binds sockets, are not run for AF_SMC. Kernels before 6.11 have AF_SMC
/// only.
fn smc_or_tcp(domain: c_int, kind: c_int, protocol: c_int, smc_protocol: c_int) -> c_int {
    let config = config::get();
    for (domain, protocol) in [
        (domain, convert::IPPROTO_SMC),
        (convert::AF_SMC, smc_protocol),
    ] {
        let fd = sys_socket(domain, kind, protocol);
        if fd >= 0 {
            message::mapped(config, fd);
            set_buffers(fd, config);
            return fd;
        }
        if !convert::is_unavailable(errno()) {
            // The process is out of descriptors, or the like: TCP would fail in the same way.
            return fd;
        }
    }
    message::unavailable(config, errno());
    sys_socket(domain, kind, protocol)
}

/// Sets the buffer sizes beyond the system's limit where allowed, else up to it. Does not touch `errno`.
///
/// A failure leaves the kernel's default, as it would for a program that sets it itself.
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

/// rustix has no such call: it would cut families and types, which have to pass as they are, and does not set `errno`.
fn sys_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: socket(2) takes three integers and no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) };
    // CAST: a file descriptor, or -1.
    fd as c_int
}

fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
