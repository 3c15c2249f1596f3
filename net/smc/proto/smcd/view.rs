// SPDX-License-Identifier: GPL-2.0

//! What an application sees of a connection: whether it may send, what poll(2) reports, the state for `sock_diag`.
//!
//! As TCP has it, since there is no peer whose answer would be awaited: `tcp_poll`, `tcp_recvmsg_locked`, `tcp_reset`.

use crate::conn::{
    ConnState,
    EpollMask,
    SendError,
    StateFlags,
    TcpEquivalent, //
};
use crate::flags::flags;
use crate::lgr::Role;

flags! {
    /// What has happened to one end of a connection.
    EndFlags(u32) & 0x1f;
    /// This end sends no more (shutdown(2) or close(2)).
    SHUT_WRITE = 0x1;
    /// The application reads no more (shutdown(2)).
    SHUT_READ = 0x2;
    /// The application has closed the socket.
    CLOSED = 0x4;
    /// The connection was reset: nothing is sent, and nothing arrives any more.
    RESET = 0x8;
    /// Data were sent after the peer had closed in order. The reset that would answer over TCP has the error EPIPE.
    SENT_AFTER_CLOSE = 0x10;
}

/// Both ends of a connection, as one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnEnds {
    /// This end.
    pub own: EndFlags,
    /// The other one.
    pub peer: EndFlags,
}

/// Where the flags of the end with this role are in a word that has those of both, so that one load gets both.
const fn shift(role: Role) -> u32 {
    match role {
        Role::Client => 0,
        Role::Server => 16,
    }
}

impl EndFlags {
    /// The flags in a word that has those of both ends, as the end with this role has them there.
    pub const fn to_word(self, role: Role) -> u32 {
        self.bits() << shift(role)
    }

    /// Takes those of the end with this role from such a word.
    pub const fn from_word(word: u32, role: Role) -> Self {
        Self::from_bits(word >> shift(role))
    }
}

/// The data of a connection, for poll(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Bytes that can be read, without an urgent byte that a read would step over.
    pub readable: u64,
    /// SO_RCVLOWAT.
    pub lowat: u32,
    /// There is an urgent byte to read.
    pub has_urgent: bool,
    /// The peer waits for space, so that no more comes.
    pub is_full: bool,
    /// Whether there is space to write.
    pub is_writeable: bool,
}

impl ConnEnds {
    /// Takes the flags from a word that has those of both ends, for the one with this role.
    pub const fn from_word(word: u32, role: Role) -> Self {
        Self {
            own: EndFlags::from_word(word, role),
            peer: EndFlags::from_word(word, role.other()),
        }
    }

    /// Whether the peer has announced the end of its stream, in order.
    pub const fn is_peer_done(self) -> bool {
        self.peer.contains(EndFlags::SHUT_WRITE)
    }

    /// Whether the connection was reset.
    pub const fn is_reset(self) -> bool {
        self.own.contains(EndFlags::RESET)
    }

    /// RCV_SHUTDOWN: no more is read, or comes.
    pub const fn is_read_shut(self) -> bool {
        self.own.intersects(READ_ENDS) || self.is_peer_done()
    }

    /// SEND_SHUTDOWN: no more may be sent.
    pub const fn is_write_shut(self) -> bool {
        self.own.intersects(WRITE_ENDS)
    }

    /// Whether both sides have sent all and said so: TCP has no connection any more.
    const fn is_over(self) -> bool {
        self.own.intersects(RESETS)
            || (self.is_peer_done() && self.own.contains(EndFlags::SHUT_WRITE))
    }

    /// Whether getpeername(2) reports the connection.
    pub const fn is_connected(self) -> bool {
        !self.is_over()
    }

    /// What TCP_INFO tells.
    pub const fn tcp_equivalent(self) -> TcpEquivalent {
        let is_own_done = self.own.contains(EndFlags::SHUT_WRITE);
        TcpEquivalent::of(self.is_reset(), is_own_done, self.is_peer_done())
    }

    /// Whether data may be sent.
    ///
    /// # Errors
    ///
    /// [`SendError::Pipe`], or [`SendError::PeerClosed`] where data sent now are lost without an error.
    pub const fn can_send(self) -> Result<(), SendError> {
        if self.is_write_shut() {
            Err(SendError::Pipe)
        } else if self.peer.contains(EndFlags::CLOSED) || self.peer.contains(BOTH) {
            Err(SendError::PeerClosed)
        } else {
            Ok(())
        }
    }

    /// What CDC messages of the peer and of this end would say, for `sock_diag`.
    pub fn state_flags(self) -> (StateFlags, StateFlags) {
        let flags = |end: EndFlags| {
            StateFlags::default()
                .with(StateFlags::DONE_WRITING, end.contains(EndFlags::SHUT_WRITE))
                .with(StateFlags::CLOSED, end.contains(EndFlags::CLOSED))
                .with(StateFlags::ABORTED, end.contains(EndFlags::RESET))
        };
        (flags(self.peer), flags(self.own))
    }

    /// The state for `sock_diag`: that of SMC whose meaning is nearest.
    pub const fn state(self) -> ConnState {
        let is_closing = self.own.contains(EndFlags::SHUT_WRITE);
        let is_peer_closed = self.peer.contains(EndFlags::CLOSED);
        if self.own.contains(EndFlags::CLOSED) {
            return ConnState::Closed;
        }
        if self.is_reset() {
            return ConnState::ProcessAbort;
        }
        match (is_closing, self.is_peer_done()) {
            (false, false) => ConnState::Active,
            (true, false) => ConnState::PeerCloseWait1,
            (false, true) => ConnState::AppCloseWait1,
            (true, true) if is_peer_closed => ConnState::AppFinCloseWait,
            (true, true) => ConnState::PeerCloseWait2,
        }
    }

    /// What poll(2) reports, but for errors.
    pub fn readiness(self, queues: &Queues) -> EpollMask {
        let mut ready = EpollMask::default();
        let mut add = |on: bool, bits: &[EpollMask]| {
            if on {
                bits.iter().for_each(|bit| ready.insert(*bit));
            }
        };
        let target = u64::from(queues.lowat).max(1);
        let is_enough = queues.readable >= target || (queues.is_full && queues.readable > 0);
        let (read_shut, write_shut) = (self.is_read_shut(), self.is_write_shut());
        add(is_enough, &[EpollMask::IN, EpollMask::RDNORM]);
        add(
            read_shut,
            &[EpollMask::IN, EpollMask::RDNORM, EpollMask::RDHUP],
        );
        add(
            queues.is_writeable || write_shut,
            &[EpollMask::OUT, EpollMask::WRNORM],
        );
        add(read_shut && write_shut, &[EpollMask::HUP]);
        add(queues.has_urgent, &[EpollMask::PRI]);
        ready
    }
}

const READ_ENDS: EndFlags = EndFlags::from_bits(0x2 | 0x8);
const RESETS: EndFlags = EndFlags::from_bits(0x8 | 0x10);
const BOTH: EndFlags = EndFlags::from_bits(0x1 | 0x2);
const WRITE_ENDS: EndFlags = EndFlags::from_bits(0x1 | 0x4 | 0x8 | 0x10);

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: EndFlags = EndFlags::from_bits(0);

    fn ends(own: &[EndFlags], peer: &[EndFlags]) -> ConnEnds {
        let all = |flags: &[EndFlags]| {
            let mut set = NONE;
            flags.iter().for_each(|flag| set.insert(*flag));
            set
        };
        ConnEnds {
            own: all(own),
            peer: all(peer),
        }
    }

    /// Nothing to read, space to write.
    const IDLE: Queues = Queues {
        readable: 0,
        lowat: 1,
        has_urgent: false,
        is_full: false,
        is_writeable: true,
    };

    #[test]
    fn a_word_has_the_flags_of_both_ends() {
        let (own, peer) = (EndFlags::CLOSED, EndFlags::SENT_AFTER_CLOSE);
        for role in [Role::Client, Role::Server] {
            let word = own.to_word(role) | peer.to_word(role.other());
            assert_eq!(ConnEnds::from_word(word, role), ends(&[own], &[peer]));
            assert_eq!(EndFlags::from_word(word, role), own);
        }
    }

    #[test]
    fn the_peers_end_is_readable_and_the_own_writable() {
        let open = ends(&[], &[]);
        assert_eq!(
            open.readiness(&IDLE).bits(),
            EpollMask::OUT.bits() | EpollMask::WRNORM.bits()
        );
        let peer_done = ends(&[], &[EndFlags::SHUT_WRITE]).readiness(&IDLE);
        assert!(peer_done.contains(EpollMask::IN) && peer_done.contains(EpollMask::RDHUP));
        assert!(!peer_done.contains(EpollMask::HUP));
        let both = ends(&[EndFlags::SHUT_WRITE], &[EndFlags::SHUT_WRITE]).readiness(&IDLE);
        assert!(both.contains(EpollMask::HUP));
        let reset = ends(&[EndFlags::RESET], &[]).readiness(&IDLE);
        assert!(reset.contains(EpollMask::HUP) && reset.contains(EpollMask::IN));
    }

    #[test]
    fn tcp_info_tells_who_is_done_writing() {
        let done = [EndFlags::SHUT_WRITE];
        assert_eq!(
            [
                ends(&[], &[]).tcp_equivalent(),
                ends(&done, &[]).tcp_equivalent(),
                ends(&[], &done).tcp_equivalent(),
                ends(&done, &done).tcp_equivalent(),
                ends(&[EndFlags::RESET], &[]).tcp_equivalent(),
            ]
            .map(|state| state as u8),
            // TCP_ESTABLISHED, TCP_FIN_WAIT2, TCP_CLOSE_WAIT, TCP_CLOSE
            [1, 5, 8, 7, 7]
        );
    }

    #[test]
    fn messages_of_either_end_would_say_what_happened_to_it() {
        let (peer, own) = ends(&[EndFlags::RESET], &[EndFlags::SHUT_WRITE]).state_flags();
        assert_eq!((peer, own), (StateFlags::DONE_WRITING, StateFlags::ABORTED));
        let (peer, own) = ends(&[], &[EndFlags::SHUT_WRITE, EndFlags::CLOSED]).state_flags();
        assert!(peer.contains(StateFlags::CLOSED) && own.is_empty());
    }

    #[test]
    fn a_low_water_mark_above_what_fits_does_not_block_for_ever() {
        let open = ends(&[], &[]);
        let some = Queues {
            readable: 100,
            lowat: 1000,
            ..IDLE
        };
        assert!(!open.readiness(&some).contains(EpollMask::IN));
        let full = Queues {
            is_full: true,
            ..some
        };
        assert!(open.readiness(&full).contains(EpollMask::IN));
    }

    #[test]
    fn data_for_a_closed_peer_are_lost_once_and_then_refused() {
        let peer = [EndFlags::CLOSED, EndFlags::SHUT_WRITE];
        assert_eq!(ends(&[], &[]).can_send(), Ok(()));
        assert_eq!(
            ends(&[], &[EndFlags::SHUT_WRITE]).can_send(),
            Ok(()),
            "half closed"
        );
        assert_eq!(ends(&[], &peer).can_send(), Err(SendError::PeerClosed));
        assert_eq!(
            ends(&[], &[EndFlags::SHUT_READ, EndFlags::SHUT_WRITE]).can_send(),
            Err(SendError::PeerClosed),
            "shut down both ways, as if it were closed"
        );
        assert!(!ends(&[EndFlags::SENT_AFTER_CLOSE], &peer).is_connected());
        assert_eq!(
            ends(&[EndFlags::SENT_AFTER_CLOSE], &peer).can_send(),
            Err(SendError::Pipe)
        );
        assert_eq!(
            ends(&[EndFlags::RESET], &[]).can_send(),
            Err(SendError::Pipe)
        );
    }

    #[test]
    fn nothing_is_sent_after_the_own_close() {
        // An abortive one, before the reset is marked: there is no end of the stream.
        let closed = ends(&[EndFlags::CLOSED], &[]);
        assert_eq!(closed.can_send(), Err(SendError::Pipe));
        assert!(closed.readiness(&IDLE).contains(EpollMask::OUT));
        let both = ends(&[EndFlags::CLOSED], &[EndFlags::CLOSED]);
        assert_eq!(both.can_send(), Err(SendError::Pipe));
    }

    #[test]
    fn states_follow_the_ends() {
        let done = EndFlags::SHUT_WRITE;
        for (own, peer, state) in [
            (&[][..], &[][..], ConnState::Active),
            (&[done], &[], ConnState::PeerCloseWait1),
            (&[], &[done], ConnState::AppCloseWait1),
            (&[done], &[done], ConnState::PeerCloseWait2),
            (
                &[done],
                &[done, EndFlags::CLOSED],
                ConnState::AppFinCloseWait,
            ),
            (&[EndFlags::RESET], &[], ConnState::ProcessAbort),
            (&[done, EndFlags::CLOSED], &[], ConnState::Closed),
        ] {
            assert_eq!(ends(own, peer).state(), state);
        }
        assert!(ends(&[done], &[]).is_connected());
        assert!(!ends(&[done], &[done]).is_connected());
    }
}
