// SPDX-License-Identifier: GPL-2.0
//! Data that follow the peer's close.
//!
//! A C peer may close with data unsent: at once when its process exits, else after two seconds. It continues to send
//! them after its close flag (`smc_cdc_msg_recv_action`, `smc_cdc_tx_handler`): whenever our consumer cursor moves, and
//! when its last message is completed, as it also holds small data back until then (autocorking). So:
//!
//! - Consumer updates go on after its close flag, as long as more may follow.
//! - Its close is the end of the stream only once nothing follows. Its messages do not show that: the B flag is also
//!   set when the last data filled our RMBE exactly, and is not when data were corked. The proof is that nothing
//!   arrived before the answer to a TEST_LINK sent after our last message, as the peer posts what it has to send before
//!   that answer.
//! - Our last message does not move the cursor, and the RMBE stays ours until nothing follows.
//!
//! A peer of this implementation sends its close after its last data arrived.

use crate::conn::{
    Effects,
    StateFlags,
    Stream, //
};

/// What may follow the peer's close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterClose {
    /// Nothing, from a peer that closes after its last data arrived.
    Nothing,
    /// Data.
    Open,
    /// Data; an echo is outstanding, see [`Stream::begin_echo`].
    Asked,
    /// Nothing any more, as an echo showed.
    Silent,
}

impl AfterClose {
    const fn may_follow(self) -> bool {
        matches!(self, Self::Open | Self::Asked)
    }
}

impl Stream {
    /// The peer is a C module, or may be one: data may follow its close.
    pub fn expect_data_after_close(&mut self) {
        if self.after_close == AfterClose::Nothing {
            self.after_close = AfterClose::Open;
        }
    }

    /// Whether the peer may write to our RMBE though it is done or closed.
    ///
    /// shutdown(2) of a C peer sends corked data, so that only data that our RMBE had no room for may follow its D
    /// flag.
    pub(super) const fn awaits_data_after_close(&self) -> bool {
        let has_sent_all = self.peer.contains(StateFlags::DONE_WRITING) && !self.recv.is_blocked();
        self.after_close.may_follow() && !self.peer.is_empty() && !has_sent_all
    }

    /// Whether the peer has ended its stream, and all its data are here or lost.
    pub(super) const fn has_peer_ended(&self) -> bool {
        let is_lost = self.peer.contains(StateFlags::ABORTED);
        !self.peer.is_empty() && (is_lost || !self.awaits_data_after_close())
    }

    /// Whether the peer had ended its stream, with all its data here, before it aborts with these `flags`: then what
    /// was read is the whole, as over TCP when a reset comes after the FIN.
    ///
    /// A C peer aborts when its application closes and has data unread, at whatever point of its stream
    /// (`smc_close_final`), and when its group ends (`smc_conn_kill`). Data that it has not sent are lost with that,
    /// those as well that follow its D flag where our RMBE is full: its shutdown(2) waits two seconds for room, or as
    /// long as SO_LINGER says. That it ends in order is told by a message of its own (`smc_close_wr`,
    /// `smc_close_final`); where only that with the abort tells of it, the other did not get out, and proves nothing.
    pub(super) const fn had_ended_before_abort(&self, flags: StateFlags) -> bool {
        match self.peer.is_empty() {
            true => flags.contains(StateFlags::DONE_WRITING) && !self.after_close.may_follow(),
            false => !self.awaits_data_after_close(),
        }
    }

    /// Whether data may have been lost with the connection's failed link: a C peer that closed moves to another link
    /// without repeating them.
    pub const fn may_miss_data_after_close(&self) -> bool {
        self.awaits_data_after_close()
            && !self.has_peer_ended()
            && !self.shutdown.recv
            && !self.killed
    }

    /// Whether our close would lose data of the peer: it has closed, and waits for room.
    pub(super) const fn refuses_data_after_close(&self) -> bool {
        self.peer.any_close() && self.awaits_data_after_close() && self.recv.is_blocked()
    }

    /// Whether the peer answers an abort that comes behind our close. A C peer that is done writing by then does not,
    /// and its application finds the end of the stream before data that it has yet to read (`SMC_CLOSED`, see
    /// `smc_close_passive_abort_received`). Its D flag may be on its way, so none is sent an abort.
    pub(super) const fn answers_second_close(&self) -> bool {
        matches!(self.after_close, AfterClose::Nothing)
    }

    /// Whether a message with our close flag is the final one to a peer that may still send: it sends no more if the
    /// cursor does not move.
    pub(super) const fn is_final_message(&self, flags: StateFlags) -> bool {
        flags.any_close() && self.peer.any_close() && self.awaits_data_after_close()
    }

    /// Whether an echo is due: data may follow the peer's close, and everything was sent that makes the peer send them.
    fn is_close_echo_due(&self) -> bool {
        let has_room = !self.recv.is_blocked() || self.recv.is_all_advertised();
        let is_told = has_room || self.close_posted;
        self.awaits_data_after_close()
            && is_told
            && !self.has_work()
            && self.send.has_peer()
            && !self.has_no_link
    }

    /// The part of [`Stream::begin_echo`] about the peer's close. Returns true if an echo is due that was not before.
    pub(super) fn ask_after_close(&mut self) -> bool {
        let was_asked = self.after_close == AfterClose::Asked;
        let is_asked = self.is_close_echo_due();
        if self.after_close.may_follow() {
            self.after_close = match is_asked {
                true => AfterClose::Asked,
                false => AfterClose::Open,
            };
        }
        is_asked && !was_asked
    }

    /// The part of [`Stream::on_silence`] about the peer's close. Returns true if that is the end from now on.
    pub(super) fn on_silence_after_close(&mut self) -> bool {
        let is_asked = self.after_close == AfterClose::Asked;
        if is_asked {
            self.after_close = AfterClose::Silent;
        }
        is_asked
    }

    /// A C peer deleted the RKey of its buffer for this connection: it has freed the connection, after all its data had
    /// arrived. Has no effect until the application has released the connection.
    pub fn on_peer_freed(&mut self) -> Effects {
        let mut fx = Effects::default();
        if self.after_close != AfterClose::Nothing && self.released {
            self.after_close = AfterClose::Silent;
            self.on_peer_state(StateFlags::CLOSED, &mut fx);
        }
        fx
    }

    /// Invalidates an echo about the peer's close: either side sent a message, with new data of the peer (`has_data`)
    /// or not, or the link changed.
    pub(super) fn forget_echo(&mut self, has_data: bool) {
        match self.after_close {
            AfterClose::Asked => self.after_close = AfterClose::Open,
            AfterClose::Silent if has_data => self.after_close = AfterClose::Open,
            AfterClose::Nothing | AfterClose::Open | AfterClose::Silent => {}
        }
    }
}
