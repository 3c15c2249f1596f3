// SPDX-License-Identifier: GPL-2.0

//! Why LLC flows fail.

use crate::reason::Reason;
use crate::wire::llc::RejectReason;

/// Why no link was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddLinkError {
    /// No message of the peer arrived in time.
    Silent,
    /// The client rejected it.
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

/// Why a first contact failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstContactError {
    /// No message of the peer arrived. Wait for a DECLINE on TCP, until
    /// [`wait_limit`](super::first_contact::wait_limit) is over, then [`crate::handshake::after_silence`] interprets
    /// the result.
    Silent,
    /// Client: the server has neither declined nor shown that it uses the link. A C server that has the answer uses the
    /// link, so this TCP connection is of no use any more.
    Undecided,
    /// The link cannot be used.
    Failed(Reason),
}

/// Why an RKey request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RkeyError {
    /// No answer in time.
    TimedOut,
    /// The peer has no room for the buffer, or does not know it.
    Refused,
    /// The link on which the answer is expected is gone.
    LinkLost,
    /// Other flows took too long, and no request was sent.
    NoTurn,
}
