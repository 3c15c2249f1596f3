// SPDX-License-Identifier: GPL-2.0

//! Why LLC flows fail.

use crate::reason::Reason;
use crate::wire::llc::RejectReason;

/// Why no link was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddLinkError {
    /// The peer was not heard in time.
    Silent,
    /// The client does not want it.
    Rejected(RejectReason),
    /// The peer deleted it before it was active.
    Deleted,
    /// It, or the link that the flow ran on, is gone.
    LinkLost,
    /// It could not be brought up on this side.
    Failed(Reason),
    /// The peer's end cannot be used.
    Unusable,
}

/// Why there is no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstContactError {
    /// The peer was not heard. Look for a DECLINE on TCP, until the [patience](super::first_contact::patience) is over, and ask
    /// [`crate::handshake::after_silence`] what it means.
    Silent,
    /// Client: the server has neither declined nor tested the link, and the answer did not arrive as far as is
    /// known. A C server that has the answer uses the link, so there is no way back to TCP.
    Undecided,
    /// The link cannot be used.
    Failed(Reason),
}

/// Why the peer did not take note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RkeyError {
    /// No answer in time.
    TimedOut,
    /// The peer has no place for the buffer, or does not know it.
    Refused,
    /// The link that the answer would come on is gone.
    LinkLost,
}
