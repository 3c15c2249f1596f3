// SPDX-License-Identifier: GPL-2.0

//! Sockets that go over TCP.
//!
//! Errors that end a connection are moved from the TCP socket to the application's as they occur, since the kernel
//! answers SO_ERROR from there; the first call that returns one clears it, as with TCP. One with which the connection
//! goes on (IP_RECVERR, TLS) is copied, as TCP's own functions look for it.

use kernel::sync::{
    atomic::{
        Full,
        Relaxed,
        Release, //
    },
    Arc,
    ArcBorrow, //
};
use kernel_ext::{
    net::{
        self,
        Msg,
        SockAddr, //
    },
    prelude::*,
    read_once::ReadOnce,
    trace, //
};
use smc_proto::{
    lgr::Role,
    reason::Reason, //
};

use super::{
    shutdown,
    uaccess,
    FallbackInfo,
    Phase,
    Sock,
    SockState, //
};

/// Makes TCP answer from now on, if the socket is in one of the phases `from`. Returns whether it was.
pub(super) fn switch_to_fallback(this: &Arc<Sock>, from: &[Phase], info: FallbackInfo) -> bool {
    if !from.contains(&this.phase()) {
        return false;
    }
    if info.may_cross {
        this.crossed_decline.expect();
    }
    if Sock::hook_connection(this).is_err() {
        match this.role {
            // Nobody waits for its events yet, and after accept(2) they are TCP's own.
            Role::Server if !info.may_cross => this.is_unhooked.store(true, Relaxed),
            // They would be lost here.
            _ => {
                this.sk.set_err(EBUSY);
                this.tcp.abort(EBUSY);
            }
        }
    }
    // Calls of the application reach TCP from the transition on, and have its lock for as long as they like: what needs
    // that comes before, or when nobody has it.
    let _ = this.tcp.try_set_rcvlowat(&this.sk);
    if this.phase() == Phase::Init {
        // What is left of an attempt that failed.
        this.late_shutdown.store(0, Relaxed);
    }
    let shut = |how| shutdown::shutdown_tcp(this, how);
    let Ok(before) = shutdown::transition(this, from, SockState::Fallback(info), shut) else {
        return false;
    };
    show_options(this);
    match before.phase() {
        Phase::Init if this.role == Role::Client => {
            // An attempt before may have offered SMC. Nobody would run the handshake.
            this.tcp.set_syn_smc(false);
            this.uncounted.store(info.reason.code(), Release);
        }
        _ => count(this, info.reason),
    }
    if let Err(e) = this.tcp.take_err() {
        this.sk.set_err(e);
    }
    // Nobody can wait for a connection that was not accepted.
    if this.role == Role::Client {
        share_waiters(this);
    }
    if before.phase() != Phase::Init {
        // TCP's events before this were not forwarded.
        this.sk.wake_connected();
        if this.tcp.poll() & net::POLLIN != 0 {
            this.sk.wake_readable();
        }
        this.sk.wake_writable();
    }
    if info.may_cross {
        // No event follows for what has arrived before.
        Sock::schedule_work(this.as_arc_borrow());
    }
    true
}

/// The work of a socket for which TCP answers.
/// Context: may sleep.
pub(super) fn work(this: &Arc<Sock>) {
    match this.crossed_decline.is_awaited() {
        true => Sock::settle_decline(this),
        // Again, after a call had TCP's lock.
        false => share_waiters(this),
    }
}

/// Whether TCP answers for a socket that has had no connection yet.
/// Context: any.
pub(crate) fn awaits_tcp(this: &Sock) -> bool {
    let is_uncounted = || this.uncounted.load(Relaxed) != 0;
    this.phase() == Phase::Fallback && is_uncounted() && !this.tcp.state().is_open()
}

/// TCP's state has changed; `take` as for [`TcpEvents::on_error`](super::TcpEvents::on_error).
/// Context: any.
pub(super) fn on_state_change(this: &Sock, take: &dyn Fn() -> Result) {
    if this.tcp.state().is_open() {
        count_late(this);
    }
    // An error that ends a connection is reported later.
    show_err(this, take);
    // A new connection has sizes of its own.
    show_options(this);
    if !this.tcp.has_shared_waiters() {
        match this.tcp.state().may_receive() {
            true => this.sk.wake_connected(),
            false => this.sk.wake_end(),
        }
    }
}

/// Counts a connection over TCP.
/// Context: any.
fn count(this: &Sock, reason: Reason) {
    this.shared.stats.fell_back(this.role, reason);
    trace::switch_to_fallback(&this.sk, &this.tcp, reason.code());
}

/// The same, of a socket that was one of TCP before it was connected, now that it is. (C counts it then, too, but at
/// once for an option.)
/// Context: any.
fn count_late(this: &Sock) {
    if this.uncounted.load(Relaxed) != 0 {
        let code = this.uncounted.xchg(0, Full);
        if let Some(reason) = Reason::from_code(code) {
            count(this, reason);
        }
    }
}

/// Has options that the kernel reads from the application's socket be those of TCP as they are now: SO_SNDBUF and
/// SO_RCVBUF, which grow with the connection, SO_INCOMING_CPU and SO_INCOMING_NAPI_ID.
/// Context: any.
#[inline]
pub(super) fn show_options(this: &Sock) {
    let (sndbuf, rcvbuf) = this.tcp.bufs();
    this.sk.set_bufs(sndbuf, rcvbuf);
    this.show_incoming();
}

/// Has TCP wake those who wait for the application's socket, and the shorter way to TCP taken for its data, once
/// nothing else is to be known of these. A socket that was not accepted yet has no waiters. If a call of the
/// application has TCP's lock, for as long as that likes, its end queues the work, which is this.
/// Context: may sleep.
pub(super) fn share_waiters(this: &Sock) {
    if this.crossed_decline.is_awaited() {
        return;
    }
    this.is_work_kept_out.xchg(true, Full);
    // If TCP cannot wake them, its events are forwarded.
    let is_hooked = !this.is_unhooked.read_once();
    // SO_RCVLOWAT may have been set just before the transition.
    if this.tcp.try_set_rcvlowat(&this.sk) && this.tcp.try_share_waiters(&this.sk, is_hooked) {
        this.is_work_kept_out.store(false, Relaxed);
        this.sk.answer_over_tcp::<Sock>();
    }
}

/// As [`share_waiters`], in accept(2): no call on the connection can be in the way yet, and whatever else is has to be
/// waited for, as nothing forwards the events of a socket without a hook.
/// Context: may sleep.
pub(super) fn share_waiters_of_new(this: &Sock) {
    if !this.crossed_decline.is_awaited() {
        let is_hooked = !this.is_unhooked.read_once();
        this.tcp.share_waiters(&this.sk, is_hooked);
        this.sk.answer_over_tcp::<Sock>();
    }
}

/// sendmsg(2), before [`share_waiters`].
pub(super) fn send_at_first(this: ArcBorrow<'_, Sock>, msg: &mut Msg<'_>) -> Result<usize> {
    // The work that waits for a DECLINE peeks, with TCP's lock.
    let is_needed = this.crossed_decline.is_awaited();
    uaccess::announced_if(is_needed, this, || send(&this, msg))
}

/// recvmsg(2), before [`share_waiters`].
pub(super) fn recv_at_first(
    this: ArcBorrow<'_, Sock>,
    msg: &mut Msg<'_>,
    flags: u32,
) -> Result<usize> {
    // Others wait until no DECLINE is awaited any more.
    let is_needed = flags & net::MSG_OOB != 0 && this.crossed_decline.is_awaited();
    uaccess::announced_if(is_needed, this, || recv(&this, msg, flags))
}

/// An error of TCP is pending; `take` as for [`TcpEvents::on_error`](super::TcpEvents::on_error).
/// Context: any.
pub(super) fn show_err(this: &Sock, take: &dyn Fn() -> Result) {
    // If there is none, there is something in the error queue.
    if this.tcp.state().is_closed() {
        this.is_err_shared.store(false, Relaxed);
        if let Err(e) = take() {
            this.sk.note_err(e);
        }
    } else if let Some(e) = this.tcp.pending_err() {
        this.sk.note_err(e);
        this.is_err_shared.store(true, Release);
    }
}

/// Moves an error of TCP that nothing has reported, as there is no hook.
/// Context: any.
#[inline]
pub(super) fn fetch_err(this: &Sock) {
    if this.is_unhooked.read_once() {
        if let Err(e) = this.tcp.take_err() {
            this.sk.note_err(e);
        }
    }
}

/// Clears an error that both sockets have where it was reported at the other one: here by SO_ERROR, there by a call
/// that TCP has handled. To be called before and after such calls.
/// Context: any.
#[inline]
pub(super) fn settle_err(this: &Sock) {
    if this.is_err_shared.read_acquire() {
        settle_shared_err(this);
    }
}

#[cold]
#[inline(never)]
fn settle_shared_err(this: &Sock) {
    let (is_here, is_there) = (this.sk.has_err(), this.tcp.pending_err().is_some());
    if is_here && is_there {
        return;
    }
    // Not the error with which the connection has ended meanwhile, which is moved after this was cleared.
    if this.is_err_shared.cmpxchg(true, false, Full).is_ok() {
        let _ = match is_here {
            true => this.sk.take_err(),
            false => this.tcp.take_err(),
        };
    }
}

/// connect(2) of a socket for which TCP answers.
pub(super) fn connect(this: &Sock, addr: SockAddr<'_>, flags: i32) -> Result {
    let is_new = this.tcp.state().is_closed() && !this.tcp.has_attempt();
    // What became of an earlier connection does not matter any more, if another is made.
    let before = match is_new {
        true => {
            // Nobody would run the handshake.
            this.tcp.set_syn_smc(false);
            this.sk.take_err()
        }
        false => Ok(()),
    };
    match this.tcp.connect(addr, flags) {
        Err(e) if e == ECONNABORTED => this.sk.take_err().and(Err(e)),
        Err(e) if e == EISCONN => {
            if let Err(before) = before {
                this.sk.note_err(before);
            }
            Err(e)
        }
        result => result,
    }
}

/// sendmsg(2).
#[inline(always)]
pub(super) fn send(this: &Sock, msg: &mut Msg<'_>) -> Result<usize> {
    let flags = msg.flags();
    settle_err(this);
    if this.sk.has_err() {
        send_pending(this, flags)?;
    }
    // The error with which the connection ends may come during the call. It is taken from TCP then, which knows
    // EPIPE only.
    msg.set_nosignal();
    match this.tcp.sendmsg(msg) {
        Ok(len) => {
            // SO_SNDBUF is raised when a sender has waited for it.
            this.show_incoming();
            Ok(len)
        }
        Err(e) => send_failed(this, flags, e),
    }
}

/// Takes the pending error for sendmsg(2) with these flags.
#[cold]
#[inline(never)]
fn send_pending(this: &Sock, flags: u32) -> Result {
    if this.is_err_shared.read_once() {
        // TCP knows.
        return Ok(());
    }
    let error = |e| send_failed(this, flags, e).map(drop);
    this.sk.take_err().or_else(error)
}

/// The error of sendmsg(2) with these flags, in place of `e`.
#[cold]
#[inline(never)]
fn send_failed(this: &Sock, flags: u32, e: Error) -> Result<usize> {
    this.show_incoming();
    settle_err(this);
    match e {
        // With the signal, if it is EPIPE that is pending.
        EPIPE => Err(this.sk.stream_error(flags, e)),
        // No connection came about, and why was taken from TCP.
        ECONNABORTED if flags & net::MSG_FASTOPEN != 0 => this.sk.take_err().and(Err(e)),
        _ => Err(e),
    }
}

/// The application has closed the socket: waits as SO_LINGER says. The TCP socket itself has no such option, as
/// it may be released in a context that must not sleep for long.
pub(super) fn close(this: &Sock) {
    match this.sk.linger() {
        // Here, where it is the application's for a firewall. A protocol on top of TCP has something to send before.
        None if this.tcp.has_ulp() => {}
        None => this.tcp.send_end(),
        // A reset. With a protocol on top of TCP that is another call.
        Some(0) => {
            if this.tcp.disconnect().is_err() {
                this.tcp.abort(ECONNABORTED);
            }
        }
        Some(timeout) => this.tcp.linger(timeout),
    }
}

/// recvmsg(2).
#[inline(always)]
pub(super) fn recv(this: &Sock, msg: &mut Msg<'_>, flags: u32) -> Result<usize> {
    let room = msg.len();
    settle_err(this);
    this.await_decline_settled(flags)?;
    match this.tcp.recvmsg(msg, flags) {
        Ok(len) if len > 0 => {
            show_options(this);
            Ok(len)
        }
        result => received_nothing(this, room, result),
    }
}

/// The result of recvmsg(2) with room for so many bytes, in place of TCP's.
#[cold]
#[inline(never)]
fn received_nothing(this: &Sock, room: usize, result: Result<usize>) -> Result<usize> {
    show_options(this);
    settle_err(this);
    match result {
        // The pending error says why there is no connection.
        Err(e) if e == ENOTCONN => this.sk.take_err().and(Err(e)),
        // Not the end of the stream but of the connection, if there was an error. If the end of the stream came before
        // an error, the next send returns that.
        Ok(0) if room > 0 && !this.tcp.has_ended_in_order() => this.sk.take_err().and(Ok(0)),
        // One that recvmmsg(2) has left for the next call, as after some messages it returns how many.
        Err(e) if e == EAGAIN && !this.is_err_shared.load(Relaxed) => {
            this.sk.take_err().and(Err(e))
        }
        result => result,
    }
}
