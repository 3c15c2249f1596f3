// SPDX-License-Identifier: GPL-2.0

//! What a TCP socket uses of the `struct socket` that the application holds: its file, and its wait queue.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::ptr;

use super::{
    hook,
    Sk,
    TcpSocket, //
};
use crate::bindings;

impl TcpSocket {
    /// Has the packets of this socket be those of the application's file, for rules of a firewall that ask who owns the
    /// socket (xt_owner, `meta skuid` of nftables, cls_flow) and logs that say it (nfnetlink_log); and SIGURG go to the
    /// owner of the file.
    /// Context: process.
    ///
    /// # Safety
    ///
    /// `front` must be the live `struct socket` of the application above this one; when it is released,
    /// [`Self::leave_file`] is to be called before its file is freed.
    pub(in crate::net) unsafe fn take_file(&self, front: *mut bindings::socket) {
        // SAFETY: Both are alive. The kernel reads the field once, under RCU or the socket lock.
        unsafe {
            let file = (&raw const (*front).file).read_volatile();
            (&raw mut (*self.as_ptr()).file).write_volatile(file);
        }
    }

    /// Undoes [`Self::take_file`], when the application has closed its socket. Afterwards nothing uses the file but who
    /// found it under RCU.
    /// Context: may sleep.
    pub(in crate::net) fn leave_file(&self) {
        let (socket, sk) = (self.as_ptr(), self.sk_ptr());
        // SAFETY: The socket is alive.
        if unsafe { (&raw const (*socket).file).read_volatile() }.is_null() {
            return;
        }
        // TCP signals urgent data with this lock held.
        // SAFETY: The socket is alive, and sleeping is allowed.
        unsafe {
            bindings::lock_sock_nested(sk, 0);
            (&raw mut (*socket).file).write_volatile(ptr::null_mut());
            bindings::release_sock(sk);
        }
    }

    /// Has TCP itself wake who waits for `front`, the application's socket above this one: tasks in poll(2) and in
    /// calls that TCP handles, and SIGIO. That data came is then no longer reported to the owner of the hook.
    ///
    /// Nothing happens if there is no hook, if `front` has been released, or while a task waits in a call on this
    /// socket. `is_hooked` is `false` for a socket whose events something else in the kernel has: nothing happens if
    /// there is a hook, then.
    /// Context: may sleep.
    pub fn share_waiters(&self, front: &Sk, is_hooked: bool) {
        self.locked(|sk| self.share_locked(sk, front, is_hooked));
    }

    /// As [`Self::share_waiters`]. Returns false, and does nothing, if somebody has the socket locked.
    /// Context: may sleep, but not for the lock.
    pub fn try_share_waiters(&self, front: &Sk, is_hooked: bool) -> bool {
        self.try_locked(|sk| self.share_locked(sk, front, is_hooked))
            .is_some()
    }

    /// [`Self::share_waiters`] with the socket locked: no task begins to wait in a call on it meanwhile, nor ends.
    fn share_locked(&self, sk: *mut bindings::sock, front: &Sk, is_hooked: bool) {
        if self.has_shared_waiters() {
            // The hook may be another one than then.
            // SAFETY: The socket is alive.
            unsafe { hook::stop_readable(sk, || {}) };
        // SAFETY: The queue belongs to the socket.
        } else if !unsafe { bindings::wq_has_sleeper(self.queue()) } {
            self.move_queue(front, is_hooked);
        }
    }

    /// Makes TCP report data from now on once there is as much as `front` waits for (SO_RCVLOWAT), unless somebody has
    /// the socket locked. Returns whether nobody had.
    /// Context: may sleep, but not for the lock.
    pub fn try_set_rcvlowat(&self, front: &Sk) -> bool {
        let (sk, lowat) = (self.sk_ptr(), front.lowat());
        // SAFETY: The socket is alive; the field is read whole.
        if unsafe { (&raw const (*sk).sk_rcvlowat).read_volatile() } == lowat {
            return true;
        }
        // SAFETY: By the type invariant the socket is alive and has a table.
        let Some(set_rcvlowat) = (unsafe { (*(*self.as_ptr()).ops).set_rcvlowat }) else {
            return true;
        };
        // SAFETY: The socket is alive, and locked, as the function requires.
        self.try_locked(|sk| unsafe { set_rcvlowat(sk, lowat) })
            .is_some()
    }

    /// Whether [`Self::share_waiters`] has done so.
    /// Context: any.
    pub fn has_shared_waiters(&self) -> bool {
        self.shared.as_ref().is_some()
    }

    /// The part of [`Self::share_waiters`] with the socket locked and nobody waiting, with or without a hook.
    fn move_queue(&self, front: &Sk, is_hooked: bool) {
        let sk = self.sk_ptr();
        let Some(inode) = SocketInode::of(front) else {
            return;
        };
        let use_queue = || {
            // Whoever waits on the queue or wakes it has the lock of TCP's callbacks, that of the socket, or is in an
            // RCU read section.
            // SAFETY: The caller has locked the socket, which is alive. The new queue, which is one of sockets as well,
            // lives as long as the inode, and that is held until TCP has been released.
            unsafe { bindings::sk_set_wq(sk, inode.socket()) };
            // Who asks for SIGIO is on the list of the queue. This flag only has TCP look there.
            // SAFETY: As above.
            unsafe { bindings::sock_set_flag(sk, bindings::sock_flags_SOCK_FASYNC) };
            self.shared.populate(inode);
        };
        match is_hooked {
            // SAFETY: The socket is alive.
            true => unsafe { hook::stop_readable(sk, use_queue) },
            // SAFETY: As above.
            false => unsafe { hook::unless_hooked(sk, use_queue) },
        }
    }
}

/// A reference to the inode of a `struct socket`, which contains that.
///
/// # Invariants
///
/// The pointer is the inode of a `struct socket`, and the reference is owned.
pub(super) struct SocketInode(*mut bindings::inode);

impl SocketInode {
    /// Returns that of an application's socket; `None` if it has been released.
    fn of(front: &Sk) -> Option<Self> {
        let front = front.as_ptr();
        // A socket is detached from its `struct socket` under this lock, before that gives up its inode.
        // SAFETY: The socket is alive.
        unsafe { bindings::callback_read_lock_bh(front) };
        // SAFETY: As above.
        let socket = unsafe { bindings::sk_socket(front) };
        let inode = (!socket.is_null()).then(|| {
            // SAFETY: The `struct socket` holds its inode until it is detached.
            let inode = unsafe { bindings::sock_inode(socket) };
            // SAFETY: As above.
            unsafe { bindings::ihold(inode) };
            // INVARIANT: As above; the reference is the one taken here.
            Self(inode)
        });
        // SAFETY: Taken above.
        unsafe { bindings::callback_read_unlock_bh(front) };
        inode
    }

    /// The `struct socket`, which lives as long as `self`.
    pub(super) fn socket(&self) -> *mut bindings::socket {
        // SAFETY: By the type invariant.
        unsafe { bindings::socket_i(self.0) }
    }
}

impl Drop for SocketInode {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::iput(self.0) };
    }
}
