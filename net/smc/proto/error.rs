// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with a peer, in three kinds, and what a peer is told about it.
//!
//! [`Malformed`]: the bytes are no message. [`PeerMisbehaved`]: a message, but not one that the
//! protocol allows now. [`PeerIncompatible`]: nothing is wrong, but there is no common ground.
//! The reason in a connection layer control (CLC) DECLINE is a function of the error, in one match
//! per kind here; the errno that the application sees is a function of it in
//! [`Failure::actions`](crate::handshake::Failure::actions).

use crate::reason::Reason;

/// Bytes that are not the message they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Fewer bytes than the message, or a part of it, needs.
    Truncated,
    /// The leading eye catcher is neither SMCR nor SMCD.
    EyeCatcher,
    /// The trailing eye catcher is neither SMCR nor SMCD.
    Trailer,
    /// The version is one that the message type does not have.
    Version,
    /// The type is unknown, or not the expected one.
    MessageType,
    /// The length field is not the length of what the message says it contains.
    LengthMismatch,
    /// An offset field points outside the message or into another part.
    Offset,
    /// A count is above the limit of its list, or above what the received bytes can hold.
    Count,
    /// The technology is neither SMC-R nor SMC-D, or version 1 offers neither.
    Technology,
    /// The element index is zero.
    RmbeIndex,
    /// The code of the maximum transmission unit is not 1 to 5.
    Mtu,
    /// A request to add a link that names neither a link nor a port.
    Empty,
}

impl Malformed {
    /// The reason of the DECLINE that answers such a CLC message; `None` if nothing is answered
    /// and the TCP connection just ends (the C module's `-EPROTO`).
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::RmbeIndex | Self::Mtu => Some(Reason::ModeUnsupported),
            Self::Truncated
            | Self::EyeCatcher
            | Self::Trailer
            | Self::Version
            | Self::MessageType
            | Self::LengthMismatch
            | Self::Offset
            | Self::Count
            | Self::Technology
            | Self::Empty => None,
        }
    }
}

/// A well-formed message that the protocol does not allow at this point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerMisbehaved {
    /// A message that this state does not wait for.
    UnexpectedMessage,
    /// The server answered with a technology or version that was not proposed.
    ModeNotOffered,
    /// The server chose an enterprise id that was not proposed.
    EidNotOffered,
    /// A release above the one proposed.
    ReleaseNotOffered,
    /// CONFIRM repeats another release than the one agreed on.
    ReleaseChanged,
    /// CONFIRM repeats another limit of connections than the one agreed on.
    MaxConnsChanged,
    /// CONFIRM repeats another limit of links than the one agreed on.
    MaxLinksChanged,
    /// A cursor lies outside its ring.
    CursorOutsideRing,
    /// The producer says that it wrote over data which have not been read.
    ProducerOverrun,
    /// The consumer says that it read data which have not been written.
    ConsumerOverrun,
    /// A cursor moved by more than one ring, or backwards.
    CursorJump,
    /// A message names an RMBE that was not offered, or that its data are not in.
    UnknownRmbe,
    /// The peer fails over again and again before anything that arrived can be told.
    TooManyFailovers,
}

impl PeerMisbehaved {
    /// The reason of the DECLINE during a handshake; `None` if the fault belongs to a time when
    /// no DECLINE can be sent any more, and the connection is aborted or the link group ended.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::ModeNotOffered | Self::EidNotOffered => Some(Reason::ModeUnsupported),
            Self::ReleaseNotOffered | Self::ReleaseChanged => Some(Reason::ReleaseError),
            Self::MaxConnsChanged => Some(Reason::MaxConnsError),
            Self::MaxLinksChanged => Some(Reason::MaxLinksError),
            Self::UnexpectedMessage
            | Self::CursorOutsideRing
            | Self::ProducerOverrun
            | Self::ConsumerOverrun
            | Self::CursorJump
            | Self::UnknownRmbe
            | Self::TooManyFailovers => None,
        }
    }
}

/// Two peers that both keep to the protocol and still find no common ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerIncompatible {
    /// The peer's limit of connections in a link group is too low.
    MaxConns,
    /// The peer's limit of links in a link group is out of range.
    MaxLinks,
}

impl PeerIncompatible {
    /// The reason of the DECLINE.
    pub const fn reason(self) -> Reason {
        match self {
            Self::MaxConns => Reason::MaxConnsError,
            Self::MaxLinks => Reason::MaxLinksError,
        }
    }
}

/// Any of the three kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerError {
    /// The bytes are no message.
    Malformed(Malformed),
    /// The message is not allowed now.
    Misbehaved(PeerMisbehaved),
    /// There is no common ground.
    Incompatible(PeerIncompatible),
}

impl PeerError {
    /// The reason of the DECLINE that answers it; `None` if none is owed.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Malformed(error) => error.reason(),
            Self::Misbehaved(error) => error.reason(),
            Self::Incompatible(error) => Some(error.reason()),
        }
    }
}

impl From<Malformed> for PeerError {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

impl From<PeerMisbehaved> for PeerError {
    fn from(error: PeerMisbehaved) -> Self {
        Self::Misbehaved(error)
    }
}

impl From<PeerIncompatible> for PeerError {
    fn from(error: PeerIncompatible) -> Self {
        Self::Incompatible(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_message_is_not_answered_but_an_impossible_mtu_is() {
        assert_eq!(PeerError::from(Malformed::Truncated).reason(), None);
        assert_eq!(
            PeerError::from(Malformed::Mtu).reason(),
            Some(Reason::ModeUnsupported)
        );
    }
}
