// SPDX-License-Identifier: GPL-2.0

//! What the device tells of a link: work requests that ended, messages that arrived.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
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

use super::{
    Link,
    LinkError,
    Sent, //
};

/// Longest message for which there is always memory. A longer one offers a link for more regions than
/// there is reason to have, but a C peer has one for each connection.
const MAX_RECV: usize = 128;

/// Time for a registration, ns; then the link counts as broken (C: `SMC_WR_REG_MR_WAIT_TIME`).
const REGISTER_NS: u64 = 5_000_000_000;

impl Link {
    /// Registers a region, whose key works afterwards. May sleep.
    pub(crate) fn register(self: &Arc<Self>, mr: &Arc<ib::Mr>) -> Result {
        let _turn = self.reg_mr_lock.lock();
        let resources = self.resources().ok_or(ENOLINK)?;
        self.inner.lock().registered = None;
        resources.qp.post_register(self, mr)?;
        let end = time::now_ns().saturating_add(REGISTER_NS);
        let mut inner = self.inner.lock();
        loop {
            if let Some(good) = inner.registered.take() {
                return if good { Ok(()) } else { Err(EIO) };
            }
            let now = time::now_ns();
            if inner.resources.is_none() || now >= end {
                drop(inner);
                self.fail(LinkError::Register);
                return Err(ENOLINK);
            }
            let left = time::jiffies(end.saturating_sub(now));
            // A signal does not stop the device from registering.
            let _ = self.state_wait.wait_interruptible_timeout(&mut inner, left);
        }
    }
}

impl Link {
    /// Hands a message on, of which `buf` holds all.
    fn tell(&self, message: &Received<'_>, buf: &mut [u8]) {
        let Ok(bytes) = message.read(buf) else {
            return;
        };
        let bytes = match self.is_iwarp() {
            false => bytes,
            true => match self.take_credits(bytes) {
                Some([]) => return,
                Some(bytes) => bytes,
                None => return self.fail(LinkError::MissingTrailer),
            },
        };
        if let Some(handler) = self.handler() {
            handler.on_message(bytes);
        }
    }
}

impl ib::Handler for Link {
    type Sent = Sent;

    fn sent(this: &Arc<Self>, what: Sent, wc: Wc) {
        let good = wc.status.is_success();
        // The slot is free by now: who said after our look that he wants one has found it.
        smp_mb(Full);
        let posted = match this.is_llc_waiting.load(Relaxed) {
            true => this.flush_llc_txq(&mut this.inner.lock()),
            false => Ok(()),
        };
        // Those who wait for a slot come before the one who had it.
        if this.is_slot_wanted.load(Relaxed) {
            if let Some(handler) = this.handler() {
                handler.on_slot();
            }
        }
        match what {
            what if good && this.is_iwarp() => this.on_local_completion(what),
            Sent::Data(sender, record) => sender.on_sent(&record, good),
            Sent::Control => {}
        }
        if !good {
            this.fail(LinkError::Send(wc.status));
        } else if posted.and_then(|()| this.send_credit_update()).is_err() {
            this.fail(LinkError::Post);
        }
    }

    fn received(this: &Arc<Self>, message: &Received<'_>) {
        let is_first = this.is_iwarp() && this.last_rx.load(Relaxed) == 0;
        this.last_rx.store(time::coarse_ns(), Relaxed);
        if is_first {
            // Who looked under the lock waits by now.
            drop(this.inner.lock());
            this.state_wait.notify_all();
        }
        if message.len() <= MAX_RECV {
            this.tell(message, &mut [0; MAX_RECV]);
        } else if let Ok(mut buf) = KVec::from_elem(0, message.len(), GFP_NOWAIT) {
            this.tell(message, &mut buf);
        } else {
            this.lose_credits();
        }
        this.on_credit_update();
    }

    fn receive_failed(this: &Arc<Self>, wc: Wc) {
        this.fail(LinkError::Receive(wc.status));
    }

    fn registered(this: &Arc<Self>, _mr: Arc<ib::Mr>, wc: Wc) {
        this.inner.lock().registered = Some(wc.status.is_success());
        this.state_wait.notify_all();
    }
}
