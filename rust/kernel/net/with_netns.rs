// SPDX-License-Identifier: GPL-2.0

//! Calls into drivers that create a socket in the network namespace of the current task.
//!
//! C header: [`include/linux/nsproxy.h`](srctree/include/linux/nsproxy.h)

use core::cell::UnsafeCell;

use super::NetNs;
use crate::{
    bindings,
    prelude::*, //
};

/// Restores the task's own namespaces when dropped.
///
/// # Invariants
///
/// `outer` was the task's set of namespaces, and the task still holds its reference to it. `inner` is a copy with
/// another network namespace, and the task's set at present.
struct Inside {
    outer: *mut bindings::nsproxy,
    inner: KBox<UnsafeCell<bindings::nsproxy>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the task still holds its previous set.
        unsafe { bindings::set_current_nsproxy(self.outer) };
        // Another task may have taken a reference under our task lock, as setns(2) does to read a namespace; it
        // releases it soon, and now the copy can no longer be found.
        // SAFETY: The copy is valid, and ours.
        while unsafe { bindings::nsproxy_is_shared(self.inner.get()) } {
            // SAFETY: We may sleep, as the caller of `run` may.
            unsafe { bindings::msleep(1) };
        }
    }
}

/// Runs `f` as if the task were in the network namespace `net`. `f` must not create tasks.
/// Context: may sleep.
///
/// The header's rules allow a task to change its own set of namespaces; other tasks read it under its lock. The set
/// made here is a copy of the task's with one pointer changed. Nothing in it needs a reference of its own: the task
/// holds those of its own set, and the caller that to `net`.
///
/// # Errors
///
/// `ENOMEM`; `EINVAL` for an exiting task, which has no namespaces any more.
pub(crate) fn run<R>(net: &NetNs, f: impl FnOnce() -> R) -> Result<R> {
    // SAFETY: No precondition.
    let outer = unsafe { bindings::current_nsproxy() };
    if outer.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: A task may read its own set, which nothing else changes.
    if unsafe { (*outer).net_ns } == net.as_ptr() {
        return Ok(f());
    }
    // SAFETY: As above. The copy of the count is overwritten below.
    let mut copy = unsafe { outer.read() };
    copy.net_ns = net.as_ptr();
    let inner = KBox::new(UnsafeCell::new(copy), GFP_KERNEL)?;
    // SAFETY: The copy is ours alone. Its one reference is ours, so that no other task's is the last.
    unsafe { bindings::nsproxy_init_refs(inner.get()) };
    // SAFETY: The copy lives until `Inside` has restored the old set.
    unsafe { bindings::set_current_nsproxy(inner.get()) };
    // INVARIANT: Just done.
    let inside = Inside { outer, inner };
    let result = f();
    drop(inside);
    Ok(result)
}
