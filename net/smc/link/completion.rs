// SPDX-License-Identifier: GPL-2.0

//! Completions of a link: work requests that ended, messages that arrived. Called in softirq context, one at a time for
//! each CQ.

use kernel::{
    sync::{
        atomic::Relaxed,
        Arc,
        CondVarTimeoutResult, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    ib::{
        self,
        RecvMessage,
        Wc, //
    },
    prelude::*, //
};

use smc_proto::{
    time::Duration,
    wire::immediate::Immediate, //
};

use super::{
    transport::TransportOps,
    Link,
    LinkError,
    Sent, //
};
use crate::clock::{
    self,
    coarse_now,
    now, //
};

/// Longest message for which memory is always available. A longer one adds a link for more RMBs than usually needed,
/// but a C peer has one for each connection.
const MAX_RECV: usize = 128;

/// Timeout of a registration, after which the link has failed (C: `SMC_WR_REG_MR_WAIT_TIME`).
const REG_MR_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a task with a pending signal looks whether a registration is complete.
const SIGNALLED_WAIT: Delta = Delta::from_micros(100);

impl Link {
    /// Registers a memory region, whose key is valid afterwards.
    /// Context: may sleep.
    pub(crate) fn register(self: &Arc<Self>, mr: &Arc<ib::Mr>) -> Result {
        let _turn = self.reg_mr_lock.lock();
        let resources = self.resources().ok_or(ENOLINK)?;
        self.inner.lock().registered = None;
        resources.qp.post_register(self, mr)?;
        let end = now().saturating_add(REG_MR_TIMEOUT);
        let mut inner = self.inner.lock();
        loop {
            if let Some(good) = inner.registered.take() {
                return if good { Ok(()) } else { Err(EIO) };
            }
            let left = end.saturating_since(now());
            // Once the link is down the completion comes as its queue pair is destroyed, which may wait for the caller.
            if inner.resources.is_none() || !inner.state.is_usable() || left.is_zero() {
                drop(inner);
                self.fail(LinkError::Register);
                return Err(ENOLINK);
            }
            let left = clock::jiffies(left);
            let woken = self.state_wait.wait_interruptible_timeout(&mut inner, left);
            if let CondVarTimeoutResult::Signal { .. } = woken {
                // A signal does not stop the registration in the device, but ends each such wait at once.
                drop(inner);
                fsleep(SIGNALLED_WAIT);
                inner = self.inner.lock();
            }
        }
    }
}

impl Link {
    /// Records that something arrived.
    fn note_rx(&self) {
        let before = self.last_rx.load(Relaxed);
        // Whoever waits for an answer looks for another value, also where the tick is late.
        let after = before.saturating_add(1);
        let at = coarse_now().as_nanos().max(after);
        self.last_rx.store(at, Relaxed);
        if before == 0 {
            // A task that checked under the lock is waiting by now.
            drop(self.inner.lock());
            self.state_wait.notify_all();
        }
    }

    /// Passes a message on; `buf` has room for it.
    fn deliver(&self, message: &RecvMessage<'_>, buf: &mut [u8]) {
        let Ok(bytes) = message.read(buf) else {
            return;
        };
        let message = match self.transport.on_message(bytes) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(error) => return self.fail(error),
        };
        if let Some(handler) = self.handler() {
            handler.on_message(message);
        }
    }
}

impl ib::Handler for Link {
    type Sent = Sent;

    fn sent(this: &Arc<Self>, what: Sent, wc: Wc) {
        // Waiters for a slot come before the sender that used it.
        let posted = this.wake_slot_waiters();
        if !wc.status.is_success() {
            what.complete(false);
            return this.fail(LinkError::Send(wc.status));
        }
        this.transport.on_completion(what);
        let posted = posted.and_then(|()| this.transport.send_credit_update(this));
        if posted.is_err() {
            this.fail(LinkError::Post);
        }
    }

    fn received(this: &Arc<Self>, message: &RecvMessage<'_>) {
        this.note_rx();
        if message.len() <= MAX_RECV {
            this.deliver(message, &mut [0; MAX_RECV]);
        } else if let Ok(mut buf) = KVec::from_elem(0, message.len(), GFP_NOWAIT) {
            this.deliver(message, &mut buf);
        } else {
            this.transport.on_unread_message();
        }
        if this.transport.after_message(this).is_err() {
            this.fail(LinkError::Post);
        }
    }

    fn written(this: &Arc<Self>, immediate: u32, len: u32) {
        this.note_rx();
        if let Some(handler) = this.handler() {
            handler.on_immediate(Immediate::from_bits(immediate), len);
        }
    }

    fn receive_failed(this: &Arc<Self>, wc: Wc) {
        this.fail(LinkError::Receive(wc.status));
    }

    fn registered(this: &Arc<Self>, _mr: Arc<ib::Mr>, wc: Wc) {
        this.inner.lock().registered = Some(wc.status.is_success());
        this.state_wait.notify_all();
    }
}
