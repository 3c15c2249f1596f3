// SPDX-License-Identifier: GPL-2.0

//! `poll` on one descriptor.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::poll;
use rustix::event::PollFd;
use rustix::event::PollFlags;

use crate::Errno;
use crate::Result;

/// Waits for one of `events`, an error or a hang-up; returns the events, 0 on timeout.
pub fn poll_fd(fd: impl AsFd, events: i16, timeout: Duration) -> Result<i16> {
    // CAST: a set of bits, both times.
    let mut entry = [PollFd::new(&fd, PollFlags::from_bits_retain(events as u16))];
    let timeout = timeout.try_into().map_err(|_| Errno::EINVAL)?;
    poll(&mut entry, Some(&timeout))?;
    Ok(entry[0].revents().bits() as i16)
}
