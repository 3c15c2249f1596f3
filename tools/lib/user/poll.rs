// SPDX-License-Identifier: GPL-2.0

//! `poll` on one descriptor.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::check;
use crate::Result;

/// Waits until one of `events` is there, or an error or hang-up; returns the events, 0 on timeout.
pub fn poll_fd(fd: impl AsFd, events: i16, timeout: Duration) -> Result<i16> {
    let mut entry = libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events,
        revents: 0,
    };
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);

    // SAFETY: `entry` is one valid `pollfd`.
    check(unsafe { libc::poll(&mut entry, 1, timeout_ms) })?;
    Ok(entry.revents)
}
