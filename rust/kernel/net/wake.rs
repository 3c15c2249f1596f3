// SPDX-License-Identifier: GPL-2.0

//! Wake-ups of those who wait for the application's socket, and waiting for it.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::ffi::c_void;

use super::{
    wait::{
        wait_until,
        WaitEnd, //
    },
    Sk, //
};
use crate::{
    bindings,
    prelude::*,
    rcu, //
};

/// poll(2) bits for wake-ups.
const READABLE: u32 =
    bindings::POLLIN | bindings::POLLPRI | bindings::POLLRDNORM | bindings::POLLRDBAND;
const WRITABLE: u32 = bindings::POLLOUT | bindings::POLLWRNORM | bindings::POLLWRBAND;

/// Wake-ups and waiting. Wake-ups are allowed in any context.
impl Sk {
    /// Wakes readers: data or the end of the stream is there.
    pub fn wake_readable(&self) {
        self.wake(READABLE, bindings::SOCK_WAKE_WAITD, bindings::POLL_IN);
    }

    /// Whether a task, or a signal, waits for [`wake_readable`](Self::wake_readable). A task that begins to wait after
    /// this finds what was written before.
    pub fn has_waiter(&self) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: We are in an RCU read section, and the socket is alive.
        let wq = unsafe { bindings::sk_wq_rcu(self.as_ptr()) };
        // SAFETY: `wq` is null or lives until the end of the RCU read section; by the type invariant our queue is
        // initialised.
        let is_awaited =
            unsafe { bindings::skwq_has_sleeper(wq) || bindings::wq_has_sleeper(self.waiters()) };
        is_awaited || self.flag(bindings::sock_flags_SOCK_FASYNC)
    }

    /// Wakes writers: there is space. SIGIO comes if [`set_nospace`](Self::set_nospace) was called.
    pub fn wake_writable(&self) {
        self.wake_space(bindings::SOCK_WAKE_SPACE);
    }

    /// Wakes writers: there is space, which the TCP socket below was asked for.
    pub fn wake_requested(&self) {
        self.wake_space(bindings::SOCK_WAKE_IO);
    }

    fn wake_space(&self, how: u32) {
        let _rcu = rcu::read_lock();
        // SAFETY: As in `set_nospace`.
        let socket = unsafe { bindings::sk_socket(self.as_ptr()) };
        if !socket.is_null() {
            // SAFETY: As in `set_nospace`.
            unsafe { bindings::sock_clear_bit(socket, bindings::socket_flags_SOCK_NOSPACE as i32) };
        }
        self.wake(WRITABLE, how, bindings::POLL_OUT);
    }

    /// Wakes all waiters: the state changed, by what the application did itself or in a way that no signal is for.
    pub fn wake_state(&self) {
        self.wake_waiters(0);
    }

    /// Wakes all waiters: there is a connection now.
    pub fn wake_connected(&self) {
        self.wake(0, bindings::SOCK_WAKE_IO, bindings::POLL_OUT);
    }

    /// Wakes all waiters: the peer has ended its side, which ends the connection if this side has ended.
    pub fn wake_end(&self) {
        let band = match self.is_send_shutdown() {
            true => bindings::POLL_HUP,
            false => bindings::POLL_IN,
        };
        self.wake(0, bindings::SOCK_WAKE_WAITD, band);
    }

    /// Wakes all waiters: an error is pending.
    pub fn wake_err(&self) {
        self.wake(
            bindings::POLLERR,
            bindings::SOCK_WAKE_IO,
            bindings::POLL_ERR,
        );
    }

    /// Wakes readers, but only those in [`wait_until`](Self::wait_until).
    pub fn wake_callers(&self) {
        self.wake_own(READABLE);
    }

    /// Wakes our queue.
    fn wake_own(&self, mask: u32) {
        // SAFETY: By the type invariant the queue is initialised.
        if unsafe { bindings::wq_has_sleeper(self.waiters()) } {
            wake_up(self.waiters(), mask);
        }
    }

    /// Wakes both queues, and has the kernel send SIGIO if the owner of the file wants that.
    fn wake(&self, mask: u32, how: u32, band: u32) {
        self.wake_waiters(mask);
        let _rcu = rcu::read_lock();
        // SAFETY: We are in an RCU read section, and the socket is alive.
        unsafe { bindings::sk_wake_async_rcu(self.option_sk(), how as i32, band as i32) };
    }

    /// Wakes both queues: that of the `struct socket`, which poll(2) and similar calls use, and ours. A `mask` of 0
    /// wakes all waiters.
    fn wake_waiters(&self, mask: u32) {
        let _rcu = rcu::read_lock();
        // SAFETY: We are in an RCU read section, and the socket is alive.
        let wq = unsafe { bindings::sk_wq_rcu(self.as_ptr()) };
        // SAFETY: `wq` is null or lives until the end of the RCU read section.
        if unsafe { bindings::skwq_has_sleeper(wq) } {
            // SAFETY: As above, and not null since there is a sleeper.
            wake_up(unsafe { &raw mut (*wq).wait }, mask);
        }
        self.wake_own(mask);
    }

    /// Sends SIGURG to the owner of the file (`F_SETOWN`).
    pub fn send_sigurg(&self) {
        // SAFETY: The socket is alive; called under the lock under which it is detached from its file.
        unsafe {
            bindings::callback_read_lock_bh(self.as_ptr());
            bindings::sk_send_sigurg(self.as_ptr());
            bindings::callback_read_unlock_bh(self.as_ptr());
        }
    }

    /// The error of a failed send: `EPIPE` with SIGPIPE unless `flags` has MSG_NOSIGNAL; a pending error replaces
    /// `EPIPE`.
    pub fn stream_error(&self, flags: u32, err: Error) -> Error {
        // SAFETY: The socket is alive.
        let err =
            unsafe { bindings::sk_stream_error(self.option_sk(), flags as i32, err.to_errno()) };
        Error::from_errno(err)
    }

    /// Sleeps until `cond` holds, at most `timeout` jiffies; returns how many of them are left.
    ///
    /// `cond` may sleep and take locks. `exclusive`: only one of such waiters is woken at a time.
    /// Context: process.
    ///
    /// # Errors
    ///
    /// The timeout, a pending signal, or that the connection was undone.
    pub fn wait_until(
        &self,
        timeout: isize,
        exclusive: bool,
        mut cond: impl FnMut() -> bool,
    ) -> Result<isize, WaitEnd> {
        let before = self.disconnects();
        let is_due = || self.disconnects() != before || cond();
        // SAFETY: By the type invariant the queue is initialised; it lives as long as `self`.
        let left = unsafe { wait_until(self.waiters(), timeout, exclusive, is_due) }?;
        match self.disconnects() == before {
            true => Ok(left),
            false => Err(WaitEnd::Disconnected),
        }
    }

    /// As [`wait_until`](Self::wait_until), for a call that reads: no SIGIO comes for the data that it waits for.
    /// Context: process.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_data(&self, timeout: isize, cond: impl FnMut() -> bool) -> Result<isize, WaitEnd> {
        // SAFETY: The socket is alive; the `struct socket` of the application has its wait queue for its life, which a
        // call on it does not outlive.
        unsafe { bindings::sk_set_async_waitdata(self.option_sk()) };
        let waited = self.wait_until(timeout, false, cond);
        // SAFETY: As above.
        unsafe { bindings::sk_clear_async_waitdata(self.option_sk()) };
        waited
    }
}

fn wake_up(head: *mut bindings::wait_queue_head, mask: u32) {
    let key = mask as usize as *mut c_void;
    if key.is_null() {
        // SAFETY: The callers pass a live queue.
        unsafe { bindings::__wake_up(head, bindings::TASK_INTERRUPTIBLE, 0, key) };
    } else {
        // SAFETY: The callers pass a live queue.
        unsafe { bindings::__wake_up_sync_key(head, bindings::TASK_INTERRUPTIBLE, key) };
    }
}
