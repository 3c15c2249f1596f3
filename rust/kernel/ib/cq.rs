// SPDX-License-Identifier: GPL-2.0

//! Completion queues from the device's pool.
//!
//! C header: [`drivers/infiniband/core/cq.c`](srctree/drivers/infiniband/core/cq.c)

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use kernel::{
    error::from_err_ptr,
    sync::Arc, //
};

use super::{
    deferred::{Deferred, OnDevice},
    Device,
};
use crate::{
    bindings,
    prelude::*, //
};

/// A share of a completion queue of the device's pool.
///
/// The RDMA core spreads the shares over the device's completion vectors and polls them in softirq context, on
/// `PREEMPT_RT` in a worker; each completion calls the function of its own work request.
pub struct Cq {
    raw: Deferred<RawCq>,
}

/// # Invariants
///
/// `ptr` is a completion queue of the pool of `dev`, of which `entries` are ours.
struct RawCq {
    ptr: NonNull<bindings::ib_cq>,
    entries: u32,
    free: AtomicU32,
    dev: Arc<Device>,
}

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for RawCq {}
// SAFETY: As above; the queue itself is only touched by the RDMA core.
unsafe impl Sync for RawCq {}

impl Cq {
    /// Reserves room for `entries` outstanding completions.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no entries or more than the device supports in one queue, else the RDMA core's error.
    pub fn new(dev: &Arc<Device>, entries: u32) -> Result<Arc<Self>> {
        if entries == 0 || entries > dev.limits().max_cqe {
            return Err(EINVAL);
        }
        // SAFETY: The device is alive while `dev` is.
        let ptr = unsafe { bindings::ib_cq_pool_get(dev.as_ptr(), entries, -1, poll::CONTEXT) };
        let ptr = NonNull::new(from_err_ptr(ptr)?).ok_or(ENOMEM)?;
        // INVARIANT: `ib_cq_pool_get` set `entries` aside for us.
        let raw = RawCq {
            ptr,
            entries,
            free: AtomicU32::new(entries),
            dev: dev.clone(),
        };
        let raw = Deferred::new(raw)?;
        Ok(Arc::new(Self { raw }, GFP_KERNEL)?)
    }

    /// The device the queue belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.raw.dev
    }

    /// Maximum number of outstanding completions.
    pub fn entries(&self) -> u32 {
        self.raw.entries
    }

    /// Waits until all completions now in the queue have been handled.
    /// Context: may sleep; not from a completion handler.
    pub fn flush(&self) {
        let _turn = self.raw.dev.flushing.lock();
        // SAFETY: The queue is valid by the type invariant of `RawCq`, and from `ib_cq_pool_get` with this context.
        unsafe { poll::flush(self.as_ptr()) };
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_cq {
        self.raw.ptr.as_ptr()
    }
}

impl OnDevice for RawCq {
    fn device(&self) -> &Device {
        &self.dev
    }
}

impl Drop for RawCq {
    fn drop(&mut self) {
        // SAFETY: By the type invariant these entries are ours; queue pairs that used them held a
        // reference to this object and are gone.
        unsafe { bindings::ib_cq_pool_put(self.ptr.as_ptr(), self.entries) };
    }
}

/// Room in a completion queue reserved for a queue pair: a queue that overflows loses completions, and what they would
/// release is never released.
///
/// # Invariants
///
/// `entries` were subtracted from the free ones of `cq`.
pub(super) struct Reserved {
    cq: Arc<Cq>,
    entries: u32,
}

impl Reserved {
    /// Reserves room.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is not enough.
    pub(super) fn new(cq: &Arc<Cq>, entries: u32) -> Result<Self> {
        let free = &cq.raw.free;
        // INVARIANT: Subtracted here.
        free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            free.checked_sub(entries)
        })
        .map_err(|_| ENOSPC)?;
        Ok(Self {
            cq: cq.clone(),
            entries,
        })
    }

    /// See [`Cq::flush`].
    pub(super) fn flush(&self) {
        self.cq.flush();
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.cq.raw.free.fetch_add(self.entries, Ordering::Relaxed);
    }
}

/// Completions are handled where the device reports them.
#[cfg(not(CONFIG_PREEMPT_RT))]
mod poll {
    use crate::bindings;

    pub(super) const CONTEXT: bindings::ib_poll_context = bindings::ib_poll_context_IB_POLL_SOFTIRQ;

    /// Maximum number of completions handled in one run (`IB_POLL_BUDGET_IRQ`).
    const RUN_BUDGET: u32 = 256;

    /// Waits until all completions now in a queue have been handled.
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// `cq` must be a live queue of [`CONTEXT`], which no other task flushes at the same time.
    pub(super) unsafe fn flush(cq: *mut bindings::ib_cq) {
        // SAFETY: By the caller's promise; such a queue is polled by this `irq_poll` for as long as it lives.
        let (iop, entries) = unsafe { (&raw mut (*cq).__bindgen_anon_1.iop, (*cq).cqe) };
        // The first run may be one that began before, and each leaves no more than its budget fewer.
        for _ in 0..=entries.unsigned_abs().div_ceil(RUN_BUDGET) {
            // SAFETY: As above.
            unsafe { run_once(iop) };
        }
        // SAFETY: As above. Interrupts while the queue was disabled have scheduled nothing.
        unsafe { schedule(iop) };
    }

    /// Schedules a run, which comes before this function returns if the CPU is free for it.
    ///
    /// # Safety
    ///
    /// `iop` must be initialised.
    unsafe fn schedule(iop: *mut bindings::irq_poll) {
        // SAFETY: Balanced; `iop` is initialised by the caller's promise.
        unsafe {
            bindings::local_bh_disable();
            bindings::irq_poll_sched(iop);
            bindings::local_bh_enable();
        }
    }

    /// Waits for the run that is scheduled or under way, after scheduling one if there is none.
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// As [`schedule`], and no other task may disable the queue at the same time.
    unsafe fn run_once(iop: *mut bindings::irq_poll) {
        // SAFETY: By the caller's promise.
        unsafe {
            schedule(iop);
            // Returns once no run is scheduled.
            bindings::irq_poll_disable(iop);
            bindings::irq_poll_enable(iop);
        }
    }
}

/// Completions are handled by a worker. Without the lock of bottom halves, two tasks of one CPU may run `irq_poll` at
/// the same time, of which its list takes damage (`lib/irq_poll.c`).
#[cfg(CONFIG_PREEMPT_RT)]
mod poll {
    use crate::bindings;

    pub(super) const CONTEXT: bindings::ib_poll_context =
        bindings::ib_poll_context_IB_POLL_WORKQUEUE;

    /// Waits until all completions now in a queue have been handled.
    /// Context: may sleep.
    ///
    /// # Safety
    ///
    /// `cq` must be a live queue of [`CONTEXT`].
    pub(super) unsafe fn flush(cq: *mut bindings::ib_cq) {
        // SAFETY: By the caller's promise; such a queue is polled by this work for as long as it lives.
        unsafe {
            let work = &raw mut (*cq).__bindgen_anon_1.work;
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32,
                (*cq).comp_wq,
                work,
            );
            bindings::flush_work(work);
        }
    }
}
