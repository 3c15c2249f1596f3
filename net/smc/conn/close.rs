// SPDX-License-Identifier: GPL-2.0

//! shutdown(2) and close(2) of a connection over RDMA (RFC 7609 section 4.8; C file `smc_close.c`).

use kernel::sync::Arc;
use kernel_ext::{
    net::{
        Sk,
        TcpSocket, //
    },
    prelude::*, //
};
use smc_proto::{
    conn::CloseEffects,
    time::Duration, //
};

use super::Conn;

impl Conn {
    /// shutdown(2) with argument `how`.
    /// Context: may sleep.
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
        let fx = self.with(|inner| match (read, write) {
            (true, true) => Ok(inner.stream.close(false)),
            (false, true) => inner.stream.shutdown_write(),
            _ => inner.stream.shutdown_read(),
        });
        let fx = fx.map_err(|_| ENOTCONN)?;
        self.conclude(&sk, &fx);
        Ok(())
    }

    /// close(2) of the last descriptor; `linger` is the SO_LINGER time, in jiffies, if set. The connection continues as
    /// an orphan until the peer has received all data and has closed, too. Returns whether this is a reset.
    /// Context: may sleep.
    pub(crate) fn close(self: &Arc<Self>, sk: &Sk, linger: Option<isize>) -> bool {
        if let Some(timeout) = linger.filter(|timeout| *timeout > 0) {
            self.flush(sk, timeout);
        }
        let fin_timeout = Duration::from_nanos(sk.fin_timeout());
        let fx = self.close_stream(linger == Some(0));
        self.detach_sock();
        let is_reset = self.with(|inner| inner.stream.has_reset());
        self.conclude(sk, &fx);
        self.make_orphan(fin_timeout);
        self.free_if_done();
        is_reset
    }

    /// Resets the TCP connection of a socket whose close was a reset. A peer with this module takes the reset of TCP
    /// for the end of the connection over RDMA, so it comes after the peer has answered the abort: then data that were
    /// sent before have arrived. A C peer takes no notice, but shutdown(2) fails there once TCP is reset; it answers
    /// when its application closes.
    /// Context: may sleep.
    pub(crate) fn reset_tcp(self: &Arc<Self>, tcp: &Arc<TcpSocket>) {
        let waits = self.with(|inner| {
            // That of a killed connection was reset before.
            let waits = inner.orphan.is_some() && !inner.stream.is_killed();
            inner.closed_tcp = waits.then(|| tcp.clone());
            waits
        });
        if !waits {
            tcp.abort(ECONNABORTED);
        }
    }

    fn close_stream(&self, is_reset: bool) -> CloseEffects {
        let mut unreset = None;
        let fx = self.with(|inner| {
            unreset = inner.tcp_to_reset();
            if is_reset {
                inner.stream.reset();
            }
            inner.stream.close(true)
        });
        if let Some(tcp) = unreset {
            tcp.abort(ECONNABORTED);
        }
        fx
    }

    /// Closes the connection of a client whose application had closed the socket before; `linger` as in
    /// [`Conn::close`], but there is no wait.
    /// Context: may sleep.
    pub(crate) fn drop_unused(self: &Arc<Self>, linger: Option<isize>) {
        let fin_timeout = self.sk().map_or(0, |sk| sk.fin_timeout());
        let fx = self.close_stream(linger == Some(0));
        self.detach_sock();
        if fx.transmit {
            self.transmit();
        }
        self.make_orphan(Duration::from_nanos(fin_timeout));
        self.free_if_done();
    }

    fn conclude(self: &Arc<Self>, sk: &Sk, fx: &CloseEffects) {
        if fx.transmit {
            self.transmit();
        }
        sk.set_state(self.state().number());
        sk.wake_state();
    }

    /// Waits until all data are sent, at most `timeout` jiffies.
    fn flush(self: &Arc<Self>, sk: &Sk, timeout: isize) {
        if !self.with(|inner| inner.stream.needs_flush()) {
            return;
        }
        self.transmit();
        if kernel::current!().signal_pending() {
            return;
        }
        self.while_flushing(|| {
            // The rest is sent after close(2) has returned, as with TCP.
            let _ = sk.wait_until(timeout, false, || {
                !self.with(|inner| inner.stream.needs_flush()) || sk.has_err()
            });
        });
    }
}
