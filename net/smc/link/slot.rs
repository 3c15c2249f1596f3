// SPDX-License-Identifier: GPL-2.0

//! Slots for sends, and the credits that go with them over iWARP: see `smc_proto::link::credits`.

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
use kernel_ext::ib::{
    Rejected,
    SendSlot,
    Write, //
};
use smc_proto::{
    link::credits::Credits,
    wire::iwarp::{
        self,
        TRAILER_LEN, //
    }, //
};

use super::{
    IbResources,
    Link,
    LinkError,
    Sent, //
};

/// A credit that was taken; dropping it puts it back.
struct Credit<'a>(&'a Link);

impl Credit<'_> {
    /// The trailer of a message that is posted now.
    fn trailer(&self) -> [u8; TRAILER_LEN] {
        let ack = self.0.with_credits(Credits::advertise);
        ack.map_or([0; TRAILER_LEN], iwarp::CreditAck::to_bytes)
    }

    /// The message was posted.
    fn spend(self) {
        core::mem::forget(self);
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.0.with_credits(Credits::put_back);
    }
}

/// A free slot for a message, with the right to send it; dropping it gives both back.
pub(crate) struct Slot<'a> {
    slot: SendSlot<'a, Link>,
    credit: Option<Credit<'a>>,
}

impl Slot<'_> {
    /// Sets the message. Does not sleep.
    pub(crate) fn write(&mut self, message: &[u8]) -> Result {
        self.slot.write(message)
    }

    /// Requests an acknowledgement of the message, where its completion is none. Does not sleep.
    pub(crate) fn request_ack(&self) {
        if let Some(Credit(link)) = &self.credit {
            link.with_credits(Credits::request_ack);
        }
    }

    /// Posts writes and then the message, as [`SendSlot::post`]. Does not sleep.
    pub(crate) fn post(
        self,
        link: &Arc<Link>,
        what: Sent,
        writes: &[Write<'_>],
    ) -> Result<(), Rejected<Sent>> {
        let Self { mut slot, credit } = self;
        if let Some(credit) = &credit {
            if let Err(error) = slot.append(&credit.trailer()) {
                return Err(Rejected {
                    error,
                    by_driver: false,
                    what,
                });
            }
        }
        slot.post(link, what, writes)?;
        if let Some(credit) = credit {
            credit.spend();
        }
        Ok(())
    }
}

impl Link {
    /// Takes a slot for a message about a connection, if one is free and the peer can take the message. Does
    /// not sleep.
    pub(crate) fn take_slot<'a>(&'a self, resources: &'a IbResources) -> Option<Slot<'a>> {
        self.with_credit(resources.qp.take_slot()?, Credits::take)
    }

    /// As [`Link::take_slot`], for a long message.
    pub(super) fn take_large_slot<'a>(&'a self, resources: &'a IbResources) -> Option<Slot<'a>> {
        self.with_credit(resources.qp.take_large_slot()?, Credits::take)
    }

    fn with_credit<'a>(
        &'a self,
        slot: SendSlot<'a, Link>,
        take: impl FnOnce(&mut Credits) -> bool,
    ) -> Option<Slot<'a>> {
        if !self.is_iwarp() {
            return Some(Slot { slot, credit: None });
        }
        // Who has a slot and no credit waits for the peer's next message, as does who finds no slot
        // meanwhile: that wakes both.
        self.with_credits(take)?.then(|| Slot {
            slot,
            credit: Some(Credit(self)),
        })
    }

    /// Runs `f` on the credits, if messages need some.
    pub(super) fn with_credits<R>(&self, f: impl FnOnce(&mut Credits) -> R) -> Option<R> {
        let mut credits = self.credits.lock();
        (*credits).as_mut().map(f)
    }

    /// Whether the peer could take a message. Does not sleep.
    pub(super) fn has_credit(&self) -> bool {
        !self.is_iwarp() || self.with_credits(|credits| credits.has_any()) == Some(true)
    }

    /// Splits off the trailer of a message and applies it. `None` if there is none, which is a protocol violation.
    /// Does not sleep.
    pub(super) fn take_credits<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (message, ack) = iwarp::split(bytes).ok()?;
        self.with_credits(|credits| credits.on_message(ack));
        Some(message)
    }

    /// A message of the peer could not be read. Does not sleep.
    pub(super) fn lose_credits(&self) {
        self.with_credits(Credits::on_unread);
    }

    /// A message with a trailer arrived: reports what it acknowledged, sends what waited for credits, and a credit
    /// update if that is due. Does not sleep.
    pub(super) fn on_credit_update(self: &Arc<Self>) {
        if !self.is_iwarp() {
            return;
        }
        self.report_acked();
        // Who said after our look that he waits has seen the credits.
        smp_mb(Full);
        let posted = match self.is_llc_waiting.load(Relaxed) {
            true => self.flush_llc_txq(&mut self.inner.lock()),
            false => Ok(()),
        };
        if self.is_slot_wanted.load(Relaxed) {
            if let Some(handler) = self.handler() {
                handler.on_slot();
            }
        }
        if posted.and_then(|()| self.send_credit_update()).is_err() {
            self.fail(LinkError::Post);
        }
    }

    /// Sends a credit update if that is due. If no slot is free, the completion of what is in it calls this again.
    pub(super) fn send_credit_update(self: &Arc<Self>) -> Result {
        let is_due = |credits: &mut Credits| credits.is_update_due();
        if !self.is_iwarp() || self.with_credits(is_due) != Some(true) {
            return Ok(());
        }
        let Some(resources) = self.resources() else {
            return Ok(());
        };
        let slot = resources.qp.take_large_slot();
        let Some(slot) = slot.or_else(|| resources.qp.take_slot()) else {
            return Ok(());
        };
        let Some(mut slot) = self.with_credit(slot, Credits::take_last) else {
            return Ok(());
        };
        slot.write(&[])?;
        slot.post(self, Sent::Control, &[])?;
        Ok(())
    }
}
