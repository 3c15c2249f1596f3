// SPDX-License-Identifier: GPL-2.0

//! Receives: the receive queue of a queue pair.

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use kernel::{
    error::to_result,
    sync::{
        rcu,
        Arc, //
    }, //
};

use super::{
    bitmap::SlotBitmap,
    raw::{
        Handler,
        QpConfig,
        RawQp, //
    },
    received::RecvMessage, //
};
use crate::{
    bindings,
    ib::{
        Block,
        DmaDirection,
        Mapping,
        Pd,
        Status,
        Wc, //
    },
    prelude::*, //
};

/// Alignment of message buffers, bytes.
const ALIGN: usize = 16;

/// The receiving half of a queue pair.
///
/// # Invariants
///
/// `core` is valid from `attach` on, before which no other function is called, for as long as the queue.
pub(super) struct RecvQueue<H: Handler> {
    core: AtomicPtr<RawQp>,
    entries: KVec<RecvEntry<H>>,
    idle: SlotBitmap,
    map: Arc<Mapping>,
    len: usize,
    stride: usize,
    spill: Option<Arc<Mapping>>,
    shared_v2_len: usize,
}

/// # Invariants
///
/// The code that took the entry from the idle set, or handles the completion of its receive, has exclusive use of the
/// entry, except for `cqe`, which the device may use at any time.
#[repr(C)]
struct RecvEntry<H: Handler> {
    cqe: UnsafeCell<bindings::ib_cqe>,
    queue: AtomicPtr<RecvQueue<H>>,
    index: usize,
    owner: UnsafeCell<Option<Arc<H>>>,
}

impl<H: Handler> RecvQueue<H> {
    /// Creates the queue.
    /// Context: may sleep.
    pub(super) fn new(pd: &Pd, config: &QpConfig) -> Result<Self> {
        let count = usize::from(config.recv_slots);
        let len = usize::try_from(config.recv_len)?;
        let stride = len.next_multiple_of(ALIGN);
        let shared_v2_len = usize::try_from(config.shared_v2_len)?;
        let mut entries = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let entry = RecvEntry {
                cqe: UnsafeCell::new(bindings::ib_cqe {
                    done: Some(recv_done::<H>),
                }),
                queue: AtomicPtr::new(ptr::null_mut()),
                index,
                owner: UnsafeCell::new(None),
            };
            entries.push(entry, GFP_KERNEL)?;
        }
        let size = stride.checked_mul(count).ok_or(EINVAL)?;
        let map = |size| Mapping::new(pd.device(), &Block::new(size)?, DmaDirection::FromDevice);
        Ok(Self {
            core: AtomicPtr::new(ptr::null_mut()),
            entries,
            idle: SlotBitmap::full(count)?,
            map: map(size)?,
            len,
            stride,
            spill: match shared_v2_len {
                0 => None,
                shared_v2_len => Some(map(shared_v2_len)?),
            },
            shared_v2_len,
        })
    }

    /// Sets the queue pair of the queue, and the queue of the entries. Neither moves from now on.
    pub(super) fn attach(&self, core: &RawQp) {
        let core = ptr::from_ref(core).cast_mut();
        self.core.store(core, Ordering::Release);
        for entry in self.entries.iter() {
            let queue = ptr::from_ref(self).cast_mut();
            entry.queue.store(queue, Ordering::Release);
        }
    }

    fn core(&self) -> &RawQp {
        // SAFETY: By the type invariant.
        unsafe { &*self.core.load(Ordering::Acquire) }
    }

    /// See [`Qp::post_receives`](super::Qp::post_receives).
    pub(super) fn post_all(&self, owner: &Arc<H>) -> Result<usize> {
        if !self.core().receiving() {
            return Err(ESHUTDOWN);
        }
        let mut count = 0;
        while let Some(entry) = self.idle.take().and_then(|index| self.entries.get(index)) {
            entry.post_first(self, owner.clone())?;
            count += 1;
        }
        Ok(count)
    }

    /// Ends the receives that were posted and did not complete.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed, and its completions been handled.
    pub(super) unsafe fn end_lost(&self) {
        for entry in self.entries.iter() {
            // SAFETY: No completion comes any more and nothing posts, so the entry is ours.
            let owner = unsafe { (*entry.owner.get()).take() };
            if let Some(owner) = owner {
                H::receive_failed(&owner, Wc::LOST);
            }
        }
    }
}

impl<H: Handler> RecvEntry<H> {
    /// Posts an entry taken from the idle set; on errors it is returned to the set.
    fn post_first(&self, queue: &RecvQueue<H>, owner: Arc<H>) -> Result {
        queue.core().begin();
        self.post(queue, owner).map_err(|(error, owner)| {
            queue.idle.put(self.index);
            queue.core().end();
            drop(owner);
            error
        })
    }

    /// Posts the entry, of which the caller has exclusive use.
    fn post(&self, queue: &RecvQueue<H>, owner: Arc<H>) -> Result<(), (Error, Arc<H>)> {
        let (mut sges, count) = match self.ranges(queue) {
            Ok(ranges) => ranges,
            Err(error) => return Err((error, owner)),
        };
        let mut wr = bindings::ib_recv_wr {
            sg_list: sges.as_mut_ptr(),
            num_sge: count,
            ..Default::default()
        };
        wr.__bindgen_anon_1.wr_cqe = self.cqe.get();
        // SAFETY: By the caller's exclusive use of the entry.
        unsafe { *self.owner.get() = Some(owner) };
        let mut bad = ptr::null();
        // SAFETY: The queue pair is valid by its type invariant, the work request is on the stack, and the memory it
        // names lives as long as the queue pair.
        let ret = unsafe { bindings::ib_post_recv(queue.core().as_ptr(), &wr, &mut bad) };
        let Err(error) = to_result(ret) else {
            return Ok(());
        };
        debug_assert!(self.index < queue.entries.len());
        // SAFETY: Nothing was posted, so no completion takes the entry from us.
        match unsafe { (*self.owner.get()).take() } {
            Some(owner) => Err((error, owner)),
            // Filled in above.
            None => unreachable!(),
        }
    }

    /// Returns the SGEs of the receive, synchronised for the device.
    fn ranges(&self, queue: &RecvQueue<H>) -> Result<([bindings::ib_sge; 2], i32)> {
        let lkey = queue.core().pd().local_dma_lkey();
        let offset = self.index * queue.stride;
        queue.map.sync_for_device(offset, queue.len)?;
        let own = queue.map.sge(offset, queue.len, lkey)?;
        match &queue.spill {
            None => Ok(([own, Default::default()], 1)),
            Some(spill) => {
                spill.sync_for_device(0, queue.shared_v2_len)?;
                Ok(([own, spill.sge(0, queue.shared_v2_len, lkey)?], 2))
            }
        }
    }

    /// Returns the message of a receive that succeeded.
    fn message<'a>(&self, queue: &'a RecvQueue<H>, wc: Wc) -> Result<RecvMessage<'a>> {
        let offset = self.index * queue.stride;
        let len = usize::try_from(wc.byte_len)?.min(queue.len + queue.shared_v2_len);
        queue.map.sync_for_cpu(offset, queue.len)?;
        if let Some(spill) = &queue.spill {
            spill.sync_for_cpu(0, queue.shared_v2_len)?;
        }
        Ok(RecvMessage {
            map: &queue.map,
            offset,
            own_len: queue.len,
            spill: queue.spill.as_deref(),
            len,
        })
    }

    /// Posts the entry again after its completion, unless receiving was stopped. If it was not posted, returns the
    /// owner, with the error if there was one.
    fn post_again(
        &self,
        queue: &RecvQueue<H>,
        owner: Arc<H>,
    ) -> Result<(), (Option<Error>, Arc<H>)> {
        // The destruction of the queue pair waits for this section, so nothing is posted after it began.
        let _rcu = rcu::read_lock();
        if !queue.core().receiving() {
            return Err((None, owner));
        }
        self.post(queue, owner)
            .map_err(|(error, owner)| (Some(error), owner))
    }
}

unsafe extern "C" fn recv_done<H: Handler>(_: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The RDMA core passes a valid completion.
    let wc = unsafe { &*wc };
    // SAFETY: All completions handled by polling carry the `cqe` of their work request.
    let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
    // SAFETY: This function is only in the field `cqe` of a `RecvEntry<H>`, its first; by the type
    // invariant of `QpQueues` entries outlive their work requests.
    let entry = unsafe { &*cqe.cast::<RecvEntry<H>>() };
    // SAFETY: The queue owns the entry and outlives its work requests.
    let queue = unsafe { &*entry.queue.load(Ordering::Acquire) };
    // SAFETY: We handle the completion and have exclusive use of the entry.
    let Some(owner) = (unsafe { (*entry.owner.get()).take() }) else {
        return;
    };
    let mut wc = Wc::new(wc);
    let mut owner = owner;
    if wc.status.is_success() {
        match wc.written {
            Some(immediate) => H::written(&owner, immediate, wc.byte_len),
            None => {
                if let Ok(message) = entry.message(queue, wc) {
                    H::received(&owner, &message);
                }
            }
        }
        match entry.post_again(queue, owner) {
            Ok(()) => return,
            Err((error, back)) => {
                owner = back;
                if error.is_some() {
                    wc.status = Status::Other(bindings::ib_wc_status_IB_WC_GENERAL_ERR);
                }
            }
        }
    }
    queue.idle.put(entry.index);
    queue.core().end();
    // From here on neither entry nor queue may be used: the owner may hold the last reference to them.
    if !wc.status.is_success() {
        H::receive_failed(&owner, wc);
    }
}
