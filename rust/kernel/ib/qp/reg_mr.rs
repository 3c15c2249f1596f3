// SPDX-License-Identifier: GPL-2.0

//! Registration of memory regions: a separate work request in the send queue.

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use kernel::{
    error::to_result,
    sync::Arc, //
};

use super::{
    bitmap::SlotBitmap,
    raw::{
        Handler,
        RawQp, //
    }, //
};
use crate::{
    bindings,
    ib::{
        Mr,
        Wc, //
    },
    prelude::*, //
};

/// The single memory registration that may be outstanding.
///
/// # Invariants
///
/// - The code that took the entry from the free set, or handles the completion of its registration, has exclusive use
///   of `kept`. The device may use `cqe` at any time.
/// - `core` is valid from `attach` on, before which nothing is posted, for as long as the entry.
pub(super) struct RegEntry<H: Handler> {
    inner: KBox<RegInner<H>>,
}

#[repr(C)]
struct RegInner<H: Handler> {
    cqe: UnsafeCell<bindings::ib_cqe>,
    core: AtomicPtr<RawQp>,
    free: SlotBitmap,
    kept: UnsafeCell<Option<(Arc<H>, Arc<Mr>)>>,
}

impl<H: Handler> RegInner<H> {
    fn core(&self) -> &RawQp {
        // SAFETY: By the type invariant of `RegEntry`.
        unsafe { &*self.core.load(Ordering::Acquire) }
    }
}

impl<H: Handler> RegEntry<H> {
    /// Creates the entry.
    /// Context: may sleep.
    pub(super) fn new() -> Result<Self> {
        let inner = RegInner {
            cqe: UnsafeCell::new(bindings::ib_cqe {
                done: Some(reg_done::<H>),
            }),
            core: AtomicPtr::new(ptr::null_mut()),
            free: SlotBitmap::full(1)?,
            kept: UnsafeCell::new(None),
        };
        Ok(Self {
            inner: KBox::new(inner, GFP_KERNEL)?,
        })
    }

    /// Sets the queue pair of the entry; it does not move from now on and outlives the entry.
    pub(super) fn attach(&self, core: &RawQp) {
        let core = ptr::from_ref(core).cast_mut();
        self.inner.core.store(core, Ordering::Release);
    }

    /// See [`Qp::post_register`](super::Qp::post_register).
    pub(super) fn post(&self, owner: Arc<H>, mr: &Arc<Mr>) -> Result {
        let inner = &*self.inner;
        let core = inner.core();
        if !Arc::ptr_eq(mr.pd(), core.pd()) {
            return Err(EINVAL);
        }
        let number = inner.free.take().ok_or(EBUSY)?;
        if let Err(err) = mr.claim() {
            inner.free.put(number);
            return Err(err);
        }
        let mut wr = bindings::ib_reg_wr {
            mr: mr.as_ptr(),
            key: mr.rkey(),
            access: mr.access() as i32,
            ..Default::default()
        };
        wr.wr.__bindgen_anon_1.wr_cqe = inner.cqe.get();
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;
        // SAFETY: We took the entry, and by its type invariant have exclusive use of it.
        unsafe { *inner.kept.get() = Some((owner, mr.clone())) };
        core.begin();
        let mut bad = ptr::null();
        // SAFETY: The queue pair is valid by its type invariant; the memory region and the `cqe` live until the
        // completion, the memory region by the reference just stored.
        let ret = unsafe { bindings::ib_post_send(core.as_ptr(), &wr.wr, &mut bad) };
        to_result(ret).inspect_err(|_| {
            core.end();
            // SAFETY: Nothing was posted, so no completion takes the entry from us.
            let kept = unsafe { (*inner.kept.get()).take() };
            mr.unclaim();
            inner.free.put(number);
            drop(kept);
        })
    }
}

impl<H: Handler> RegEntry<H> {
    /// Ends the registration that was posted and did not complete.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed, and its completions been handled.
    pub(super) unsafe fn end_lost(&self) {
        // SAFETY: No completion comes any more and nothing posts, so the entry is ours.
        let kept = unsafe { (*self.inner.kept.get()).take() };
        if let Some((owner, mr)) = kept {
            H::registered(&owner, mr, Wc::LOST);
        }
    }
}

unsafe extern "C" fn reg_done<H: Handler>(_: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The RDMA core passes a valid completion.
    let wc = unsafe { &*wc };
    // SAFETY: All completions handled by polling carry the `cqe` of their work request.
    let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
    // SAFETY: This function is only in the field `cqe` of a `RegInner<H>`, its first; by the type
    // invariant of `QpQueues` it outlives its work request.
    let entry = unsafe { &*cqe.cast::<RegInner<H>>() };
    // SAFETY: We handle the completion and have exclusive use of the entry.
    let kept = unsafe { (*entry.kept.get()).take() };
    let wc = Wc::new(wc);
    entry.free.put(0);
    entry.core().end();
    // From here on the entry may not be used.
    if let Some((owner, mr)) = kept {
        H::registered(&owner, mr, wc);
    }
}
