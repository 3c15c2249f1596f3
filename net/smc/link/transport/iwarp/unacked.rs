// SPDX-License-Identifier: GPL-2.0

//! Messages whose sends have completed and which the peer has not yet acknowledged: see [`smc_proto::link::credits`].

use kernel::sync::Arc;
use kernel_ext::prelude::*;
use smc_proto::{conn::SentRecord, link::credits::is_ahead};

use super::Iwarp;
use crate::link::{
    Sender,
    Sent, //
};

/// A message and its sender.
type UnackedMessage = (Arc<dyn Sender>, SentRecord);

/// Unacknowledged messages about connections, oldest first.
pub(super) struct Unacked {
    /// A ring, with the number of each message.
    ring: KVVec<Option<(u16, UnackedMessage)>>,
    /// Index of the oldest.
    first: usize,
    len: usize,
    /// Completed sends of messages of any kind.
    completed: u16,
    /// No more acknowledgements will arrive.
    is_over: bool,
}

impl Unacked {
    /// Creates an empty ring for `room` messages.
    pub(super) fn new(room: u16) -> Result<Self> {
        let mut ring = KVVec::with_capacity(usize::from(room), GFP_KERNEL)?;
        for _ in 0..room {
            ring.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            ring,
            first: 0,
            len: 0,
            completed: 0,
            is_over: false,
        })
    }

    /// Records a completed send; sends complete in the order of posting. Returns the message if no acknowledgement will
    /// arrive any more. (There is room: no more are in flight than `Credits::window`.)
    fn on_local_completion(
        &mut self,
        message: Option<UnackedMessage>,
    ) -> Result<(), UnackedMessage> {
        self.completed = self.completed.wrapping_add(1);
        let Some(message) = message else {
            return Ok(());
        };
        let room = self.ring.len();
        if self.is_over || self.len >= room {
            return Err(message);
        }
        let place = self.first.saturating_add(self.len).checked_rem(room);
        let place = place.and_then(|place| self.ring.get_mut(place));
        if let Some(place) = place {
            *place = Some((self.completed, message));
            self.len = self.len.saturating_add(1);
        }
        Ok(())
    }

    /// Removes the oldest, if it is among the first `acked`, or if no more acknowledgements will arrive.
    fn next(&mut self, acked: u16) -> Option<UnackedMessage> {
        let is_over = self.is_over;
        let place = self.ring.get_mut(self.first)?;
        let (_, message) = place.take_if(|(number, _)| is_over || !is_ahead(*number, acked))?;
        self.first = self.first.saturating_add(1);
        if self.first == self.ring.len() {
            self.first = 0;
        }
        self.len = self.len.saturating_sub(1);
        Some(message)
    }
}

impl Iwarp {
    /// A send completed without error, which means only that the message was sent locally.
    /// Context: does not sleep.
    pub(super) fn on_local_completion(&self, what: Sent) {
        let message = match what {
            Sent::Control => None,
            Sent::Data(sender, record) => Some((sender, record)),
        };
        let sender = message.as_ref().map(|(sender, _)| sender.clone());
        // A trailer granted credits for more messages, and the messages it acknowledged may still be in the ring.
        self.report_acked();
        let kept = self.unacked.lock().on_local_completion(message);
        match kept {
            Ok(()) => {
                if let Some(sender) = sender {
                    sender.on_local_completion();
                }
                // The acknowledgement may have arrived first.
                self.report_acked();
            }
            Err((sender, record)) => sender.on_sent(&record, false),
        }
    }

    /// Reports the messages that the peer has acknowledged.
    /// Context: does not sleep.
    pub(super) fn report_acked(&self) {
        let acked = self.credits.lock().acked();
        loop {
            let next = self.unacked.lock().next(acked);
            let Some((sender, record)) = next else {
                return;
            };
            sender.on_acked(&record, true);
        }
    }

    /// Ends acknowledgements: reports the messages without one as lost.
    /// Context: does not sleep.
    pub(super) fn report_lost(&self) {
        self.unacked.lock().is_over = true;
        loop {
            let next = self.unacked.lock().next(0);
            let Some((sender, record)) = next else {
                return;
            };
            sender.on_acked(&record, false);
        }
    }
}
