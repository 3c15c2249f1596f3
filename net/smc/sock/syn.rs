// SPDX-License-Identifier: GPL-2.0

//! A SYN that offers SMC and is not answered.
//!
//! Firewalls drop segments for the SMC option (TCP option 254, RFC 6994), as they do for that of MPTCP. So a client
//! offers SMC for [`SYN_WAIT`] only, and then makes another attempt without. The present one is not continued: a SYN
//! that arrived may have been answered, and the server waits for a PROPOSAL then. (The C module goes on until TCP gives
//! the connection up.)
//!
//! The peer is remembered for a while if it answered the next SYN at once, so that other connections need not wait. If
//! the application gives an attempt up before, the next one is without the offer, and tells.

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
    net::{
        BeforeConnect,
        SockAddr, //
    },
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    handshake::paths::{
        Path,
        Verdict,
        SUSPICIOUS_WAIT,
        SYN_AVOIDS,
        SYN_WAIT, //
    },
    time::Instant, //
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
    #[pin]
    attempt: SpinLock<Option<Attempt>>,
}

/// An attempt to connect.
#[derive(Clone, Copy)]
struct Attempt {
    /// That of the address which connect(2) was given; `None` if TCP will not take it. A program of the cgroup may have
    /// it changed on the way to TCP.
    path: Option<Path>,
    /// When the SYN was sent; that without the offer, if it is the second one.
    sent: Instant,
    before: BeforeConnect,
}

impl SynWait {
    /// Nothing is waited for.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_spinlock!(None, "smc::SynWait::timer"),
            is_late: Atomic::new(false),
            attempt <- new_spinlock!(None, "smc::SynWait::attempt"),
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

/// An attempt begins. The caller holds `setup`.
/// Context: process.
pub(super) fn begin(this: &Sock, addr: SockAddr<'_>) {
    end_wait(this);
    this.syn_wait.is_late.store(false, Relaxed);
    *this.syn_wait.attempt.lock() = Some(Attempt {
        path: addr.inet().map(|peer| Path::of_syn(peer.ip)),
        sent: clock::now(),
        before: this.tcp.before_connect(),
    });
}

/// A second SYN is about to be sent, without the offer.
pub(super) fn note_reconnect(this: &Sock) {
    if let Some(attempt) = &mut *this.syn_wait.attempt.lock() {
        attempt.sent = clock::now();
    }
}

/// What TCP was before the attempt that is in progress.
pub(super) fn before(this: &Sock) -> BeforeConnect {
    let attempt = *this.syn_wait.attempt.lock();
    attempt.map_or_else(BeforeConnect::default, |attempt| attempt.before)
}

/// The application has set TCP_WINDOW_CLAMP. The caller holds `setup`.
pub(super) fn note_window_clamp(this: &Sock) {
    if let Some(attempt) = &mut *this.syn_wait.attempt.lock() {
        attempt.before.window_clamp = this.tcp.before_connect().window_clamp;
    }
}

/// Whether the attempt that begins is to be without SMC, as SYNs that offer it were not answered at that address a
/// while ago; if not, it is the one that tries it, perhaps. The caller holds `setup`.
/// Context: process.
pub(super) fn is_avoided(this: &Sock) -> bool {
    let attempt = *this.syn_wait.attempt.lock();
    let syns = &namespace::of(&this.sk).syns;
    attempt.is_some_and(|attempt| {
        let verdict = attempt.path.map(|path| syns.check(&path, attempt.sent));
        matches!(verdict, Some(Verdict::Avoided(_)))
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
    let Some((path, _)) = path(this) else {
        return;
    };
    let syns = &namespace::of(&this.sk).syns;
    match info {
        None => syns.worked(&path),
        // Not a peer that just did not answer for a while.
        Some(info) if is_unanswered(info) && is_first_syn_answered(this) => {
            match this.syn_wait.is_late.load(Relaxed) {
                true => syns.failed(&path, SYN_AVOIDS, clock::now()),
                false => syns.confirm(&path, SYN_AVOIDS, clock::now()),
            }
        }
        Some(_) => {}
    }
}

/// The attempt ends before there was an answer, as the application or TCP has given it up; `info` as for
/// [`note_answer`].
pub(super) fn note_no_answer(this: &Sock, info: Option<&FallbackInfo>) {
    let Some((path, sent)) = path(this) else {
        return;
    };
    let (now, syns) = (clock::now(), &namespace::of(&this.sk).syns);
    let is_late = this.syn_wait.is_late.load(Relaxed);
    let is_answer_due = now.saturating_since(sent) >= SUSPICIOUS_WAIT;
    match info {
        // Late is also one whose successor is about to be sent.
        None if is_answer_due || is_late => syns.suspect(&path, now),
        Some(info) if is_unanswered(info) && is_answer_due => syns.acquit(&path),
        // The one before had its time.
        Some(info) if is_unanswered(info) && is_late => syns.suspect(&path, now),
        _ => {}
    }
}

/// There is no host that could have answered; `info` as for [`note_answer`]. A SYN with the offer tells nothing then.
pub(super) fn note_no_host(this: &Sock, info: Option<&FallbackInfo>) {
    if let (Some((path, _)), true) = (path(this), info.is_some_and(is_unanswered)) {
        namespace::of(&this.sk).syns.acquit(&path);
    }
}

/// The path of the last attempt, and when its SYN was sent.
fn path(this: &Sock) -> Option<(Path, Instant)> {
    let attempt = (*this.syn_wait.attempt.lock())?;
    Some((attempt.path?, attempt.sent))
}

fn is_unanswered(info: &FallbackInfo) -> bool {
    info.cause == Some(Cause::SynUnanswered)
}

/// Whether the peer has answered the first SYN of the last attempt without SMC. A server that has that of the attempt
/// before, whose answer got lost, answers the second one if it comes from the same port.
fn is_first_syn_answered(this: &Sock) -> bool {
    let is_same_port = this.syn_wait.is_late.load(Relaxed) && before(this).is_bound;
    this.tcp.retransmitted() <= u32::from(is_same_port)
}
