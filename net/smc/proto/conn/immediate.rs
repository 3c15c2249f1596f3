// SPDX-License-Identifier: GPL-2.0
//! Immediate data of an RDMA write in place of a CDC message: one work request, one packet.
//!
//! They carry a [sequence number](crate::wire::immediate) only, so they stand for a message that says no more than "so
//! many bytes follow those of the message before". The receiver completes them to that message, relative to the one
//! before, which came by the same link: the first message on each link is a CDC message with absolute cursors. So
//! nothing is counted twice when messages are repeated on another link, or are processed in another order.

use crate::conn::{
    is_before,
    Cdc,
    CdcHold,
    Fault,
    ProducerFlags,
    RdmaWrite,
    RmbeRefs,
    StateFlags,
    Stream, //
};
use crate::error::PeerMisbehaved;

/// Whether immediate data may take the place of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ImmediateUse {
    /// The peer or the link cannot.
    #[default]
    No,
    /// After the next message.
    AfterMessage,
    Yes,
}

impl ImmediateUse {
    /// The next message has to be a full one.
    pub(super) fn suspend(&mut self) {
        if *self == Self::Yes {
            *self = Self::AfterMessage;
        }
    }
}

impl Stream {
    /// Sets whether the peer accepts immediate data in place of messages, and the link can carry them. To be called
    /// once both are known, and whenever the connection begins to use another link.
    pub fn set_immediate(&mut self, allowed: bool) {
        self.immediate = match (allowed, self.has_sent) {
            (false, _) => ImmediateUse::No,
            (true, false) => ImmediateUse::Yes,
            (true, true) => ImmediateUse::AfterMessage,
        };
    }

    /// Whether immediate data can take the place of the message with these flags that announces `writes` from position
    /// `start` on: it carries nothing else of use. What is resent after a move can leave out bytes which the peer has
    /// read meanwhile; then a message has to say where they begin.
    pub(super) fn take_immediate(
        &mut self,
        start: u64,
        writes: &[RdmaWrite; 2],
        flags: ProducerFlags,
        state: StateFlags,
    ) -> bool {
        let [first, second] = writes;
        let is_one_write = first.len > 0 && second.len == 0;
        let says_more =
            !flags.is_empty() || !state.is_empty() || self.cdc_due || self.has_offered_rmbe();
        match self.immediate {
            ImmediateUse::No => false,
            ImmediateUse::Yes => {
                let follows = start == self.announced;
                is_one_write && follows && !says_more && !self.recv.owes_cons()
            }
            ImmediateUse::AfterMessage => {
                self.immediate = ImmediateUse::Yes;
                false
            }
        }
    }

    /// The peer's last message.
    fn last_cdc(&self) -> Cdc {
        Cdc {
            seq: self.seq_peer,
            prod: self.recv.prod(),
            cons: self.send.acked_cursor(),
            flags: ProducerFlags::default(),
            state: self.peer,
            rmbes: RmbeRefs {
                prod: self.recv.rmbes().num(),
                cons: self.send.rmbe(),
                ..RmbeRefs::default()
            },
        }
    }
}

impl CdcHold {
    /// Completes immediate data with this sequence number, of a write of `len` bytes, to the message that they stand
    /// for. `None` if later messages made it obsolete.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the message before is missing, or the write is longer than our RMBE; call [`Stream::abort`] then.
    pub fn expand(&self, seq: u16, len: u32, stream: &Stream) -> Result<Option<Cdc>, Fault> {
        let next = stream.seq_peer.wrapping_add(1);
        let last = match self.last() {
            _ if stream.killed || stream.out_of_sync => return Ok(None),
            _ if seq == next => stream.last_cdc(),
            _ if is_before(seq, next) => return Ok(None),
            Some(held) if seq == held.seq.wrapping_add(1) => *held,
            Some(held) if is_before(seq, held.seq.wrapping_add(1)) => return Ok(None),
            Some(_) | None => return Err(Fault::LostMessages),
        };
        let ring = stream
            .recv
            .rmbes()
            .ring_of(stream.refs_of_peer(last.rmbes).prod)?;
        if len > ring.size() {
            return Err(PeerMisbehaved::ProducerOverrun.into());
        }
        Ok(Some(Cdc {
            seq,
            prod: ring.after(last.prod, len),
            flags: ProducerFlags::default(),
            ..last
        }))
    }
}
