// SPDX-License-Identifier: GPL-2.0

//! LLC messages of a link: sent in order, and before data that wait for a slot.

use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::{
    barrier::smp_mb,
    prelude::*, //
};
use smc_proto::wire::{
    llc,
    SEND_LEN, //
};

use super::{
    Link,
    LinkInner,
    Sent, //
};

/// Maximum number of waiting LLC messages. There is one request of ours at a time, and answers to the peer's requests,
/// of which it has no reason to send as many before the first answer.
const LLC_TXQ_LEN: usize = 8;

/// Maximum size of all, bytes: an abandoned message may still be queued when the next long one is added.
const LLC_TXQ_BYTES: usize = 2 * llc::MAX_LEN;

/// LLC messages that wait for a send slot, oldest first. Never allocates after [`LlcTxQueue::new`].
pub(super) struct LlcTxQueue {
    /// The messages, stored back to back.
    bytes: KVec<u8>,
    /// Length of each message.
    lens: KVec<usize>,
}

impl LlcTxQueue {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            bytes: KVec::with_capacity(LLC_TXQ_BYTES, GFP_KERNEL)?,
            lens: KVec::with_capacity(LLC_TXQ_LEN, GFP_KERNEL)?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Appends a message of `len` bytes, written by `write`.
    fn push(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> Result) -> Result {
        let start = self.bytes.len();
        let has_room = len <= LLC_TXQ_BYTES.saturating_sub(start);
        if !has_room || self.lens.push_within_capacity(len).is_err() {
            return Err(EBUSY);
        }
        // Within the capacity.
        let written = self
            .bytes
            .extend_with(len, 0, GFP_ATOMIC)
            .map_err(Error::from)
            .and_then(|()| write(self.bytes.get_mut(start..).ok_or(EINVAL)?));
        if written.is_err() {
            self.bytes.truncate(start);
            self.lens.pop();
        }
        written
    }

    fn first(&self) -> Option<&[u8]> {
        self.bytes.get(..*self.lens.first()?)
    }

    fn pop(&mut self) {
        if let Ok(len) = self.lens.remove(0) {
            let left = self.bytes.len().saturating_sub(len);
            let len = len.min(self.bytes.len());
            self.bytes.copy_within(len.., 0);
            self.bytes.truncate(left);
        }
    }
}

impl Link {
    /// Sends an LLC message of `len` bytes, written by `write` under a lock, or queues it until there is a slot.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, which no peer has reason to cause; else the error of `write` or of the device.
    pub(crate) fn send_llc(
        self: &Arc<Self>,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        let mut inner = self.inner.lock();
        inner.llc_txq.push(len, write)?;
        self.flush_llc_txq(&mut inner)
    }

    /// Sends queued LLC messages while there are slots. Posts under the lock, to keep the order.
    pub(super) fn flush_llc_txq(self: &Arc<Self>, inner: &mut LinkInner) -> Result {
        let resources = inner.resources.clone().ok_or(ENOLINK)?;
        let mut has_noted = false;
        while let Some(message) = inner.llc_txq.first() {
            let slot = match self.take_large_slot(&resources) {
                // A short message may use a slot for data.
                None if message.len() <= SEND_LEN => self.take_slot(&resources),
                slot => slot,
            };
            let Some(mut slot) = slot else {
                if has_noted {
                    return Ok(());
                }
                // A slot freed before this point caused no wakeup.
                self.is_llc_waiting.store(true, Relaxed);
                smp_mb(Full);
                has_noted = true;
                continue;
            };
            slot.write(message)?;
            slot.post(self, Sent::Control, &[])?;
            inner.llc_txq.pop();
        }
        self.is_llc_waiting.store(false, Relaxed);
        Ok(())
    }
}
