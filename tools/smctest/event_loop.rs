// SPDX-License-Identifier: GPL-2.0

//! An epoll loop over many sockets in one thread.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use nix::sys::epoll::EpollTimeout;
use smc_user::Socket;

/// Events per epoll_wait(2).
const BATCH: usize = 64;

/// Objects with one socket each, which continue when their socket is ready.
pub(crate) struct Loop<T> {
    epoll: Epoll,
    things: HashMap<u64, (T, EpollFlags)>,
    next: u64,
    socket: fn(&T) -> &Socket,
}

impl<T> Loop<T> {
    /// Creates an empty loop; `socket` returns the socket of an object.
    pub(crate) fn new(socket: fn(&T) -> &Socket) -> Result<Self> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            things: HashMap::new(),
            next: 0,
            socket,
        })
    }

    /// Adds an object that waits for `events`.
    pub(crate) fn add(&mut self, thing: T, events: EpollFlags) -> Result<()> {
        let event = EpollEvent::new(events, self.next);
        self.epoll.add((self.socket)(&thing), event)?;
        self.things.insert(self.next, (thing, events));
        self.next += 1;
        Ok(())
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.things.len()
    }

    /// Waits until a socket is ready, and calls `go_on` with its object. That returns the events to
    /// wait for next, or `None` to remove the object. Returns whether any socket was ready within
    /// `timeout`.
    pub(crate) fn turn(
        &mut self,
        timeout: Duration,
        mut go_on: impl FnMut(&mut T) -> Option<EpollFlags>,
    ) -> Result<bool> {
        let mut events = [EpollEvent::empty(); BATCH];
        let timeout = EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::MAX);
        let count = self.epoll.wait(&mut events, timeout)?;
        for event in events.iter().take(count) {
            let number = event.data();
            let Some((thing, before)) = self.things.get_mut(&number) else {
                continue;
            };
            match go_on(thing) {
                Some(wanted) if wanted == *before => {}
                Some(wanted) => {
                    *before = wanted;
                    let mut event = EpollEvent::new(wanted, number);
                    self.epoll.modify((self.socket)(thing), &mut event)?;
                }
                None => drop(self.things.remove(&number)),
            }
        }
        Ok(count > 0)
    }
}
