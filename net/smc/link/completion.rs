// SPDX-License-Identifier: GPL-2.0

//! Completions of a link: work requests that ended, messages that arrived. The device calls them from one context at a
//! time for each queue, today a worker; nothing here sleeps.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};
use kernel_ext::{
    ib::{
        self,
        Received,
        Wc, //
    },
    time, //
};

use smc_proto::time::Duration;

use super::{
    transport::TransportOps,
    Link,
    LinkError,
    Sent, //
};
use crate::clock::now;

/// Longest message for which there is always memory. A longer one offers a link for more regions than
/// there is reason to have, but a C peer has one for each connection.
const MAX_RECV: usize = 128;

/// Time for a registration; then the link counts as broken (C: `SMC_WR_REG_MR_WAIT_TIME`).
const REG_MR_TIMEOUT: Duration = Duration::from_secs(5);

impl Link {
    /// Registers a region, whose key works afterwards. May sleep.
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
            if inner.resources.is_none() || left.is_zero() {
                drop(inner);
                self.fail(LinkError::Register);
                return Err(ENOLINK);
            }
            let left = time::jiffies(left.as_nanos());
            // A signal does not stop the device from registering.
            let _ = self.state_wait.wait_interruptible_timeout(&mut inner, left);
        }
    }
}

impl Link {
    /// Hands a message on, for which `buf` has room.
    fn deliver(&self, message: &Received<'_>, buf: &mut [u8]) {
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
        // Those who wait for a slot come before the one who had it.
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

    fn received(this: &Arc<Self>, message: &Received<'_>) {
        let is_first = this.last_rx.load(Relaxed) == 0;
        this.last_rx.store(time::coarse_ns(), Relaxed);
        if is_first {
            // Who looked under the lock waits by now.
            drop(this.inner.lock());
            this.state_wait.notify_all();
        }
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

    fn receive_failed(this: &Arc<Self>, wc: Wc) {
        this.fail(LinkError::Receive(wc.status));
    }

    fn registered(this: &Arc<Self>, _mr: Arc<ib::Mr>, wc: Wc) {
        this.inner.lock().registered = Some(wc.status.is_success());
        this.state_wait.notify_all();
    }
}
