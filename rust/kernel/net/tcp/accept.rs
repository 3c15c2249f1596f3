// SPDX-License-Identifier: GPL-2.0

//! The connections of a listener that wait for accept(2).
//!
//! C headers: [`include/net/request_sock.h`](srctree/include/net/request_sock.h),
//! [`include/net/inet_connection_sock.h`](srctree/include/net/inet_connection_sock.h)

use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::to_result;

use super::{
    hook,
    option,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// What the connections that a listener has not accepted are, as far as a short look tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptQueue {
    /// There are none.
    Empty,
    /// Of none have both ends offered SMC.
    WithoutSmc,
    /// Others, or many.
    Mixed,
}

/// Connections of a queue that are looked at.
const SHORT_QUEUE: u32 = 8;

impl TcpSocket {
    /// Limits the number of connections pending for [`TcpSocket::accept`].
    pub fn set_max_backlog(&self, backlog: u32) {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; the field is written whole.
        unsafe { (&raw mut (*sk).sk_max_ack_backlog).write_volatile(backlog) };
    }

    /// Accepts a pending connection, without waiting for one.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is none; TCP's otherwise.
    pub fn accept(&self) -> Result<Self> {
        // The kernel allocates the new socket first, with an inode.
        if !self.has_pending() && self.state().is_listening() {
            return Err(EAGAIN);
        }
        let mut socket = ptr::null_mut();
        // SAFETY: The socket is alive; `socket` is valid for writing.
        to_result(unsafe {
            bindings::kernel_accept(self.as_ptr(), &mut socket, bindings::O_NONBLOCK as i32)
        })?;
        // INVARIANT: A new socket, which is ours.
        let child = Self::from_socket(NonNull::new(socket).ok_or(EINVAL)?);
        hook::reset_inherited(&child);
        option::accepted(&child, self);
        Ok(child)
    }

    /// Looks at the connections of a listener that are pending for [`TcpSocket::accept`].
    /// Context: does not sleep.
    pub fn accept_queue(&self) -> AcceptQueue {
        if !self.has_pending() {
            return AcceptQueue::Empty;
        }
        let queue = self.accept_queue_ptr();
        // SAFETY: The socket is alive. A queue that is not empty is initialised: the socket listens.
        let lock = unsafe { &raw mut (*queue).rskq_lock };
        // SAFETY: As above.
        unsafe { bindings::spin_lock_bh(lock) };
        // SAFETY: As above, and the lock is held.
        let mut request = unsafe { (*queue).rskq_accept_head };
        let mut seen = match request.is_null() {
            true => AcceptQueue::Empty,
            false => AcceptQueue::WithoutSmc,
        };
        let mut left = SHORT_QUEUE;
        while !request.is_null() {
            // SAFETY: While the lock is held, requests stay in the queue, each with its connection.
            if left == 0 || unsafe { option::unaccepted_syn_smc((*request).sk) } {
                seen = AcceptQueue::Mixed;
                break;
            }
            left -= 1;
            // SAFETY: As above.
            request = unsafe { (*request).dl_next };
        }
        // SAFETY: Taken above.
        unsafe { bindings::spin_unlock_bh(lock) };
        seen
    }

    /// Whether a connection of a listener is pending for [`TcpSocket::accept`].
    /// Context: any.
    pub fn has_pending(&self) -> bool {
        // SAFETY: The socket is alive; a word that is compared only.
        let head =
            unsafe { (&raw const (*self.accept_queue_ptr()).rskq_accept_head).read_volatile() };
        !head.is_null()
    }

    fn accept_queue_ptr(&self) -> *mut bindings::request_sock_queue {
        let csk = self.sk_ptr().cast::<bindings::inet_connection_sock>();
        // SAFETY: A TCP socket is one of these, and alive.
        unsafe { &raw mut (*csk).icsk_accept_queue }
    }
}
