// SPDX-License-Identifier: GPL-2.0
//! The application's view of a connection in each state: send, recv, poll, ioctl (Linux `af_smc.c`).

use crate::buffer::SizeClass;
use crate::conn::{
    ConnState,
    ProducerFlags,
    StateFlags,
    Stream,
    TcpEquivalent,
    UrgentState, //
};
use crate::cursor::Cursor;
use crate::flags::flags;

/// Why data cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// ENOTCONN.
    NotConnected,
    /// EPIPE, with SIGPIPE unless the caller suppresses that.
    Pipe,
    /// ECONNRESET; bytes accepted before are returned first.
    ConnReset,
    /// No error: the peer has closed in order. Data sent now are lost, and [`Stream::discard_after_close`] has to be
    /// called.
    PeerClosed,
}

/// Result of a read, before `sk_err` is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recv {
    /// This many bytes.
    Ready(u32),
    /// No data yet: check `sk_err`, then wait.
    Wait,
    /// End of the stream: return 0.
    Eof,
    /// ENOTCONN.
    NotConnected,
}

flags! {
    /// What poll(2) reports, as EPOLL bits. The module adds ERR for `sk_err`, and handles listeners.
    EpollMask(u32) & 0xffff_ffff;
    /// EPOLLIN: the bytes required by SO_RCVLOWAT, or the end, can be read.
    IN = 0x1;
    /// EPOLLPRI: an urgent byte waits.
    PRI = 0x2;
    /// EPOLLOUT: send would accept data, or fail at once.
    OUT = 0x4;
    /// EPOLLHUP: both directions are shut.
    HUP = 0x10;
    /// EPOLLRDNORM.
    RDNORM = 0x40;
    /// EPOLLWRNORM.
    WRNORM = 0x100;
    /// EPOLLRDHUP: the peer sends no more.
    RDHUP = 0x2000;
}

impl EpollMask {
    #[inline]
    fn add(&mut self, on: bool, bits: &[Self]) {
        if on {
            bits.iter().for_each(|bit| self.insert(*bit));
        }
    }
}

/// The values of the socket ioctls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoctlQueues {
    /// SIOCINQ: bytes that can be read, up to the urgent mark.
    pub inq: u32,
    /// SIOCOUTQ: bytes in the send buffer, those in flight included.
    pub outq: u32,
    /// SIOCOUTQNSD: bytes in the send buffer that were not posted.
    pub outq_unsent: u32,
    /// SIOCATMARK: the reader stands at the urgent mark.
    pub at_mark: bool,
}

/// The rings of a connection, for diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnInfo {
    /// Bytes of our RMBE.
    pub rmbe: u32,
    /// Bytes of the peer's RMBE; 0 as long as it is not known.
    pub peer_rmbe: u32,
    /// Bytes of the send buffer; 0 while there is none.
    pub sndbuf: u32,
    /// In our RMBE: how far the peer has written.
    pub rx_prod: Cursor,
    /// In the peer's RMBE: how far it has read.
    pub rx_cons: Cursor,
    /// In the peer's RMBE: how far we have written.
    pub tx_prod: Cursor,
    /// In our RMBE: how far the application has read.
    pub tx_cons: Cursor,
    /// In the send buffer: how far the application has filled it.
    pub tx_prep: Cursor,
    /// In the send buffer: how far it was written to the peer.
    pub tx_sent: Cursor,
    /// In the send buffer: how far it is known to have arrived.
    pub tx_fin: Cursor,
    /// The flags of the peer's last message.
    pub rx_flags: (ProducerFlags, StateFlags),
    /// The flags that our next message would have.
    pub tx_flags: (ProducerFlags, StateFlags),
}

impl Stream {
    /// Whether the peer has announced that it sends no more: it is done writing, closed, or aborts.
    pub const fn is_peer_done(&self) -> bool {
        !self.peer.is_empty()
    }

    /// Returns the current state of the rings. Without a send buffer, its cursors are for one of class `default_size`.
    pub fn rings(&self, default_size: SizeClass) -> ConnInfo {
        let ([rx_cons, tx_prod], [tx_prep, tx_sent, tx_fin]) = self.send.view(default_size);
        let ([rx_prod, tx_cons], rx_flags) = self.recv.view();
        let (peer_rmbe, sndbuf) = self.send.sizes();
        let tx_flags = ProducerFlags::default()
            .with(ProducerFlags::WRITE_BLOCKED, self.send.is_write_blocked())
            .with(ProducerFlags::URGENT_PENDING, self.send.is_urgent_pending());
        ConnInfo {
            rmbe: self.recv.size(),
            peer_rmbe,
            sndbuf,
            rx_prod,
            rx_cons,
            tx_prod,
            tx_cons,
            tx_prep,
            tx_sent,
            tx_fin,
            rx_flags: (rx_flags, self.peer),
            tx_flags: (tx_flags, self.own),
        }
    }

    /// Returns whether data may be sent.
    ///
    /// A peer announces its close, so that it is known at once that data sent to it are not read. Over TCP it is not:
    /// the first data after the peer's close are accepted, a reset answers them, and later data fail with EPIPE.
    /// Programs rely on the former, as a final message that need not arrive is no failure to them. The C module returns
    /// ECONNRESET.
    ///
    /// # Errors
    ///
    /// The errno of send(2), after `sk_err` was checked.
    pub fn can_send(&self) -> Result<(), SendError> {
        match self.state {
            ConnState::Init => Err(SendError::NotConnected),
            _ if self.killed => Err(SendError::Pipe),
            ConnState::Active | ConnState::AppCloseWait1 if self.peer.any_close() => {
                Err(match self.send.unsent() {
                    _ if self.sent_after_close => SendError::Pipe,
                    0 => SendError::PeerClosed,
                    _ => SendError::ConnReset,
                })
            }
            ConnState::Active | ConnState::AppCloseWait1 => Ok(()),
            _ => Err(SendError::Pipe),
        }
    }

    /// Data were sent to a peer that has closed: later sends fail, as after the reset that would answer over TCP, and
    /// the peer is told. The caller sets `sk_err` to EPIPE. Returns whether to transmit.
    pub fn discard_after_close(&mut self) -> bool {
        self.sent_after_close = true;
        self.reset_closed_peer();
        self.has_work()
    }

    /// Whether the peer has ended its stream in order, whatever became of the connection after that.
    pub const fn has_ended_in_order(&self) -> bool {
        match self.is_reset() {
            true => self.ended_before_abort,
            false => self.sent_after_close || self.has_peer_ended(),
        }
    }

    /// What recv(2) finds, in this order: state, data, end of stream.
    pub fn recv_state(&self) -> Recv {
        match self.state {
            ConnState::Init | ConnState::Listen => return Recv::NotConnected,
            ConnState::Closed if !self.is_read_shut() => return Recv::NotConnected,
            // No data are returned after our close. Data that arrived before a reset are, as over TCP.
            ConnState::Closed | ConnState::PeerFinCloseWait if self.released => return Recv::Eof,
            _ => {}
        }
        match self.readable() {
            0 if self.is_read_shut() => Recv::Eof,
            0 => Recv::Wait,
            len => Recv::Ready(len),
        }
    }

    /// Whether getpeername(2) reports the connection: until it was reset, or both sides have finished.
    pub const fn is_connected(&self) -> bool {
        let is_over = self.is_reset() || (!self.peer.is_empty() && self.is_write_shut());
        !is_over && !matches!(self.state, ConnState::Init | ConnState::Listen)
    }

    /// What TCP_INFO tells.
    pub const fn tcp_equivalent(&self) -> TcpEquivalent {
        TcpEquivalent::of(self.is_reset(), self.shutdown.send, self.is_peer_done())
    }

    /// Whether the connection was aborted, by either side.
    pub(super) const fn is_reset(&self) -> bool {
        self.killed || self.peer.contains(StateFlags::ABORTED)
    }

    /// RCV_SHUTDOWN: the peer sends no more, or we read no more.
    #[inline]
    pub const fn is_read_shut(&self) -> bool {
        self.shutdown.recv || self.has_peer_ended() || self.killed
    }

    /// SEND_SHUTDOWN: the application shut down writing, or closed, the connection was aborted, or data were sent to a
    /// peer that has closed.
    #[inline]
    pub const fn is_write_shut(&self) -> bool {
        self.shutdown.send || self.sent_after_close || self.is_reset()
    }

    /// Returns what poll(2) reports, as `tcp_poll` does. `lowat` is SO_RCVLOWAT; `can_lend` is true if a send buffer is
    /// available should none be attached.
    pub fn readiness(&self, lowat: u32, can_lend: bool) -> EpollMask {
        let mut ready = EpollMask::default();
        let room = match self.needs_sndbuf() {
            true => can_lend,
            false => self.has_write_space(),
        };
        let out = room && !matches!(self.state, ConnState::Init | ConnState::Listen);
        let closed = self.state == ConnState::Closed;
        ready.add(
            out || self.is_write_shut(),
            &[EpollMask::OUT, EpollMask::WRNORM],
        );
        ready.add(
            self.recv.is_worth_reading(lowat),
            &[EpollMask::IN, EpollMask::RDNORM],
        );
        ready.add(
            self.is_read_shut(),
            &[EpollMask::IN, EpollMask::RDNORM, EpollMask::RDHUP],
        );
        ready.add(
            closed || (self.is_read_shut() && self.is_write_shut()),
            &[EpollMask::HUP],
        );
        ready.add(self.urgent_state() == UrgentState::Valid, &[EpollMask::PRI]);
        ready
    }

    /// Bytes that have arrived and were not read, also behind an urgent mark, for TCP_INQ; 1 at the end of the stream,
    /// so that the caller reads that too (C function `tcp_inq_hint`).
    pub fn inq_hint(&self) -> u32 {
        match self.recv.unread() {
            0 => self.is_read_shut().into(),
            bytes => u32::try_from(bytes).unwrap_or(u32::MAX),
        }
    }

    /// The values of the socket ioctls; `None` (EINVAL) for a listener.
    pub fn queues(&self) -> Option<IoctlQueues> {
        match self.state {
            ConnState::Listen => None,
            ConnState::Init => Some(IoctlQueues::default()),
            // What arrived before can be read until the application closes.
            ConnState::Closed if self.released => Some(IoctlQueues::default()),
            _ => Some(IoctlQueues {
                inq: self.recv.readable_now(),
                outq: self.send.outstanding(),
                outq_unsent: self.send.unsent(),
                at_mark: self.recv.is_at_mark(),
            }),
        }
    }
}
