// SPDX-License-Identifier: GPL-2.0

//! accept(2), and the works that bring connections to it: that of a listener, which takes them from TCP, and that of
//! each connection, which runs its handshake.

use kernel::sync::{
    atomic::Full,
    Arc,
    ArcBorrow, //
};
use kernel_ext::{
    net::{
        AcceptQueue,
        UnattachedSk, //
    },
    prelude::*, //
};
use smc_proto::lgr::Role;

use super::{
    active,
    defer,
    fallback,
    listen::{
        self,
        Listener,
        PlainChild, //
    },
    uaccess,
    FallbackInfo,
    Phase,
    Sock,
    O_NONBLOCK, //
};
use crate::handshake::{
    self,
    HandshakeResult, //
};

/// Connections that the work of a listener takes before it is another one's turn.
const BATCH: usize = 64;

/// accept(2).
pub(super) fn accept(this: ArcBorrow<'_, Sock>, flags: i32) -> Result<(UnattachedSk, Arc<Sock>)> {
    let (unattached, child) = await_child(this, flags)?;
    #[cfg(CONFIG_MEMCG)]
    let unattached = unattached.charge_to_caller(&child.tcp);
    Ok((unattached, child))
}

/// Waits for a connection to accept.
fn await_child(this: ArcBorrow<'_, Sock>, flags: i32) -> Result<(UnattachedSk, Arc<Sock>)> {
    let mut timeout = this.sk.rcvtimeo(flags & O_NONBLOCK != 0);
    loop {
        // Another one if the socket was shut down and listens again.
        let listener = this.listener().ok_or(EINVAL)?;
        if let Some(child) = listener.pop() {
            let unattached = child.unaccepted.lock().take().ok_or(EINVAL)?;
            return Ok((unattached, child));
        }
        match clcsock_accept(&this, &listener) {
            Ok(Some(taken)) if listener.has_earlier() => {
                // Those that the work has taken before come first.
                listener.await_taken();
                listener.enqueue_taken(taken);
                continue;
            }
            Ok(Some(PlainChild {
                unattached, child, ..
            })) => return Ok((unattached, child)),
            // One that shakes hands now, or is gone.
            Ok(None) => continue,
            Err(e) if e == ECONNABORTED => continue,
            Err(e) if e == EAGAIN && listener.await_taken() => continue,
            Err(e) if e == EAGAIN => {}
            Err(e) if this.phase() == Phase::Listening => return Err(e),
            Err(_) => {}
        }
        // As with TCP, an error that ended the listener stays pending.
        if this.phase() != Phase::Listening {
            return Err(EINVAL);
        }
        if let Err(e) = this.sk.take_err() {
            // The work stopped at the error, and there may be more to take.
            Sock::schedule_work(this);
            return Err(e);
        }
        if timeout == 0 {
            return Err(EAGAIN);
        }
        timeout = this
            .sk
            .wait_until(timeout, true, || {
                listener.ready() > 0
                    || this.tcp.has_pending()
                    || !listener.is_open()
                    || this.sk.has_err()
            })
            .map_err(|end| end.errno())?;
    }
}

/// Whether accept(2) would return a connection.
/// Context: process.
pub(super) fn is_ready(this: &Sock) -> bool {
    this.with_listener(|listener| listener.ready() > 0) == Some(true)
        || this.tcp.accept_queue() == AcceptQueue::WithoutSmc
}

/// The work of a listener: takes connections from TCP (C function `smc_tcp_listen_work`).
pub(super) fn tcp_listen_work(this: &Arc<Sock>) {
    let Some(listener) = this.listener() else {
        return;
    };
    if !this.tcp.state().is_listening() {
        return stopped_by_other(this);
    }
    for _ in 0..BATCH {
        if !listener.is_open() {
            return;
        }
        if listener.is_full() {
            listener.is_work_stopped.xchg(true, Full);
            // Room may have come before the flag was set.
            if listener.is_full() {
                return;
            }
            listener.is_work_stopped.xchg(false, Full);
        }
        // A call may have TCP's lock for as long as the application likes.
        let Some(_work) = uaccess::begin_work(this) else {
            return;
        };
        let taken = listener.while_taking(|| {
            let taken = clcsock_accept(this, &listener)?;
            if let Some(taken) = taken {
                listener.enqueue_taken(taken);
            }
            Ok::<_, Error>(())
        });
        match taken {
            Ok(()) => {}
            Err(e) => {
                if e == ECONNABORTED {
                    continue;
                }
                if e != EAGAIN && this.phase() == Phase::Listening {
                    this.sk.set_err(e);
                }
                return;
            }
        }
    }
    // Lets other listeners go first, and a close of this one.
    Sock::schedule_work(this.as_arc_borrow());
}

/// TCP does not listen: shutdown(2) does its part for this socket just now, or it is up to us, as something else has
/// ended TCP's listener (SOCK_DESTROY of sock_diag, BPF).
fn stopped_by_other(this: &Arc<Sock>) {
    let Some(_setup) = this.setup.try_lock() else {
        return Sock::yield_work(this);
    };
    if this.phase() == Phase::Listening && !this.tcp.state().is_listening() {
        if let Err(e) = this.tcp.take_err() {
            this.sk.set_err(e);
        }
        listen::stop_listening(this);
    }
}

/// Takes one connection from TCP. Returns it if TCP is its path; otherwise its handshake was queued.
/// Context: may sleep.
fn clcsock_accept(this: &Sock, listener: &Arc<Listener>) -> Result<Option<PlainChild>> {
    let (tcp, number) = listener.take(this)?;
    let unattached = this.sk.new_child()?;
    let sk = unattached.sk();
    sk.take_marks(&tcp);
    sk.take_cookie(&tcp);
    let child = Sock::new(sk, this.shared.clone(), this.version, tcp, Role::Server)?;
    let info = match listener.fallback {
        None if child.tcp.syn_smc() => {
            let arriving = match listener.order.begin(&child.tcp, number) {
                Ok(arriving) => arriving,
                Err(e) => {
                    // What the client has sent is unread, and the port is to be free.
                    child.tcp.abort(ECONNABORTED);
                    Sock::end(child);
                    return Err(e);
                }
            };
            *child.parent.lock() = Some((listener.clone(), arriving));
            *child.unaccepted.lock() = Some(unattached);
            listener.count_handshake(true);
            Sock::schedule_work(child.as_arc_borrow());
            return Ok(None);
        }
        None => FallbackInfo::not_offered(Role::Server, &child.sk, &child.tcp),
        Some(info) => info,
    };
    fallback::switch_to_fallback(&child, &[Phase::Init], info);
    Ok(Some(PlainChild {
        unattached,
        child,
        number,
    }))
}

/// The work of a listener's connection: runs the handshake (C function `smc_listen_work`).
pub(super) fn listen_work(child: &Arc<Sock>) {
    let Some((listener, arriving)) = child.parent.lock().take() else {
        return;
    };
    let progress = Some(&arriving.progress);
    let outcome = handshake::run(Role::Server, &child.sk, &child.tcp, progress);
    listener.count_handshake(false);
    let is_up = match outcome {
        Ok(HandshakeResult::Smc(conn)) => active::activate(child, &[Phase::Init], conn),
        Ok(HandshakeResult::Fallback(info)) => {
            fallback::switch_to_fallback(child, &[Phase::Init], info)
        }
        // Only clients reconnect.
        Ok(HandshakeResult::Reconnect(_)) | Err(_) => {
            child.shared.stats.server.errors.add(1);
            false
        }
    };
    match is_up {
        true => {
            listener.order.await_turn(&arriving);
            listener.order.leave(&arriving);
            defer::enqueue_when_due(child, &listener, arriving.number);
        }
        false => {
            if !child.tcp.state().may_receive() {
                // The client has closed: an orderly end would keep the port until it has answered that.
                child.tcp.abort(ECONNABORTED);
            }
            Sock::end(child.clone());
        }
    }
    listener.order.end(&arriving);
}
