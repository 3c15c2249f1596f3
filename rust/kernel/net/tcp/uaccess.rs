// SPDX-License-Identifier: GPL-2.0

//! Calls of the application in which TCP accesses its memory with the socket locked, and work that must not wait for
//! these.
//!
//! Such a call has the lock for as long as a page fault takes in memory that a program serves (FUSE, userfaultfd),
//! which may be for ever. A worker that waits for the lock is lost to all others whom it serves. To look whether the
//! socket is locked, and then to lock it, is not enough: a call may come in between. So both sides announce themselves,
//! and then look for the other.

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

use super::TcpSocket;

/// Both sides of a socket.
pub(super) struct UserAccess {
    calls: Atomic<u32>,
    works: Atomic<u32>,
}

impl UserAccess {
    /// Neither.
    pub(super) const fn none() -> Self {
        Self {
            calls: Atomic::new(0),
            works: Atomic::new(0),
        }
    }
}

/// A call in progress, until this is dropped.
pub struct UserAccessCall<'a>(&'a UserAccess);

impl Drop for UserAccessCall<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Full);
    }
}

/// Work in progress, until this is dropped.
pub struct UserAccessWork<'a>(&'a UserAccess);

impl Drop for UserAccessWork<'_> {
    fn drop(&mut self) {
        self.0.works.fetch_sub(1, Full);
    }
}

impl TcpSocket {
    /// Announces a call that accesses the application's memory with the socket locked. `None` while some work has the
    /// socket, which does not take long. Both sides are ordered: what a worker has written before it looked for calls
    /// is seen after this.
    /// Context: any.
    pub fn begin_user_access(&self) -> Option<UserAccessCall<'_>> {
        self.uaccess.calls.fetch_add(1, Full);
        let call = UserAccessCall(&self.uaccess);
        (self.uaccess.works.load(Relaxed) == 0).then_some(call)
    }

    /// Whether there is such a call. What it reads after it has begun is ordered after what was written before this, by
    /// a full barrier of the caller.
    /// Context: any.
    pub fn has_user_access(&self) -> bool {
        self.uaccess.calls.load(Relaxed) > 0
    }

    /// Begins work that locks the socket for a moment, as often as it likes until the result is dropped. `None` if
    /// there is such a call.
    /// Context: any.
    pub fn begin_work(&self) -> Option<UserAccessWork<'_>> {
        self.uaccess.works.fetch_add(1, Full);
        let work = UserAccessWork(&self.uaccess);
        (!self.has_user_access()).then_some(work)
    }
}
