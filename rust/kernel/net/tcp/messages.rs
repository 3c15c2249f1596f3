// SPDX-License-Identifier: GPL-2.0

//! Sends and receives the kernel's own messages, those of the handshake.

use super::{
    length,
    TcpSocket, //
};
use crate::{
    bindings,
    net::{
        wait,
        WaitEnd, //
    },
    prelude::*, //
};

impl TcpSocket {
    /// Sends all of `bytes` within `timeout` jiffies, also if the application has set TCP_CORK. Raises no signal.
    ///
    /// # Errors
    ///
    /// `EAGAIN` at the timeout, `ERESTARTSYS` or `EINTR` for a signal, and TCP's.
    pub fn send_all(&self, bytes: &[u8], timeout: isize) -> Result {
        let mut left = timeout;
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = self.retry(&mut left, || self.send_now(rest))?;
            rest = rest.get(sent..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Copies available data, at least one byte, into `buf`, and leaves them queued. Returns their number; 0 at the end
    /// of the stream. Waits up to `left` jiffies, and subtracts the time waited.
    ///
    /// # Errors
    ///
    /// `EAGAIN` at the timeout, `ERESTARTSYS` or `EINTR` for a signal, and TCP's.
    pub fn peek(&self, buf: &mut [u8], left: &mut isize) -> Result<usize> {
        self.retry(left, || self.recv_now(buf, true))
    }

    /// Peeks at the first bytes, until `is_enough` holds for them, `buf` is full or no more can come. Returns their
    /// number; 0 at the end of the stream. Waits as [`TcpSocket::peek`].
    ///
    /// # Errors
    ///
    /// `EAGAIN` at the timeout, and those of [`TcpSocket::peek`].
    pub fn peek_until(
        &self,
        buf: &mut [u8],
        left: &mut isize,
        mut is_enough: impl FnMut(&[u8]) -> bool,
    ) -> Result<usize> {
        self.retry(left, || {
            // Read before the data, so that none can arrive after it.
            let is_last = !self.state().may_receive();
            let len = self.recv_now(buf, true)?;
            let seen = buf.get(..len).unwrap_or(&[]);
            let is_done = is_last || len == 0 || len == buf.len() || is_enough(seen);
            if is_done {
                Ok(len)
            } else {
                Err(EAGAIN)
            }
        })
    }

    /// Sleeps on the socket's events until `cond` holds, which may sleep, at most `timeout` jiffies or until a signal.
    /// Context: process.
    pub fn wait_until(&self, timeout: isize, cond: impl FnMut() -> bool) {
        // SAFETY: The queue belongs to the socket, which is alive; it is initialised.
        let _ = unsafe { wait::wait_until(self.queue(), timeout, false, cond) };
    }

    /// Receives until `buf` is full. As [`TcpSocket::peek`] otherwise.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` at the end of the stream; those of [`TcpSocket::peek`].
    pub fn recv_exact(&self, buf: &mut [u8], left: &mut isize) -> Result {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.retry(left, || self.recv_now(rest, false))? {
                0 => return Err(ECONNRESET),
                len => done += len,
            }
        }
        Ok(())
    }

    fn send_now(&self, bytes: &[u8]) -> Result<usize> {
        let mut msg = bindings::msghdr {
            msg_flags: bindings::MSG_DONTWAIT | bindings::MSG_NOSIGNAL,
            ..Default::default()
        };
        let mut vec = bindings::kvec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        if self.nagle().is_corked {
            return self.send_uncorked(&mut msg, &vec);
        }
        // SAFETY: The socket is alive; the bytes are only read.
        length(unsafe {
            bindings::kernel_sendmsg(self.as_ptr(), &mut msg, &mut vec, 1, bytes.len())
        })
    }

    /// Sends as if the application had not set TCP_CORK, for which TCP would wait for more, or a fifth of a second.
    fn send_uncorked(&self, msg: &mut bindings::msghdr, vec: &bindings::kvec) -> Result<usize> {
        // SAFETY: The bytes are valid as long as `msg` is used, and only read.
        unsafe {
            bindings::iov_iter_kvec(
                &mut msg.msg_iter,
                bindings::ITER_SOURCE,
                vec,
                1,
                vec.iov_len,
            )
        };
        // The application can change the option only before or after.
        length(self.locked(|sk| {
            // CAST: A bit of a byte.
            let cork = bindings::TCP_NAGLE_CORK as u8;
            // SAFETY: A live TCP socket, locked; `msg` asks not to wait, so that it stays so.
            unsafe {
                let before = bindings::tcp_nonagle(sk);
                bindings::tcp_set_nonagle(sk, before & !cork);
                let sent = bindings::tcp_sendmsg_locked(sk, msg, vec.iov_len);
                bindings::tcp_set_nonagle(sk, bindings::tcp_nonagle(sk) | before & cork);
                sent
            }
        }))
    }

    fn recv_now(&self, buf: &mut [u8], peek: bool) -> Result<usize> {
        let mut msg = bindings::msghdr::default();
        let mut vec = bindings::kvec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let flags = bindings::MSG_DONTWAIT | if peek { bindings::MSG_PEEK } else { 0 };
        // SAFETY: The socket is alive; the buffer is valid for writing its length.
        length(unsafe {
            bindings::kernel_recvmsg(
                self.as_ptr(),
                &mut msg,
                &mut vec,
                1,
                buf.len(),
                flags as i32,
            )
        })
    }

    /// Calls `attempt` until it returns something other than `EAGAIN`, sleeping in between, also while a call of the
    /// application may have the socket locked: see [`Self::begin_work`].
    fn retry(&self, left: &mut isize, mut attempt: impl FnMut() -> Result<usize>) -> Result<usize> {
        // Who does not wait has looked for such calls.
        let mut result = match *left > 0 {
            true => self.begin_work().map_or(Err(EAGAIN), |_work| attempt()),
            false => attempt(),
        };
        if !matches!(result, Err(e) if e == EAGAIN) {
            return result;
        }
        while *left > 0 {
            let mut is_kept_out = false;
            // SAFETY: The queue belongs to the socket, which is alive; it is initialised.
            let waited = unsafe {
                wait::wait_until(self.queue(), *left, false, || {
                    let work = self.begin_work();
                    is_kept_out = work.is_none();
                    if !is_kept_out {
                        result = attempt();
                    }
                    is_kept_out || !matches!(result, Err(e) if e == EAGAIN)
                })
            };
            match waited {
                // Nobody says when the call is over.
                Ok(rest) if is_kept_out => *left = sleep_a_jiffy(rest),
                Ok(rest) => {
                    *left = rest;
                    return result;
                }
                Err(WaitEnd::Timeout) => *left = 0,
                Err(end) => return Err(end.errno()),
            }
        }
        result
    }
}

/// Sleeps for a jiffy; returns how many of `left` are left.
fn sleep_a_jiffy(left: isize) -> isize {
    // SAFETY: The caller may sleep.
    let early = unsafe { bindings::schedule_timeout_uninterruptible(1) };
    left.saturating_sub(1).saturating_add(early).max(0)
}
