// SPDX-License-Identifier: GPL-2.0

//! A job that runs later, and certainly not after its owner is gone.
//!
//! `kernel::workqueue::DelayedWork` is not used: its time cannot be brought forward, nobody can cancel it or wait for
//! its end, and its owner lives until it has run.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::ops::Deref;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock,
    time::Jiffies,
    types::Opaque, //
};

use crate::{
    bindings,
    time, //
};

/// No run is due.
const NEVER: u64 = u64::MAX;

/// What a [`DelayedWork`] runs. It borrows from nobody: pinned memory that was forgotten stays, and the work with it, but
/// not what it would have borrowed.
pub trait Job: Send + Sync + 'static {
    /// Runs the job and says when it is to run again, in jiffies. Process context, may sleep.
    fn run(&self) -> Option<Jiffies>;
}

/// A job with a timer on the system workqueue. Dropping it waits for a run that is under way, so it
/// must be dropped where sleeping is allowed, and never by the job itself.
///
/// # Invariants
///
/// `work` is initialised, and pending or running only while `self` lives.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub struct DelayedWork<T: Job> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    /// When the next run is due, ns of the clock; the largest number when none is.
    /// Lock order: only the workqueue's own locks are taken under it.
    #[pin]
    due: SpinLock<u64>,
    job: T,
}

// SAFETY: The work item may be used from any thread, and `T` is `Send`.
unsafe impl<T: Job> Send for DelayedWork<T> {}
// SAFETY: All methods go through the workqueue's own synchronisation, and `T` is `Sync`.
unsafe impl<T: Job> Sync for DelayedWork<T> {}

impl<T: Job> DelayedWork<T> {
    /// A job that is not scheduled.
    pub fn new(job: T) -> impl PinInit<Self> {
        pin_init!(Self {
            work <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writing a work item, which stays pinned.
                unsafe { bindings::init_delayed_work(slot, Some(Self::run)) }
            }),
            due <- new_spinlock!(NEVER, "DelayedWork::due"),
            job,
        })
    }

    /// Has the job run in `delay` jiffies at the latest; sooner, if it was to run sooner. What the
    /// caller did before is seen by that run. Does not sleep; not from interrupts.
    pub fn run_within(&self, delay: Jiffies) {
        let due = time::coarse_ns().saturating_add(time::nanos(delay));
        let mut earliest = self.due.lock();
        if due >= *earliest {
            return;
        }
        *earliest = due;
        // SAFETY: By the type invariant the work item is initialised.
        unsafe {
            bindings::mod_delayed_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32,
                bindings::system_dfl_wq,
                self.work.get(),
                delay,
            )
        };
    }

    /// Waits for a run that is under way; the job never runs again, whatever is called. May sleep,
    /// not from the job itself.
    pub fn stop(&self) {
        // SAFETY: By the type invariant the work item is initialised.
        unsafe { bindings::disable_delayed_work_sync(self.work.get()) };
    }

    /// # Safety
    ///
    /// To be called by the workqueue with the work item of a living `Self` only.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // CAST: `work` is the first field of `delayed_work`, which is the first field of the
        // `repr(C)` type `Self`.
        let this = work.cast::<Self>();
        // SAFETY: By the type invariant `Self` lives while the work runs.
        let this = unsafe { &*this };
        // Before the job looks at anything: whoever comes from now on is not served by this run.
        *this.due.lock() = NEVER;
        if let Some(delay) = this.job.run() {
            this.run_within(delay);
        }
    }
}

impl<T: Job> Deref for DelayedWork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.job
    }
}

#[pinned_drop]
impl<T: Job> PinnedDrop for DelayedWork<T> {
    fn drop(self: Pin<&mut Self>) {
        // INVARIANT: Nothing is pending or running afterwards; a run that re-arms itself is
        // cancelled as well.
        // SAFETY: By the type invariant the work item is initialised.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}
