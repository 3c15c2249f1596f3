// SPDX-License-Identifier: GPL-2.0
//! Echoes: whether a C peer still has something to send.
//!
//! No message of a C peer says that nothing follows its close ([`post_close`](super::post_close)), nor that it repeats
//! nothing after it moved to another link ([`failover`](super::failover)). The proof is that nothing comes for a while
//! after the answer to a TEST_LINK, which the peer gives after it posted what it has to send.

use crate::{
    conn::{
        Effects,
        Stream, //
    },
    time::Duration, //
};

/// Time without messages after the peer's answer that makes its close final. The peer answers from a work item, after
/// it processed what arrived before; while its application is in close(2) it sends only after that is done.
const CLOSE_SILENCE: Duration = Duration::from_millis(10);

/// The same after the peer moved to another link, until it has nothing to repeat: its application may delay the work
/// that repeats. A consumer cursor that comes too early makes a C peer write to the wrong place.
const RESEND_SILENCE: Duration = Duration::from_secs(1);

impl Stream {
    /// Begins an echo, if one is due and none was begun since the last message of either side, or of the peer if it has
    /// moved to another link. Returns true if the caller has to send a TEST_LINK on the connection's link, after
    /// everything posted, and to call [`Stream::on_silence`] the time [`Stream::silence`] after the answer.
    pub fn begin_echo(&mut self) -> bool {
        let (after_close, about_resend) = (self.ask_after_close(), self.ask_about_resend());
        after_close || about_resend
    }

    /// The time without messages after the answer that proves that nothing follows.
    pub const fn silence(&self) -> Duration {
        match self.resend_asked {
            true => RESEND_SILENCE,
            false => CLOSE_SILENCE,
        }
    }

    /// The answer arrived, and no message of the peer since [`Stream::begin_echo`]: its close is the end, and it has
    /// nothing to repeat.
    pub fn on_silence(&mut self) -> Effects {
        let is_update_due = self.on_silence_about_resend();
        let is_end = self.on_silence_after_close();
        Effects {
            transmit: is_update_due,
            wake_readers: is_end,
            peer_done: is_end,
            ..Effects::default()
        }
    }
}
