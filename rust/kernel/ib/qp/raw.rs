// SPDX-License-Identifier: GPL-2.0

//! The queue pair itself: what its queues need for posting, and what its user has to provide.

use core::{
    ptr,
    ptr::NonNull,
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering, //
    }, //
};

use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    sync::Arc, //
};

use super::received::RecvMessage;
use crate::{
    bindings,
    ib::{
        device::NodeType,
        Cq,
        Device,
        DeviceLimits,
        Mr,
        Pd,
        Wc, //
    },
    prelude::*,
    rcu, //
};

/// Handles the completions of a queue pair: in softirq context, and one at a time for each completion queue. Spinlocks
/// that handlers take have to be [`SpinLockBh`](crate::spinlock_bh::SpinLockBh).
/// Context: does not sleep.
///
/// A work request holds a reference to the handler from posting until its completion was handled.
pub trait Handler: Send + Sync + Sized + 'static {
    /// What a send keeps until it completes.
    type Sent: Send + 'static;

    /// A send completed, and with it the writes posted before it. Its slot is free again.
    fn sent(this: &Arc<Self>, what: Self::Sent, wc: Wc);

    /// A message was received. Its receive is posted again when this returns.
    fn received(this: &Arc<Self>, message: &RecvMessage<'_>);

    /// A write of `len` bytes with the immediate data `immediate`, a number in host byte order, arrived. It used a
    /// receive, which is posted again when this returns.
    fn written(this: &Arc<Self>, immediate: u32, len: u32);

    /// A receive completed without a message and is not posted again.
    fn receive_failed(this: &Arc<Self>, wc: Wc);

    /// The registration of a memory region completed.
    fn registered(this: &Arc<Self>, mr: Arc<Mr>, wc: Wc);
}

/// Sizes of the queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Sends outstanding at a time, each with up to two writes before it.
    pub send_slots: u16,
    /// Bytes of a send.
    pub send_len: u32,
    /// Bytes of the one large send, 0 for none.
    pub large_len: u32,
    /// Maximum bytes of a send or a write that is posted inline, if the device supports that.
    pub inline_len: u32,
    /// Receives posted at a time.
    pub recv_slots: u16,
    /// Bytes that a receive has in memory of its own.
    pub recv_len: u32,
    /// Further bytes, in memory shared by all receives: only one long message may be outstanding at a time. 0 for none;
    /// else the device must support two SGEs per receive.
    pub shared_v2_len: u32,
}

impl QpConfig {
    /// Work requests of the send queue: a send and its writes for each slot, a large send, a memory registration, and
    /// the one that drains the queue.
    pub fn send_work_requests(&self) -> u32 {
        3 * u32::from(self.send_slots) + 3
    }

    /// Work requests of the receive queue: one for each slot, and the one that drains the queue.
    pub fn recv_work_requests(&self) -> u32 {
        u32::from(self.recv_slots) + 1
    }

    /// Limits the numbers of slots to those of the device.
    pub fn within(self, limits: &DeviceLimits) -> Self {
        let room = limits.max_qp_wr.min(limits.max_cqe);
        let slots = |room: u32| u16::try_from(room).unwrap_or(u16::MAX);
        Self {
            send_slots: self.send_slots.min(slots(room.saturating_sub(3) / 3)),
            recv_slots: self.recv_slots.min(slots(room.saturating_sub(1))),
            ..self
        }
    }

    pub(super) fn check(&self, device: &Device) -> Result {
        let limits = device.limits();
        let ranges = if self.shared_v2_len > 0 { 2 } else { 1 };
        let fits = self.send_work_requests() <= limits.max_qp_wr
            && self.recv_work_requests() <= limits.max_qp_wr
            && limits.max_send_sge >= 2
            && limits.max_recv_sge >= ranges;
        let some =
            self.send_slots > 0 && self.send_len > 0 && self.recv_slots > 0 && self.recv_len > 0;
        match fits && some {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }
}

/// The queue pair, without the slots that work requests name.
///
/// # Invariants
///
/// - `ptr` is a queue pair of `pd`, which [`RawQp::destroy`] destroys.
/// - An outstanding work request that is certain to complete counts in `outstanding`, and a send of which only writes
///   were posted.
pub(super) struct RawQp {
    ptr: NonNull<bindings::ib_qp>,
    pd: Arc<Pd>,
    max_inline: usize,
    write_flags: bindings::ib_send_flags,
    outstanding: AtomicU32,
    posted: AtomicBool,
    receiving: AtomicBool,
}

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for RawQp {}
// SAFETY: As above.
unsafe impl Sync for RawQp {}

impl RawQp {
    /// Creates a queue pair that completes on the two queues.
    /// Context: may sleep.
    pub(super) fn new(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        config: &QpConfig,
    ) -> Result<Self> {
        let (ptr, max_inline) = create_inline(pd, send_cq, recv_cq, config)?;
        // INVARIANT: Just created so; nothing is posted.
        Ok(Self {
            ptr,
            pd: pd.clone(),
            max_inline,
            write_flags: write_flags(pd.device()),
            outstanding: AtomicU32::new(0),
            posted: AtomicBool::new(false),
            receiving: AtomicBool::new(true),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_qp {
        self.ptr.as_ptr()
    }

    /// The queue pair number, by which the peer addresses it.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: The queue pair is valid by the type invariant; the number is constant.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// Maximum bytes of a send or a write that is posted inline.
    pub(super) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Flags of the writes before a send.
    pub(super) fn write_flags(&self) -> bindings::ib_send_flags {
        self.write_flags
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Counts a work request that is about to be posted.
    pub(super) fn begin(&self) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        // Tested first: the cache line is shared by all posting CPUs.
        if !self.posted.load(Ordering::Relaxed) {
            self.posted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a work request was ever about to be posted.
    pub(super) fn was_posted_to(&self) -> bool {
        self.posted.load(Ordering::Relaxed)
    }

    /// Counts a work request that completed, or could not be posted.
    pub(super) fn end(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether receives are posted again. A result inside an RCU read section holds until its end.
    pub(super) fn receiving(&self) -> bool {
        self.receiving.load(Ordering::Relaxed)
    }

    /// Stops reposting of receives, with effect after an RCU grace period at the latest.
    pub(super) fn stop_receiving(&self) {
        self.receiving.store(false, Ordering::Relaxed);
    }

    /// Waits for the completions of all work requests and destroys the queue pair, even if some completions do not
    /// come: a device that failed may report none. Afterwards the device no longer uses the slots and what they keep;
    /// work requests whose completions were lost still count as outstanding.
    ///
    /// # Safety
    ///
    /// To be called once, in a worker that handles no completions. Nothing but the completions uses the queue pair
    /// meanwhile, and the two completion queues have room for one more work request each.
    pub(super) unsafe fn destroy(&self) -> Result<(), Undestroyed> {
        self.stop_receiving();
        // Afterwards all completions that could repost their receive have seen `receiving` false.
        rcu::synchronize_rcu();
        if self.was_posted_to() {
            // SAFETY: The queue pair is valid by the type invariant; for the rest by the caller's promise.
            unsafe { bindings::ib_drain_qp(self.as_ptr()) };
        }
        // SAFETY: By the type invariant the queue pair is ours. The verbs allow to destroy one with outstanding work
        // requests: afterwards the device accesses neither them nor their memory.
        let ret = unsafe { bindings::ib_destroy_qp_user(self.as_ptr(), ptr::null_mut()) };
        to_result(ret).map_err(|_| {
            pr_warn!("cannot destroy a queue pair: {ret}\n");
            Undestroyed
        })
    }

    /// Number of work requests whose completions were not handled.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }
}

/// The driver did not destroy the queue pair: the device may still use its slots.
pub(super) struct Undestroyed;

/// Flags of the writes before a send. An iWARP stream may read a write without completion from its memory again after
/// the send behind it completed: soft iWARP then passes the pages themselves to TCP, which may have to retransmit them.
fn write_flags(device: &Device) -> bindings::ib_send_flags {
    match device.node_type() {
        NodeType::Rnic => bindings::ib_send_flags_IB_SEND_SIGNALED,
        NodeType::Ca | NodeType::Other => 0,
    }
}

/// Inline data are requested in steps of so many bytes.
const INLINE_STEP: u32 = 16;

/// Fewest bytes of inline data that are requested.
const INLINE_MIN: u32 = 32;

/// Creates the queue pair with as much inline data as the device grants, up to what is configured; returns it and the
/// maximum inline length in bytes. No attribute of a device tells how much it supports, and most of them reject a queue
/// pair that asks for more. What they grant beyond the request is not used: drivers have further limits then.
fn create_inline(
    pd: &Pd,
    send_cq: &Cq,
    recv_cq: &Cq,
    config: &QpConfig,
) -> Result<(NonNull<bindings::ib_qp>, usize)> {
    let device = pd.device();
    let first = device.inline_len(config.inline_len);
    let (mut len, mut is_refused) = (first, false);
    loop {
        match create(pd, send_cq, recv_cq, config, len) {
            Err(error) if error == EINVAL && len > 0 => {
                is_refused = true;
                len = less_inline(len);
            }
            // Not for the inline data alone, but the queue is smaller without.
            Err(_) if len > 0 => (is_refused, len) = (false, 0),
            Err(error) => return Err(error),
            Ok((ptr, granted)) => {
                if is_refused {
                    device.limit_inline_len(len);
                }
                return Ok((ptr, granted.min(usize::try_from(len)?)));
            }
        }
    }
}

/// Returns the number of bytes to request after `len` were refused.
fn less_inline(len: u32) -> u32 {
    let less = len.saturating_sub(1) / INLINE_STEP * INLINE_STEP;
    if less < INLINE_MIN {
        0
    } else {
        less
    }
}

/// Creates the queue pair itself; returns it and the maximum inline length in bytes.
fn create(
    pd: &Pd,
    send_cq: &Cq,
    recv_cq: &Cq,
    config: &QpConfig,
    inline_len: u32,
) -> Result<(NonNull<bindings::ib_qp>, usize)> {
    let mut attr = bindings::ib_qp_init_attr {
        send_cq: send_cq.as_ptr(),
        recv_cq: recv_cq.as_ptr(),
        cap: bindings::ib_qp_cap {
            max_send_wr: config.send_work_requests(),
            max_recv_wr: config.recv_work_requests(),
            max_send_sge: 2,
            max_recv_sge: if config.shared_v2_len > 0 { 2 } else { 1 },
            max_inline_data: inline_len,
            ..Default::default()
        },
        sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
        qp_type: bindings::ib_qp_type_IB_QPT_RC,
        // No event handler: a queue pair that fails flushes its receives, which conveys the same.
        ..Default::default()
    };
    // SAFETY: The domain and the queues are valid by their type invariants, and of one device.
    let ptr =
        unsafe { bindings::ib_create_qp_kernel(pd.as_ptr(), &mut attr, c"smc".as_ptr().cast()) };
    let ptr = NonNull::new(from_err_ptr(ptr)?).ok_or(ENOMEM)?;
    // The driver returns its actual limit, which may be larger; 0 if it supports none.
    Ok((ptr, usize::try_from(attr.cap.max_inline_data)?))
}
