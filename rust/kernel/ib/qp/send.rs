// SPDX-License-Identifier: GPL-2.0

//! Sends and the writes before them: the send queue of a queue pair.

use core::{
    cell::UnsafeCell,
    mem::{offset_of, ManuallyDrop},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use kernel::{
    error::to_result,
    sync::Arc, //
};

use super::{
    bitmap::SlotBitmap,
    raw::{
        Handler,
        QpConfig,
        RawQp, //
    }, //
};
use crate::{
    bindings,
    ib::{
        Block,
        DmaDirection,
        Mapping,
        Pd,
        Status,
        Wc,
        WriteSource, //
    },
    prelude::*, //
};

/// Maximum number of writes before a send.
const MAX_WRITES: usize = 2;
/// Maximum number of SGEs of a write.
const MAX_PARTS: usize = 2;
/// Alignment of message buffers, bytes.
const ALIGN: usize = 16;

/// An RDMA write that goes before a send.
pub struct Write<'a> {
    /// The source memory. It is kept until the send completes.
    pub source: &'a WriteSource,
    /// Offset and length, in bytes, of the one or two ranges that are written consecutively; a length of 0 means no
    /// range.
    pub parts: [(usize, usize); MAX_PARTS],
    /// Destination address in the peer's memory region.
    pub remote_addr: u64,
    /// The key of the peer's memory region.
    pub rkey: u32,
}

/// A send that could not be posted.
pub struct PostError<S> {
    /// The error.
    pub error: Error,
    /// The driver rejected it, so the cause is the queue pair rather than the send.
    pub by_driver: bool,
    /// The value that the send would have kept.
    pub what: S,
}

impl<S> From<PostError<S>> for Error {
    fn from(error: PostError<S>) -> Self {
        error.error
    }
}

/// The sending half of a queue pair. The last entry is the large one, if there is one.
///
/// # Invariants
///
/// `core` is valid from `attach` on, before which no other function is called, for as long as the queue.
pub(super) struct SendQueue<H: Handler> {
    core: AtomicPtr<RawQp>,
    entries: KVec<SendEntry<H>>,
    free: SlotBitmap,
    large_free: SlotBitmap,
    small: usize,
    map: Arc<Mapping>,
    large_map: Option<Arc<Mapping>>,
    len: usize,
    stride: usize,
}

type Sources = [Option<WriteSource>; MAX_WRITES];

/// # Invariants
///
/// The code that took the entry from the free set, or handles the completion of its send, has exclusive use of the
/// entry, except for `write_status` and the two `cqe`, which the device may use at any time.
#[repr(C)]
pub(super) struct SendEntry<H: Handler> {
    cqe: UnsafeCell<bindings::ib_cqe>,
    write_cqe: UnsafeCell<bindings::ib_cqe>,
    queue: AtomicPtr<SendQueue<H>>,
    index: usize,
    /// The first error of a write, as `enum ib_wc_status`.
    write_status: AtomicU32,
    kept: UnsafeCell<Option<(Arc<H>, H::Sent)>>,
    sources: UnsafeCell<Sources>,
}

impl<H: Handler> SendEntry<H> {
    fn new(index: usize) -> Self {
        Self {
            cqe: UnsafeCell::new(bindings::ib_cqe {
                done: Some(send_done::<H>),
            }),
            write_cqe: UnsafeCell::new(bindings::ib_cqe {
                done: Some(write_done::<H>),
            }),
            queue: AtomicPtr::new(ptr::null_mut()),
            index,
            write_status: AtomicU32::new(0),
            kept: UnsafeCell::new(None),
            sources: UnsafeCell::new([None, None]),
        }
    }
}

impl<H: Handler> SendQueue<H> {
    /// Creates the queue.
    /// Context: may sleep.
    pub(super) fn new(pd: &Pd, config: &QpConfig) -> Result<Self> {
        let small = usize::from(config.send_slots);
        let len = usize::try_from(config.send_len)?;
        let stride = len.next_multiple_of(ALIGN);
        let large_len = usize::try_from(config.large_len)?;
        let large = usize::from(large_len > 0);
        let mut entries = KVec::with_capacity(small + large, GFP_KERNEL)?;
        for index in 0..small + large {
            entries.push(SendEntry::new(index), GFP_KERNEL)?;
        }
        let size = stride.checked_mul(small).ok_or(EINVAL)?;
        let map = |size| Mapping::new(pd.device(), &Block::new(size)?, DmaDirection::ToDevice);
        Ok(Self {
            core: AtomicPtr::new(ptr::null_mut()),
            entries,
            free: SlotBitmap::full(small)?,
            large_free: SlotBitmap::full(large)?,
            small,
            map: map(size)?,
            large_map: match large_len {
                0 => None,
                large_len => Some(map(large_len)?),
            },
            len,
            stride,
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

    /// See [`Qp::take_slot`](super::Qp::take_slot).
    pub(super) fn take_slot(&self) -> Option<SendSlot<'_, H>> {
        let entry = self.entries.get(self.free.take()?)?;
        let offset = entry.index * self.stride;
        Some(SendSlot::new(self, entry, &self.map, offset, self.len))
    }

    /// See [`Qp::take_large_slot`](super::Qp::take_large_slot).
    pub(super) fn take_large_slot(&self) -> Option<SendSlot<'_, H>> {
        let map = self.large_map.as_ref()?;
        let entry = self.entries.get(self.small + self.large_free.take()?)?;
        Some(SendSlot::new(self, entry, map, 0, map.block().len()))
    }

    /// Whether a slot is free at present.
    pub(super) fn has_slot(&self) -> bool {
        self.free.has_any()
    }

    /// Whether no slot is in use at present, the large one included.
    pub(super) fn is_idle(&self) -> bool {
        self.free.count() + self.large_free.count() == self.entries.len()
    }

    /// Ends the sends that were posted and did not complete.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed, and its completions been handled.
    pub(super) unsafe fn end_lost(&self) {
        for entry in self.entries.iter() {
            // SAFETY: No completion comes any more and nothing posts, so the entry is ours.
            let kept = unsafe { (*entry.kept.get()).take() };
            if let Some((owner, what)) = kept {
                H::sent(&owner, what, Wc::LOST);
            }
        }
    }

    fn put(&self, index: usize) {
        match index.checked_sub(self.small) {
            None => self.free.put(index),
            Some(large) => self.large_free.put(large),
        }
    }
}

/// A free slot for a send; dropping it returns it unused.
pub struct SendSlot<'a, H: Handler> {
    queue: &'a SendQueue<H>,
    entry: &'a SendEntry<H>,
    map: &'a Arc<Mapping>,
    offset: usize,
    capacity: usize,
    len: usize,
    immediate: Option<u32>,
}

impl<'a, H: Handler> SendSlot<'a, H> {
    fn new(
        queue: &'a SendQueue<H>,
        entry: &'a SendEntry<H>,
        map: &'a Arc<Mapping>,
        offset: usize,
        capacity: usize,
    ) -> Self {
        Self {
            queue,
            entry,
            map,
            offset,
            capacity,
            len: 0,
            immediate: None,
        }
    }

    /// Sends no message: the last write carries immediate data, a number in host byte order, in its place. It uses a
    /// receive of the peer, whose completion has the immediate data and the bytes of that write ([`Handler::written`]).
    pub fn set_immediate(&mut self, immediate: u32) {
        self.immediate = Some(immediate);
    }

    /// Sets the message.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if it is too long for the slot.
    pub fn write(&mut self, message: &[u8]) -> Result {
        if message.len() > self.capacity {
            return Err(EMSGSIZE);
        }
        self.map.block().write(self.offset, message)?;
        self.len = message.len();
        Ok(())
    }

    /// Appends to the message.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// As [`SendSlot::write`].
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        let len = self.len.saturating_add(bytes.len());
        if len > self.capacity {
            return Err(EMSGSIZE);
        }
        self.map.block().write(self.offset + self.len, bytes)?;
        self.len = len;
        Ok(())
    }

    /// Posts `writes` and then the message, unless there are [immediate data](SendSlot::set_immediate), in one call of
    /// the driver. Their completion is reported by [`Handler::sent`], with `what`. The message is a solicited event at
    /// the peer. The queue pair must be Ready to Send.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than two writes, none for immediate data, an empty one, a range outside its memory, memory
    /// mapped for another device or not for reading, or registered for another domain, or writes before a large send;
    /// else the driver's error. `what` is returned. After an error of the driver, writes may have been done.
    pub fn post(
        self,
        owner: &Arc<H>,
        what: H::Sent,
        writes: &[Write<'_>],
    ) -> Result<(), PostError<H::Sent>> {
        // On errors up to here the slot is dropped and is free again.
        let mut sges = [[bindings::ib_sge::default(); MAX_PARTS]; MAX_WRITES];
        let mut rdma: [bindings::ib_rdma_wr; MAX_WRITES] = Default::default();
        let (mut send, mut sge) = Default::default();
        let filled = self
            .fill(writes, &mut rdma, &mut sges)
            .and_then(|()| match self.immediate {
                None => self.fill_message(&mut send, &mut sge),
                Some(immediate) => {
                    self.fill_immediate(rdma.get_mut(writes.len().wrapping_sub(1)), immediate)
                }
            });
        let mut first = match filled {
            Ok(()) if self.immediate.is_some() => ptr::null_mut(),
            Ok(()) => &raw mut send,
            Err(error) => {
                return Err(PostError {
                    error,
                    by_driver: false,
                    what,
                })
            }
        };
        for wr in rdma.iter_mut().take(writes.len()).rev() {
            wr.wr.next = first;
            first = &mut wr.wr;
        }
        // The guard is disarmed: from here on the completion frees the slot.
        let this = ManuallyDrop::new(self);
        this.keep(owner, what, writes);
        // SAFETY: The chain and all it names live on the stack during the call; the memory of the ranges and the two
        // `cqe` live until the completion, by the type invariant of `QpQueues`.
        unsafe { this.submit(first) }
    }

    /// Fills in the work request for the message, synchronised for the device.
    fn fill_message(&self, wr: &mut bindings::ib_send_wr, sge: &mut bindings::ib_sge) -> Result {
        let flags = if self.is_inline(self.len) {
            *sge = self.map.inline_sge(self.offset, self.len)?;
            bindings::ib_send_flags_IB_SEND_INLINE
        } else {
            self.map.sync_for_device(self.offset, self.len)?;
            let lkey = self.queue.core().pd().local_dma_lkey();
            *sge = self.map.sge(self.offset, self.len, lkey)?;
            0
        };
        wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        wr.sg_list = sge;
        wr.num_sge = 1;
        self.complete_with(wr, flags);
        Ok(())
    }

    /// Has the last write carry immediate data.
    fn fill_immediate(&self, last: Option<&mut bindings::ib_rdma_wr>, immediate: u32) -> Result {
        let wr = &mut last.ok_or(EINVAL)?.wr;
        wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        wr.ex.imm_data = immediate.to_be();
        self.complete_with(wr, wr.send_flags);
        Ok(())
    }

    /// Has the last work request report the completion of the send, here and at the peer.
    fn complete_with(&self, wr: &mut bindings::ib_send_wr, flags: i32) {
        wr.__bindgen_anon_1.wr_cqe = self.entry.cqe.get();
        wr.send_flags = flags
            | bindings::ib_send_flags_IB_SEND_SIGNALED
            | bindings::ib_send_flags_IB_SEND_SOLICITED;
    }

    /// Whether `len` bytes are posted inline.
    fn is_inline(&self, len: usize) -> bool {
        len <= self.queue.core().max_inline()
    }

    /// Fills in the work requests for the writes, not yet chained.
    fn fill(
        &self,
        writes: &[Write<'_>],
        rdma: &mut [bindings::ib_rdma_wr; MAX_WRITES],
        sges: &mut [[bindings::ib_sge; MAX_PARTS]; MAX_WRITES],
    ) -> Result {
        let max = if self.entry.index < self.queue.small {
            MAX_WRITES
        } else {
            0
        };
        if writes.len() > max {
            return Err(EINVAL);
        }
        for (write, (wr, sges)) in writes.iter().zip(rdma.iter_mut().zip(sges)) {
            let (count, flags) = self.gather(write, sges)?;
            wr.wr.send_flags = flags | self.queue.core().write_flags();
            wr.wr.__bindgen_anon_1.wr_cqe = self.entry.write_cqe.get();
            wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
            wr.wr.sg_list = sges.as_mut_ptr();
            wr.wr.num_sge = count;
            wr.remote_addr = write.remote_addr;
            wr.rkey = write.rkey;
        }
        Ok(())
    }

    /// Fills in the SGEs of a write, synchronised for the device, and returns their number and the flags.
    fn gather(
        &self,
        write: &Write<'_>,
        sges: &mut [bindings::ib_sge; MAX_PARTS],
    ) -> Result<(i32, i32)> {
        let (source, pd) = (write.source, self.queue.core().pd());
        let map = source.readable()?;
        if !source.serves(pd) {
            return Err(EINVAL);
        }
        let [(_, first), (_, second)] = write.parts;
        let parts = write.parts.iter().filter(|(_, len)| *len > 0);
        let (count, flags) = if self.is_inline(first.saturating_add(second)) {
            let mut count = 0;
            for (&(offset, len), sge) in parts.zip(sges) {
                *sge = map.inline_sge(offset, len)?;
                count += 1;
            }
            (count, bindings::ib_send_flags_IB_SEND_INLINE)
        } else {
            for &(offset, len) in parts {
                map.sync_for_device(offset, len)?;
            }
            (source.gather(&write.parts, pd, sges)?, 0)
        };
        match count {
            0 => Err(EINVAL),
            count => Ok((count, flags)),
        }
    }

    /// Stores in the entry all that must live until the completion.
    fn keep(&self, owner: &Arc<H>, what: H::Sent, writes: &[Write<'_>]) {
        let mut sources: Sources = [None, None];
        for (kept, write) in sources.iter_mut().zip(writes) {
            *kept = Some(write.source.clone());
        }
        // ORDERING: The device orders the completion after the post.
        self.entry.write_status.store(0, Ordering::Relaxed);
        // SAFETY: We took the entry, and by its type invariant have exclusive use of it.
        unsafe { *self.entry.sources.get() = sources };
        // SAFETY: As above.
        unsafe { *self.entry.kept.get() = Some((owner.clone(), what)) };
        self.queue.core().begin();
    }

    /// Posts a chain that begins with `first` and ends with the send of this entry.
    ///
    /// # Safety
    ///
    /// The chain and its ranges must be valid, and `keep` must have been called.
    unsafe fn submit(&self, first: *const bindings::ib_send_wr) -> Result<(), PostError<H::Sent>> {
        let mut bad = ptr::null();
        // SAFETY: The queue pair is valid by its type invariant, the chain by our caller's promise.
        let ret = unsafe { bindings::ib_post_send(self.queue.core().as_ptr(), first, &mut bad) };
        let Err(error) = to_result(ret) else {
            return Ok(());
        };
        // SAFETY: The send was not posted, so no completion will take the entry from us.
        let kept = unsafe { (*self.entry.kept.get()).take() };
        if ptr::eq(bad, first) {
            // SAFETY: As above; no write was posted either.
            unsafe { *self.entry.sources.get() = [None, None] };
            self.queue.put(self.entry.index);
            self.queue.core().end();
        }
        // Otherwise a write is outstanding and may yet complete with an error: the entry and the memory it reads are
        // kept until the queue pair is destroyed, and count as outstanding, so that its completion is looked for then.
        match kept {
            Some((_, what)) => Err(PostError {
                error,
                by_driver: true,
                what,
            }),
            // `keep` filled it in, and only a completion would have taken it.
            None => unreachable!(),
        }
    }
}

impl<H: Handler> Drop for SendSlot<'_, H> {
    fn drop(&mut self) {
        self.queue.put(self.entry.index);
    }
}

unsafe extern "C" fn send_done<H: Handler>(_: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The RDMA core passes a valid completion.
    let wc = unsafe { &*wc };
    // SAFETY: All completions handled by polling carry the `cqe` of their work request.
    let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
    // SAFETY: This function is only in the field `cqe` of a `SendEntry<H>`, its first; by the type
    // invariant of `QpQueues` entries outlive their work requests.
    let entry = unsafe { &*cqe.cast::<SendEntry<H>>() };
    // SAFETY: The queue owns the entry and outlives its work requests.
    let queue = unsafe { &*entry.queue.load(Ordering::Acquire) };
    // SAFETY: We handle the completion and have exclusive use of the entry.
    let kept = unsafe { (*entry.kept.get()).take() };
    // SAFETY: As above. The writes before the send ended before it.
    let sources = unsafe { core::mem::take(&mut *entry.sources.get()) };
    let mut wc = Wc::new(wc);
    let write_status = entry.write_status.load(Ordering::Relaxed);
    if write_status != 0 && !wc.status.is_success() {
        wc.status = Status::from_code(write_status);
    }
    queue.put(entry.index);
    queue.core().end();
    drop(sources);
    // From here on neither entry nor queue may be used: the handler may hold the last reference to them.
    if let Some((owner, what)) = kept {
        H::sent(&owner, what, wc);
    }
}

/// Completion of a write. If it failed, the send after it fails as well and reports it.
unsafe extern "C" fn write_done<H: Handler>(_: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The RDMA core passes a valid completion.
    let wc = unsafe { &*wc };
    // SAFETY: All completions handled by polling carry the `cqe` of their work request.
    let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
    // SAFETY: This function is only in the field `write_cqe` of a `SendEntry<H>`.
    let entry = unsafe { cqe.byte_sub(offset_of!(SendEntry<H>, write_cqe)) };
    // SAFETY: By the type invariant of `QpQueues` entries outlive their work requests.
    let entry = unsafe { &*entry.cast::<SendEntry<H>>() };
    // Only the first error is the cause, the others are flushes.
    let _ = entry
        .write_status
        .compare_exchange(0, wc.status, Ordering::Relaxed, Ordering::Relaxed);
}
