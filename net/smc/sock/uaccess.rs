// SPDX-License-Identifier: GPL-2.0

//! Calls in which TCP accesses the application's memory with its lock held, for as long as that takes, and work on TCP,
//! which must not wait for them: a worker serves others, too. See [`TcpSocket::begin_work`].
//!
//! [`TcpSocket::begin_work`]: kernel_ext::net::TcpSocket::begin_work

use kernel::{
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        ArcBorrow, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    net::{
        self,
        UserAccessCall,
        UserAccessWork,
        WaitEnd, //
    },
    prelude::*, //
};

use super::{
    Phase,
    Sock, //
};

/// How long work has TCP's lock, about.
const SHORT_WORK: Delta = Delta::from_micros(100);

/// Announces a call in which TCP accesses the application's memory with its lock held, once no work wants that.
/// [`resume_work`] has to follow.
/// Context: may sleep.
fn begin_user_access(this: &Sock) -> UserAccessCall<'_> {
    loop {
        if let Some(access) = this.tcp.begin_user_access() {
            return access;
        }
        fsleep(SHORT_WORK);
    }
}

/// Runs `call`, in which TCP may access the application's memory with its lock held.
/// Context: may sleep.
pub(super) fn announced<R>(this: ArcBorrow<'_, Sock>, call: impl FnOnce() -> R) -> R {
    announced_if(true, this, call)
}

/// As [`announced`], but says so only if `is_needed`: where all work that there may be tries the lock it is not.
/// Context: may sleep.
pub(super) fn announced_if<R>(
    is_needed: bool,
    this: ArcBorrow<'_, Sock>,
    call: impl FnOnce() -> R,
) -> R {
    let access = is_needed.then(|| begin_user_access(&this));
    let result = call();
    drop(access);
    resume_work(this);
    result
}

/// Runs `call`, in which TCP accesses the application's memory with its lock held, for as long as that takes: not
/// during a handshake, whose worker may want that lock. Other work looks for such calls before it takes that.
/// Context: may sleep, also until the handshake is over.
///
/// # Errors
///
/// `ERESTARTSYS` for a signal, and those of `call`.
pub(super) fn outside_handshake(
    this: ArcBorrow<'_, Sock>,
    call: impl FnOnce() -> Result,
) -> Result {
    let has_handshake = || this.phase() == Phase::Connecting && !this.tcp.state().is_connecting();
    loop {
        let setup = this.setup.lock();
        // Either the worker sees this when there is a connection, or that is seen here.
        let access = begin_user_access(&this);
        if !has_handshake() {
            // No attempt begins meanwhile. The work of a listener may want it.
            let setup = (this.phase() != Phase::Listening).then_some(setup);
            let result = call();
            drop((access, setup));
            resume_work(this);
            return result;
        }
        drop((access, setup));
        // It may have met this.
        resume_work(this);
        match this.sk.wait_until(net::FOREVER, false, || !has_handshake()) {
            // Another thread has undone the attempt.
            Ok(_) | Err(WaitEnd::Disconnected) => {}
            Err(end) => return Err(end.errno()),
        }
    }
}

/// Begins work on TCP that must not wait for a call of the application. If there is such a call, its end queues the
/// work again.
/// Context: any.
pub(super) fn begin_work(this: &Sock) -> Option<UserAccessWork<'_>> {
    // Either the call finds this at its end, or its end is found here.
    this.is_work_kept_out.xchg(true, Full);
    let work = this.tcp.begin_work()?;
    this.is_work_kept_out.store(false, Relaxed);
    Some(work)
}

/// Queues the work again if it was kept from TCP's lock. To be called after calls of the application that may have
/// had that while they accessed its memory.
/// Context: any.
fn resume_work(this: ArcBorrow<'_, Sock>) {
    if this.is_work_kept_out.load(Relaxed) && this.is_work_kept_out.xchg(false, Full) {
        Sock::schedule_work(this);
    }
}
