// SPDX-License-Identifier: GPL-2.0

//! State of a connection for poll(2), ioctls and waiting readers and writers (C functions `smc_poll`, `smc_ioctl`).

use core::mem;

use kernel_ext::net::Sk;
use smc_proto::{
    conn::{
        EpollMask,
        IoctlQueues, //
    },
    time::Duration, //
};

use super::{
    Conn,
    ConnInner, //
};

/// How long a writer waits for memory before it retries, about as long as over TCP.
const SHORTAGE: Duration = Duration::from_millis(100);

impl ConnInner {
    /// Returns what poll(2) reports for a connection of the socket `sk`.
    pub(crate) fn readiness(&self, sk: &Sk) -> EpollMask {
        let lowat = u32::try_from(sk.lowat()).unwrap_or(1);
        self.stream.readiness(lowat, self.can_lend())
    }

    /// Returns whether a writer without a send buffer may get one now: the link used for sending works (if not, another
    /// one will soon), and no allocation failed recently.
    pub(crate) fn can_lend(&self) -> bool {
        self.at.link.is_up() && !self.is_short
    }
}

impl Conn {
    /// Returns what poll(2) reports except errors: EPOLL bits. If there is no space to write, the socket is woken once
    /// there is.
    pub(crate) fn poll(&self, sk: &Sk) -> u32 {
        self.with(|inner| {
            let ready = inner.readiness(sk);
            inner.wants_space |= !ready.contains(EpollMask::OUT);
            ready.bits()
        })
    }

    /// Returns the values of the socket ioctls. If the peer may have more than it has acknowledged, its acknowledgement
    /// is requested: over iWARP a completion does not imply one, and a program may wait for the queue to become empty.
    pub(crate) fn queues(&self) -> IoctlQueues {
        let (queues, link) = self.with(|inner| {
            let queues = inner.stream.queues().unwrap_or_default();
            (queues, (queues.outq > 0).then(|| inner.at.link.clone()))
        });
        if let Some(link) = link {
            self.group.request_ack_later(&link);
        }
        queues
    }

    /// Returns the number of bytes to read, for TCP_INQ.
    pub(crate) fn inq(&self) -> i32 {
        let bytes = self.with(|inner| inner.stream.inq_hint());
        i32::try_from(bytes).unwrap_or(i32::MAX)
    }

    /// Schedules a retry after the allocation of a send buffer failed.
    /// Context: does not sleep.
    pub(crate) fn await_memory(&self) {
        self.inner.lock().is_short = true;
        self.group.arm_conn_timer(SHORTAGE);
    }

    pub(super) fn end_shortage(&self) {
        let mut inner = self.inner.lock();
        let sk = match mem::take(&mut inner.is_short) {
            true => inner.sk(),
            false => None,
        };
        drop(inner);
        if let Some(sk) = sk {
            sk.wake_writable();
        }
    }
}
