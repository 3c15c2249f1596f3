// SPDX-License-Identifier: GPL-2.0

//! System calls that the tools and guest tests need in forms that no published crate offers safely.
//!
//! A test of a socket family must be able to pass invalid arguments: a truncated address, an option
//! of another protocol, an unknown ioctl. [`Socket`] permits that and returns the result of the
//! kernel unchanged; [`Errno`] prints it by name. Calls in an ordinary form use rustix.

mod address;
mod errno;
mod exec;
mod fault;
pub mod inspect;
mod messages;
mod names;
mod option;
mod pass;
mod poll;
mod signal;
mod socket;
pub mod uring;

pub use address::Address;
pub use errno::Errno;
pub use exec::exec;
pub use fault::Unserved;
pub use messages::control_int;
pub use messages::Extras;
pub use messages::Received;
pub use names::Name;
pub use names::Room;
pub use poll::poll_fd;
pub use signal::ignore_signal;
pub use signal::interrupt_calls_by;
pub use signal::restart_calls_by;
pub use signal::restore_signal;
pub use signal::stop_by;
pub use signal::stopped;
pub use socket::Socket;

/// Result of one system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// Turns the C convention, -1 and `errno`, into a [`Result`].
fn check(value: libc::c_int) -> Result<libc::c_int> {
    if value < 0 {
        Err(Errno::last())
    } else {
        Ok(value)
    }
}

/// As [`check`], for calls that return a length.
fn check_len(value: libc::ssize_t) -> Result<usize> {
    usize::try_from(value).map_err(|_| Errno::last())
}
