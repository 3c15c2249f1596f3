// SPDX-License-Identifier: GPL-2.0

//! The packet socket of RDMA. It knows how promptly it is read: an honest peer answers at once, which a process that a
//! busy guest does not run cannot.

use std::cell::Cell;
use std::time::Duration;
use std::time::Instant;

use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

/// A peer that does not look for so long is not honest: half the time after which the kernel takes a link for dead.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// A packet socket.
pub(super) struct RdmaWire {
    socket: Socket,
    /// The last look at what has arrived.
    looked: Cell<Instant>,
    longest_pause: Cell<Duration>,
}

impl RdmaWire {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            looked: Cell::new(Instant::now()),
            longest_pause: Cell::new(Duration::ZERO),
        }
    }

    pub(super) fn send(&self, frame: &[u8]) -> Result<usize, Errno> {
        self.socket.send(frame, 0)
    }

    /// Returns the length of the next frame that has arrived, or EAGAIN.
    pub(super) fn recv(&self, frame: &mut [u8]) -> Result<usize, Errno> {
        let now = Instant::now();
        let pause = now.saturating_duration_since(self.looked.replace(now));
        self.longest_pause.set(self.longest_pause.get().max(pause));
        self.socket.recv(frame, libc::MSG_DONTWAIT)
    }

    /// Waits for a frame.
    pub(super) fn wait(&self, time: Duration) -> Result<(), Errno> {
        poll_fd(&self.socket, libc::POLLIN, time).map(drop)
    }

    /// Pauses count from now on.
    pub(super) fn count_pauses(&self) {
        self.looked.set(Instant::now());
        self.longest_pause.set(Duration::ZERO);
    }

    /// Returns the longest time between two looks.
    pub(super) fn longest_pause(&self) -> Duration {
        self.longest_pause.get()
    }
}
