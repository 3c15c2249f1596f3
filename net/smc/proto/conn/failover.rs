// SPDX-License-Identifier: GPL-2.0
//! A connection moves to another link (RFC 7609 section 4.6, "failover").

use crate::conn::{
    is_before,
    recv::ConsHold,
    Cdc,
    ConnState,
    Effects,
    Fault,
    Stream, //
};

/// When a connection moves to another link while its own works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It posts to the other link from now on.
    Now,
    /// It posts nothing until what is in flight has arrived, or its link failed.
    Pause,
    /// It stays on its own link.
    Later,
}

impl Stream {
    /// Returns when the connection can move to another link while its own works.
    ///
    /// No validation is needed if everything arrived: messages that the peer finds in the old link's queue after one on
    /// the new link are older and add nothing, or are [stale](Stream::is_stale). Only the urgent flag is sent once; the
    /// peer confirms it by reading the byte.
    pub const fn handover(&self) -> Handover {
        match (self.unacked, self.seq == self.seq_fin) {
            _ if self.send.is_urgent_posted() => Handover::Later,
            (0, true) => Handover::Now,
            // A link was lost: its messages have to be repeated first.
            (0, false) => Handover::Later,
            (_, _) => Handover::Pause,
        }
    }

    /// The connection's link failed or goes away, and another one was chosen.
    ///
    /// To be called under the lock after the old queue pair went to the error state, so that it writes nothing any
    /// more, and after all messages of the peer on it were processed. Completions of the old link are still passed to
    /// [`Stream::on_sent`]. [`Stream::plan`] then returns first the validation message, then everything not known to
    /// have arrived, with new sequence numbers.
    ///
    /// Unlike the C module this repeats what was in flight in every state, not only in ACTIVE.
    pub fn on_link_switch(&mut self) -> Effects {
        self.epoch = self.epoch.wrapping_add(1);
        self.forget_echo(false);
        self.resend_asked = false;
        let unacked = self.seq != self.seq_fin;
        let has_closed = !self.own.is_empty() || !self.peer.is_empty();
        // A C peer that is closing, or knows that we are, moves without a validation.
        if !core::mem::take(&mut self.peer_moved) && !has_closed {
            self.recv.hold_cons_if_late();
        }
        let space = self.send.space();
        self.send.rewind();
        self.cdc_due |= unacked;
        self.validation_due = match self.state {
            ConnState::Init | ConnState::Listen => false,
            ConnState::Closed => unacked,
            _ => true,
        };
        Effects {
            transmit: self.has_work(),
            wake_writers: self.has_freed(space),
            ..Effects::default()
        }
    }

    /// Whether a message is the obsolete validation of an earlier move: the peer has moved to another link by
    /// [`Stream::handover`] since, and sent messages on it, while the validation was in the queue of the link used
    /// between the two. Our validations have the number of the last message sent before them in the wrap count of the
    /// producer cursor; that of a C peer is ignored.
    pub const fn is_stale(&self, cdc: &Cdc) -> bool {
        cdc.is_validation()
            && !self.recv.advertises_late()
            && is_before(cdc.prod.wrap, self.seq_peer)
    }

    /// Whether message `seq` of the peer is still missing.
    pub(super) const fn is_missing(&self, seq: u16) -> bool {
        is_before(self.seq_peer, seq) && !self.killed && !self.out_of_sync
    }

    /// The peer moved the connection: it repeats the messages that it does not know to have arrived, and until then no
    /// newer consumer cursor is sent.
    pub(super) fn on_peer_switch(&mut self) {
        self.peer_moved = !self.recv.awaits_peer_switch();
        self.recv.rmbes_mut().note_peer_switch();
        self.recv.hold_cons(ConsHold::PeerValidating);
    }

    /// Processes the validation of a peer's move; `seq` is its last message that arrived.
    pub(super) fn on_validation(&mut self, seq: u16) -> Result<(), Fault> {
        if is_before(self.seq_peer, seq) {
            self.out_of_sync = true;
            return Err(Fault::LostMessages);
        }
        match seq == self.seq_peer {
            // The peer has nothing to repeat.
            true => self.cdc_due |= self.recv.release_cons(),
            false => self.recv.hold_cons(ConsHold::PeerResending),
        }
        Ok(())
    }

    /// Whether a C peer that has moved may have nothing to repeat, though the number in its validation is not that of
    /// its last message. It takes the number before it counts the message (`smc_cdc_add_pending_send`), so that it is
    /// one behind if everything arrived. Where our RMBE is full it sends nothing then until our consumer cursor moves.
    const fn may_have_nothing_to_resend(&self) -> bool {
        self.recv.advertises_late()
            && self.recv.awaits_resend()
            && self.send.has_peer()
            && !self.has_no_link
            && !self.killed
    }

    /// The part of [`Stream::begin_echo`] about that. Returns true if an echo is due that was not before.
    pub(super) fn ask_about_resend(&mut self) -> bool {
        let is_asked = self.may_have_nothing_to_resend();
        let was_asked = core::mem::replace(&mut self.resend_asked, is_asked);
        is_asked && !was_asked
    }

    /// The part of [`Stream::on_silence`] about that: the peer has nothing to repeat. Returns whether a message is due.
    pub(super) fn on_silence_about_resend(&mut self) -> bool {
        if !core::mem::take(&mut self.resend_asked) {
            return false;
        }
        if self.recv.awaits_resend() {
            self.cdc_due |= self.recv.release_all();
        }
        self.cdc_due
    }
}
