// SPDX-License-Identifier: GPL-2.0

//! Delayed work that cannot run after its owner is freed.
//!
//! `kernel::workqueue::DelayedWork` is not used: its expiry cannot be brought forward, it can neither be cancelled nor
//! waited for, and it keeps its owner alive until it has run.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::ops::Deref;

use kernel::{
    time::Jiffies,
    types::Opaque, //
};

use crate::{
    bindings,
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    },
    time, //
};

/// No run is due.
const NEVER: u64 = u64::MAX;

/// The function that a [`DelayedWork`] runs. It is `'static`: if its pinned memory is leaked, the work stays valid, but
/// anything it had borrowed would not.
pub trait Job: Send + Sync + 'static {
    /// Runs the job. Returns the delay until the next run in jiffies, or `None`.
    /// Context: process, may sleep.
    fn run(&self) -> Option<Jiffies>;
}

/// A job with a timer on the system workqueue. Dropping it waits for a run in progress, so it must be dropped where
/// sleeping is allowed, and never by the job itself.
///
/// # Invariants
///
/// `work` is initialised, and pending or running only while `self` lives.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub struct DelayedWork<T: Job> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    /// When the next run is due, in ns of the clock; `NEVER` if none is.
    /// Lock order: only the workqueue's own locks are taken under it.
    #[pin]
    due: SpinLockBh<u64>,
    job: T,
}

// SAFETY: The work item may be used from any thread, and `T` is `Send`.
unsafe impl<T: Job> Send for DelayedWork<T> {}
// SAFETY: All methods go through the workqueue's own synchronisation, and `T` is `Sync`.
unsafe impl<T: Job> Sync for DelayedWork<T> {}

impl<T: Job> DelayedWork<T> {
    /// Creates a job that is not scheduled.
    pub fn new(job: T) -> impl PinInit<Self> {
        pin_init!(Self {
            work <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writing a work item, which stays pinned.
                unsafe { bindings::init_delayed_work(slot, Some(Self::run)) }
            }),
            due <- new_spinlock_bh!(NEVER, "DelayedWork::due"),
            job,
        })
    }

    /// Schedules the job to run in at most `delay` jiffies; an earlier schedule is kept. That run sees all that the
    /// caller did before.
    /// Context: does not sleep; not from interrupts.
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

    /// Waits for a run in progress; the job never runs again, whatever is called later.
    /// Context: may sleep; not from the job itself.
    pub fn stop(&self) {
        // SAFETY: By the type invariant the work item is initialised.
        unsafe { bindings::disable_delayed_work_sync(self.work.get()) };
    }

    /// # Safety
    ///
    /// To be called only by the workqueue, with the work item of a live `Self`.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // CAST: `work` is the first field of `delayed_work`, which is the first field of the
        // `repr(C)` type `Self`.
        let this = work.cast::<Self>();
        // SAFETY: By the type invariant `Self` lives while the work runs.
        let this = unsafe { &*this };
        // Before the job reads any state: later callers of `run_within` are not served by this run.
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
        // INVARIANT: Nothing is pending or running afterwards; a run that re-arms itself is cancelled as well.
        // SAFETY: By the type invariant the work item is initialised.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}
