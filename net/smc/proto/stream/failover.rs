// SPDX-License-Identifier: GPL-2.0
//! A connection moves to another link (RFC 7609 section 4.6, "failover").

use crate::conn::State;
use crate::stream::{
    is_before,
    Effects,
    Fault,
    Stream, //
};

impl Stream {
    /// The connection's link failed or goes away, and another one was chosen.
    ///
    /// To be called under the lock after the old queue pair went to the error state, so that it
    /// writes nothing any more; completions of the old link are still handed to
    /// [`Stream::on_sent`]. What follows on the new link comes from [`Stream::plan`]: first the validation
    /// message, then everything not known to have arrived, with new sequence numbers.
    ///
    /// Unlike the C module this repeats what was in flight in every state, not only in ACTIVE.
    pub fn on_link_switch(&mut self) -> Effects {
        self.epoch = self.epoch.wrapping_add(1);
        let unsure = self.seq != self.seq_fin;
        let space = self.send.space();
        self.send.rewind();
        self.cdc_due |= unsure;
        self.validation_due = match self.state {
            State::Init | State::Listen => false,
            State::Closed => unsure,
            _ => true,
        };
        Effects {
            transmit: self.has_work(),
            wake_writers: self.send.space() > space,
            ..Effects::default()
        }
    }

    /// Whether message `seq` of the peer was not taken yet.
    pub(super) const fn misses(&self, seq: u16) -> bool {
        is_before(self.seq_peer, seq) && !self.killed && !self.out_of_sync
    }

    /// The peer moved the connection and says which of its messages arrived last.
    pub(super) fn on_validation(&mut self, seq: u16) -> Result<(), Fault> {
        if is_before(self.seq_peer, seq) {
            self.out_of_sync = true;
            return Err(Fault::LostMessages);
        }
        Ok(())
    }
}
