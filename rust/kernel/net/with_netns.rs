// SPDX-License-Identifier: GPL-2.0

//! Calls into drivers that make a socket in the network namespace of the task that calls them.
//!
//! C header: [`include/linux/nsproxy.h`](srctree/include/linux/nsproxy.h)

use core::cell::UnsafeCell;

use kernel::prelude::*;

use super::NetNs;
use crate::bindings;

/// Takes the task's own namespaces back when it goes.
///
/// # Invariants
///
/// `outer` was the task's set of namespaces, and it goes on holding its reference to that. `inner` is a
/// copy with another network namespace, and the task's set at present.
struct Inside {
    outer: *mut bindings::nsproxy,
    inner: KBox<UnsafeCell<bindings::nsproxy>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the task still holds what it had before.
        unsafe { bindings::set_current_nsproxy(self.outer) };
        // Another task may have taken a reference under our lock, as setns(2) does to look at a namespace;
        // it gives it back soon, and now nobody finds the copy any more.
        // SAFETY: The copy is valid, and ours.
        while unsafe { bindings::nsproxy_is_shared(self.inner.get()) } {
            // SAFETY: We may sleep, as the caller of `run` may.
            unsafe { bindings::msleep(1) };
        }
    }
}

/// Runs `f` as if the task were in the network namespace `net`. May sleep. `f` makes no new task.
///
/// The header's rules allow a task to change its own set of namespaces; others that look at it take its
/// lock. The set made here is a copy of the task's with one pointer changed. Nothing in it needs a reference
/// of its own: the task keeps those of its own set, and the caller that to `net`.
///
/// # Errors
///
/// `ENOMEM`; `EINVAL` for a task that has no namespaces any more, because it exits.
pub(crate) fn run<R>(net: &NetNs, f: impl FnOnce() -> R) -> Result<R> {
    // SAFETY: No precondition.
    let outer = unsafe { bindings::current_nsproxy() };
    if outer.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: A task may read its own set, which nobody else changes.
    if unsafe { (*outer).net_ns } == net.as_ptr() {
        return Ok(f());
    }
    // SAFETY: As above. The copy of the count is overwritten below.
    let mut copy = unsafe { outer.read() };
    copy.net_ns = net.as_ptr();
    let inner = KBox::new(UnsafeCell::new(copy), GFP_KERNEL)?;
    // SAFETY: The copy is ours alone. Its one reference is ours, so that nobody else's is the last.
    unsafe { bindings::nsproxy_init_refs(inner.get()) };
    // SAFETY: The copy stays until `Inside` has taken the old set back.
    unsafe { bindings::set_current_nsproxy(inner.get()) };
    // INVARIANT: Just done.
    let inside = Inside { outer, inner };
    let result = f();
    drop(inside);
    Ok(result)
}
