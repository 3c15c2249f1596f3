// SPDX-License-Identifier: GPL-2.0

//! Sockets that go over TCP.
//!
//! Errors are moved from the TCP socket to the application's as they occur, since the kernel answers
//! SO_ERROR from there; the first call that returns one clears it, as with TCP.

use kernel::sync::Arc;
use kernel_ext::{
    net::{
        self,
        Msg,
        SockAddr, //
    },
    prelude::*,
    trace, //
};

use super::{
    FallbackInfo,
    Phase,
    Sock,
    SockState, //
};

/// Makes TCP answer from now on, if the socket is in one of the phases `from`. Returns whether it was.
pub(super) fn switch_to_fallback(this: &Arc<Sock>, from: &[Phase], info: FallbackInfo) -> bool {
    if info.may_cross {
        this.crossed_decline.expect();
    }
    if Sock::hook_connection(this).is_err() {
        // Something else in the kernel has its events, which would be lost here.
        this.sk.set_err(EBUSY);
        this.tcp.abort(EBUSY);
    }
    let Ok(before) = this.transition(from, SockState::Fallback(info)) else {
        return false;
    };
    // Without it TCP wakes too often, which is harmless.
    let _ = this.tcp.set_rcvlowat(&this.sk);
    show_options(this);
    this.shared.stats.fell_back(this.role, info.reason);
    trace::switch_to_fallback(&this.sk, &this.tcp, info.reason.code());
    if let Err(e) = this.tcp.take_err() {
        this.sk.set_err(e);
    }
    if before.phase() != Phase::Init {
        this.apply_late_shutdown();
        // TCP's events before this were not forwarded.
        this.sk.wake_state();
        this.sk.wake_readable();
        this.sk.wake_writable();
    }
    if info.may_cross {
        // No event follows for what has arrived before.
        Sock::schedule_work(this.as_arc_borrow());
    }
    true
}

/// Has options that the kernel reads from the application's socket be those of TCP as they are now: SO_SNDBUF and
/// SO_RCVBUF, which grow with the connection, and SO_INCOMING_CPU.
fn show_options(this: &Sock) {
    let (sndbuf, rcvbuf) = this.tcp.bufs();
    this.sk.set_bufs(sndbuf, rcvbuf);
    this.show_incoming_cpu();
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
pub(super) fn send(this: &Sock, msg: &mut Msg<'_>) -> Result<usize> {
    let flags = msg.flags();
    // With the signal, if it is EPIPE that is pending.
    let error = |e| match e {
        EPIPE => this.sk.stream_error(flags, e),
        e => e,
    };
    this.sk.take_err().map_err(error)?;
    // The error with which the connection ends may come during the call. It is taken from TCP then, which knows
    // EPIPE only.
    msg.set_nosignal();
    let result = match this.tcp.sendmsg(msg).map_err(error) {
        // No connection came about, and why was taken from TCP.
        Err(e) if e == ECONNABORTED && flags & net::MSG_FASTOPEN != 0 => {
            this.sk.take_err().and(Err(e))
        }
        result => result,
    };
    show_options(this);
    result
}

/// The application has closed the socket: waits as SO_LINGER says. The TCP socket itself has no such option, as
/// it may be released in a context that must not sleep for long.
pub(super) fn close(this: &Sock) {
    match this.sk.linger() {
        None => {}
        // A reset.
        Some(0) => {
            let _ = this.tcp.disconnect();
        }
        Some(timeout) => this.tcp.linger(timeout),
    }
}

/// recvmsg(2).
pub(super) fn recv(this: &Sock, msg: &mut Msg<'_>, flags: u32) -> Result<usize> {
    let room = msg.len();
    this.await_front(flags)?;
    let received = this.tcp.recvmsg(msg, flags);
    show_options(this);
    let len = match received {
        // The pending error says why there is no connection.
        Err(e) if e == ENOTCONN => return this.sk.take_err().and(Err(e)),
        result => result?,
    };
    // If the end of the stream came before an error, the next send returns that.
    if len == 0 && room > 0 && !this.tcp.has_ended_in_order() {
        // Not the end of the stream but of the connection, if there was an error.
        this.sk.take_err()?;
    }
    Ok(len)
}
