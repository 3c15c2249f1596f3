// SPDX-License-Identifier: GPL-2.0

//! Sockets that are connected by SMC.

use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};
use kernel_ext::{
    barrier::{
        smp_mb,
        Full, //
    },
    net::{
        self,
        Msg, //
    },
    prelude::*,
    time, //
};
use smc_proto::{
    conn::SendFlags,
    time::Duration, //
};

use super::{
    options,
    shutdown,
    uaccess,
    Phase,
    Sock,
    SockState, //
};
use crate::{
    blocking::{
        LongCall,
        RecvOptions,
        SendOptions, //
    },
    carrier::Carrier, //
};

/// Makes `conn` answer from now on, if the socket is in one of the phases `from`. Returns whether it
/// was; otherwise the connection is discarded.
pub(super) fn activate(this: &Arc<Sock>, from: &[Phase], conn: Carrier) -> bool {
    conn.sync_options(&this.sk);
    let version = conn.version();
    let successes = conn.stats(&this.shared.stats).successes(this.role);
    let first = conn.clone();
    let shut = |how| _ = shutdown::shutdown(this, &first, how);
    match shutdown::transition(this, from, SockState::Active(conn), shut) {
        Ok(_) => {
            // Those that were set just before went to the application's socket alone: who sets one looks for a
            // connection after that, with a barrier.
            smp_mb(Full);
            first.sync_options(&this.sk);
            let limit = options::user_timeout(this);
            if !limit.is_zero() {
                first.set_user_timeout(limit);
            }
            // Does nothing if there was another one before.
            this.first.populate(first);
            successes.count(version);
            this.show_incoming();
            this.sk.wake_connected();
            this.sk.wake_writable();
            hook_tcp(this);
            true
        }
        Err(SockState::Active(conn)) => {
            conn.drop_unused(&this.sk, this.sk.linger().filter(|time| *time == 0));
            false
        }
        Err(_) => false,
    }
}

/// Hooks the TCP connection, so that its end is noticed.
fn hook_tcp(this: &Arc<Sock>) {
    // If something else in the kernel gets its events the connection does without, as those of the C module do.
    let _ = Sock::hook_connection(this);
    if this.tcp.state().is_closed() || has_tcp_data(this) {
        Sock::schedule_work(this.as_arc_borrow());
    }
}

/// Whether there may be something to read from TCP, other than its end.
fn has_tcp_data(this: &Sock) -> bool {
    this.tcp.poll() & net::POLLIN != 0 && this.tcp.state().may_receive()
}

/// Handles an event of the TCP connection. Data on it can only be a DECLINE: that peer does not use SMC and receives
/// nothing over RDMA.
pub(super) fn on_tcp_event(this: &Sock) {
    on_tcp_error(this);
    let Some(conn) = this.conn().filter(|_| has_tcp_data(this)) else {
        return;
    };
    let Some(_work) = uaccess::begin_work(this) else {
        return;
    };
    match this.tcp.peek(&mut [0], &mut 0) {
        Ok(1..) => conn.kill(ECONNABORTED),
        Ok(0) => {}
        // An error that came after the look at errors.
        Err(e) if e != EAGAIN && e != EPIPE && this.tcp.state().is_closed() => conn.kill(e),
        Err(_) => {}
    }
}

/// The TCP connection was reset, and with it the one over RDMA (RFC 7609 section 4.8.2). The C module
/// ignores that.
fn on_tcp_error(this: &Sock) {
    let (Some(conn), Some(e)) = (this.conn(), this.tcp.pending_err()) else {
        return;
    };
    let is_closed = this.tcp.state().is_closed();
    match e {
        _ if !is_closed => {}
        EPIPE => conn.on_tcp_closed(),
        // As the error is where both have ended the stream.
        ECONNRESET if this.tcp.has_ended_in_order() => conn.on_tcp_closed(),
        // The acknowledgement of our end is lost.
        ETIMEDOUT if this.tcp.has_ended_in_order() && this.sk.is_send_shutdown() => {
            conn.on_tcp_closed()
        }
        ECONNRESET => conn.on_tcp_reset(),
        _ => conn.kill(e),
    }
    // Only now, as a message of the peer that arrives before the abort looks at it, too.
    let _ = this.tcp.take_err();
}

/// The connection is in use. TCP, which is idle, takes part in two ways:
///
/// - Keepalive would ask a peer from which data come, and end the connection if the network lost what it asks.
/// - NATs and stateful firewalls on the way drop a flow that is idle for some minutes, and do not know what TCP sends
///   later: keepalive, or a FIN. Data would keep the flow alive.
#[inline]
fn note_use(this: &Sock) {
    if this.sk.is_keepalive() {
        this.tcp.note_peer_alive();
    }
    keep_flow(this);
}

/// Sends a pure ACK if one is due, as NATs and firewalls need it.
#[inline]
fn keep_flow(this: &Sock) {
    // CAST: the counter wraps around.
    if time::now_jiffies().wrapping_sub(this.pure_ack_due.load(Relaxed)) as isize >= 0 {
        refresh_flow(this);
    }
}

/// A socket whose call sends or receives, however long that takes.
struct SockCall<'a>(&'a Sock);

impl LongCall for SockCall<'_> {
    #[inline]
    fn moved(&self) {
        note_use(self.0);
    }

    fn waits(&self) {
        keep_flow(self.0);
    }
}

/// While a connection is in use, it sends a pure ACK over TCP at least this often.
const PURE_ACK_INTERVAL: Duration = Duration::from_secs(30);

/// Sends a pure ACK over TCP, but for the first time, which is just after the handshake.
#[cold]
fn refresh_flow(this: &Sock) {
    let interval = match this.sk.is_keepalive() {
        true => PURE_ACK_INTERVAL
            .as_nanos()
            .min(this.tcp.keepalive_time() / 2),
        false => PURE_ACK_INTERVAL.as_nanos(),
    };
    let due = time::now_jiffies().wrapping_add(time::jiffies(interval));
    // 0 is for none so far.
    if this.pure_ack_due.xchg(due.max(1), Full) != 0 {
        this.tcp.send_pure_ack();
    }
}

/// sendmsg(2).
pub(super) fn send(this: &Sock, conn: &Carrier, msg: &mut Msg<'_>) -> Result<usize> {
    msg.check_control(&this.sk)?;
    let (flags, len) = (msg.flags(), msg.len());
    let nagle = this.tcp.nagle();
    let how = SendOptions {
        nonblock: flags & net::MSG_DONTWAIT != 0,
        oob: flags & net::MSG_OOB != 0,
        corked: flags & net::MSG_MORE != 0 || nagle.is_corked,
        nodelay: nagle.is_nodelay,
        autocork_bytes: this.shared.config.autocork_bytes(),
    };
    let stats = conn.stats(&this.shared.stats);
    let result = conn.send(&this.sk, msg, &how, &SockCall(this), stats);
    stats.sent.count(*result.as_ref().unwrap_or(&0), len);
    if how.oob && result.is_ok() {
        stats.urgent.add(1);
    }
    result.map_err(|e| {
        if e == EPIPE {
            this.sk.stream_error(flags, e)
        } else {
            e
        }
    })
}

/// Sends a short message, if that is all that the call asks for and needs no waiting. `None` leaves the message as it
/// was.
/// Context: may sleep, but waits for no peer.
#[inline]
pub(super) fn send_short(this: &Sock, conn: &Carrier, msg: &mut Msg<'_>) -> Option<usize> {
    let (flags, len) = (msg.flags(), msg.len());
    if flags & !SHORT_FLAGS != 0 || msg.has_control() {
        return None;
    }
    let how = || SendFlags {
        oob: false,
        last: true,
        corked: flags & net::MSG_MORE != 0 || this.tcp.nagle().is_corked,
        autocork_bytes: this.shared.config.autocork_bytes(),
    };
    let stats = conn.stats(&this.shared.stats);
    conn.send_short(&this.sk, msg, how, stats).then(|| {
        stats.sent.count(len, len);
        note_use(this);
        len
    })
}

/// Flags of a call of which a short message may need no more than a copy.
const SHORT_FLAGS: u32 = net::MSG_DONTWAIT | net::MSG_MORE | net::MSG_NOSIGNAL;

/// recvmsg(2).
pub(super) fn recv(this: &Sock, conn: &Carrier, msg: &mut Msg<'_>, flags: u32) -> Result<usize> {
    if flags & net::MSG_ERRQUEUE != 0 {
        return this.tcp.recvmsg(msg, flags);
    }
    msg.clear_name();
    let stats = conn.stats(&this.shared.stats);
    let peek = flags & net::MSG_PEEK != 0;
    if flags & net::MSG_OOB != 0 {
        if this.sk.is_urg_inline() {
            return Err(EINVAL);
        }
        let result = conn.recv_urgent(msg, peek);
        let moved = *result.as_ref().unwrap_or(&0);
        stats.received.count(moved, moved);
        if moved > 0 {
            stats.urgent.add(1);
        }
        return result;
    }
    let how = RecvOptions {
        nonblock: flags & net::MSG_DONTWAIT != 0,
        peek,
        discard: flags & net::MSG_TRUNC != 0,
        all: flags & net::MSG_WAITALL != 0,
    };
    let result = conn.recv(&this.sk, msg, how, &SockCall(this));
    let moved = *result.as_ref().unwrap_or(&0);
    stats.received.count(moved, moved);
    let wants_control = this.tcp.wants_inq();
    if result.is_ok() && (wants_control || msg.wants_inq()) {
        let inq = conn.inq();
        msg.set_inq(inq);
        if wants_control {
            msg.put_inq(inq);
        }
    }
    result
}

/// ioctl(2); `None` for what TCP or the kernel answers.
pub(super) fn ioctl(conn: &Carrier, cmd: u32) -> Option<i32> {
    let queues = conn.queues();
    let value = match cmd {
        net::SIOCINQ => queues.inq,
        net::SIOCOUTQ => queues.outq,
        net::SIOCOUTQNSD => queues.outq_unsent,
        net::SIOCATMARK => u32::from(queues.at_mark),
        _ => return None,
    };
    Some(i32::try_from(value).unwrap_or(i32::MAX))
}

/// What poll(2) reports except errors: EPOLL bits. As over TCP, SIGIO says when there is space, if there is none.
#[inline]
pub(super) fn poll(this: &Sock, conn: &Carrier) -> u32 {
    let ready = conn.poll(&this.sk);
    if ready & net::POLLOUT != 0 {
        return ready;
    }
    this.sk.set_nospace();
    // Space may have become free before that.
    conn.poll(&this.sk)
}

/// The application undoes the connect, or accept, and may use the socket for something else.
pub(super) fn disconnect(this: &Sock) {
    let conn = this.conn();
    if conn.is_some() {
        this.was_disconnected.store(true, Relaxed);
    }
    let was_connected = conn.is_some_and(|conn| conn.has_peer());
    let Ok(SockState::Active(conn)) = this.transition(&[Phase::Active], SockState::Init) else {
        return;
    };
    if was_connected {
        // So does TCP. Before waiting calls are woken, of which send(2) returns it.
        this.sk.note_err(ECONNRESET);
    }
    conn.disconnect(&this.sk);
    // Waiting calls find no connection any more; the events of this one are dropped.
    let _ = this.tcp.disconnect();
    let _ = this.tcp.take_err();
    this.sk.set_state(smc_proto::conn::ConnState::Init.number());
}

/// The application has closed the socket, or the listener before it accepted this one: then the connection is reset, as
/// over TCP.
pub(super) fn close(this: &Sock, conn: &Carrier) {
    if !this.is_unaccepted() {
        conn.close(&this.sk, this.sk.linger(), &this.tcp);
        return;
    }
    conn.close(&this.sk, Some(0), &this.tcp);
    // Nothing was sent that the reset could overtake, and the listener's port is to be free when its close(2) returns.
    this.tcp.abort(ECONNABORTED);
}
