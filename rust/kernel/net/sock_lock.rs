// SPDX-License-Identifier: GPL-2.0

//! The lock of a socket (`lock_sock`), for those who do not wait for it: the kernel has no function that tries.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use crate::bindings;

/// Runs `f` with the socket locked, as `lock_sock` does, if nobody has it locked.
/// Context: may sleep, but not for the lock.
///
/// # Safety
///
/// The socket must be alive.
pub(super) unsafe fn try_owned<R>(
    sk: *mut bindings::sock,
    f: impl FnOnce(*mut bindings::sock) -> R,
) -> Option<R> {
    // SAFETY: By the caller's promise.
    unsafe { bindings::sk_spin_lock_bh(sk) };
    // SAFETY: As above.
    let is_free = !unsafe { bindings::sock_owned_by_user_nocheck(sk) };
    if is_free {
        // SAFETY: As above. Who owns a socket is guarded by its spinlock.
        unsafe { bindings::sk_set_owned(sk) };
        // SAFETY: As above, and owned by us, which is told to lockdep.
        unsafe { bindings::sk_lock_acquired(sk) };
    }
    // SAFETY: Taken above.
    unsafe { bindings::sk_spin_unlock_bh(sk) };
    is_free.then(|| {
        let result = f(sk);
        // SAFETY: The socket is alive, and owned by us.
        unsafe { bindings::release_sock(sk) };
        result
    })
}
