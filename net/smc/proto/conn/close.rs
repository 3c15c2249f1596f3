// SPDX-License-Identifier: GPL-2.0
//! How a connection begins and ends (RFC 7609 section 4.8, Linux `smc_close.c`).

use crate::buffer::SizeClass;
use crate::conn::{
    CloseEffects,
    ConnEvent,
    ConnState,
    Effects,
    SendError,
    StateFlags,
    Stream, //
};

impl Stream {
    /// The connection's state.
    #[inline]
    pub const fn state(&self) -> ConnState {
        self.state
    }

    /// The handshake is done and the peer's RMBE is known and final: data may flow. Returns whether to transmit: the
    /// peer may have sent, requested an update and closed already.
    pub fn establish(&mut self, peer_rmbe: SizeClass) -> bool {
        self.send.set_peer_rmbe(peer_rmbe);
        self.step(ConnEvent::Established);
        self.has_work()
    }

    /// For a peer that is, or may be, a C module: unless that would stall the peer, the consumer cursor sent lags one
    /// message behind. See `recv`.
    ///
    /// Data after an urgent byte wait until such a peer has read the byte.
    pub fn advertise_late(&mut self) {
        self.recv.advertise_late();
        self.send.wait_behind_urgent();
    }

    /// Whether data have to be sent before the close of [`Stream::close`] is announced. To wait for that (SO_LINGER),
    /// transmit, then wait until this is false; each transmission wakes the waiter. A close with unread data is a
    /// reset, and discards what is not sent.
    pub fn needs_flush(&self) -> bool {
        let is_over = self.is_reset() || self.peer.any_close() || self.has_unread();
        !is_over && self.send.unsent() > 0
    }

    /// Whether the application has not read all that arrived, an urgent byte included that it has not passed.
    fn has_unread(&self) -> bool {
        self.recv.unread() > 0
    }

    /// The application closes (`released`) or shuts down both directions.
    ///
    /// The next message has the abort flag if data are lost with this, else the close flag; the latter waits until all
    /// data have arrived, as long as [`Stream::is_closing`]. The connection can be freed if [`Stream::is_finished`]
    /// afterwards.
    pub fn close(&mut self, released: bool) -> CloseEffects {
        let before = self.state;
        self.released |= released;
        self.shutdown.recv = true;
        self.shutdown.send = true;
        match before {
            ConnState::Active
            | ConnState::AppCloseWait1
            | ConnState::AppCloseWait2
            | ConnState::PeerCloseWait1
            | ConnState::PeerCloseWait2
            | ConnState::AppFinCloseWait => self.close_once(),
            // An abort of the peer was answered on arrival.
            ConnState::ProcessAbort
            | ConnState::Init
            | ConnState::Listen
            | ConnState::PeerFinCloseWait
            | ConnState::PeerAbortWait
            | ConnState::Closed => {}
        }
        let event = if self.peer.any_close() {
            ConnEvent::CloseLast
        } else {
            ConnEvent::Close
        };
        CloseEffects {
            state_changed: self.step(event),
            transmit: self.has_work() || self.needs_ack() || self.needs_ack_eventually(),
        }
    }

    /// Whether our close has yet to be posted, because data before it have not arrived.
    pub fn is_closing(&self) -> bool {
        let is_waiting = self.own.any_close() && !self.close_posted;
        is_waiting && !self.killed && !self.has_no_link
    }

    /// Closes and resets the connection (SO_LINGER with zero timeout, connect(2) with AF_UNSPEC). As over TCP this has
    /// no effect once both sides have finished, or after the last message.
    pub fn reset(&mut self) {
        if self.is_connected() && !self.close_posted {
            self.abort_instead();
        }
    }

    /// Shuts down writing; with reading shut down before this is [`Stream::close`].
    ///
    /// # Errors
    ///
    /// [`SendError::NotConnected`] in states that have no shutdown (any direction).
    pub fn shutdown_write(&mut self) -> Result<CloseEffects, SendError> {
        if !self.can_shutdown() {
            return Err(SendError::NotConnected);
        }
        if self.shutdown.recv {
            return Ok(self.close(false));
        }
        self.shutdown.send = true;
        if matches!(self.state, ConnState::Active | ConnState::AppCloseWait1) {
            self.own.insert(StateFlags::DONE_WRITING);
            self.cdc_due |= self.send.unsent() == 0;
        }
        Ok(CloseEffects {
            state_changed: self.step(ConnEvent::ShutdownWrite),
            transmit: self.has_work(),
        })
    }

    /// Shuts down reading: nothing is sent to the peer, unless writing was shut down before, with which this is
    /// [`Stream::close`].
    ///
    /// # Errors
    ///
    /// As [`Stream::shutdown_write`].
    pub fn shutdown_read(&mut self) -> Result<CloseEffects, SendError> {
        if !self.can_shutdown() {
            return Err(SendError::NotConnected);
        }
        if self.shutdown.send {
            return Ok(self.close(false));
        }
        self.shutdown.recv = true;
        Ok(CloseEffects::default())
    }

    /// Whether shutdown(2) is allowed; otherwise it is ENOTCONN.
    pub const fn can_shutdown(&self) -> bool {
        let has_state = matches!(
            self.state,
            ConnState::Active
                | ConnState::PeerCloseWait1
                | ConnState::PeerCloseWait2
                | ConnState::AppCloseWait1
                | ConnState::AppCloseWait2
                | ConnState::AppFinCloseWait
        );
        has_state && self.is_connected()
    }

    /// Aborts the connection locally: the link group ends, or the peer broke the protocol. Sets the abort flag, which
    /// is sent if the link still works. The module sets `sk_err` to ECONNABORTED, wakes all waiters, waits until there
    /// is no work and [`Stream::is_quiet`], and calls [`Stream::aborted`].
    pub fn abort(&mut self) -> CloseEffects {
        // Data that arrive after this are dropped, whatever flags come with them.
        self.ended_before_abort = self.has_ended_in_order();
        self.killed = true;
        if !matches!(self.state, ConnState::Closed | ConnState::Listen) {
            self.set_abort_flag();
        }
        CloseEffects {
            state_changed: self.step(ConnEvent::Abort),
            transmit: self.has_work(),
        }
    }

    /// Completes an abort. Returns whether the state changed.
    pub fn aborted(&mut self) -> bool {
        self.step(ConnEvent::Aborted)
    }

    /// The connection lost its last link: nothing can be sent, and the peer writes no more.
    pub fn set_no_link(&mut self) {
        self.has_no_link = true;
    }

    /// Whether [`Stream::abort`] was called.
    #[inline]
    pub const fn is_killed(&self) -> bool {
        self.killed
    }

    /// Whether the connection ends, or has ended, with our abort in place of a close.
    pub const fn has_reset(&self) -> bool {
        self.own.contains(StateFlags::ABORTED)
    }

    /// Whether no data are written to the peer's RMBE any more: either side has announced a close or abort, or there is
    /// no link.
    pub const fn has_stopped_writing(&self) -> bool {
        self.killed || self.has_no_link || self.close_posted || self.peer.any_close()
    }

    /// Whether a message of the peer has arrived: it has the connection, or had it.
    pub const fn is_heard(&self) -> bool {
        self.has_heard || self.peer.any_close()
    }

    /// Whether no message of ours is in flight.
    #[inline]
    pub const fn is_quiet(&self) -> bool {
        self.unacked == 0 && self.pending == 0
    }

    /// Whether the connection can be freed: closed on both sides, released by the application, nothing in flight, and
    /// the last message sent.
    ///
    /// After a local abort it also waits for the peer's close or abort: until then the peer may write to the RMBE,
    /// which another connection uses next. (The C module does not wait.) The same holds for a peer that may write after
    /// its close.
    pub const fn is_finished(&self) -> bool {
        let owed = self.cdc_due || (self.own.any_close() && !self.close_posted);
        let alone = !self.send.has_peer() || self.has_no_link;
        let through = self.peer.any_close() && !self.awaits_data_after_close();
        let ended = alone || (!owed && (through || !self.killed && !self.peer.any_close()));
        matches!(self.state, ConnState::Closed) && self.released && self.is_quiet() && ended
    }

    /// Bytes from the start of our RMBE that may hold data of this connection, once [`Stream::is_finished`]: a peer
    /// that closed in order has announced all that it wrote.
    pub fn rmbe_used(&self) -> u32 {
        let has_aborted = self.peer.contains(StateFlags::ABORTED) || self.killed;
        let has_closed = self.peer.contains(StateFlags::CLOSED) && !has_aborted;
        match has_closed && self.recv.has_all_announced() {
            true => u32::try_from(self.recv.received()).unwrap_or(u32::MAX),
            false => u32::MAX,
        }
        .min(self.recv.size())
    }

    // --- Inside.

    /// Processes the peer's state flags.
    pub(super) fn on_peer_state(&mut self, flags: StateFlags, fx: &mut Effects) {
        self.note_break(flags, fx);
        self.peer.insert(flags);
        if self.peer.is_empty() {
            return;
        }
        fx.peer_done = true;
        fx.wake_readers = true;
        fx.wake_writers = true;
        let closing = self.own.any_close();
        if self.peer.contains(StateFlags::ABORTED) {
            if !closing {
                // The peer waits for our close. The C module leaves the answer to close(), and sends none at all from
                // APPCLOSEWAIT2, so that the peer's socket stays forever.
                self.set_abort_flag();
            }
            fx.state_changed = self.step(if closing {
                ConnEvent::PeerAbortedLast
            } else {
                ConnEvent::PeerAborted
            });
            return;
        }
        if self.peer.contains(StateFlags::DONE_WRITING) {
            fx.state_changed |= self.step(ConnEvent::PeerDone);
        }
        if self.peer.contains(StateFlags::CLOSED) {
            fx.state_changed |= self.step(if closing && self.released {
                ConnEvent::PeerClosedLast
            } else {
                ConnEvent::PeerClosed
            });
            if fx.broken_pipe {
                self.reset_closed_peer();
            }
        }
    }

    /// Sets the error, as TCP's, for a flag that is new: the peer's abort is ECONNRESET, or EPIPE after its last data;
    /// its close is EPIPE while data are unsent.
    fn note_break(&mut self, flags: StateFlags, fx: &mut Effects) {
        let is_new = |flag| flags.contains(flag) && !self.peer.contains(flag);
        let is_abort = is_new(StateFlags::ABORTED) && !self.killed;
        let is_close = is_new(StateFlags::CLOSED);
        if is_abort {
            let had_ended = self.had_ended_before_abort(flags);
            self.ended_before_abort = had_ended;
            fx.reset = !had_ended;
            fx.broken_pipe = had_ended && !self.is_write_shut();
        } else if is_close && !self.own.any_close() && !self.is_reset() {
            fx.broken_pipe = self.send.unsent() > 0;
        }
        self.sent_after_close |= fx.broken_pipe;
    }

    /// Tells a peer that has closed of data that were sent to it all the same. They are not written, as its RMBE may be
    /// another connection's; over TCP they would arrive and be a reset for both ends.
    ///
    /// Not while such a peer may have data to send: a C peer sends them no more once it is told.
    pub(super) fn reset_closed_peer(&mut self) {
        if self.peer.any_close() && !self.own.any_close() && !self.awaits_data_after_close() {
            self.set_abort_flag();
        }
    }

    /// Sets the abort flag if the application closes and data are unread, or if more are known to follow, else the
    /// close flag. A close flag that is set and was not sent yet gives way to the abort flag.
    fn close_once(&mut self) {
        let loses_data = self.released && self.has_unread();
        if self.own.any_close() {
            // After a shutdown of both directions: nothing may arrive any more that would tell the peer.
            if loses_data && self.is_closing() && !self.peer.any_close() {
                self.abort_instead();
            }
            return;
        }
        if loses_data || self.refuses_data_after_close() {
            self.set_abort_flag();
        } else {
            self.received_at_close = self.recv.received();
            self.own.insert(StateFlags::CLOSED);
        }
    }

    /// Data arrived after the application closed, or shut down both directions. They are never read, so the peer may
    /// never accept the data left here: aborts, as TCP resets such a connection, also if the close was sent before.
    ///
    /// A C peer is left with a close that was sent: its next send(2) fails by that.
    pub(super) fn abort_on_data_after_close(&mut self) {
        let has_new = self.recv.received() != self.received_at_close && self.has_unread();
        if !has_new || self.peer.any_close() || self.killed || self.has_reset() {
            return;
        }
        if self.is_closing() {
            self.abort_instead();
        } else if self.close_posted && self.answers_second_close() {
            self.set_abort_flag();
        }
    }

    /// Replaces a close flag that was not sent yet, if there is one, by the abort flag.
    fn abort_instead(&mut self) {
        self.own = self.own.without(StateFlags::CLOSED);
        self.set_abort_flag();
    }

    fn set_abort_flag(&mut self) {
        self.own.insert(StateFlags::ABORTED);
        self.cdc_due = true;
    }

    /// Applies an event; returns whether the state changed.
    fn step(&mut self, event: ConnEvent) -> bool {
        let before = self.state;
        self.state = before.after(event);
        self.state != before
    }
}
