// SPDX-License-Identifier: GPL-2.0

//! The socket that an application holds.
//!
//! Every socket has a TCP socket below it, which gives it its addresses and carries the handshake.
//! What happens to the socket is a change of its [`SockState`]; in most states TCP answers the calls, so
//! that an application cannot tell the difference. Files, wait queues and the `struct socket` stay
//! what they are for the life of the socket: after a fallback calls are delegated to TCP, which wakes
//! those who wait for the application's socket (C swaps the file's socket instead).

mod accept;
mod accept_order;
mod active;
mod connect;
mod crossed_decline;
mod defer;
mod fallback;
mod list;
mod listen;
mod ops;
mod options;
mod shared;
mod shutdown;
mod syn;
mod uaccess;

use kernel::{
    impl_has_work,
    new_mutex,
    new_spinlock,
    new_work,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        hrtimer::HrTimer,
        Delta, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    net::{
        AcceptQueue,
        FamilyRegistration,
        Hook,
        InetRegistration,
        IpVersion,
        PerNetRegistration,
        RequestEnds,
        Sk,
        TcpEvents,
        TcpSocket,
        UnattachedSk, //
    },
    prelude::*,
    read_once::ReadOnce,
    uapi::{
        SMC_ROLE_CLIENT,
        SMC_ROLE_SERVER, //
    },
    workqueue, //
};
use smc_proto::{
    conn::ConnState,
    lgr::Role,
    policy::Ends, //
};

use crate::{
    carrier::Carrier,
    handshake::FallbackInfo,
    namespace,
    policy, //
};
use accept_order::Arriving;
use crossed_decline::CrossedDecline;
pub(crate) use fallback::awaits_tcp;
pub(crate) use list::list;
use listen::Listener;
use shared::Shared;
use syn::SynWait;

/// What a socket is doing.
pub(crate) enum SockState {
    /// New, or a connect has failed. TCP answers.
    Init,
    /// TCP connects, or the handshake runs. The work of the socket ends this. There is no handshake if it is known why
    /// the connection goes over TCP.
    Connecting(Option<FallbackInfo>),
    /// Waits for connections.
    Listening(Arc<Listener>),
    /// Connected by SMC.
    Active(Carrier),
    /// TCP answers, for good.
    Fallback(FallbackInfo),
    /// The application has closed the socket.
    Closed,
}

/// The [`SockState`] without what belongs to it, for readers that may not take its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    Init,
    Connecting,
    Listening,
    Active,
    Fallback,
    Closed,
}

impl SockState {
    fn phase(&self) -> Phase {
        match self {
            Self::Init => Phase::Init,
            Self::Connecting(_) => Phase::Connecting,
            Self::Listening(_) => Phase::Listening,
            Self::Active(_) => Phase::Active,
            Self::Fallback(_) => Phase::Fallback,
            Self::Closed => Phase::Closed,
        }
    }

    /// The state's number for user space; `None` if the connection has its own.
    fn number(&self) -> Option<ConnState> {
        match self {
            Self::Init | Self::Connecting(_) => Some(ConnState::Init),
            Self::Listening(_) => Some(ConnState::Listen),
            Self::Fallback(_) => Some(ConnState::Active),
            Self::Closed => Some(ConnState::Closed),
            Self::Active(_) => None,
        }
    }
}

/// A socket.
#[pin_data]
pub(crate) struct Sock {
    /// Grows from socket to socket.
    serial: u64,
    pub(crate) sk: ARef<Sk>,
    pub(crate) version: IpVersion,
    pub(crate) tcp: Arc<TcpSocket>,
    pub(crate) role: Role,
    shared: Shared,
    /// The listener that the connection came to, until its handshake is done.
    #[pin]
    parent: SpinLock<Option<(Arc<Listener>, Arc<Arriving>)>>,
    /// What accept(2) gives to the application, until then.
    #[pin]
    unaccepted: SpinLock<Option<UnattachedSk>>,
    /// Lock order: see `Documentation/locking.md`.
    #[pin]
    state: SpinLock<SockState>,
    /// Written with `state`; read where its lock may not be taken.
    phase: Atomic<u32>,
    /// The first connection by SMC, for calls that then need neither the lock nor a reference of their own.
    first: SetOnce<Carrier>,
    /// The application undid a connection by SMC: there may be another one.
    was_disconnected: Atomic<bool>,
    /// Counts attempts to connect, for work that is late.
    attempts: Atomic<u32>,
    /// The number of the attempt whose connection the application has shut down for both directions; 0 for none.
    ended_attempt: Atomic<u32>,
    /// connect(2) has not returned the result of the last attempt yet.
    connect_result_pending: Atomic<bool>,
    /// Directions that the application has shut down, as bits of `sk_shutdown`: of what comes of the handshake, which
    /// needs TCP both ways until then.
    late_shutdown: Atomic<u32>,
    /// SMC_LIMIT_HS: take on no more handshakes than can be worked on at once.
    limit_hs: Atomic<bool>,
    /// Handshakes in progress, of connections to this listener.
    handshakes: Atomic<u32>,
    /// Connections to this listener that wait for accept(2), but for those in TCP's queue.
    ready: Atomic<u32>,
    /// TCP_DEFER_ACCEPT: how long a connection waits for data before it is one for accept(2), in seconds.
    defer_accept_s: Atomic<u32>,
    /// The pending error is TCP's as well, whose connection goes on: see [`fallback::settle_err`].
    is_err_shared: Atomic<bool>,
    /// The code of the reason of a fallback before there was a connection, until there is one; 0 for none.
    uncounted: Atomic<u32>,
    /// A call of the application may have kept the work from TCP's lock: see [`uaccess::resume_work`].
    is_work_kept_out: Atomic<bool>,
    /// When a connection that is in use sends a pure ACK over TCP, in jiffies; 0 before the first use.
    pure_ack_due: Atomic<usize>,
    /// Something else in the kernel has the events of the TCP socket, such as a BPF program's socket map.
    is_unhooked: Atomic<bool>,
    /// One call at a time changes what the socket is.
    #[pin]
    setup: Mutex<()>,
    /// Tells us of TCP's events. It holds a reference of the socket, so it is taken out at the end.
    #[pin]
    hook: Mutex<Option<Hook<Sock>>>,
    #[pin]
    crossed_decline: CrossedDecline,
    /// Ends an attempt that offers SMC and is not answered: see [`syn`].
    #[pin]
    syn_timer: HrTimer<Self>,
    #[pin]
    syn_wait: SynWait,
    #[pin]
    work: Work<Sock>,
}

impl_has_work! {
    impl HasWork<Self> for Sock { self.work }
}

impl Sock {
    /// A socket on `tcp`. With the role of a server it is for a connection to a listener.
    fn new(
        sk: ARef<Sk>,
        shared: Shared,
        version: IpVersion,
        tcp: TcpSocket,
        role: Role,
    ) -> Result<Arc<Self>> {
        let tcp = Arc::new(tcp, GFP_KERNEL_ACCOUNT)?;
        let limit_hs = shared.config.limits_handshakes();
        sk.set_state(ConnState::Init.number());
        let this = Arc::pin_init(
            pin_init!(Self {
                serial: list::next_serial(),
                sk,
                version,
                tcp,
                role,
                shared,
                parent <- new_spinlock!(None, "smc::Sock::parent"),
                unaccepted <- new_spinlock!(None, "smc::Sock::unaccepted"),
                state <- new_spinlock!(SockState::Init, "smc::Sock::state"),
                phase: Atomic::new(Phase::Init as u32),
                first: SetOnce::new(),
                was_disconnected: Atomic::new(false),
                attempts: Atomic::new(0),
                ended_attempt: Atomic::new(0),
                connect_result_pending: Atomic::new(false),
                late_shutdown: Atomic::new(0),
                limit_hs: Atomic::new(limit_hs),
                handshakes: Atomic::new(0),
                ready: Atomic::new(0),
                defer_accept_s: Atomic::new(0),
                is_err_shared: Atomic::new(false),
                uncounted: Atomic::new(0),
                is_work_kept_out: Atomic::new(false),
                pure_ack_due: Atomic::new(0),
                is_unhooked: Atomic::new(false),
                setup <- new_mutex!((), "smc::Sock::setup"),
                hook <- new_mutex!(None, "smc::Sock::hook"),
                crossed_decline <- CrossedDecline::new(),
                syn_timer <- HrTimer::new(),
                syn_wait <- SynWait::new(),
                work <- new_work!("smc::Sock::work"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        this.shared.sockets.add(&this)?;
        Ok(this)
    }

    /// A number that grows from socket to socket.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The side of its connection that the socket is on, for user space (`SMC_ROLE_*`).
    pub(crate) fn uapi_role(&self) -> u32 {
        match self.role {
            Role::Client => SMC_ROLE_CLIENT,
            Role::Server => SMC_ROLE_SERVER,
        }
    }

    /// What the socket is doing.
    /// Context: any; it may have changed when this returns.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.read_acquire() {
            0 => Phase::Init,
            1 => Phase::Connecting,
            2 => Phase::Listening,
            3 => Phase::Active,
            4 => Phase::Fallback,
            _ => Phase::Closed,
        }
    }

    /// Goes from one of the phases `from` to `to` and returns what was before, or `to` if the socket
    /// is in another phase.
    fn transition(&self, from: &[Phase], to: SockState) -> Result<SockState, SockState> {
        self.transition_if(|phase| from.contains(&phase), to)
    }

    /// Whether the last attempt to connect is the one with this number.
    fn is_attempt(&self, number: u32) -> bool {
        self.attempts.read_acquire() == number
    }

    /// Ends the attempt to connect with this number, if it is the one that there is.
    fn end_attempt(&self, number: u32) -> Result<SockState, SockState> {
        let is_it = |phase| phase == Phase::Connecting && self.is_attempt(number);
        self.transition_if(is_it, SockState::Init)
    }

    /// Goes to `to` from a phase for which `may` holds, and returns what was before, or `to` otherwise.
    fn transition_if(
        &self,
        may: impl FnOnce(Phase) -> bool,
        to: SockState,
    ) -> Result<SockState, SockState> {
        let mut state = self.state.lock();
        if !may(state.phase()) {
            drop(state);
            return Err(to);
        }
        if let Some(number) = to.number() {
            self.sk.set_state(number.number());
        }
        self.phase.store(to.phase() as u32, Release);
        let old = core::mem::replace(&mut *state, to);
        drop(state);
        Ok(old)
    }

    /// The connection by SMC, if there is one.
    pub(crate) fn conn(&self) -> Option<Carrier> {
        // Most sockets that are asked have none, which takes no lock.
        if self.phase() != Phase::Active {
            return None;
        }
        match &*self.state.lock() {
            SockState::Active(conn) => Some(conn.clone()),
            _ => None,
        }
    }

    /// As [`Self::conn`], without the lock; `None` as well for a connection that is not the socket's first.
    fn first_conn(&self) -> Option<&Carrier> {
        // Whoever makes another connection, or knows of it, sees the mark, which was set before.
        let is_it = !self.was_disconnected.read_once();
        self.first.as_ref().filter(|_| is_it)
    }

    /// Why the connection goes over TCP, or those of a listener do, if so it is.
    pub(crate) fn why(&self) -> Option<FallbackInfo> {
        match &*self.state.lock() {
            SockState::Fallback(info) => Some(*info),
            SockState::Listening(listener) => listener.fallback,
            _ => None,
        }
    }

    /// Why an attempt to connect is without SMC, if it is.
    fn without_smc(&self) -> Option<FallbackInfo> {
        match &*self.state.lock() {
            SockState::Connecting(info) => *info,
            _ => None,
        }
    }

    /// Has SO_INCOMING_CPU and SO_INCOMING_NAPI_ID, which the kernel reads from the application's socket, be those of
    /// TCP as they are now.
    #[inline]
    fn show_incoming(&self) {
        self.sk.show_incoming(&self.tcp);
    }

    fn listener(&self) -> Option<Arc<Listener>> {
        self.with_listener(Arc::clone)
    }

    /// What `f` says of the listener; `None` if the socket does not listen. `f` must not sleep.
    fn with_listener<R>(&self, f: impl FnOnce(&Arc<Listener>) -> R) -> Option<R> {
        match &*self.state.lock() {
            SockState::Listening(listener) => Some(f(listener)),
            _ => None,
        }
    }

    /// Queues the work of the socket, again if it runs now.
    /// Context: any.
    fn schedule_work(this: ArcBorrow<'_, Self>) {
        let sock: Arc<Self> = this.into();
        let namespace = namespace::of(&this.sk);
        let queues = namespace.queues();
        // Work that waits for a peer delays work of its own kind only.
        let queue = match this.phase() {
            Phase::Closed => return,
            Phase::Listening => &queues.listeners,
            Phase::Connecting => &queues.workers.connects,
            Phase::Active => &queues.events,
            Phase::Init | Phase::Fallback => &queues.workers.handshakes,
        };
        // If the work is queued already it will find what has happened.
        let _ = queue.enqueue::<Arc<Self>, 0>(sock);
    }

    /// Queues the work again, in a moment: it is the turn of others while a call keeps this one from going on.
    /// Context: may sleep, in the work.
    fn yield_work(this: &Arc<Self>) {
        fsleep(Delta::from_millis(2));
        Self::schedule_work(this.as_arc_borrow());
    }

    /// Hooks the events of the TCP connection, unless the socket has ended.
    fn hook_connection(this: &Arc<Self>) -> Result {
        let mut hook = this.hook.lock();
        // The end changes the phase first and then takes the hook out.
        if hook.is_none() && this.phase() != Phase::Closed {
            *hook = Some(Hook::connection(this.tcp.clone(), this.clone())?);
        }
        Ok(())
    }

    /// Whether it is a listener's connection that accept(2) has not returned yet.
    fn is_unaccepted(&self) -> bool {
        self.role == Role::Server && self.unaccepted.lock().is_some()
    }

    /// Ends the socket: the application has closed it, or will never accept it.
    /// Context: may sleep.
    fn end(this: Arc<Self>) {
        let old = this.transition(
            &[
                Phase::Init,
                Phase::Connecting,
                Phase::Listening,
                Phase::Active,
                Phase::Fallback,
            ],
            SockState::Closed,
        );
        this.shared.sockets.remove(&this);
        // TCP's events are not needed from now on.
        let hook = this.hook.lock().take();
        drop(hook);
        syn::end_wait(&this);
        match old {
            Ok(SockState::Connecting(without_smc)) => connect::close(&this, without_smc.as_ref()),
            Ok(SockState::Listening(listener)) => {
                listener.close();
                // The port is to be free when close(2) returns, so the socket's work may not hold it. What runs ends
                // soon now, as nobody makes calls on the socket any more; what waits for others' work need not run.
                workqueue::cancel_work::<Self, 0>(&this);
            }
            Ok(SockState::Active(conn)) => active::close(&this, &conn),
            Ok(SockState::Fallback(_)) if this.is_unaccepted() => this.tcp.abort(ECONNABORTED),
            Ok(SockState::Fallback(_)) => {
                // What is left unread makes a close a reset.
                this.is_decline_settled();
                fallback::close(&this);
            }
            _ => {}
        }
        // A list of sockets that is being made may hold a reference for a while.
        this.tcp.give_up_port();
        // Whatever the connection does from now on, the socket is no part of it.
        this.sk.set_state(ConnState::Closed.number());
    }
}

impl WorkItem for Sock {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        match this.phase() {
            Phase::Connecting => connect::connect_work(&this),
            Phase::Listening => accept::tcp_listen_work(&this),
            Phase::Init => accept::listen_work(&this),
            Phase::Active => active::on_tcp_event(&this),
            Phase::Fallback => fallback::work(&this),
            Phase::Closed => {}
        }
    }
}

/// All of this may run in softirq context.
impl TcpEvents for Sock {
    fn on_connection(this: ArcBorrow<'_, Self>, queue: AcceptQueue) {
        if this.phase() != Phase::Listening {
            return;
        }
        listen::limit_backlog(&this);
        match queue {
            AcceptQueue::Empty => {}
            // TCP is just waking the others.
            AcceptQueue::WithoutSmc if this.tcp.has_shared_waiters() => this.sk.wake_callers(),
            AcceptQueue::WithoutSmc => this.sk.wake_readable(),
            AcceptQueue::Mixed => Self::schedule_work(this),
        }
    }

    fn on_listener_end(this: ArcBorrow<'_, Self>) {
        // If it is not listen(2) that begins, or shutdown(2) that ends it.
        if this.phase() == Phase::Listening {
            Self::schedule_work(this);
        }
    }

    fn on_readable(this: ArcBorrow<'_, Self>) {
        match this.phase() {
            Phase::Fallback => {
                if this.crossed_decline.is_awaited() {
                    Self::schedule_work(this);
                }
                if !this.tcp.has_shared_waiters() {
                    this.sk.wake_readable();
                }
            }
            // A peer that uses SMC sends no data here.
            Phase::Active if this.tcp.state().may_receive() => Self::schedule_work(this),
            _ => {}
        }
    }

    fn on_state_change(this: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result) {
        match this.phase() {
            Phase::Connecting if !this.tcp.state().is_connecting() => Self::schedule_work(this),
            Phase::Fallback => fallback::on_state_change(&this, take),
            _ => {}
        }
    }

    fn on_writable(this: ArcBorrow<'_, Self>) {
        if this.phase() == Phase::Fallback {
            // TCP has raised SO_SNDBUF, if it was what the sender waited for.
            fallback::show_options(&this);
            if !this.tcp.has_shared_waiters() {
                this.sk.wake_requested();
            }
        }
    }

    fn on_error(this: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result) {
        match this.phase() {
            Phase::Connecting | Phase::Active => Self::schedule_work(this),
            Phase::Fallback => {
                fallback::show_err(&this, take);
                // Else TCP itself wakes them next.
                if !this.tcp.has_shared_waiters() {
                    this.sk.wake_err();
                }
            }
            _ => {}
        }
    }

    fn refuses_smc(this: ArcBorrow<'_, Self>, request: &RequestEnds) -> bool {
        let namespace = namespace::of(&this.sk);
        let workers = &namespace.queues().workers;
        // Those to come count, too, as clients can hold their last ACK back until there are many.
        let coming = this.tcp.requests().saturating_add(this.tcp.pending());
        this.handshakes.load(Relaxed).saturating_add(coming) >= listen::MAX_HANDSHAKES
            || (this.limit_hs.load(Relaxed) && workers.is_congested())
            || workers.refuses_handshakes()
            || namespace.policy.denies(Role::Server, || Ends {
                local: policy::end(Some(request.local)),
                peer: policy::end(request.peer),
            })
    }
}

/// `O_NONBLOCK` among the flags of a file.
// CAST: a small number.
const O_NONBLOCK: i32 = kernel::fs::file::flags::O_NONBLOCK as i32;

/// The registered family. Sockets can be made while it lives; when it is dropped there are none, and
/// their last work has ended.
pub(crate) struct SmcFamily {
    _inet: InetRegistration<Sock>,
    _family: FamilyRegistration<Sock>,
    _list: PerNetRegistration<list::Sockets>,
}

impl SmcFamily {
    /// Registers the family.
    pub(crate) fn new() -> Result<Self> {
        let list = PerNetRegistration::new()?;
        let family = FamilyRegistration::new()?;
        Ok(Self {
            _inet: InetRegistration::new()?,
            _family: family,
            _list: list,
        })
    }
}
