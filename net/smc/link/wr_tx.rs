// SPDX-License-Identifier: GPL-2.0

//! Send slots, with the credit that the transport may require for a message.

use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::{
    barrier::smp_mb,
    ib::{
        PostError,
        SendSlot,
        Write, //
    },
    prelude::*, //
};

use smc_proto::wire::immediate::Immediate;

use super::{
    transport::{
        CreditUse,
        LinkTransport,
        TransportOps, //
    },
    IbResources,
    Link,
    Sent, //
};

/// A credit that was taken; dropping it puts it back.
struct Credit<'a>(&'a LinkTransport);

impl<'a> Credit<'a> {
    fn take(transport: &'a LinkTransport, for_what: CreditUse) -> Option<Self> {
        transport.take_credit(for_what).then(|| Self(transport))
    }

    /// Uses the credit up: the message was posted.
    fn spend(self) {
        core::mem::forget(self);
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.0.put_back_credit();
    }
}

/// A free send slot with a credit for a message; dropping it returns both.
pub(crate) struct Slot<'a> {
    slot: SendSlot<'a, Link>,
    credit: Credit<'a>,
}

impl Slot<'_> {
    /// Sets the message.
    /// Context: does not sleep.
    pub(crate) fn write(&mut self, message: &[u8]) -> Result {
        self.slot.write(message)
    }

    /// Sends no message: the last write carries immediate data in its place, see [`SendSlot::set_immediate`]. Only if
    /// [`Link::has_immediate`].
    /// Context: does not sleep.
    pub(crate) fn set_immediate(&mut self, immediate: Immediate) {
        self.slot.set_immediate(immediate.to_bits());
    }

    /// Requests an acknowledgement of the message, if its completion does not imply one.
    /// Context: does not sleep.
    pub(crate) fn request_ack(&self) {
        self.credit.0.request_ack();
    }

    /// Posts writes and then the message, see [`SendSlot::post`].
    /// Context: does not sleep.
    pub(crate) fn post(
        self,
        link: &Arc<Link>,
        what: Sent,
        writes: &[Write<'_>],
    ) -> Result<(), PostError<Sent>> {
        let Self { mut slot, credit } = self;
        if let Some(trailer) = credit.0.trailer() {
            if let Err(error) = slot.append(&trailer) {
                return Err(PostError {
                    error,
                    by_driver: false,
                    what,
                });
            }
        }
        slot.post(link, what, writes)?;
        credit.spend();
        Ok(())
    }
}

impl Link {
    /// Takes a slot for a message about a connection, if one is free and the peer can receive the message.
    /// Context: does not sleep.
    pub(crate) fn take_slot<'a>(&'a self, resources: &'a IbResources) -> Option<Slot<'a>> {
        self.with_credit(resources.qp.take_slot()?, CreditUse::Message)
    }

    /// As [`Link::take_slot`], for a long message.
    pub(super) fn take_large_slot<'a>(&'a self, resources: &'a IbResources) -> Option<Slot<'a>> {
        self.with_credit(resources.qp.take_large_slot()?, CreditUse::Message)
    }

    /// Takes a slot of any kind for a credit update.
    /// Context: does not sleep.
    pub(super) fn take_update_slot<'a>(&'a self, resources: &'a IbResources) -> Option<Slot<'a>> {
        let slot = resources.qp.take_large_slot();
        let slot = slot.or_else(|| resources.qp.take_slot())?;
        self.with_credit(slot, CreditUse::Update)
    }

    fn with_credit<'a>(
        &'a self,
        slot: SendSlot<'a, Link>,
        for_what: CreditUse,
    ) -> Option<Slot<'a>> {
        let credit = Credit::take(&self.transport, for_what)?;
        Some(Slot { slot, credit })
    }

    /// Handles a freed slot or credit: sends waiting LLC messages, and wakes connections that wait.
    /// Context: does not sleep.
    pub(super) fn wake_slot_waiters(self: &Arc<Self>) -> Result {
        // A waiter not seen here has checked after the slot was freed.
        smp_mb(Full);
        let posted = match self.is_llc_waiting.load(Relaxed) {
            true => self.flush_llc_txq(&mut self.inner.lock()),
            false => Ok(()),
        };
        if self.slot_wakeup_wanted.load(Relaxed) {
            if let Some(handler) = self.handler() {
                handler.on_slot();
            }
        }
        posted
    }
}
