// SPDX-License-Identifier: GPL-2.0

//! The connections of a listener that wait for accept(2).
//!
//! C headers: [`include/net/request_sock.h`](srctree/include/net/request_sock.h),
//! [`include/net/inet_connection_sock.h`](srctree/include/net/inet_connection_sock.h)

use super::{
    option,
    TcpSocket, //
};
use crate::bindings;

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
    /// Looks at the connections of a listener that are pending for [`TcpSocket::accept`].
    /// Context: does not sleep.
    pub fn accept_queue(&self) -> AcceptQueue {
        if !self.has_pending() {
            return AcceptQueue::Empty;
        }
        let lock = self.accept_queue_lock();
        // SAFETY: The socket is alive. A queue that is not empty is initialised: the socket listens.
        unsafe { bindings::spin_lock_bh(lock) };
        // SAFETY: The lock is held.
        let seen = unsafe { self.look_at_accept_queue() };
        // SAFETY: Taken above.
        unsafe { bindings::spin_unlock_bh(lock) };
        seen
    }

    /// The same, but [`AcceptQueue::Mixed`] if the queue is in use. For TCP's wake-up of a listener: its queue's lock
    /// stands below others of TCP's there, so it is tried only.
    /// Context: any.
    pub(super) fn try_accept_queue(&self) -> AcceptQueue {
        if !self.has_pending() {
            return AcceptQueue::Empty;
        }
        let lock = self.accept_queue_lock();
        // SAFETY: As in `accept_queue`.
        if unsafe { bindings::spin_trylock(lock) } == 0 {
            return AcceptQueue::Mixed;
        }
        // SAFETY: The lock is held.
        let seen = unsafe { self.look_at_accept_queue() };
        // SAFETY: Taken above.
        unsafe { bindings::spin_unlock(lock) };
        seen
    }

    /// # Safety
    ///
    /// The lock of the queue must be held.
    unsafe fn look_at_accept_queue(&self) -> AcceptQueue {
        let queue = self.accept_queue_ptr();
        // SAFETY: The socket is alive, and by the caller's promise its queue does not change.
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

    /// How many requests of a listener wait for their client's ACK. All may get that at once, and are pending then.
    /// Context: any; it may have changed when this returns.
    pub fn requests(&self) -> u32 {
        // SAFETY: The socket is alive and has such a queue; the field is read whole.
        let len = unsafe { (&raw const (*self.accept_queue_ptr()).qlen.counter).read_volatile() };
        u32::try_from(len).unwrap_or(0)
    }

    fn accept_queue_lock(&self) -> *mut bindings::spinlock_t {
        let queue = self.accept_queue_ptr();
        // SAFETY: The socket is alive.
        unsafe { &raw mut (*queue).rskq_lock }
    }

    fn accept_queue_ptr(&self) -> *mut bindings::request_sock_queue {
        let csk = self.sk_ptr().cast::<bindings::inet_connection_sock>();
        // SAFETY: A TCP socket is one of these, and alive.
        unsafe { &raw mut (*csk).icsk_accept_queue }
    }
}
