// SPDX-License-Identifier: GPL-2.0

//! Control messages of a link: they go out in order, and before data that wait for a slot.

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

use super::{
    hardware::MSG_LEN,
    Inner,
    Link,
    Sent, //
};

/// Longest control message that is sent: a long one of version 2, which names the regions of a group.
pub(crate) const MAX_CONTROL: usize = 512;

/// Control messages that may wait. There is one request of ours at a time, and answers to the peer's,
/// who has no reason to ask for as many before it heard of the first.
const MAX_WAITING: usize = 8;

struct Control {
    bytes: [u8; MAX_CONTROL],
    len: usize,
}

/// Control messages that wait for a slot, oldest first. Never allocates after [`Controls::new`].
pub(super) struct Controls(KVec<Control>);

impl Controls {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(KVec::with_capacity(MAX_WAITING, GFP_KERNEL)?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, message: &[u8]) -> Result {
        let mut bytes = [0; MAX_CONTROL];
        let len = message.len();
        bytes
            .get_mut(..len)
            .ok_or(EMSGSIZE)?
            .copy_from_slice(message);
        if self.0.len() >= MAX_WAITING {
            return Err(EBUSY);
        }
        self.0
            .push_within_capacity(Control { bytes, len })
            .map_err(|_| EBUSY)
    }

    fn first(&self) -> Option<&[u8]> {
        self.0.first()?.bytes.get(..self.0.first()?.len)
    }

    fn pop(&mut self) {
        let _ = self.0.remove(0);
    }
}

impl Link {
    /// Sends a control message, or keeps it until there is a slot. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` when as many wait already as no peer has reason to ask for; else what the device
    /// answers.
    pub(crate) fn send_control(self: &Arc<Self>, bytes: &[u8]) -> Result {
        let mut inner = self.inner.lock();
        inner.controls.push(bytes)?;
        self.send_controls(&mut inner)
    }

    /// Sends the control messages that wait, as far as there are slots. Posts under the lock, so that
    /// they stay in order.
    pub(super) fn send_controls(self: &Arc<Self>, inner: &mut Inner) -> Result {
        let hardware = inner.hardware.clone().ok_or(ENOLINK)?;
        let mut has_noted = false;
        while let Some(message) = inner.controls.first() {
            let slot = match hardware.qp.take_large_slot() {
                // A short message may take one of those for data.
                None if message.len() <= MSG_LEN as usize => hardware.qp.take_slot(),
                slot => slot,
            };
            let Some(mut slot) = slot else {
                if has_noted {
                    return Ok(());
                }
                // A slot that was freed before this has told nobody.
                self.has_controls.store(true, Relaxed);
                smp_mb(Full);
                has_noted = true;
                continue;
            };
            slot.write(message)?;
            slot.post(self, Sent::Control, &[])?;
            inner.controls.pop();
        }
        self.has_controls.store(false, Relaxed);
        Ok(())
    }
}
