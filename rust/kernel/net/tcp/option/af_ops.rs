// SPDX-License-Identifier: GPL-2.0

//! A socket that connects sees the SYN-ACK: the function of TCP's table that gets it is replaced meanwhile.
//!
//! TCP calls `sk_rx_dst_set` with the SYN-ACK (`tcp_finish_connect`), which MPTCP uses for the same. Tables are those
//! of IPv4, of IPv6, and of IPv4 addresses in an IPv6 socket, to which TCP itself changes when it connects.
//!
//! C header: [`include/net/inet_connection_sock.h`](srctree/include/net/inet_connection_sock.h)

use core::ptr;

use kernel::sync::SetOnce;

use crate::bindings;

type AfOps = bindings::inet_connection_sock_af_ops;

/// `sk_rx_dst_set` of a table.
type RxDstSet = unsafe extern "C" fn(*mut bindings::sock, *const bindings::sk_buff);

/// A copy of one of TCP's tables, with a function of ours.
struct Copy {
    ops: AfOps,
    original: *const AfOps,
}

// SAFETY: The original is a static of the kernel's that is only read.
unsafe impl Send for Copy {}
// SAFETY: As above.
unsafe impl Sync for Copy {}

/// More than there are tables: two tasks may copy the same at a time.
static COPIES: [SetOnce<Copy>; 8] = [const { SetOnce::new() }; 8];

/// Returns the copy that `ops` is, if it is one.
fn copy_at(ops: *const AfOps) -> Option<&'static Copy> {
    COPIES
        .iter()
        .filter_map(SetOnce::as_ref)
        .find(|copy| ptr::eq(&copy.ops, ops))
}

/// Returns the copy of a table, which is made with `function` if there is none.
///
/// # Safety
///
/// `original` must be a table that lives as long as the kernel.
unsafe fn copy_of(original: *const AfOps, function: RxDstSet) -> Option<&'static Copy> {
    COPIES.iter().find_map(|slot| {
        if slot.as_ref().is_none() {
            // SAFETY: By the caller's promise.
            let mut ops = unsafe { *original };
            ops.sk_rx_dst_set = Some(function);
            // Another task may have taken the slot.
            slot.populate(Copy { ops, original });
        }
        slot.as_ref().filter(|copy| copy.original == original)
    })
}

/// From now on until [`restore`], TCP calls `function`, the same in each call, in place of its own. Returns false if
/// that cannot be.
/// Context: does not sleep.
///
/// # Safety
///
/// `sk` must be a live TCP socket in SYN_SENT, locked.
pub(super) unsafe fn install(sk: *mut bindings::sock, function: RxDstSet) -> bool {
    // SAFETY: By the caller's promise.
    let now = unsafe { bindings::inet_csk_af_ops(sk) };
    if copy_at(now).is_some() {
        return true;
    }
    // SAFETY: Tables of TCP are statics of the kernel.
    let Some(copy) = (unsafe { copy_of(now, function) }) else {
        return false;
    };
    // SAFETY: By the caller's promise; the copy is a static.
    unsafe { bindings::inet_csk_set_af_ops(sk, &copy.ops) };
    true
}

/// Puts TCP's own table back, and returns it; `None` if it is there.
/// Context: does not sleep.
///
/// # Safety
///
/// `sk` must be a live TCP socket, locked.
pub(super) unsafe fn restore(sk: *mut bindings::sock) -> Option<*const AfOps> {
    // SAFETY: By the caller's promise.
    let copy = copy_at(unsafe { bindings::inet_csk_af_ops(sk) })?;
    // SAFETY: By the caller's promise; the original is a static of the kernel's.
    unsafe { bindings::inet_csk_set_af_ops(sk, copy.original) };
    Some(copy.original)
}
