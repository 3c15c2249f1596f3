// SPDX-License-Identifier: GPL-2.0

//! A SYN that offers SMC and is not answered.
//!
//! Firewalls drop segments for the SMC option (TCP option 254, RFC 6994), as they do for that of MPTCP. So a client
//! offers SMC for [`SYN_WAIT`] only, and then makes another attempt without. The present one is not continued: a SYN
//! that arrived may have been answered, and the server waits for a PROPOSAL then. (The C module goes on until TCP gives
//! the connection up.)
//!
//! The peer is remembered for a while if it answered the next SYN at once, so that other connections need not wait.

use kernel::{
    impl_has_hr_timer,
    new_spinlock,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        SpinLock, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeSoftMode, //
        },
        Delta,
        Monotonic, //
    }, //
};
use kernel_ext::{
    net::SockAddr,
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    handshake::paths::{
        Path,
        Verdict,
        SYN_AVOIDS,
        SYN_WAIT, //
    }, //
};

use super::{
    Phase,
    Sock, //
};
use crate::{
    clock,
    handshake::FallbackInfo,
    namespace, //
};

/// Until the timer asks the work again, which had no time for it.
const RETRY: Delta = Delta::from_millis(100);

/// The wait for an answer, of the last attempt that offered SMC.
#[pin_data]
pub(super) struct SynWait {
    /// The timer since it was started. It holds a reference of the socket, so it is taken out at the end.
    #[pin]
    timer: SpinLock<Option<ArcHrTimerHandle<Sock>>>,
    /// It has expired.
    is_late: Atomic<bool>,
    /// The address that connect(2) was given. A program of the cgroup may have it changed on the way to TCP.
    #[pin]
    path: SpinLock<Option<Path>>,
}

impl SynWait {
    /// Nothing is waited for.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_spinlock!(None, "smc::SynWait::timer"),
            is_late: Atomic::new(false),
            path <- new_spinlock!(None, "smc::SynWait::path"),
        })
    }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Sock {
        mode: RelativeSoftMode<Monotonic>, field: self.syn_timer
    }
}

impl HrTimerCallback for Sock {
    type Pointer<'a> = Arc<Self>;

    fn run(this: ArcBorrow<'_, Self>, mut ctx: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        if !is_waiting(&this) {
            return HrTimerRestart::NoRestart;
        }
        this.syn_wait.is_late.store(true, Relaxed);
        Self::schedule_work(this);
        ctx.forward_now(RETRY);
        HrTimerRestart::Restart
    }
}

/// Whether an attempt that offers SMC waits for an answer to its SYN.
fn is_waiting(this: &Sock) -> bool {
    this.phase() == Phase::Connecting && this.tcp.state().is_syn_sent()
}

/// An attempt begins. Returns whether it is to be without SMC from the start, as SYNs that offer it were not answered
/// at that address a moment ago. The caller holds `setup`.
/// Context: process.
pub(super) fn begin(this: &Sock, addr: SockAddr<'_>) -> bool {
    end_wait(this);
    this.syn_wait.is_late.store(false, Relaxed);
    let path = addr.inet().map(|peer| Path::of_syn(peer.ip));
    *this.syn_wait.path.lock() = path;
    let syns = &namespace::of(&this.sk).syns;
    path.is_some_and(|path| {
        let verdict = syns.check(&path, clock::now());
        matches!(verdict, Verdict::Avoided(_))
    })
}

/// TCP has sent a SYN that offers SMC. The caller holds `setup`.
/// Context: process.
pub(super) fn begin_wait(this: &Arc<Sock>) {
    let nanos = i64::try_from(SYN_WAIT.as_nanos()).unwrap_or(i64::MAX);
    let timer = this.clone().start(Delta::from_nanos(nanos));
    *this.syn_wait.timer.lock() = Some(timer);
}

/// Stops the timer, which holds a reference of the socket, if it runs.
/// Context: process; waits for the timer's function.
pub(super) fn end_wait(this: &Sock) {
    let timer = this.syn_wait.timer.lock().take();
    drop(timer);
}

/// Whether the attempt that is in progress has offered SMC for long enough.
pub(super) fn is_late(this: &Sock) -> bool {
    this.syn_wait.is_late.load(Relaxed) && is_waiting(this) && this.without_smc().is_none()
}

/// There is a TCP connection; `info` is why the attempt was without SMC, if it was. Remembers what became of the SYNs.
pub(super) fn note_answer(this: &Sock, info: Option<&FallbackInfo>) {
    let syns = &namespace::of(&this.sk).syns;
    let path = *this.syn_wait.path.lock();
    match (info, path) {
        (None, Some(path)) => syns.worked(&path),
        // Not one that was avoided from the start, nor a peer that just did not answer for a while.
        (Some(info), Some(path)) if info.cause == Some(Cause::SynUnanswered) => {
            if this.syn_wait.is_late.load(Relaxed) && !this.tcp.has_retransmitted() {
                syns.failed(&path, SYN_AVOIDS, clock::now());
            }
        }
        _ => {}
    }
}
