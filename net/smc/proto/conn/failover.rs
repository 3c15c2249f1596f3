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

/// What a connection does that is to use another link though its own works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It posts to the other link from now on.
    Now,
    /// It posts nothing until what is in flight has arrived, or its link failed.
    Pause,
    /// It goes on with its own link.
    Later,
}

impl Stream {
    /// Says when the connection can go over to another link while its own works.
    ///
    /// No validation is needed if everything arrived: what the peer finds in the queue of the old link after
    /// a message by the new one is older and says nothing that this does not, or is
    /// [stale](Stream::is_stale). Only that a byte is urgent is said once; the peer shows that it heard by
    /// reading the byte.
    pub const fn handover(&self) -> Handover {
        match (self.unacked, self.seq == self.seq_fin) {
            _ if self.send.is_urgent_posted() => Handover::Later,
            (0, true) => Handover::Now,
            // A link was lost: what it took along has to be said again before.
            (0, false) => Handover::Later,
            (_, _) => Handover::Pause,
        }
    }

    /// The connection's link failed or goes away, and another one was chosen.
    ///
    /// To be called under the lock after the old queue pair went to the error state, so that it
    /// writes nothing any more; completions of the old link are still handed to
    /// [`Stream::on_sent`]; all messages of the peer that came by it were handed on. What follows on the new link comes from [`Stream::plan`]: first the validation
    /// message, then everything not known to have arrived, with new sequence numbers.
    ///
    /// Unlike the C module this repeats what was in flight in every state, not only in ACTIVE.
    pub fn on_link_switch(&mut self) -> Effects {
        self.epoch = self.epoch.wrapping_add(1);
        self.forget_echo(false);
        let unacked = self.seq != self.seq_fin;
        let has_closed = !self.own.is_empty() || !self.peer.is_empty();
        // A C peer that is closing, or knows that we are, moves without a word.
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
            wake_writers: self.send.space() > space,
            ..Effects::default()
        }
    }

    /// Whether a message is the validation of an earlier move, which nothing follows any more: the peer went over
    /// to another link by [`Stream::handover`] since, and was heard there. It lay in the queue of the link that
    /// the peer used between the two. One of ours has the number of the last message sent before it in the
    /// producer cursor's place of the wrap count; what a C peer has there is not looked at.
    pub const fn is_stale(&self, cdc: &Cdc) -> bool {
        cdc.is_validation()
            && !self.recv.advertises_late()
            && is_before(cdc.prod.wrap, self.seq_peer)
    }

    /// Whether message `seq` of the peer was not taken yet.
    pub(super) const fn is_missing(&self, seq: u16) -> bool {
        is_before(self.seq_peer, seq) && !self.killed && !self.out_of_sync
    }

    /// The peer moved the connection: from now on it repeats what it does not know to have arrived, and
    /// until then is not told that this was read.
    pub(super) fn on_peer_switch(&mut self) {
        self.peer_moved = !self.recv.awaits_peer_switch();
        self.recv.hold_cons(ConsHold::PeerValidating);
    }

    /// The peer moved the connection and says which of its messages arrived last.
    pub(super) fn on_validation(&mut self, seq: u16) -> Result<(), Fault> {
        if is_before(self.seq_peer, seq) {
            self.out_of_sync = true;
            return Err(Fault::LostMessages);
        }
        match seq == self.seq_peer {
            // There is nothing that it would repeat.
            true => self.cdc_due |= self.recv.release_cons(),
            false => self.recv.hold_cons(ConsHold::PeerResending),
        }
        Ok(())
    }
}
