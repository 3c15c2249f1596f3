// SPDX-License-Identifier: GPL-2.0

//! The end of a connection: shutdown(2), close(2), resets. As TCP has it: what was sent before an orderly close is read
//! by the peer; a close with unread data is a reset.

use kernel_ext::{
    net::Sk,
    prelude::*, //
};
use smc_proto::smcd::view::EndFlags;

use super::pair::SmcdConn;

impl SmcdConn {
    /// shutdown(2) with argument `how`.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown `how`, `ENOTCONN` if the connection is over.
    pub(crate) fn shutdown(&self, sk: &Sk, how: i32) -> Result {
        let flags = match how {
            0 => EndFlags::SHUT_READ,
            1 => EndFlags::SHUT_WRITE,
            2 => EndFlags::SHUT_READ.with(EndFlags::SHUT_WRITE, true),
            _ => return Err(EINVAL),
        };
        if !self.has_peer() {
            return Err(ENOTCONN);
        }
        match flags.contains(EndFlags::SHUT_WRITE) {
            true => self.end_writing(flags),
            false => drop(self.add(self.role, flags)),
        }
        self.show_state(sk);
        if flags.contains(EndFlags::SHUT_WRITE) {
            self.wake_peer();
        }
        Ok(())
    }

    /// close(2) of the last descriptor; `linger` is the SO_LINGER time, in jiffies, if set. Returns whether this is a
    /// reset.
    /// Context: may sleep.
    pub(crate) fn close(&self, sk: &Sk, linger: Option<isize>) -> bool {
        self.uncork();
        if let Some(timeout) = linger.filter(|timeout| *timeout > 0) {
            self.linger(sk, timeout);
        }
        // As far as TCP would have sent the end of the stream.
        let has_ended = self.ends().own.contains(EndFlags::SHUT_WRITE) && self.unsent() == 0;
        let is_abortive = linger == Some(0) || self.has_unread();
        let closed = EndFlags::CLOSED.with(EndFlags::SHUT_WRITE, !is_abortive);
        self.end_writing(closed);
        let is_reset = is_abortive || self.has_unread();
        if is_reset {
            self.reset_peer(match has_ended {
                true => EPIPE,
                false => ECONNRESET,
            });
        } else {
            self.wake_peer();
        }
        self.own().detach_sk();
        self.pair.stop_wake_timer();
        self.tx().close_writer(self.peer().sk().as_deref());
        self.rx().close_reader();
        if self.ends().peer.contains(EndFlags::CLOSED) {
            self.pair.counted.end();
        }
        is_reset
    }

    /// Whether the application has not read all that arrived.
    fn has_unread(&self) -> bool {
        self.rx().produced() != self.rx().consumed()
    }

    /// Waits until the peer has taken the data, as far as a TCP connection would hold the rest here; not with unread
    /// data, as the close is a reset then. What is left after `timeout` jiffies is for the peer to read none the less.
    fn linger(&self, sk: &Sk, timeout: isize) {
        let is_done = || {
            let ends = self.ends();
            let is_over = ends.is_reset() || ends.peer.contains(EndFlags::CLOSED);
            is_over || self.has_unread() || self.unsent() == 0
        };
        self.tx().begin_linger();
        if !is_done() && !kernel::current!().signal_pending() {
            let _ = sk.wait_until(timeout, false, is_done);
        }
    }

    /// Resets the connection: the application gets `err`, and so does the peer's its own error.
    /// Context: does not sleep.
    pub(crate) fn kill(&self, err: Error) {
        let reset = self.pair.reset.lock();
        let ends = self.ends();
        // A peer that has closed is no part of the connection any more: what it sent can be read.
        if !ends.is_connected() || ends.peer.contains(EndFlags::CLOSED) {
            return;
        }
        // The error comes first: no reader is to take the reset for an orderly end.
        self.own().with_sk(|sk| sk.note_err(err));
        let is_news = self.mark_reset(ECONNRESET);
        drop(reset);
        self.own().with_sk(|sk| {
            self.show_state(sk);
            sk.wake_err();
            sk.wake_state();
        });
        self.tell_reset(is_news);
    }

    /// Resets the connection, which this end closes. The peer's application gets `err`, unless both sides had finished.
    fn reset_peer(&self, err: Error) {
        let reset = self.pair.reset.lock();
        let is_news = self.mark_reset(err);
        drop(reset);
        self.tell_reset(is_news);
    }

    /// Marks both ends as reset, with `err` for the peer's application, unless both sides had finished. Returns whether
    /// that is news to the peer. The caller holds `Pair::reset`, and wakes those who wait.
    fn mark_reset(&self, err: Error) -> bool {
        let ends = self.ends();
        let is_news = !ends
            .peer
            .intersects(EndFlags::CLOSED.with(EndFlags::RESET, true));
        let was_over = ends.is_peer_done() && ends.own.contains(EndFlags::SHUT_WRITE);
        if is_news && !was_over {
            self.peer().note_reset(err);
        }
        self.add(self.role.other(), EndFlags::RESET);
        self.add(self.role, EndFlags::RESET);
        is_news
    }

    /// Wakes the peer's application after a reset, if that `is_news`.
    fn tell_reset(&self, is_news: bool) {
        if is_news {
            self.peer().with_sk(Sk::wake_err);
            self.wake_peer();
        }
    }

    /// Data were sent to a peer that has closed, or shut both directions down: later sends fail, as after the reset
    /// that would answer over TCP. A socket that was only shut down is reset by what it gets.
    pub(super) fn note_sent_after_close(&self) {
        let reset = self.pair.reset.lock();
        let seen = EndFlags::SENT_AFTER_CLOSE.with(EndFlags::RESET, true);
        if self.ends().own.intersects(seen) {
            return;
        }
        self.own().with_sk(|sk| sk.note_err(EPIPE));
        self.add(self.role, EndFlags::SENT_AFTER_CLOSE);
        let is_open = !self.ends().peer.contains(EndFlags::CLOSED);
        if is_open {
            self.peer().note_reset(ECONNRESET);
            self.add(self.role.other(), EndFlags::RESET);
        }
        drop(reset);
        self.own().with_sk(|sk| {
            sk.wake_err();
            sk.wake_state();
        });
        self.tell_reset(is_open);
    }

    /// Tells the peer's application that something has changed.
    fn wake_peer(&self) {
        let peer = SmcdConn {
            pair: self.pair.clone(),
            role: self.role.other(),
        };
        peer.own().with_sk(|sk| {
            peer.show_state(sk);
            sk.wake_end();
        });
    }

    /// Sets the socket's state to the connection's.
    fn show_state(&self, sk: &Sk) {
        sk.set_state(self.state().number());
    }
}
