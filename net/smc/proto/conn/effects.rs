// SPDX-License-Identifier: GPL-2.0
//! Parameters of a stream's operations beside messages, and the actions it requests from the module.

use crate::conn::RmbeOffer;
use crate::error::PeerMisbehaved;

/// Why a connection cannot go on; it has to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer sent invalid values.
    Misbehaved(PeerMisbehaved),
    /// Messages were lost with a failed link (failover validation).
    LostMessages,
}

impl From<PeerMisbehaved> for Fault {
    fn from(error: PeerMisbehaved) -> Self {
        Self::Misbehaved(error)
    }
}

/// How the application sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// MSG_OOB is set.
    pub oob: bool,
    /// The last byte of the call is in this commit; with `oob` it is the urgent one.
    pub last: bool,
    /// MSG_MORE or TCP_CORK is set: hold back while writers are not kept waiting.
    pub corked: bool,
    /// sysctl `autocorking_size`, bytes; 0 turns auto-corking off.
    pub autocork_bytes: u32,
}

/// Actions for the module after an event, once it dropped the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Call transmit.
    pub transmit: bool,
    /// Wake readers and pollers.
    pub wake_readers: bool,
    /// Wake writers and pollers that found no send space.
    pub wake_writers: bool,
    /// An urgent byte lies at this offset of our RMBE: store it
    /// ([`store_urgent`](super::Stream::store_urgent)) and raise SIGURG.
    pub urgent_at: Option<u32>,
    /// The peer sends no more: set RCV_SHUTDOWN and SOCK_DONE, on the TCP socket too.
    pub peer_done: bool,
    /// The peer aborted: set `sk_err` to ECONNRESET.
    pub reset: bool,
    /// The peer does not accept data sent after it announced that it sends no more: set `sk_err` to EPIPE.
    pub broken_pipe: bool,
    /// The state changed: report it to pollers; see [`is_finished`](super::Stream::is_finished).
    pub state_changed: bool,
    /// The peer offers an RMBE in place of the one that data are written to: call
    /// [`adopt_rmbe`](super::Stream::adopt_rmbe) under the same hold of the lock if it can be written to.
    pub offer: Option<RmbeOffer>,
    /// The peer has adopted the RMBE that was offered to it. The one before is needed as long as
    /// [`needs_replaced`](super::Stream::needs_replaced).
    pub replaced: bool,
}

/// Actions for the module after a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumeEffects {
    /// Call transmit: a consumer cursor update is due.
    pub transmit: bool,
    /// The read ends here, at the urgent mark.
    pub at_mark: bool,
}

/// Actions for the module after a close or shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseEffects {
    /// Call transmit: a message with a new flag waits.
    pub transmit: bool,
    /// The state changed.
    pub state_changed: bool,
}
