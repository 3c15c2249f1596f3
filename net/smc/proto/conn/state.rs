// SPDX-License-Identifier: GPL-2.0
//! The states of an SMC socket and their transitions (RFC 7609 section 4.8).
//!
//! The table is that of Linux `smc_close.c`, which differs from the RFC in that no state has a timer.
//! Where a row of it depends on what was sent or received before, the dependence is part of the event
//! (`Close` and `CloseLast`), so that the whole behaviour is one state x event matrix. [`crate::conn::Stream`]
//! determines the event.

use crate::transitions;

/// The state of a connection; the numbers are visible to user space through sock_diag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnState {
    /// Data phase. Equals `TCP_ESTABLISHED`.
    Active = 1,
    /// Before or in the handshake.
    Init = 2,
    /// Finished. Equals `TCP_CLOSE`.
    Closed = 7,
    /// Accepts connections. Equals `TCP_LISTEN`.
    Listen = 10,
    /// We started closing; the peer has sent no state flag.
    PeerCloseWait1 = 20,
    /// We started closing; the peer is done writing.
    PeerCloseWait2 = 21,
    /// The peer started closing; we can still send.
    AppCloseWait1 = 22,
    /// The peer started closing; we shut down writing.
    AppCloseWait2 = 23,
    /// The peer closed completely; the application has yet to close.
    AppFinCloseWait = 24,
    /// We closed after the peer was done writing; its close is missing.
    PeerFinCloseWait = 25,
    /// We abort.
    PeerAbortWait = 26,
    /// The peer aborted; the application has yet to close.
    ProcessAbort = 27,
}

/// The state of a TCP connection, as TCP_INFO reports it (`include/net/tcp_states.h`), that has come as far as one of
/// ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEquivalent {
    /// Neither end is done writing.
    Established = 1,
    /// This end is done writing.
    FinWait2 = 5,
    /// Both are, or the connection was reset.
    Close = 7,
    /// The peer is done writing.
    CloseWait = 8,
}

impl TcpEquivalent {
    /// The state in which these ends are done writing; none is after a reset.
    pub const fn of(is_reset: bool, is_own_done: bool, is_peer_done: bool) -> Self {
        match (is_own_done, is_peer_done) {
            _ if is_reset => Self::Close,
            (false, false) => Self::Established,
            (true, false) => Self::FinWait2,
            (false, true) => Self::CloseWait,
            (true, true) => Self::Close,
        }
    }
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnEvent {
    /// The application listens.
    Listen,
    /// The handshake is done.
    Established,
    /// The application closes, or shuts down both directions, and the peer has not closed.
    Close,
    /// As `Close`, after the peer's close or abort: there is nothing to wait for.
    CloseLast,
    /// The application shuts down writing.
    ShutdownWrite,
    /// The peer is done writing (D flag).
    PeerDone,
    /// The peer closed (C flag).
    PeerClosed,
    /// As `PeerClosed`, when our close was sent and the application is gone.
    PeerClosedLast,
    /// The peer aborted (A flag).
    PeerAborted,
    /// As `PeerAborted`, when our close was sent.
    PeerAbortedLast,
    /// We abort: the link group ends, or the peer broke the protocol.
    Abort,
    /// The abort is complete: no message of ours is in flight any more.
    Aborted,
}

impl ConnState {
    /// All states, in numeric order.
    pub const ALL: [Self; 12] = [
        Self::Active,
        Self::Init,
        Self::Closed,
        Self::Listen,
        Self::PeerCloseWait1,
        Self::PeerCloseWait2,
        Self::AppCloseWait1,
        Self::AppCloseWait2,
        Self::AppFinCloseWait,
        Self::PeerFinCloseWait,
        Self::PeerAbortWait,
        Self::ProcessAbort,
    ];

    /// The number that sock_diag reports.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state after `event`: unchanged if the event has no effect here.
    #[must_use]
    pub const fn after(self, event: ConnEvent) -> Self {
        match self.on(event) {
            Some(next) => next,
            None => self,
        }
    }
}

transitions! {
    ConnState, ConnEvent;

    Init: Listen => Listen;
    Init: Established => Active;

    // The application.
    Init | Listen | AppFinCloseWait | ProcessAbort | PeerAbortWait: Close => Closed;
    Active: Close => PeerCloseWait1;
    AppCloseWait1 | AppCloseWait2: Close => PeerFinCloseWait;
    Init | Listen | AppFinCloseWait | ProcessAbort | PeerAbortWait: CloseLast => Closed;
    Active: CloseLast => PeerCloseWait1;
    AppCloseWait1 | AppCloseWait2: CloseLast => Closed;
    Active: ShutdownWrite => PeerCloseWait1;
    AppCloseWait1: ShutdownWrite => AppCloseWait2;

    // The peer ends in order.
    Init | Active: PeerDone => AppCloseWait1;
    PeerCloseWait1: PeerDone => PeerCloseWait2;
    Init | Active: PeerClosed => AppCloseWait1;
    PeerCloseWait1 | PeerCloseWait2: PeerClosed => AppFinCloseWait;
    PeerFinCloseWait: PeerClosed => Closed;
    Init | Active: PeerClosedLast => AppCloseWait1;
    PeerCloseWait1 | PeerCloseWait2 | PeerFinCloseWait: PeerClosedLast => Closed;

    // The peer aborts.
    Init | Active | AppCloseWait1 | AppFinCloseWait: PeerAborted => ProcessAbort;
    PeerCloseWait1 | PeerCloseWait2: PeerAborted => ProcessAbort;
    AppCloseWait2 | PeerFinCloseWait | PeerAbortWait: PeerAborted => Closed;
    Init | Active | AppCloseWait1 | AppFinCloseWait: PeerAbortedLast => ProcessAbort;
    PeerCloseWait1 | PeerCloseWait2: PeerAbortedLast => Closed;
    AppCloseWait2 | PeerFinCloseWait | PeerAbortWait: PeerAbortedLast => Closed;

    // We abort.
    Active | AppCloseWait1 | AppCloseWait2: Abort => PeerAbortWait;
    PeerCloseWait1 | PeerCloseWait2 | PeerFinCloseWait: Abort => PeerAbortWait;
    AppFinCloseWait | ProcessAbort: Abort => PeerAbortWait;
    PeerAbortWait: Aborted => Closed;
}

impl ConnEvent {
    /// All events, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Listen,
        Self::Established,
        Self::Close,
        Self::CloseLast,
        Self::ShutdownWrite,
        Self::PeerDone,
        Self::PeerClosed,
        Self::PeerClosedLast,
        Self::PeerAborted,
        Self::PeerAbortedLast,
        Self::Abort,
        Self::Aborted,
    ];
}
