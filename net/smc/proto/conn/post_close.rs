// SPDX-License-Identifier: GPL-2.0
//! Data that follow the peer's close.
//!
//! A C peer closes with data unsent: at once when its process exits, else after two seconds. It goes on sending
//! them after its close flag (`smc_cdc_msg_recv_action`, `smc_cdc_tx_handler`): whenever our consumer cursor moves,
//! and when its last message is completed, for it also holds small data back until then (autocorking). So:
//!
//! - Consumer updates go on after its close flag, as long as more may follow.
//! - Its close is the end of the stream only once nothing follows. Its messages do not say so: the B flag is set
//!   as well when the last data filled our RMBE exactly, and is not when data were corked. What says so is that
//!   nothing came before the answer to a TEST_LINK which was sent after our last message, as what the peer has to
//!   send it posts before that.
//! - Our last message does not move the cursor, and the RMBE stays ours until nothing follows.
//!
//! A peer of ours says that it closed after its last data arrived.

use crate::conn::{
    Effects,
    StateFlags,
    Stream, //
};

impl Stream {
    /// The peer is a C module, or may be one: data may follow its close.
    pub fn expect_data_after_close(&mut self) {
        self.sends_after_close = true;
    }

    /// Whether the peer may write to our RMBE though it is done or closed.
    ///
    /// shutdown(2) of a C peer sends what was held back, so that what may follow its D flag is only what our RMBE
    /// had no room for.
    pub(super) const fn awaits_data_after_close(&self) -> bool {
        let has_sent_all = self.peer.contains(StateFlags::DONE_WRITING) && !self.recv.is_blocked();
        self.sends_after_close && !self.peer.is_empty() && !self.is_silent && !has_sent_all
    }

    /// Whether the peer has ended its stream, and all that it sent is here or lost.
    pub(super) const fn has_peer_ended(&self) -> bool {
        let is_lost = self.peer.contains(StateFlags::ABORTED);
        !self.peer.is_empty() && (is_lost || !self.awaits_data_after_close())
    }

    /// Whether the reader may miss data that the connection's link took along when it failed: a C peer that closed
    /// moves to another link without repeating them.
    pub const fn may_miss_data_after_close(&self) -> bool {
        self.awaits_data_after_close() && !self.has_peer_ended() && !self.shut_read && !self.killed
    }

    /// Whether the close that is to be said loses data of the peer: it has closed, and waits for room.
    pub(super) const fn refuses_data_after_close(&self) -> bool {
        self.peer.any_close() && self.awaits_data_after_close() && self.recv.is_blocked()
    }

    /// Whether a message that says that we close is the last that a peer hears which may send on: it does not do
    /// so if the cursor stands.
    pub(super) const fn is_final_message(&self, flags: StateFlags) -> bool {
        flags.any_close() && self.peer.any_close() && self.awaits_data_after_close()
    }

    /// Whether the peer is to be asked whether anything follows its close: it may, and all was said that makes
    /// the peer send it.
    fn wants_echo(&self) -> bool {
        let has_room = !self.recv.is_blocked() || self.recv.is_all_advertised();
        let is_told = has_room || self.close_posted;
        self.awaits_data_after_close()
            && is_told
            && !self.has_work()
            && self.send.has_peer()
            && !self.has_no_link
    }

    /// Begins to ask the peer whether anything follows its close, if that is to be done and was not since
    /// its last message and ours. The caller then sends a TEST_LINK on the connection's link, after all that was
    /// posted, and some time after the answer calls [`Stream::on_silence`].
    pub fn begin_echo(&mut self) -> bool {
        let was_asked = self.is_asked;
        self.is_asked = self.wants_echo();
        self.is_asked && !was_asked
    }

    /// The peer answered, and nothing of it came since [`Stream::begin_echo`]: its close is the end.
    pub fn on_silence(&mut self) -> Effects {
        if !core::mem::take(&mut self.is_asked) {
            return Effects::default();
        }
        self.is_silent = true;
        Effects {
            wake_readers: true,
            peer_done: true,
            ..Effects::default()
        }
    }

    /// A C peer deleted the key of the buffer that it had for this connection: it has freed the connection, after
    /// all that it sent had arrived. To be told of once the application has gone; before, nothing is done.
    pub fn on_peer_freed(&mut self) -> Effects {
        let mut fx = Effects::default();
        if self.sends_after_close && self.released {
            self.is_silent = true;
            self.on_peer_state(StateFlags::CLOSED, &mut fx);
        }
        fx
    }

    /// The peer said something, with new data or not, or we did, or the link is another: an answer to what was
    /// asked before says nothing.
    pub(super) fn forget_echo(&mut self, has_data: bool) {
        self.is_asked = false;
        self.is_silent &= !has_data;
    }
}
