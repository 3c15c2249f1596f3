// SPDX-License-Identifier: GPL-2.0

//! Reliable connected queue pairs and their slots.

use core::mem::ManuallyDrop;

use kernel::sync::Arc;

use super::{
    cq::Reserved,
    deferred::{
        Deferred,
        OnDevice, //
    },
    Cq,
    Device,
    Mr,
    Pd, //
};
use crate::prelude::*;

mod bitmap;
mod raw;
mod received;
mod recv;
mod reg_mr;
mod send;
mod state;

use self::{
    raw::RawQp,
    recv::RecvQueue,
    reg_mr::RegEntry,
    send::SendQueue, //
};
pub use self::{
    raw::{
        Handler,
        QpConfig, //
    },
    received::RecvMessage,
    send::{
        PostError,
        SendSlot,
        Write, //
    },
    state::RtrAttr, //
};

/// A reliable connected queue pair.
///
/// Posted receives hold the handler `H`, which usually owns the `Qp`: call [`Qp::to_error`] to release them, or neither
/// is ever freed. Dropping a queue pair waits in a worker for the last completion, then destroys it; work
/// requests whose completions the device has lost end as flushed ones then.
pub struct Qp<H: Handler> {
    parts: Deferred<QpResources<H>>,
}

/// What must not be freed while the device may still use it.
struct QpResources<H: Handler>(ManuallyDrop<QpQueues<H>>);

/// # Invariants
///
/// - The queue pair completes on two queues, in which `send_room` and `recv_room` are enough for all its work
///   requests.
/// - An outstanding work request was posted by an entry of `send`, `reg` or `recv`, and names that entry.
/// - Entries do not move, and are not freed before the completions of all work requests that name
///   them.
struct QpQueues<H: Handler> {
    send: SendQueue<H>,
    reg: RegEntry<H>,
    recv: RecvQueue<H>,
    send_room: Reserved,
    recv_room: Reserved,
    core: RawQp,
}

// SAFETY: Verbs may be called from any thread; `H` and what it sends may change threads.
unsafe impl<H: Handler> Send for QpResources<H> {}
// SAFETY: As above; entries pass between threads through the free sets and completions.
unsafe impl<H: Handler> Sync for QpResources<H> {}

impl<H: Handler> Qp<H> {
    /// Creates a queue pair, its slots and their memory.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for objects of different devices, sizes of 0 or beyond the device's limits; `ENOSPC` if a completion
    /// queue has no room left; else the driver's error.
    pub fn new(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        config: &QpConfig,
    ) -> Result<Self> {
        let device = pd.device();
        if !Arc::ptr_eq(send_cq.device(), device) || !Arc::ptr_eq(recv_cq.device(), device) {
            return Err(EINVAL);
        }
        config.check(device)?;
        let queues = QpQueues {
            send: SendQueue::new(pd, config)?,
            reg: RegEntry::new()?,
            recv: RecvQueue::new(pd, config)?,
            send_room: Reserved::new(send_cq, config.send_work_requests())?,
            recv_room: Reserved::new(recv_cq, config.recv_work_requests())?,
            // Last, as nothing destroys it on the error paths of this function.
            core: RawQp::new(pd, send_cq, recv_cq, config)?,
        };
        let parts = Deferred::new(QpResources(ManuallyDrop::new(queues)))?;
        let queues = &parts.0;
        queues.send.attach(&queues.core);
        queues.reg.attach(&queues.core);
        queues.recv.attach(&queues.core);
        Ok(Self { parts })
    }

    fn core(&self) -> &RawQp {
        &self.parts.0.core
    }

    /// The queue pair number, by which the peer addresses it.
    pub fn number(&self) -> u32 {
        self.core().number()
    }

    /// The device that the queue pair is on.
    pub fn device(&self) -> &Arc<Device> {
        self.core().pd().device()
    }

    /// Posts all receives that are not posted, and returns how many. The queue pair must be Ready to Receive: one that
    /// failed before that may never complete its receives (soft RoCE out of memory does not), and destroying it would
    /// wait for them. An iWARP queue pair, which has no such transition, must have left Reset.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after [`Qp::to_error`], else the driver's error; receives posted before the error remain posted.
    pub fn post_receives(&self, owner: &Arc<H>) -> Result<usize> {
        self.parts.0.recv.post_all(owner)
    }

    /// Posts the registration of a memory region, which ends with [`Handler::registered`]. The queue pair must be Ready
    /// to Send.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` while another registration is outstanding, `EALREADY` for a memory region that was posted before,
    /// `EINVAL` for one of another domain, else the driver's error.
    pub fn post_register(&self, owner: &Arc<H>, mr: &Arc<Mr>) -> Result {
        self.parts.0.reg.post(owner.clone(), mr)
    }

    /// Takes a free send slot, if any.
    /// Context: does not sleep.
    pub fn take_slot(&self) -> Option<SendSlot<'_, H>> {
        self.parts.0.send.take_slot()
    }

    /// Takes the slot for a large send, if it is free.
    /// Context: does not sleep.
    pub fn take_large_slot(&self) -> Option<SendSlot<'_, H>> {
        self.parts.0.send.take_large_slot()
    }

    /// Whether a slot is free at present.
    /// Context: does not sleep.
    pub fn has_slot(&self) -> bool {
        self.parts.0.send.has_slot()
    }

    /// Whether no slot is in use at present, the large one included.
    /// Context: does not sleep.
    pub fn is_send_idle(&self) -> bool {
        self.parts.0.send.is_idle()
    }
}

impl<H: Handler> OnDevice for QpResources<H> {
    fn device(&self) -> &Device {
        self.0.core.pd().device()
    }
}

impl<H: Handler> QpQueues<H> {
    /// Ends the work requests whose completions were lost as flushed ones.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed.
    unsafe fn end_lost(&self) {
        // A device reports no completions for a queue pair that is destroyed, but there may be earlier ones.
        self.send_room.flush();
        self.recv_room.flush();
        let lost = self.core.outstanding();
        if lost == 0 {
            return;
        }
        let name = self.core.pd().device().name();
        pr_warn!("{name}: {lost} completions of a queue pair were lost\n");
        // SAFETY: No completion comes any more, so the entries that are in use are ours.
        unsafe {
            self.send.end_lost();
            self.reg.end_lost();
            self.recv.end_lost();
        }
    }
}

impl<H: Handler> Drop for QpResources<H> {
    fn drop(&mut self) {
        // SAFETY: Runs once, in the device's worker: completions are not handled there. Nothing posts any more, as the
        // `Qp` is gone. By the type invariant of `QpQueues` there is room for the two work requests.
        if unsafe { self.0.core.destroy() }.is_err() {
            // The device may still use the entries: leak them rather than let them be reused.
            return;
        }
        if self.0.core.outstanding() > 0 {
            // SAFETY: Destroyed above.
            unsafe { self.0.end_lost() };
        }
        // SAFETY: Dropped here only and not used afterwards. The device no longer uses the entries.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
