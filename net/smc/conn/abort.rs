// SPDX-License-Identifier: GPL-2.0

//! Aborts of a connection: the group ends, the peer violates the protocol, TCP is reset (RFC 7609 section 4.8.2; C
//! functions `smc_conn_kill`, `smc_close_active_abort`).

use kernel::{
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};
use kernel_ext::{net::TcpSocket, prelude::*, ratelimit};
use smc_proto::{
    conn::{
        ConnState,
        Fault, //
    },
    time::{
        Duration,
        Instant, //
    }, //
};

use super::{
    queues::ABORTS,
    Conn,
    ConnInner, //
};
use crate::clock::now;

/// How long the first message over RDMA may be behind the end of TCP: longer than soft RoCE takes to repeat it.
const UNHEARD_WAIT: Duration = Duration::from_secs(5);

/// How long data and an abort over RDMA may be behind a reset of TCP, about as long as TCP waits for a repetition.
const RESET_WAIT: Duration = Duration::from_millis(200);

/// How long a reset of TCP waits for a call of the application, before it is the turn of other connections.
const CALL_WAIT: Delta = Delta::from_millis(10);

impl Conn {
    /// Aborts the connection: the application gets `err`, the peer gets a CDC message if the link works, and the TCP
    /// connection is reset. A second call does nothing.
    /// Context: does not sleep.
    ///
    /// During the handshake only a flag is set: the socket may still fall back to TCP.
    pub(crate) fn kill(self: &Arc<Self>, err: Error) {
        let mut inner = self.inner.lock();
        if inner.stream.is_killed() {
            return;
        }
        // If the peer aborted, or both sides have closed, no error is set.
        let is_news = inner.stream.is_connected();
        inner.stream.abort();
        let is_up = inner.stream.state() != ConnState::Init;
        if is_news {
            inner.note_err(err);
        }
        drop(inner);
        if is_up {
            self.transmit();
            self.announce_kill();
        }
    }

    /// Resets the connection unless something is received over RDMA within [`UNHEARD_WAIT`]: the peer has closed TCP in
    /// order and reset it then. Its data may still be on the way, or it gave up the handshake and has no connection.
    /// Context: does not sleep.
    pub(crate) fn reset_unless_heard(&self) {
        self.reset_within(UNHEARD_WAIT, false);
    }

    /// The peer has reset TCP: resets the connection [`RESET_WAIT`] later, unless an abort comes before. What the peer
    /// has sent before comes by another way, and may be later.
    /// Context: does not sleep.
    pub(crate) fn reset_soon(&self) {
        self.reset_within(RESET_WAIT, true);
    }

    /// Has the link of the connection tested at once, as after a long silence.
    /// Context: does not sleep.
    pub(crate) fn suspect_link(&self) {
        let at = self.with(|inner| inner.at.clone());
        self.group.suspect_link(&at);
    }

    fn reset_within(&self, wait: Duration, is_tcp_reset: bool) {
        let mut inner = self.inner.lock();
        inner.unheard_until = Some(now().saturating_add(wait));
        inner.is_tcp_reset |= is_tcp_reset;
        drop(inner);
        self.group.arm_conn_timer(wait);
    }

    /// Timer of [`Self::reset_unless_heard`] and [`Self::reset_soon`]; returns the deadline while it lasts.
    /// Context: does not sleep.
    pub(super) fn look_at_unheard(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let until = inner.unheard_until?;
        let is_heard = inner.stream.is_heard() && !inner.is_tcp_reset;
        if !is_heard && !until.is_due(now) {
            return Some(until);
        }
        inner.unheard_until = None;
        drop(inner);
        if !is_heard {
            self.kill(ECONNRESET);
        }
        None
    }

    /// Completes the abort of a connection that was killed during its handshake.
    pub(super) fn finish_kill(self: &Arc<Self>, err: Error) {
        let mut inner = self.inner.lock();
        inner.stream.abort();
        inner.note_err(err);
        drop(inner);
        self.transmit();
        self.announce_kill();
    }

    /// Wakes the tasks of an aborted connection, whose error is set, and schedules the reset of TCP.
    pub(super) fn announce_kill(self: &Arc<Self>) {
        if let Some(sk) = self.sk() {
            self.show_state(&sk);
            sk.wake_err();
            sk.wake_state();
            sk.wake_readable();
            sk.wake_writable();
            self.schedule_tcp_reset();
        }
        self.free_if_done();
    }

    /// Resets the TCP connection soon, see [`ConnInner::tcp_to_reset`].
    /// Context: does not sleep.
    pub(super) fn schedule_tcp_reset(self: &Arc<Self>) {
        ABORTS.with(|queue| {
            // The work may be queued already.
            let _ = queue.enqueue::<Arc<Self>, 0>(self.clone());
        });
    }

    /// Completes an abort, or removes a finished connection from its group, if nothing of it is in flight.
    /// Context: does not sleep.
    pub(crate) fn free_if_done(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let stream = &mut inner.stream;
        let is_through = stream.is_killed() && stream.is_quiet() && !stream.has_work();
        let has_changed = is_through && stream.aborted();
        let is_finished = stream.is_finished();
        let claim = inner.claim_done();
        let orphan = inner.orphan.take_if(|_| is_finished);
        let has_tcp = is_finished && inner.closed_tcp.is_some();
        let (mut unneeded, mut is_large) = (None, false);
        if is_finished {
            if let Some(rmbe) = inner.rmbe() {
                rmbe.set_used(inner.stream.rmbe_used());
            }
            // The end of the group does not find the connection any more.
            inner.release_device();
            // The socket may keep the connection, but nobody reads from it any more.
            is_large = inner.has_large_unneeded();
            unneeded = (!is_large).then(|| inner.take_unneeded());
        }
        drop(inner);
        drop((orphan, unneeded));
        if is_large {
            self.schedule_rmbe_work();
        }
        self.release_claim(claim);
        if has_changed {
            if let Some(sk) = self.sk() {
                self.show_state(&sk);
                sk.wake_state();
            }
        }
        if has_tcp {
            self.schedule_tcp_reset();
        }
        if is_finished {
            self.group.leave(self.token);
        }
    }

    /// Aborts the connection after a protocol violation of the peer.
    pub(super) fn on_fault(self: &Arc<Self>, fault: Fault) {
        if ratelimit::peer() {
            pr_warn!("a peer broke the protocol, its connection is aborted: {fault:?}\n");
        }
        self.kill(ECONNABORTED);
    }
}

impl ConnInner {
    /// Returns the TCP connection to be reset. That of an open socket is if the connection was aborted: where the link
    /// has failed at this end only, the reset is all that the peer hears of. close(2) calls this itself, as it may come
    /// before the work runs. That of a closed socket is if the close was a reset ([`Conn::reset_tcp`]), once nothing is
    /// awaited of the peer any more.
    pub(super) fn tcp_to_reset(&mut self) -> Option<Arc<TcpSocket>> {
        let owner = self.owner.as_ref().filter(|_| self.stream.is_killed());
        match owner {
            Some(owner) => Some(owner.tcp.clone()),
            None => self.closed_tcp.take_if(|_| self.orphan.is_none()),
        }
    }

    /// Undoes [`Self::tcp_to_reset`].
    fn keep_tcp_to_reset(&mut self, tcp: Arc<TcpSocket>) {
        if self.owner.is_none() {
            self.closed_tcp = Some(tcp);
        }
    }
}

/// Resetting TCP may sleep.
impl WorkItem for Conn {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(tcp) = this.with(ConnInner::tcp_to_reset) else {
            return;
        };
        if let Some(_work) = tcp.begin_work() {
            return tcp.abort(ECONNABORTED);
        }
        // A call has the lock of TCP, for as long as the application likes: it is the turn of others meanwhile.
        this.with(|inner| inner.keep_tcp_to_reset(tcp));
        fsleep(CALL_WAIT);
        this.schedule_tcp_reset();
    }
}
