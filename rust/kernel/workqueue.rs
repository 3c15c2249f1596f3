// SPDX-License-Identifier: GPL-2.0

//! Our own workqueues: all work on them ends before the module is unloaded.
//!
//! `kernel::workqueue` has references to the system's queues, and no way to create one.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::ptr::NonNull;

use kernel::{
    error::from_err_ptr,
    sync::Arc,
    workqueue::{
        HasWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    bindings,
    prelude::*, //
};

/// A workqueue. Dropping it waits for all work on it, so drop it neither in atomic context nor from its own work.
///
/// It is not exposed as a [`Queue`]: delayed work is not on the queue before its time, so the drop would not wait for
/// it, and its timer would find the queue freed.
///
/// # Invariants
///
/// The pointer is from `alloc_workqueue` and owned.
pub struct OwnedWorkqueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A workqueue may be used and destroyed from any thread.
unsafe impl Send for OwnedWorkqueue {}
// SAFETY: As above.
unsafe impl Sync for OwnedWorkqueue {}

impl OwnedWorkqueue {
    /// Creates a queue whose work is not bound to a CPU. At most `max_active` of its work items run at a time, 0 for
    /// the default.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn unbound(name: &'static CStr, max_active: i32) -> Result<Self> {
        // SAFETY: The format takes one string argument, which is passed.
        let ptr = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND,
                max_active,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: Owned from here on.
        NonNull::new(from_err_ptr(ptr)?).map(Self).ok_or(ENOMEM)
    }

    /// Queues a work item, unless it is pending already.
    /// Context: any.
    pub fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        // SAFETY: By the type invariant the queue lives as long as `self`; dropping it waits for the item.
        unsafe { Queue::from_raw(self.0.as_ptr().cast()) }.enqueue(item)
    }

    /// Waits until all work now on the queue has run.
    /// Context: may sleep; not from its own work.
    pub fn flush(&self) {
        // SAFETY: By the type invariant the queue is alive.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Drop for OwnedWorkqueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own the queue.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// Takes the work of `item` from the queue where it waits for its turn, and waits until it has run where it runs.
/// Context: may sleep; not from that work.
pub fn cancel_work<T, const ID: u64>(item: &Arc<T>)
where
    T: HasWork<T, ID> + WorkItem<ID, Pointer = Arc<T>>,
{
    let item = Arc::as_ptr(item);
    // SAFETY: `item` is alive, and so is the work that it contains.
    let work = unsafe { Work::raw_get(T::raw_get_work(item.cast_mut())) };
    // SAFETY: The work was initialised with `item`, which the caller holds.
    if unsafe { bindings::cancel_work(work.cast()) } {
        // SAFETY: The queue had this reference, and gives it to nobody any more.
        drop(unsafe { Arc::from_raw(item) });
    }
    // SAFETY: The work was initialised with `item`, which the caller holds.
    unsafe { bindings::flush_work(work.cast()) };
}
