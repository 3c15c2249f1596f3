// SPDX-License-Identifier: GPL-2.0

//! connect(2).
//!
//! TCP connects, and then the handshake runs, always in the work of the socket. connect(2) waits for that work unless
//! the socket is nonblocking. A call that is interrupted, that times out or that does not wait leaves the attempt
//! running.

use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc,
    ArcBorrow, //
};
use kernel_ext::{
    net::{
        self,
        Msg,
        SockAddr,
        WaitEnd, //
    },
    prelude::*,
    read_once::ReadOnce, //
};
use smc_proto::{
    lgr::Role,
    policy::Ends,
    reason::Reason,
    time::Duration, //
};

use super::{
    active,
    fallback,
    listen,
    options,
    syn,
    uaccess,
    FallbackInfo,
    Phase,
    Sock,
    SockState,
    O_NONBLOCK, //
};
use crate::{
    clock,
    handshake::{
        self,
        HandshakeResult, //
    },
    ib,
    namespace,
    policy, //
};

/// Interval at which connect(2) with no address resets TCP again.
const DISCONNECT_RETRY: Duration = Duration::from_millis(50);

/// What the start of connect(2) found or did.
enum ConnectStart {
    /// It started an attempt.
    Started,
    /// An attempt was in progress.
    Earlier,
    /// An attempt had ended; this is its result, not returned so far.
    Ended(Result),
    /// TCP alone answers.
    Delegate,
}

/// connect(2); `flags` are those of the file.
pub(super) fn connect(this: ArcBorrow<'_, Sock>, addr: SockAddr<'_>, flags: i32) -> Result {
    let nonblock = flags & O_NONBLOCK != 0;
    if addr.family().ok_or(EINVAL)? == AF_UNSPEC {
        return disconnect(&this.into());
    }
    let pending = match start_connect(&this.into(), addr)? {
        ConnectStart::Started => EINPROGRESS,
        ConnectStart::Earlier => EALREADY,
        ConnectStart::Ended(result) => return result,
        ConnectStart::Delegate => return fallback::connect(&this, addr, flags),
    };
    if nonblock {
        return Err(pending);
    }
    let timeout = this.sk.sndtimeo(false);
    let waited = this
        .sk
        .wait_until(timeout, false, || this.phase() != Phase::Connecting);
    match waited {
        Ok(_) => {
            let _setup = this.setup.lock();
            take_connect_result(&this).unwrap_or_else(|| result_of(&this))
        }
        Err(WaitEnd::Timeout) => Err(pending),
        Err(end) => Err(end.errno()),
    }
}

fn start_connect(this: &Arc<Sock>, addr: SockAddr<'_>) -> Result<ConnectStart> {
    let _setup = this.setup.lock();
    let phase = this.phase();
    if phase == Phase::Connecting {
        return Ok(ConnectStart::Earlier);
    }
    this.tcp.follow(&this.sk)?;
    if let Some(result) = take_connect_result(this) {
        return Ok(ConnectStart::Ended(result));
    }
    match phase {
        Phase::Active => Err(EISCONN),
        Phase::Init if this.tcp.has_keys() => {
            fallback::switch_to_fallback(this, &[Phase::Init], FallbackInfo::keys());
            Ok(ConnectStart::Delegate)
        }
        // TCP from the start: the server would be asked for SMC, only to be declined.
        Phase::Init => match ib::why_none().filter(|_| !may_be_local(this, addr)) {
            Some(cause) => {
                let info = FallbackInfo::no_device(cause);
                fallback::switch_to_fallback(this, &[Phase::Init], info);
                Ok(ConnectStart::Delegate)
            }
            None => start_tcp(this, addr, why_not_offered(this, addr)),
        },
        _ => Ok(ConnectStart::Delegate),
    }
}

/// Whether the server at `addr` may be on this kernel, and the connection by SMC-D.
/// Context: may sleep.
fn may_be_local(this: &Sock, addr: SockAddr<'_>) -> bool {
    namespace::has_smcd(&this.shared.config)
        && addr
            .inet()
            .is_some_and(|peer| this.tcp.may_reach_virtually(&peer))
}

/// Why the attempt that begins, to `addr`, is to be without SMC, as far as that is known before it.
/// Context: process.
fn why_not_offered(this: &Sock, addr: SockAddr<'_>) -> Option<FallbackInfo> {
    syn::begin(this, addr);
    if is_denied(this, addr) {
        return Some(FallbackInfo::denied());
    }
    syn::is_avoided(this).then(FallbackInfo::unanswered_syn)
}

/// Whether a rule denies a connection to `addr` SMC, as far as its own address is known.
fn is_denied(this: &Sock, addr: SockAddr<'_>) -> bool {
    let namespace = namespace::of(&this.sk);
    namespace.policy.denies(Role::Client, || Ends {
        local: policy::end(this.tcp.local().ok()),
        peer: policy::end(addr.inet()),
    })
}

/// Connects; without SMC if it is known why.
fn start_tcp(
    this: &Arc<Sock>,
    addr: SockAddr<'_>,
    info: Option<FallbackInfo>,
) -> Result<ConnectStart> {
    Sock::hook_connection(this)?;
    let offers_smc = info.is_none();
    this.tcp.set_syn_smc(offers_smc);
    // What became of an earlier attempt does not matter any more.
    let _ = this.sk.take_err();
    // What was shut down before, as the next handshake is to have the whole connection.
    this.late_shutdown
        .store(this.tcp.take_shutdown().into(), Relaxed);
    // Before TCP is what the work of an earlier attempt might take for that.
    this.attempts.fetch_add(1, Full);
    match this.tcp.connect(addr, O_NONBLOCK) {
        Ok(()) => {}
        Err(e) if e == EINPROGRESS => {}
        Err(e) => return Err(e),
    }
    // Not before TCP has begun: work that an earlier attempt left would find that there is none.
    this.transition(&[Phase::Init], SockState::Connecting(info))
        .map_err(|_| EINVAL)?;
    if !this.tcp.state().is_connecting() {
        // The event came before the phase was there for it.
        Sock::schedule_work(this.as_arc_borrow());
    } else if offers_smc {
        syn::begin_wait(this);
    }
    Ok(ConnectStart::Started)
}

/// connect(2) with no address: there is no connection any more, nor a listener, and the socket can be used for
/// something else. What there was is reset.
fn disconnect(this: &Arc<Sock>) -> Result {
    let mut setup = this.setup.lock();
    if this.phase() != Phase::Listening {
        // A blocked accept(2) ends with another error.
        this.sk.note_disconnect();
    }
    // Its work may be anywhere in the handshake. Without TCP it comes to an end, unless it makes another connection
    // just now: then it is without TCP the next time.
    while this.phase() == Phase::Connecting {
        note_end(this, || this.without_smc());
        this.tcp.disconnect()?;
        Sock::schedule_work(this.as_arc_borrow());
        // The work that runs may be that of the listener which the socket was before, and want this lock first.
        drop(setup);
        let is_over = || this.phase() != Phase::Connecting;
        let wait = this
            .sk
            .wait_until(clock::timeout(DISCONNECT_RETRY), false, is_over);
        if let Err(end @ WaitEnd::Signal(_)) = wait {
            return Err(end.errno());
        }
        setup = this.setup.lock();
    }
    this.connect_result_pending.store(false, Relaxed);
    match this.phase() {
        Phase::Active => active::disconnect(this),
        _ => this.tcp.disconnect()?,
    }
    if this.phase() == Phase::Listening {
        listen::stop_listening(this);
    }
    if let Err(e) = this.tcp.take_err() {
        this.sk.note_err(e);
    }
    this.sk.clear_shutdown();
    drop(setup);
    this.sk.wake_err();
    this.sk.wake_state();
    Ok(())
}

/// MSG_FASTOPEN, which is connect(2) and the first data in one call: makes a new socket one of TCP, which does that.
/// For a socket that connect(2) was called on before, it takes the flag off a message that can be sent.
///
/// # Errors
///
/// As of TCP: `EOPNOTSUPP` where the administrator has that disabled, or if the address is of no family, `EINVAL` for
/// one that is too short, `EALREADY`, `EISCONN`, or that with which an attempt ended.
pub(super) fn fast_open(this: &Arc<Sock>, msg: &mut Msg<'_>) -> Result {
    let is_enabled = this.sk.is_fast_open_enabled();
    let is_tcp = is_enabled && options::fall_back(this, Reason::OptionUnsupported).is_ok();
    if is_tcp && !this.connect_result_pending.load(Relaxed) {
        return Ok(());
    }
    let family = msg.family();
    if !is_enabled || matches!(family, Ok(Some(AF_UNSPEC))) {
        return Err(EOPNOTSUPP);
    }
    family?;
    match this.phase() {
        Phase::Connecting if msg.flags() & net::MSG_DONTWAIT != 0 => return Err(EALREADY),
        // The call waits for the connection.
        Phase::Connecting => {}
        Phase::Active | Phase::Fallback => {
            let _setup = this.setup.lock();
            take_connect_result(this).unwrap_or(Err(EISCONN))?;
        }
        Phase::Listening => return Err(EISCONN),
        _ => return Err(EINVAL),
    }
    msg.clear_fast_open();
    Ok(())
}

/// Takes the result of the last attempt, if connect(2) has not returned it yet. After a failure that was returned
/// another attempt may be made. The caller holds `setup`.
fn take_connect_result(this: &Sock) -> Option<Result> {
    if !this.connect_result_pending.xchg(false, Full) {
        return None;
    }
    let result = result_of(this);
    match this.phase() {
        _ if result.is_ok() => {}
        Phase::Active => active::disconnect(this),
        _ => {
            // After this TCP knows of no connection any more, as if the socket were new.
            let _ = this.tcp.disconnect();
            // Not what the disconnecting left there.
            let _ = this.tcp.take_err();
        }
    }
    Some(result)
}

/// The result of the last attempt. A connection that has ended since is no success, as over TCP.
fn result_of(this: &Sock) -> Result {
    let has_connection = match this.phase() {
        Phase::Active => this.conn().is_some_and(|conn| conn.has_peer()),
        Phase::Fallback => !this.tcp.state().is_closed(),
        _ => false,
    };
    match has_connection {
        true => Ok(()),
        false => this.sk.take_err().and(Err(ECONNABORTED)),
    }
}

/// The work of a socket that connects, after an event of TCP (C function `smc_connect_work`).
pub(super) fn connect_work(this: &Arc<Sock>) {
    let attempt = this.attempts.read_acquire();
    let (state, has_attempt) = (this.tcp.state(), this.tcp.has_attempt());
    if state.is_connecting() {
        return give_up_offer(this, attempt);
    }
    syn::end_wait(this);
    if state.is_closed() {
        return match has_attempt {
            true => {
                note_failed_syn(this, attempt);
                note_failure(this, attempt, ECONNABORTED);
            }
            // The application has shut the socket down meanwhile.
            false => cancel_connect(this, attempt),
        };
    }
    // A call on TCP that began before there was a connection: see `uaccess::outside_handshake`. None begins from now
    // on.
    if uaccess::begin_work(this).is_none() {
        return;
    }
    match this.tcp.finish_connect() {
        Ok(()) => {}
        // A shutdown(2) that crossed the end of the attempt has marked the socket.
        Err(e) if e == EISCONN => {}
        Err(e) => return fail(this, attempt, e),
    }
    let without_smc = match &*this.state.lock() {
        SockState::Connecting(info) => *info,
        // The application has undone the attempt.
        _ => return,
    };
    syn::note_answer(this, without_smc.as_ref());
    let outcome = match without_smc {
        Some(info) => Ok(HandshakeResult::Fallback(info)),
        None => handshake::run(Role::Client, &this.sk, &this.tcp, None),
    };
    match outcome {
        Ok(HandshakeResult::Smc(conn)) => {
            this.connect_result_pending.store(true, Relaxed);
            active::activate(this, &[Phase::Connecting], conn);
        }
        Ok(HandshakeResult::Fallback(info)) => {
            this.connect_result_pending.store(true, Relaxed);
            fallback::switch_to_fallback(this, &[Phase::Connecting], info);
        }
        Ok(HandshakeResult::Reconnect(info)) => {
            if let Err(e) = reconnect(this, attempt, info) {
                fail(this, attempt, e);
            }
        }
        Err(e) => {
            this.shared.stats.client.errors.add(1);
            fail(this, attempt, e);
        }
    }
}

/// Makes another attempt without SMC if nobody has answered the SYN that offers it. Until the lock of calls that undo
/// the attempt is free, the timer comes again.
fn give_up_offer(this: &Sock, attempt: u32) {
    let Some(_setup) = this.setup.try_lock() else {
        return;
    };
    if !syn::is_late(this) || this.tcp.has_user_access() {
        return;
    }
    syn::end_wait(this);
    if let Err(e) = reconnect(this, attempt, FallbackInfo::unanswered_syn()) {
        fail(this, attempt, e);
    }
}

/// Makes another TCP connection, without SMC: nobody has answered the SYN, or the server has not answered on the
/// present one, or may use it for SMC, over a link that does not work. Until the attempt is over the application can
/// send nothing and receives nothing. In the last case the server's application sees a connection that is reset, and
/// then another one.
fn reconnect(this: &Sock, attempt: u32, info: FallbackInfo) -> Result {
    syn::note_reconnect(this);
    let to = SockState::Connecting(Some(info));
    this.transition(&[Phase::Connecting], to)
        .map_err(|_| ECONNABORTED)?;
    let is_ended = || this.ended_attempt.load(Relaxed) == attempt;
    if is_ended() {
        return Err(ECONNABORTED);
    }
    match this.tcp.reconnect_without_smc(syn::before(this)) {
        // A shutdown(2) that came before this SYN was sent has not ended the new attempt of TCP.
        Err(e) if e == EINPROGRESS && is_ended() => Err(ECONNABORTED),
        Err(e) if e == EINPROGRESS => Ok(()),
        Err(e) if e == ENOTCONN => Err(ECONNABORTED),
        result => result,
    }
}

/// The attempt has failed, with the error of TCP or `e`. TCP is left as failed attempts leave it, and answers for
/// what the application sees of that, until [`take_connect_result`].
fn fail(this: &Sock, attempt: u32, e: Error) {
    if this.phase() == Phase::Closed {
        // TCP's connection is closed in order when this work lets go of the socket.
        return;
    }
    // Of no effect where there is no connection any more.
    this.tcp.abort(e);
    note_failure(this, attempt, e);
}

/// The attempt with this number has failed, and TCP has no connection any more. Once the application has shut that down
/// it may have begun another one, which this does not concern.
fn note_failure(this: &Sock, attempt: u32, e: Error) {
    if this.phase() == Phase::Closed || !this.is_attempt(attempt) {
        return;
    }
    this.show_incoming();
    let e = this.tcp.take_err().err().unwrap_or(e);
    this.connect_result_pending.store(true, Relaxed);
    this.sk.note_err(e);
    let _ = this.end_attempt(attempt);
    this.sk.wake_err();
    this.sk.wake_state();
}

/// There is no attempt with this number any more. A waiting connect(2) returns the pending error, or ECONNABORTED.
fn cancel_connect(this: &Sock, attempt: u32) {
    if !this.is_attempt(attempt) {
        return;
    }
    if let Err(e) = this.tcp.take_err() {
        this.sk.set_err(e);
    }
    let _ = this.end_attempt(attempt);
    this.sk.wake_state();
}

/// TCP has given up the SYN of the attempt with this number.
fn note_failed_syn(this: &Sock, attempt: u32) {
    let without_smc = match &*this.state.lock() {
        SockState::Connecting(info) if this.is_attempt(attempt) => *info,
        _ => return,
    };
    match this.tcp.pending_err() {
        Some(ETIMEDOUT) => syn::note_no_answer(this, without_smc.as_ref()),
        Some(EHOSTUNREACH) => syn::note_no_host(this, without_smc.as_ref()),
        _ => {}
    }
}

/// The application undoes the attempt that there is, before TCP is told. `without_smc` returns why it has no offer, if
/// it has none, and is called after TCP is asked: the state changes before another SYN is sent.
fn note_end(this: &Sock, without_smc: impl FnOnce() -> Option<FallbackInfo>) {
    if this.tcp.state().is_syn_sent() {
        syn::note_no_answer(this, without_smc().as_ref());
    }
}

/// shutdown(2) with argument `how` ends the attempt that there is, if TCP has no connection yet. The caller holds
/// `setup`.
///
/// # Errors
///
/// Those of TCP.
pub(super) fn shutdown(this: &Sock, how: i32) -> Result {
    note_end(this, || this.without_smc());
    this.tcp.shutdown(how)?;
    if this.phase() == Phase::Connecting && this.tcp.state().is_closed() {
        cancel_connect(this, this.attempts.read_acquire());
    }
    Ok(())
}

/// The application has shut down both directions while the handshake runs: the attempt is over, unless the server has
/// what it needs already. The caller holds `setup`.
pub(super) fn end_handshake(this: &Sock) {
    this.ended_attempt
        .store(this.attempts.read_acquire(), Relaxed);
    let _ = this.tcp.shutdown(2);
    this.sk.wake_state();
}

/// The application has closed the socket while it connects. The server may have the connection, and its application may
/// have accepted it: as over TCP it then sees an orderly end. A handshake in progress comes to an end, as it receives
/// nothing more.
pub(super) fn close(this: &Sock, without_smc: Option<&FallbackInfo>) {
    note_end(this, || without_smc.copied());
    if this.sk.linger() == Some(0) {
        this.tcp.abort(ECONNABORTED);
    } else {
        let _ = this.tcp.shutdown(2);
    }
}

/// The address family that dissolves a connection in connect(2).
const AF_UNSPEC: u16 = 0;
