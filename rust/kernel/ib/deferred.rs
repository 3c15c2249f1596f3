// SPDX-License-Identifier: GPL-2.0

//! Objects whose destructor runs in a worker.
//!
//! Destroying a verbs object may sleep, or wait for a completion that the dropping context itself would have to
//! deliver. The work item is allocated with the object, so that dropping cannot fail.

use core::{
    mem::{
        self,
        MaybeUninit, //
    },
    ops::Deref, //
};

use kernel::{
    str::CStr,
    sync::LockClassKey,
    workqueue::{
        self,
        impl_has_work,
        Work,
        WorkItem, //
    }, //
};

use super::Device;
use crate::prelude::*;

/// Identifies the device on whose worker an object is destroyed.
pub(super) trait OnDevice: Send + 'static {
    /// The device the object was made from. The object holds a reference to it.
    fn device(&self) -> &Device;
}

/// The object and the work item that drops it.
#[pin_data]
struct DropWork<T> {
    #[pin]
    work: Work<DropWork<T>>,
    value: T,
}

/// Name of the lock class of all jobs. A static, because lockdep compares its address, and a literal in a generic
/// function may have several.
static LOCK_NAME: &CStr = c"ib::Deferred::work";

/// The lock class of all jobs.
fn lock_class() -> Pin<&'static LockClassKey> {
    kernel::static_lock_class!()
}

impl_has_work! {
    impl{T} HasWork<Self> for DropWork<T> { self.work }
}

impl<T: OnDevice> WorkItem for DropWork<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Pin<KBox<Self>>) {
        drop(this);
    }
}

/// An object that is dropped in a worker of its device. May itself be dropped in any context.
pub(super) struct Deferred<T: OnDevice> {
    /// `None` only while dropping.
    job: Option<Pin<KBox<DropWork<T>>>>,
}

/// Memory for an object that will be dropped in a worker.
pub(super) struct DeferredAlloc<T: OnDevice>(KBox<MaybeUninit<DropWork<T>>>);

impl<T: OnDevice> DeferredAlloc<T> {
    /// Moves `value` into the memory. Cannot fail.
    pub(super) fn fill(self, value: T) -> Deferred<T> {
        let init = pin_init!(DropWork {
            work <- Work::new(LOCK_NAME, lock_class()),
            value,
        });
        match self.0.write_pin_init(init) {
            Ok(job) => Deferred { job: Some(job) },
            Err(never) => match never {},
        }
    }
}

impl<T: OnDevice> Deferred<T> {
    /// Allocates memory for a later value.
    /// Context: may sleep.
    pub(super) fn reserve() -> Result<DeferredAlloc<T>> {
        Ok(DeferredAlloc(KBox::new_uninit(GFP_KERNEL)?))
    }

    /// Allocates memory and moves `value` into it. If the allocation fails, `value` is dropped here.
    /// Context: may sleep.
    pub(super) fn new(value: T) -> Result<Self> {
        let job = KBox::pin_init(
            pin_init!(DropWork {
                work <- Work::new(LOCK_NAME, lock_class()),
                value,
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { job: Some(job) })
    }
}

impl<T: OnDevice> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.job {
            Some(job) => &job.value,
            // Only `drop` takes the job, and does not dereference afterwards.
            None => unreachable!(),
        }
    }
}

impl<T: OnDevice> Drop for Deferred<T> {
    fn drop(&mut self) {
        let Some(job) = mem::take(&mut self.job) else {
            return;
        };
        let queue = job.value.device().reaper();
        // SAFETY: By the type invariants of `Device` its queue lives until after the last reference to a device is
        // dropped, and `job` holds one until it has run.
        let queue = unsafe { workqueue::Queue::from_raw(queue.as_ptr().cast()) };
        queue.enqueue(job);
    }
}
