// SPDX-License-Identifier: GPL-2.0

//! Receives: the receive queue of a queue pair.

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{rcu, Arc},
};

use super::{qp::Core, slots::Slots, Block, Config, Direction, Handler, Mapping, Pd, Status, Wc};
use crate::bindings;

/// Message buffers begin at multiples of this.
const ALIGN: usize = 16;

/// A message that arrived. A dishonest peer may change the part beyond the receive's own memory
/// while it is read.
pub struct Received<'a> {
    map: &'a Mapping,
    offset: usize,
    own_len: usize,
    spill: Option<&'a Mapping>,
    len: usize,
}

impl Received<'_> {
    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the message, or as much of it as fits, to the start of `to`, and returns that part.
    pub fn read<'t>(&self, to: &'t mut [u8]) -> Result<&'t [u8]> {
        let len = self.len.min(to.len());
        let (to, _) = to.split_at_mut_checked(len).ok_or(EINVAL)?;
        let own_len = self.own_len.min(len);
        let (own, rest) = to.split_at_mut_checked(own_len).ok_or(EINVAL)?;
        self.map.block().read(self.offset, own)?;
        if !rest.is_empty() {
            let spill = self.spill.ok_or(EINVAL)?;
            spill.block().read(0, rest)?;
        }
        Ok(to)
    }
}

/// The receiving half of a queue pair.
pub(super) struct RecvQueue<H: Handler> {
    entries: KVec<RecvEntry<H>>,
    idle: Slots,
    map: Arc<Mapping>,
    len: usize,
    stride: usize,
    spill: Option<Arc<Mapping>>,
    spill_len: usize,
}

/// # Invariants
///
/// Who took the entry from the idle set, or handles the completion of its receive, has the entry to
/// itself, but for `cqe`, which the device may use at any time.
#[repr(C)]
pub(super) struct RecvEntry<H: Handler> {
    cqe: UnsafeCell<bindings::ib_cqe>,
    core: AtomicPtr<Core<H>>,
    index: usize,
    owner: UnsafeCell<Option<Arc<H>>>,
}

impl<H: Handler> RecvQueue<H> {
    /// May sleep.
    pub(super) fn new(pd: &Pd, config: &Config) -> Result<Self> {
        let count = usize::from(config.recv_slots);
        let len = usize::try_from(config.recv_len)?;
        let stride = len.next_multiple_of(ALIGN);
        let spill_len = usize::try_from(config.spill_len)?;
        let mut entries = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let entry = RecvEntry {
                cqe: UnsafeCell::new(bindings::ib_cqe {
                    done: Some(recv_done::<H>),
                }),
                core: AtomicPtr::new(ptr::null_mut()),
                index,
                owner: UnsafeCell::new(None),
            };
            entries.push(entry, GFP_KERNEL)?;
        }
        let size = stride.checked_mul(count).ok_or(EINVAL)?;
        let map = |size| Mapping::new(pd.device(), &Block::new(size)?, Direction::FromDevice);
        Ok(Self {
            entries,
            idle: Slots::full(count)?,
            map: map(size)?,
            len,
            stride,
            spill: match spill_len {
                0 => None,
                spill_len => Some(map(spill_len)?),
            },
            spill_len,
        })
    }

    /// Tells the entries where their queue pair is.
    pub(super) fn set_core(&self, core: *const Core<H>) {
        for entry in self.entries.iter() {
            entry.core.store(core.cast_mut(), Ordering::Release);
        }
    }

    /// Takes an entry that is not posted.
    pub(super) fn take(&self) -> Option<&RecvEntry<H>> {
        self.entries.get(self.idle.take()?)
    }
}

impl<H: Handler> RecvEntry<H> {
    /// Posts an entry that was taken from the idle set; on errors it goes back there.
    pub(super) fn post_first(&self, core: &Core<H>, owner: Arc<H>) -> Result {
        core.begin();
        self.post(core, owner).map_err(|(error, owner)| {
            core.recv().idle.put(self.index);
            core.end();
            drop(owner);
            error
        })
    }

    /// Posts the entry, which the caller has to itself.
    fn post(&self, core: &Core<H>, owner: Arc<H>) -> Result<(), (Error, Arc<H>)> {
        let queue = core.recv();
        let (mut sges, count) = match self.ranges(core) {
            Ok(ranges) => ranges,
            Err(error) => return Err((error, owner)),
        };
        let mut wr = bindings::ib_recv_wr {
            sg_list: sges.as_mut_ptr(),
            num_sge: count,
            ..Default::default()
        };
        wr.__bindgen_anon_1.wr_cqe = self.cqe.get();
        // SAFETY: By the caller's right to the entry.
        unsafe { *self.owner.get() = Some(owner) };
        let mut bad = ptr::null();
        // SAFETY: The queue pair is valid by its type invariant, the work request is on the stack,
        // and the memory it names stays as long as the queue pair.
        let ret = unsafe { bindings::ib_post_recv(core.as_ptr(), &wr, &mut bad) };
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

    /// The memory the receive goes to, ready for the device.
    fn ranges(&self, core: &Core<H>) -> Result<([bindings::ib_sge; 2], i32)> {
        let queue = core.recv();
        let lkey = core.pd().local_dma_lkey();
        let offset = self.index * queue.stride;
        queue.map.sync_for_device(offset, queue.len)?;
        let own = queue.map.sge(offset, queue.len, lkey)?;
        match &queue.spill {
            None => Ok(([own, Default::default()], 1)),
            Some(spill) => {
                spill.sync_for_device(0, queue.spill_len)?;
                Ok(([own, spill.sge(0, queue.spill_len, lkey)?], 2))
            }
        }
    }

    /// The message of a receive that succeeded.
    fn message<'a>(&self, core: &'a Core<H>, wc: Wc) -> Result<Received<'a>> {
        let queue = core.recv();
        let offset = self.index * queue.stride;
        let len = usize::try_from(wc.byte_len)?.min(queue.len + queue.spill_len);
        queue.map.sync_for_cpu(offset, queue.len)?;
        if let Some(spill) = &queue.spill {
            spill.sync_for_cpu(0, queue.spill_len)?;
        }
        Ok(Received {
            map: &queue.map,
            offset,
            own_len: queue.len,
            spill: queue.spill.as_deref(),
            len,
        })
    }

    /// Posts the entry again after its completion, unless receiving stopped. The owner comes back
    /// when it was not posted, with the error if there was one.
    fn post_again(&self, core: &Core<H>, owner: Arc<H>) -> Result<(), (Option<Error>, Arc<H>)> {
        // The end of the queue pair waits for this section, so nothing is posted behind its back.
        let _rcu = rcu::read_lock();
        if !core.receiving() {
            return Err((None, owner));
        }
        self.post(core, owner)
            .map_err(|(error, owner)| (Some(error), owner))
    }
}

unsafe extern "C" fn recv_done<H: Handler>(_: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The RDMA core passes a valid completion.
    let wc = unsafe { &*wc };
    // SAFETY: All completions handled by polling carry the `cqe` of their work request.
    let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
    // SAFETY: This function is only in the field `cqe` of a `RecvEntry<H>`, its first; by the type
    // invariant of `Core` entries outlive their work requests.
    let entry = unsafe { &*cqe.cast::<RecvEntry<H>>() };
    // SAFETY: The core owns the entry and outlives its work requests.
    let core = unsafe { &*entry.core.load(Ordering::Acquire) };
    // SAFETY: We handle the completion and have the entry to ourselves.
    let Some(owner) = (unsafe { (*entry.owner.get()).take() }) else {
        return;
    };
    let mut wc = Wc::new(wc);
    let mut owner = owner;
    if wc.status.is_success() {
        if let Ok(message) = entry.message(core, wc) {
            H::received(&owner, &message);
        }
        match entry.post_again(core, owner) {
            Ok(()) => return,
            Err((error, back)) => {
                owner = back;
                if error.is_some() {
                    wc.status = Status::Other(bindings::ib_wc_status_IB_WC_GENERAL_ERR);
                }
            }
        }
    }
    core.recv().idle.put(entry.index);
    core.end();
    // From here on neither entry nor core may be used: the owner may be the last to hold them.
    if !wc.status.is_success() {
        H::receive_failed(&owner, wc);
    }
}
