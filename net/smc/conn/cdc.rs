// SPDX-License-Identifier: GPL-2.0

//! CDC messages of the peer (RFC 7609 section 4.3; C functions `smc_cdc_rx_handler`, `smc_cdc_msg_recv_action`).
//!
//! All functions may run in completion context, and do not sleep.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    ratelimit,
    spinlock_bh::SpinLockBhGuard, //
};
use smc_proto::{
    conn::{
        ArrivedBytes,
        Cdc,
        Fault,
        RxVerdict, //
    },
    lgr::{
        rtoken::Refused,
        LinkIdx, //
    },
    llc::link_work::LinkWork, //
};

use super::{
    events::Followup,
    Conn,
    ConnInner, //
};

impl Conn {
    /// Receives a CDC message on link `idx`.
    pub(super) fn receive_cdc(self: &Arc<Self>, idx: LinkIdx, cdc: &Cdc) {
        // Before the filter: a flush retires the links that are marked by then.
        let is_any_retired = cdc.is_validation() && self.group.retire_named_links(cdc);
        self.receive_locked(self.inner.lock(), idx, cdc, is_any_retired);
    }

    /// Receives immediate data on link `idx`: message `seq`, and the bytes of the write.
    pub(super) fn receive_immediate(self: &Arc<Self>, idx: LinkIdx, seq: u16, len: u32) {
        let inner = self.inner.lock();
        match inner.cdc_hold.expand(seq, len, &inner.stream) {
            Ok(Some(cdc)) => self.receive_locked(inner, idx, &cdc, false),
            Ok(None) => {}
            Err(fault) => {
                drop(inner);
                self.on_fault(fault);
            }
        }
    }

    fn receive_locked(
        self: &Arc<Self>,
        mut inner: SpinLockBhGuard<'_, ConnInner>,
        idx: LinkIdx,
        cdc: &Cdc,
        is_any_retired: bool,
    ) {
        let is_early = inner.is_early(idx, cdc);
        let ConnInner {
            cdc_hold, stream, ..
        } = &mut *inner;
        let verdict = cdc_hold.filter(cdc, stream, is_any_retired || is_early);
        if verdict == RxVerdict::Deliver {
            let mut result = inner.process(Some(idx), cdc);
            let mut adopted = Ok(());
            if let Ok(after) = &mut result {
                if let Some(offer) = after.offer() {
                    adopted = self.adopt_rmbe(&mut inner, idx, &offer);
                    after.set_transmit();
                }
            }
            drop(inner);
            if let Err(why) = adopted {
                log_unusable(why);
            }
            return self.conclude_message(result);
        }
        if let RxVerdict::Abort(fault) = verdict {
            drop(inner);
            return self.on_fault(fault);
        }
        let is_held = !inner.needs_sync() || inner.hold_arrival(idx, cdc);
        drop(inner);
        if !is_held {
            self.kill(ECONNABORTED);
        }
        if verdict == RxVerdict::HoldAndFlush {
            self.group.queue_link_work(LinkWork::FlushRx);
        }
    }

    /// Called before the CQs of all links are flushed.
    pub(super) fn begin_rx_flush(&self) {
        self.inner.lock().cdc_hold.begin_flush();
    }

    /// Processes the messages that waited for the flush, which is done.
    pub(super) fn end_rx_flush(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let results = inner.release_held();
        drop(inner);
        for result in results.into_iter().flatten() {
            self.conclude_message(result);
        }
    }

    /// Carries out the effects of a CDC message.
    fn conclude_message(self: &Arc<Self>, result: Result<Followup, Fault>) {
        match result {
            Ok(after) => self.follow_up(&after),
            Err(fault) => self.on_fault(fault),
        }
    }
}

impl ConnInner {
    /// Processes a CDC message received on link `idx`; `None` for one that was held back.
    fn process(&mut self, idx: Option<LinkIdx>, cdc: &Cdc) -> Result<Followup, Fault> {
        let before = self.stream.arrived();
        let fx = self.stream.on_cdc(cdc)?;
        // An RMBE that is not needed any more has nothing to be synchronised.
        let unneeded = self.note_replaced(&fx);
        if let (Some(idx), true) = (idx, self.needs_sync()) {
            self.sync_written(idx, &self.stream.arrived_since(before));
            self.arrivals.took(idx, cdc, &self.stream);
        }
        self.save_urgent(fx.urgent_at);
        if fx.reset {
            self.note_err(self.cause_of_end(ECONNRESET));
        } else if fx.broken_pipe {
            self.note_err(self.cause_of_end(EPIPE));
        }
        Ok(self.after_replacing(fx, unneeded))
    }

    /// Makes data written through link `idx` visible to the CPU.
    fn sync_written(&self, idx: LinkIdx, written: &ArrivedBytes) {
        let others = &self.others;
        let parts = [
            (others.replaced(), &written.replaced),
            (self.rmbe.as_ref(), &written.present),
            (others.offered(), &written.offered),
        ];
        for (rmbe, chunks) in parts {
            if let Some(rmbe) = rmbe {
                rmbe.sync_for_cpu(idx, chunks);
            }
        }
    }

    /// Returns the error for an end that the peer announced over RDMA with `err`. If TCP was ended here
    /// (`SOCK_DESTROY`, a timeout), the peer only answers that, and may be faster than the work that looks at TCP:
    /// then it is TCP's error. TCP's ECONNRESET and EPIPE are the peer's reset, of which the message tells more.
    fn cause_of_end(&self, err: Error) -> Error {
        let tcp = self
            .owner
            .as_ref()
            .and_then(|owner| owner.tcp.pending_err());
        tcp.filter(|e| *e != ECONNRESET && *e != EPIPE)
            .unwrap_or(err)
    }

    /// Processes the held messages if the flush that they waited for is done.
    fn release_held(&mut self) -> [Option<Result<Followup, Fault>>; 4] {
        let held = self.cdc_hold.release();
        if held.iter().flatten().next().is_some() && self.needs_sync() {
            for (idx, written) in self.arrivals.release(&self.stream).iter().flatten() {
                self.sync_written(*idx, written);
            }
        }
        held.map(|cdc| Some(self.process(None, &cdc?)))
    }

    /// Returns whether a message received on link `idx` has to wait for earlier ones: it does not tell on which links
    /// the data of those arrived.
    fn is_early(&self, idx: LinkIdx, cdc: &Cdc) -> bool {
        self.needs_sync() && self.arrivals.is_early(idx, cdc, &self.stream)
    }

    /// Returns whether received data need a DMA sync.
    fn needs_sync(&self) -> bool {
        let all = [
            self.others.offered(),
            self.rmbe.as_ref(),
            self.others.replaced(),
        ];
        all.into_iter().flatten().any(|rmbe| rmbe.needs_sync())
    }

    /// Notes on which link a message arrived that is held. Returns false if there is no room.
    fn hold_arrival(&mut self, idx: LinkIdx, cdc: &Cdc) -> bool {
        self.arrivals.hold(idx, cdc, &self.stream)
    }

    /// Saves the urgent byte before it can be overwritten.
    fn save_urgent(&mut self, offset: Option<u32>) {
        let (Some(offset), Some(rmbe)) = (offset, &self.rmbe) else {
            return;
        };
        let mut byte = [0];
        let memory = rmbe.memory();
        if memory.is_some_and(|m| m.read(offset as usize, &mut byte).is_ok()) {
            let [byte] = byte;
            self.stream.store_urgent(byte);
        }
    }
}

/// Logs that a peer's offer cannot be adopted.
fn log_unusable(why: Refused) {
    if ratelimit::peer() {
        pr_warn!("a peer offered an unusable RMBE: {why:?}\n");
    }
}
