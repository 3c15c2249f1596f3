// SPDX-License-Identifier: GPL-2.0

//! The handshake over TCP: which technology, version, link and buffer two hosts agree on.
//!
//! Connection layer control (CLC) messages are the first bytes of the TCP connection in both
//! directions: PROPOSAL, ACCEPT, CONFIRM, and DECLINE in place of any of them (RFC 7609 sections
//! 3.2 and 3.5). [`client`] and [`server`] are the two sides, each a chain of states consumed by
//! value; [`select`] has the choices as functions, [`eid`] the enterprise ids. This file has what
//! both sides share: time limits, and what a handshake that fails means for the application.
//!
//! ```text
//! client::ClientCaps::propose -> Proposed ----- PROPOSAL ---> server::ServerCaps::evaluate -> Chosen
//!                                                        Judged::attempt ... -> Chosen
//! Proposed::on_message -> Accepted <------ ACCEPT ------ Chosen::accept -> Accepted
//! client::Accepted::confirm        ------- CONFIRM ----> Accepted::on_message -> Confirmed
//! ```

use crate::cause::Cause;
use crate::error::{
    Malformed,
    PeerError,
    PeerMisbehaved, //
};
use crate::id::{
    Eid,
    PeerId, //
};
use crate::lgr::{
    self,
    find::FormerLinks, //
};
use crate::reason::Reason;
use crate::time::Duration;
use crate::wire::clc::{
    ClcMessage,
    Decline,
    Diagnosis,
    Limits,
    Release, //
};
use crate::wire::Version;

pub mod client;
pub mod eid;
mod new_lgr;
pub mod paths;
pub mod select;
pub mod server;

pub use new_lgr::{
    NewLgr,
    OwnInfo,
    PeerInfo, //
};

/// Time to wait for a PROPOSAL, ACCEPT or CONFIRM.
pub const CLC_WAIT: Duration = Duration::from_secs(6);

const _: () = assert!(CLC_WAIT.as_nanos() <= FormerLinks::KEPT.as_nanos());

/// Time after an ACCEPT in which a client that joins a link group may send its CONFIRM. It is less than
/// [`CLC_WAIT`] by what the two messages may be on their way: a server that has stopped to wait gives the
/// element to another connection, unless it is as careful as ours.
pub const CONFIRM_WAIT: Duration = Duration::from_secs(5);

/// Time for the rest of a message whose first bytes are here.
pub const REST_WAIT: Duration = Duration::from_secs(1);

/// Time that a first contact has from the PROPOSAL on to begin at the server, while those of other connections
/// with the same peer are under way. The client waits for [`CLC_WAIT`].
pub const TURN_WAIT: Duration = Duration::from_secs(4);

/// Time for which a client has its turn to make a link group with the server, without a CONFIRM: after that
/// other connections of the same peer go on.
pub const CONFIRM_SOON: Duration = Duration::from_secs(1);

/// The enterprise id that every host with this module has unless the administrator removes it,
/// so that version 2 works without configuration between two of them.
pub const DEFAULT_UEID: Eid = Eid(*b"SMCV2-DEFAULT-UEID              ");

/// User EIDs that a host can have.
pub const MAX_LOCAL_UEIDS: usize = 4;

/// The newest release of version 2 that is spoken here.
pub const RELEASE: Release = Release::R1;

/// What holds when no limits are negotiated: in version 1 and in release 0 of version 2.
pub const DEFAULT_LIMITS: Limits = Limits {
    max_conns: lgr::MAX_CONNS_DEFAULT,
    max_links: lgr::MAX_LINKS_DEFAULT,
};

/// How a handshake ended without SMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// SMC is not possible: a DECLINE with the reason is sent, and the connection goes on over TCP. What exactly is
    /// missing may be known here; it is not sent.
    Declined(Reason, Option<Cause>),
    /// The peer sent a DECLINE.
    PeerDeclined {
        /// Its diagnosis, which may be any number.
        diagnosis: Diagnosis,
        /// Whether the peer has lost the link group that was to be reused.
        is_out_of_sync: bool,
    },
    /// The peer violated the protocol, or sent what cannot be accepted. A DECLINE with the error's reason is sent; if
    /// it has none, the connection is lost as by [`Fatal::Protocol`].
    Peer(PeerError),
    /// Client: the server may use SMC, over a link that does not work, or TCP, and there is no way to know. Nothing of
    /// the application was sent so far.
    Undecided,
    /// Client: no whole answer to the PROPOSAL arrived in time. The server's socket may have no room for the connection
    /// until its application accepts others.
    Unanswered,
    /// Client: the other end is a client, too, as both connected to each other at once, or the socket is connected to
    /// itself. Each end has the other's PROPOSAL or DECLINE: both go on over TCP, and no further DECLINE is sent.
    BothClients,
    /// The TCP connection cannot be used for anything: its stream may be in the middle of a
    /// handshake message.
    Fatal(Fatal),
}

/// Why a TCP connection is lost together with the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// The bytes received are not the message expected (`EPROTO`).
    Protocol,
    /// The message did not arrive in time (`EAGAIN`; `ETIMEDOUT` for `connect`).
    TimedOut,
    /// The connection was reset, or has ended in the middle of the handshake (`ECONNRESET`).
    Reset,
    /// The peer has ended the stream in order, and there is no whole header of a message (`ECONNRESET`).
    Ended,
    /// A signal ended the wait (`EINTR`).
    Interrupted,
    /// TCP itself reported this errno, positive.
    Tcp(u16),
}

/// What to do after a [`Failure`], for the caller to carry out in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureActions {
    /// The link group that the connection joined must be ended: the peer lost it.
    pub ends_group: bool,
    /// Send a DECLINE with this reason. If that fails, the connection fails with
    /// [`Fatal::Protocol`] whatever `disposition` is.
    pub decline: Option<Reason>,
    /// What becomes of the application's connection.
    pub disposition: Disposition,
}

/// What becomes of a connection without SMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It goes on over TCP, and shows this reason.
    Fallback(Reason),
    /// The TCP connection is reset, and `connect` makes another one, without SMC, which shows this reason.
    Reconnect(Reason),
    /// `connect` fails; at the server the connection is closed and never shown to `accept`.
    Fail(Fatal),
}

impl Failure {
    /// Decides what the failure means. A connection with a [`Reason`] goes on over TCP, one
    /// whose TCP stream is unusable ends without a DECLINE.
    pub const fn actions(self) -> FailureActions {
        match self {
            Self::Declined(reason, _) => FailureActions::fallback(reason),
            Self::Peer(error) => match error.reason() {
                Some(reason) => FailureActions::fallback(reason),
                None => FailureActions::fail(Fatal::Protocol),
            },
            Self::PeerDeclined { is_out_of_sync, .. } => FailureActions {
                ends_group: is_out_of_sync,
                decline: None,
                disposition: Disposition::Fallback(Reason::PeerDeclined),
            },
            Self::Undecided | Self::Unanswered => FailureActions {
                ends_group: false,
                decline: None,
                disposition: Disposition::Reconnect(Reason::TimeoutConfirmLink),
            },
            Self::BothClients => FailureActions {
                ends_group: false,
                decline: None,
                disposition: Disposition::Fallback(Reason::PeerNoSmc),
            },
            Self::Fatal(fatal) => FailureActions::fail(fatal),
        }
    }

    /// The failure after a message that came in place of the one awaited.
    pub fn not_awaited(message: &ClcMessage<'_>) -> Self {
        match message {
            ClcMessage::Decline(decline) => decline.into(),
            ClcMessage::Proposal(_) | ClcMessage::Accept(_) | ClcMessage::Confirm(_) => {
                PeerMisbehaved::UnexpectedMessage.into()
            }
        }
    }

    /// The failure of a client's wait for the answer to its PROPOSAL. Nothing of the application was sent so far, so
    /// that a server that does not answer in time can be had over another TCP connection; nor does one answer whose
    /// first bytes are no CLC message, or that sends none: something on the way has returned the SMC option, and the
    /// server speaks first, or closes its connections.
    pub const fn before_answer(self) -> Self {
        match self {
            Self::Fatal(Fatal::TimedOut | Fatal::Ended)
            | Self::Peer(PeerError::Malformed(Malformed::EyeCatcher)) => Self::Unanswered,
            failure => failure,
        }
    }

    /// Whether RDMA packets did not get through though TCP did, as this side or the peer found.
    pub fn is_silent_path(self) -> bool {
        match self {
            Self::Declined(reason, cause) => {
                cause == Some(Cause::PathSilent) && !matches!(reason, Reason::NoActiveLink)
            }
            Self::PeerDeclined { diagnosis, .. } => diagnosis == Reason::TimeoutConfirmLink.into(),
            Self::Undecided => true,
            Self::Unanswered | Self::BothClients | Self::Peer(_) | Self::Fatal(_) => false,
        }
    }

    /// Whether this may be the answer of a server that announced a new RMB before its ACCEPT (CONFIRM_RKEY) and got no
    /// response on the link of the group that both have: a client then tests that link.
    pub fn may_be_silent_link(self) -> bool {
        matches!(self, Self::PeerDeclined { diagnosis, .. }
            if diagnosis == Reason::RegistrationFailed.into())
    }

    /// What exactly was missing here, if it is known.
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Declined(_, cause) => cause,
            Self::Undecided => Some(Cause::PathSilent),
            Self::Unanswered => Some(Cause::NoAnswer),
            Self::BothClients => Some(Cause::BothClients),
            Self::PeerDeclined { .. } | Self::Peer(_) | Self::Fatal(_) => None,
        }
    }
}

impl FailureActions {
    const fn fallback(reason: Reason) -> Self {
        Self {
            ends_group: false,
            decline: if reason.is_sent() { Some(reason) } else { None },
            disposition: Disposition::Fallback(reason),
        }
    }

    const fn fail(fatal: Fatal) -> Self {
        Self {
            ends_group: false,
            decline: None,
            disposition: Disposition::Fail(fatal),
        }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Declined(reason, None)
    }
}

impl From<Fatal> for Failure {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

impl From<&Decline> for Failure {
    fn from(decline: &Decline) -> Self {
        Self::PeerDeclined {
            diagnosis: decline.diagnosis,
            is_out_of_sync: decline.out_of_sync,
        }
    }
}

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        Self::Peer(error)
    }
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Self::Peer(error.into())
    }
}

impl From<PeerMisbehaved> for Failure {
    fn from(error: PeerMisbehaved) -> Self {
        Self::Peer(error.into())
    }
}

/// Makes the DECLINE for `reason`, in the version of the last message that the peer sent.
///
/// A peer that sent none gets version 1, which every peer understands; a client does so although
/// its PROPOSAL said 2, as the C module does. An identity without an address is not sent.
pub fn decline(reason: Reason, received: Option<Version>, local: PeerId) -> Decline {
    let sender = if local.is_valid() {
        local
    } else {
        PeerId::NONE
    };
    Decline::new(received.unwrap_or(Version::V1), sender, reason)
}

/// The failure after a first link that stays silent; `received` is the CLC message that came by then, if any.
pub fn after_silence(received: Option<&ClcMessage<'_>>) -> Failure {
    match received {
        None => Failure::Declined(Reason::TimeoutConfirmLink, Some(Cause::PathSilent)),
        Some(message) => Failure::not_awaited(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::clc::Header;

    #[test]
    fn a_reason_leads_to_tcp_and_a_broken_stream_does_not() {
        let actions = Failure::Declined(Reason::NoSmcDevice, Some(Cause::NoDevice)).actions();
        assert_eq!(actions.decline, Some(Reason::NoSmcDevice));
        assert_eq!(
            actions.disposition,
            Disposition::Fallback(Reason::NoSmcDevice)
        );

        let actions = Failure::from(Malformed::Truncated).actions();
        assert_eq!(actions.decline, None);
        assert_eq!(actions.disposition, Disposition::Fail(Fatal::Protocol));
    }

    #[test]
    fn an_answer_in_another_protocol_is_none() {
        let greeting = Header::peek(b"220 mail").unwrap_err();
        let failure = Failure::from(greeting).before_answer();
        assert_eq!(failure, Failure::Unanswered);
        // Nor did one that closed the connection; a reset may be of one that has.
        assert_eq!(Failure::from(Fatal::Ended).before_answer(), failure);
        let reset = Failure::from(Fatal::Reset);
        assert_eq!(reset.before_answer(), reset);
        // A CLC message that is invalid.
        let failure = Failure::from(Malformed::LengthMismatch);
        assert_eq!(failure.before_answer(), failure);
    }

    #[test]
    fn a_peer_that_declined_gets_no_answer() {
        let failure = Failure::PeerDeclined {
            diagnosis: Diagnosis(7),
            is_out_of_sync: true,
        };
        let actions = failure.actions();
        assert_eq!(actions.decline, None);
        assert!(actions.ends_group);
        assert_eq!(
            actions.disposition,
            Disposition::Fallback(Reason::PeerDeclined)
        );
    }

    #[test]
    fn a_registration_that_fails_at_the_server_may_be_a_silent_link() {
        let declined = |reason: Reason| Failure::PeerDeclined {
            diagnosis: reason.into(),
            is_out_of_sync: false,
        };
        assert!(declined(Reason::RegistrationFailed).may_be_silent_link());
        assert!(!declined(Reason::Memory).may_be_silent_link());
        assert!(!Failure::from(Reason::RegistrationFailed).may_be_silent_link());
        assert!(!declined(Reason::RegistrationFailed).is_silent_path());
    }

    #[test]
    fn an_impossible_value_is_declined_and_not_fatal() {
        let actions = Failure::from(Malformed::Mtu).actions();
        assert_eq!(actions.decline, Some(Reason::ModeUnsupported));
        assert_eq!(
            actions.disposition,
            Disposition::Fallback(Reason::ModeUnsupported)
        );
    }

    #[test]
    fn an_identity_without_an_address_stays_out_of_a_decline() {
        let half = PeerId([1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decline(Reason::Memory, None, half).peer_id, PeerId::NONE);
    }
}
