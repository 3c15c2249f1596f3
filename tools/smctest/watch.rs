// SPDX-License-Identifier: GPL-2.0

//! `epoll` on one socket.

use std::time::Duration;

use anyhow::Result;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use nix::sys::epoll::EpollTimeout;
use smc_user::Socket;

/// Longest time for an expected event.
const SOON: Duration = Duration::from_secs(10);

/// Time to wait for an event that must not occur.
const WHILE: Duration = Duration::from_millis(150);

/// One socket in one epoll set.
pub(crate) struct Watch(Epoll);

impl Watch {
    /// Begins to watch for the events in `flags`.
    pub(crate) fn new(socket: &Socket, flags: EpollFlags) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(socket, EpollEvent::new(flags, 1))?;
        Ok(Self(epoll))
    }

    /// Waits for at most `time`; returns the events in hexadecimal, or `none`.
    pub(crate) fn wait(&self, time: Duration) -> Result<String> {
        let mut events = [EpollEvent::empty()];
        let timeout = EpollTimeout::try_from(time)?;
        Ok(match self.0.wait(&mut events, timeout)? {
            0 => "none".to_string(),
            _ => format!("{:#x}", events[0].events().bits()),
        })
    }

    /// Discards pending events.
    pub(crate) fn settle(&self) -> Result<()> {
        while self.wait(WHILE)? != "none" {}
        Ok(())
    }

    /// Returns the next events, in the format of [`Watch::wait`].
    pub(crate) fn soon(&self) -> Result<String> {
        self.wait(SOON)
    }
}
