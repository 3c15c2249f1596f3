// SPDX-License-Identifier: GPL-2.0

//! Sleeping until a condition holds, on wait queues that the kernel wakes.
//!
//! `kernel::sync::CondVar` has a queue of its own, and requires a lock around the condition.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use kernel::types::Opaque;

use crate::{
    barrier::{
        smp_mb,
        Full, //
    },
    bindings,
    prelude::*, //
};

/// Why a wait ended before its condition came true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The timeout expired.
    Timeout,
    /// A signal is pending: `ERESTARTSYS` if the wait had no timeout, else `EINTR`.
    Signal(Error),
    /// The connection that the caller waits for was undone meanwhile (`Sk::note_disconnect`).
    Disconnected,
}

impl WaitEnd {
    /// The error to return to the application; `EAGAIN` for a timeout, `EPIPE` for a connection that was undone.
    pub fn errno(self) -> Error {
        match self {
            Self::Timeout => EAGAIN,
            Self::Signal(e) => e,
            Self::Disconnected => EPIPE,
        }
    }
}

/// Runs `f`, whose sleeps also end on wake-ups of a queue. A wake-up between a check of the condition by `f` and its
/// sleep is missed, so such a sleep needs a timeout.
/// Context: process.
///
/// # Safety
///
/// `queue` must be an initialised queue that lives until the function returns.
pub(super) unsafe fn wakeful<R>(queue: *mut bindings::wait_queue_head, f: impl FnOnce() -> R) -> R {
    let entry = Opaque::<bindings::wait_queue_entry>::uninit();
    // SAFETY: `entry` is valid for writing and does not move until it is removed below.
    unsafe { bindings::init_wait_woken(entry.get()) };
    // SAFETY: Both are initialised; `entry` is removed before this function returns.
    unsafe { bindings::add_wait_queue(queue, entry.get()) };
    let result = f();
    // SAFETY: `entry` was added above.
    unsafe { bindings::remove_wait_queue(queue, entry.get()) };
    result
}

/// No timeout, in jiffies.
pub const FOREVER: isize = isize::MAX;

/// Sleeps until `cond` holds, at most `timeout` jiffies; returns how many of them are left. `cond` may sleep and take
/// locks. It is first asked on the queue, for callers that have just found that they must wait.
/// Context: process.
///
/// # Safety
///
/// `queue` must be an initialised queue that lives until the function returns.
pub(super) unsafe fn wait_until(
    queue: *mut bindings::wait_queue_head,
    timeout: isize,
    exclusive: bool,
    mut cond: impl FnMut() -> bool,
) -> Result<isize, WaitEnd> {
    let entry = Opaque::<bindings::wait_queue_entry>::uninit();
    // SAFETY: `entry` is valid for writing and does not move until it is removed below.
    unsafe { bindings::init_wait_woken(entry.get()) };
    if exclusive {
        // SAFETY: Both are initialised; `entry` is removed before this function returns.
        unsafe { bindings::add_wait_queue_exclusive(queue, entry.get()) };
    } else {
        // SAFETY: As above.
        unsafe { bindings::add_wait_queue(queue, entry.get()) };
    }
    // Whoever wakes looks for waiters without the lock of the queue. Pairs with the barrier of `wq_has_sleeper`: either
    // it sees this waiter, or `cond` sees what it has changed.
    smp_mb(Full);
    let mut left = timeout;
    let result = loop {
        if cond() {
            break Ok(left);
        }
        if left == 0 {
            break Err(WaitEnd::Timeout);
        }
        if kernel::current!().signal_pending() {
            // SAFETY: Only reads its argument.
            let errno = unsafe { bindings::sock_intr_errno(left) };
            break Err(WaitEnd::Signal(Error::from_errno(errno)));
        }
        // SAFETY: The entry is on a queue and was made for `wait_woken` by the current task.
        left = unsafe { bindings::wait_woken(entry.get(), bindings::TASK_INTERRUPTIBLE, left) };
    };
    // SAFETY: `entry` was added above.
    unsafe { bindings::remove_wait_queue(queue, entry.get()) };
    result
}
