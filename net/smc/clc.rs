// SPDX-License-Identifier: GPL-2.0

//! Handshake messages over the TCP connection (RFC 7609 section 3.5; C function `smc_clc_wait_msg`).
//!
//! Bytes behind a message are not read: they are the application's.

use core::cell::Cell;

use kernel_ext::{
    net::{
        InetAddr,
        TcpSocket, //
    },
    prelude::*,
    ratelimit, //
};
use smc_proto::{
    error::{
        Malformed,
        PeerError, //
    },
    handshake::{
        self,
        Failure,
        Fatal, //
    },
    id::PeerId,
    reason::Reason,
    time::{
        Duration,
        Instant, //
    },
    wire::{
        clc::{
            ClcMessage,
            ClcType,
            Decline,
            Head,
            Header,
            HEADER_LEN,
            MAX_LEN, //
        },
        Version, //
    }, //
};

use crate::clock::{
    self,
    now, //
};

/// Longest message that we send: a confirm with two GIDs is 196 bytes, a proposal 652.
const SEND_LEN: usize = MAX_LEN;

/// What a peer did on the TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpActivity {
    /// Nothing.
    None,
    /// It sent data.
    Data,
    /// It has closed its direction, or the connection is lost.
    Eof,
}

/// Who is to know of the messages of a handshake as they come and go.
pub(crate) trait ClcWatcher {
    /// A whole message has arrived, and is not read yet.
    fn on_message(&self, message_type: ClcType);

    /// A message is about to be sent. Returns false if it must not be, as the connection is being reset.
    fn on_send(&self, message: &ClcMessage<'_>) -> bool;
}

/// The CLC messages of one handshake, as one side sends and receives them.
pub(crate) struct ClcChannel<'a> {
    tcp: &'a TcpSocket,
    watcher: Option<&'a dyn ClcWatcher>,
    /// For the log. A connection that has ended has no peer any more.
    peer: Option<InetAddr>,
    buf: KVec<u8>,
    /// Version of the last message received.
    received: Option<Version>,
    /// The CONFIRM of a first contact was exchanged: from now on either side may decline at any time.
    is_confirmed: bool,
    /// When the last message was sent.
    sent: Cell<Option<Instant>>,
    /// The longest time that the peer took to answer a message.
    round_trip: Duration,
}

/// What [`ClcChannel::take_decline`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingMessage {
    /// Nothing, or only the first part of a message.
    None,
    /// A DECLINE, which has been read.
    Decline(Decline),
    /// Something else, which is left to be read.
    Other,
}

impl<'a> ClcChannel<'a> {
    /// Begins on an established connection.
    pub(crate) fn new(tcp: &'a TcpSocket, watcher: Option<&'a dyn ClcWatcher>) -> Result<Self> {
        Ok(Self {
            tcp,
            watcher,
            peer: tcp.peer().ok(),
            buf: KVec::from_elem(0, MAX_LEN, GFP_KERNEL)?,
            received: None,
            is_confirmed: false,
            sent: Cell::new(None),
            round_trip: Duration::ZERO,
        })
    }

    /// Receives the next message.
    /// Context: may sleep for `wait`, the time for the whole of it, however slowly its bytes arrive.
    ///
    /// # Errors
    ///
    /// [`Failure::Fatal`] if none arrives in time, [`Failure::Peer`] if it is malformed.
    pub(crate) fn receive(&mut self, wait: Duration) -> Result<ClcMessage<'_>, Failure> {
        let mut left = clock::timeout(wait);
        let mut buf = core::mem::replace(&mut self.buf, KVec::new());
        let result = self.receive_into(&mut buf, &mut left);
        self.buf = buf;
        let header = result?;
        self.discard(header.drain_len(), &mut left)?;
        let bytes = self.buf.get(..header.read_len()).unwrap_or_default();
        Ok(ClcMessage::parse(bytes)?)
    }

    /// Receives the next message, or what of it fits into `buf`.
    fn receive_into(&mut self, buf: &mut [u8], left: &mut isize) -> Result<Header, Failure> {
        let seen = self.tcp.peek_until(buf, left, |seen| !is_partial(seen));
        if seen.map_err(fatal)? < HEADER_LEN {
            // Else the application has shut the socket down.
            return Err(match self.tcp.has_ended_in_order() {
                true => Fatal::Ended.into(),
                false => Fatal::Reset.into(),
            });
        }
        if let Some(sent) = self.sent.take() {
            self.round_trip = self.round_trip.max(now().saturating_since(sent));
        }
        let header = match peek_header(buf).ok_or(Fatal::Protocol)? {
            Ok(header) => header,
            Err(malformed) => {
                let (head, _) = buf
                    .split_at_mut_checked(HEADER_LEN)
                    .ok_or(Fatal::Protocol)?;
                self.read(head, left)?;
                return Err(malformed.into());
            }
        };
        self.received = Some(header.version());
        if header.drain_len() == 0 {
            self.note_message(header.message_type());
        }
        let whole = buf.get_mut(..header.read_len());
        self.read(whole.ok_or(Fatal::Protocol)?, left)?;
        Ok(header)
    }

    /// The longest time that the peer took to answer a message: network latency, and the load of both hosts.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Notes that the CONFIRM of a first contact was sent or received.
    pub(crate) fn set_confirmed(&mut self) {
        self.is_confirmed = true;
    }

    /// Whether the peer may send a DECLINE at any time, not only in answer to a message of ours.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Whether TCP has no connection any more, as after a reset.
    pub(crate) fn is_closed(&self) -> bool {
        self.tcp.state().is_closed()
    }

    /// Reads a DECLINE, for which it waits up to `wait`, and leaves anything else unread.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// [`Fatal`] when the connection has ended.
    pub(crate) fn take_decline(&self, wait: Duration) -> Result<PendingMessage, Failure> {
        let mut left = clock::timeout(wait);
        let mut head = [0; Head::LEN];
        let is_clear = |bytes: &[u8]| Head::of(bytes) != Head::Open;
        let len = match self.tcp.peek_until(&mut head, &mut left, is_clear) {
            Ok(0) => return Err(Fatal::Reset.into()),
            Ok(len) => len,
            Err(e) if e == EAGAIN => return Ok(PendingMessage::None),
            Err(e) => return Err(fatal(e).into()),
        };
        let bytes = head.get_mut(..len).ok_or(Fatal::Protocol)?;
        let Head::Decline(len) = Head::of(bytes) else {
            return Ok(PendingMessage::Other);
        };
        self.note_message(ClcType::Decline);
        let bytes = bytes.get_mut(..len).ok_or(Fatal::Protocol)?;
        self.read(bytes, &mut left)?;
        Ok(PendingMessage::Decline(Decline::parse(bytes)?))
    }

    fn note_message(&self, message_type: ClcType) {
        if let Some(watcher) = self.watcher {
            watcher.on_message(message_type);
        }
    }

    /// Waits for activity of the peer; returns whether there was any within `wait`.
    /// Context: may sleep.
    pub(crate) fn wait_tcp_activity(&self, wait: Duration) -> bool {
        let mut left = clock::timeout(wait);
        !matches!(self.tcp.peek(&mut [0], &mut left), Err(e) if e == EAGAIN)
    }

    /// What the peer did since its last message; unknown while a call of the application may have TCP locked. Reads
    /// nothing, does not wait.
    pub(crate) fn tcp_activity(&self) -> TcpActivity {
        let Some(_work) = self.tcp.begin_work() else {
            return TcpActivity::None;
        };
        match self.tcp.peek(&mut [0], &mut 0) {
            Err(e) if e == EAGAIN => TcpActivity::None,
            Ok(0) | Err(_) => TcpActivity::Eof,
            Ok(_) => TcpActivity::Data,
        }
    }

    /// Runs `f`, whose sleeps end early on activity of the TCP connection. Activity just before a sleep does not end
    /// it: each needs a timeout of its own.
    pub(crate) fn wake_on_tcp<R>(&self, f: impl FnOnce() -> R) -> R {
        self.tcp.wakeful(f)
    }

    /// Fills `buf`, within `left` jiffies.
    fn read(&self, buf: &mut [u8], left: &mut isize) -> Result<(), Failure> {
        Ok(self.tcp.recv_exact(buf, left).map_err(fatal)?)
    }

    /// Reads and discards the end of a message that is longer than the known format.
    fn discard(&self, mut len: usize, left: &mut isize) -> Result<(), Failure> {
        let mut waste = [0; 64];
        while len > 0 {
            let n = len.min(waste.len());
            let part = waste.get_mut(..n).ok_or(Fatal::Protocol)?;
            self.read(part, left)?;
            len -= n;
        }
        Ok(())
    }

    /// Sends a message.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// [`Fatal`] if it could not be sent as a whole.
    pub(crate) fn send(&self, message: &ClcMessage<'_>) -> Result<(), Failure> {
        let mut buf = KVec::from_elem(0u8, SEND_LEN, GFP_KERNEL)
            .map_err(|_| Failure::from(Reason::Memory))?;
        let bytes = message.emit(&mut buf).map_err(|_| Fatal::Protocol)?;
        if self
            .watcher
            .is_some_and(|watcher| !watcher.on_send(message))
        {
            return Err(Fatal::Reset.into());
        }
        let timeout = clock::timeout(handshake::CLC_WAIT);
        self.tcp.send_all(bytes, timeout).map_err(fatal)?;
        self.sent.set(Some(now()));
        Ok(())
    }

    /// Logs what the peer did wrong. Rate limited.
    pub(crate) fn log_peer_error(&self, error: PeerError) {
        if !ratelimit::peer() {
            return;
        }
        match &self.peer {
            Some(peer) => pr_warn!("handshake with {peer}: {error:?}\n"),
            None => pr_warn!("handshake with a disconnected peer: {error:?}\n"),
        }
    }

    /// Sends a DECLINE: the connection goes on over TCP.
    /// Context: may sleep.
    pub(crate) fn decline(&self, reason: Reason, local: PeerId) -> Result<(), Failure> {
        let decline = handshake::decline(reason, self.received, local);
        self.send(&ClcMessage::Decline(decline))
    }
}

/// Returns the type of the message that is in the receive queue of `tcp`, if it is there as a whole.
/// Context: may sleep, but does not wait for a peer.
pub(crate) fn pending_message(tcp: &TcpSocket) -> Option<ClcType> {
    // A peek at nothing would take an error of the connection.
    if !tcp.has_unread() {
        return None;
    }
    let mut bytes = [0; MAX_LEN];
    let len = tcp.peek(&mut bytes, &mut 0).ok()?;
    let header = peek_header(bytes.get(..len)?)?.ok()?;
    (len >= header.message_len()).then_some(header.message_type())
}

/// The header of the message that begins with `bytes`; `None` if they are too few.
fn peek_header(bytes: &[u8]) -> Option<Result<Header, Malformed>> {
    Some(Header::peek(bytes.first_chunk::<HEADER_LEN>()?))
}

/// Whether `bytes` are the beginning of a message, and not all of it that is to be parsed.
fn is_partial(bytes: &[u8]) -> bool {
    match peek_header(bytes) {
        Some(Ok(header)) => bytes.len() < header.read_len(),
        Some(Err(_)) => false,
        None => true,
    }
}

/// The failure that follows from an errno of TCP.
fn fatal(e: Error) -> Fatal {
    match e {
        e if e == EAGAIN => Fatal::TimedOut,
        e if e == ECONNRESET || e == EPIPE => Fatal::Reset,
        e if e == EINTR || e == ERESTARTSYS => Fatal::Interrupted,
        e => Fatal::Tcp(u16::try_from(-e.to_errno()).unwrap_or_default()),
    }
}
