// SPDX-License-Identifier: GPL-2.0

//! How an application sees and ends a connection over RDMA (RFC 7609 section 4.8; C file
//! `smc_close.c`).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    net::Sk,
    time, //
};
use smc_proto::stream::{
    CloseEffects,
    Queues, //
};

use crate::conn::Conn;

/// EPOLLERR.
const EPOLLERR: u32 = 0x8;

/// Time that a close waits for data to leave, without SO_LINGER (C: `SMC_MAX_STREAM_WAIT_TIMEOUT`).
const FLUSH_NS: u64 = 2_000_000_000;

impl Conn {
    /// What poll(2) reports: EPOLL bits.
    pub(crate) fn poll(&self, sk: &Sk) -> u32 {
        let ready = self.with(|inner| inner.stream.readiness().bits());
        ready | if sk.has_err() { EPOLLERR } else { 0 }
    }

    /// The values of the socket ioctls.
    pub(crate) fn queues(&self) -> Queues {
        self.with(|inner| inner.stream.queues()).unwrap_or_default()
    }

    /// The number of the link group, for diagnosis.
    pub(crate) fn group_id(&self) -> u32 {
        self.group.id
    }

    /// TCP_NODELAY or TCP_CORK was set; unless `corked` now, what was held back goes out.
    pub(crate) fn uncork(self: &Arc<Self>, corked: bool) {
        if !corked && self.with(|inner| inner.stream.uncork()) {
            self.transmit();
        }
    }

    /// shutdown(2), with its `how`. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown `how`, `ENOTCONN` in states that have no shutdown.
    pub(crate) fn shutdown(self: &Arc<Self>, how: i32) -> Result {
        let (read, write) = match how {
            0 => (true, false),
            1 => (false, true),
            2 => (true, true),
            _ => return Err(EINVAL),
        };
        let sk = self.sk().ok_or(ENOTCONN)?;
        if !self.with(|inner| inner.stream.can_shutdown()) {
            return Err(ENOTCONN);
        }
        if write {
            self.flush(&sk, sk.linger());
        }
        let fx = self.with(|inner| match (read, write) {
            (true, true) => Ok(inner.stream.close(false)),
            (false, true) => inner.stream.shutdown_write().map_err(|_| ENOTCONN),
            _ => {
                inner.stream.shutdown_read().map_err(|_| ENOTCONN)?;
                Ok(CloseEffects::default())
            }
        })?;
        self.conclude(&sk, &fx);
        Ok(())
    }

    /// close(2) of the last descriptor; `linger` is the time to wait for data to leave, in jiffies.
    /// May sleep. The connection goes on by itself until the peer has closed, too.
    pub(crate) fn close(self: &Arc<Self>, sk: &Sk, linger: Option<isize>) {
        self.flush(sk, linger);
        let fx = self.with(|inner| inner.stream.close(true));
        self.detach();
        self.conclude(sk, &fx);
        self.settle();
    }

    /// Nobody wants the connection, which nobody has used. May sleep.
    pub(crate) fn discard(self: &Arc<Self>) {
        self.detach();
        let fx = self.with(|inner| inner.stream.close(true));
        if fx.transmit {
            self.transmit();
        }
        self.settle();
    }

    fn conclude(self: &Arc<Self>, sk: &Sk, fx: &CloseEffects) {
        if fx.transmit {
            self.transmit();
        }
        sk.set_state(self.state().number());
        sk.wake_state();
        sk.wake_readable();
        sk.wake_writable();
    }

    /// Waits until all data have left, for the linger time or two seconds.
    fn flush(self: &Arc<Self>, sk: &Sk, linger: Option<isize>) {
        if !self.with(|inner| inner.stream.needs_flush()) {
            return;
        }
        self.transmit();
        let timeout = linger.unwrap_or(time::timeout(FLUSH_NS));
        if timeout == 0 || kernel::current!().signal_pending() {
            return;
        }
        self.while_flushing(|| {
            // What has not left by then is lost, as with TCP.
            let _ = sk.wait_until(timeout, false, || {
                !self.with(|inner| inner.stream.needs_flush()) || sk.has_err()
            });
        });
    }
}
