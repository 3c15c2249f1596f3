// SPDX-License-Identifier: GPL-2.0

//! listen(2), and the connections that wait for accept(2).
//!
//! A connection whose peer does not speak SMC stays in TCP's queue until accept(2) takes it there, with no work in
//! between. If there are others, or many, the work of the listener takes connections from TCP as long as there is room
//! in the backlog, and the work of each of them runs its handshake. Finished connections wait for accept(2).
//! Connections beyond the backlog stay in TCP's queue, whose limit is lowered when it is full together with those that
//! wait here.
//!
//! Handshakes in progress do not count: silent peers must not fill the backlog. If there are very many of
//! them, further connections are not offered SMC.

use core::mem;

use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        List,
        ListArc,
        ListLinks, //
    },
    new_mutex,
    new_spinlock,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SpinLock, //
    }, //
};
use kernel_ext::{
    barrier::smp_mb,
    net::{
        Hook,
        Sk,
        TcpSocket,
        UnattachedSk,
        WaitEnd, //
    },
    prelude::*, //
};
use smc_proto::time::Duration;

use super::{
    accept_order::AcceptOrder,
    fallback,
    FallbackInfo,
    Phase,
    Sock,
    SockState, //
};
use crate::namespace;

/// Handshakes of one listener's connections at a time; further connections are TCP's alone.
pub(super) const MAX_HANDSHAKES: u32 = 1024;

/// A connection that waits for accept(2).
#[pin_data]
struct AcceptEntry {
    sock: Arc<Sock>,
    /// Grows in the order in which connections were taken from TCP.
    number: u64,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for AcceptEntry { untracked; }
}
impl_list_item! {
    impl ListItem<0> for AcceptEntry { using ListLinks { self.links }; }
}

/// A connection that was taken from TCP, and whose path is TCP.
pub(super) struct PlainChild {
    pub(super) unattached: UnattachedSk,
    pub(super) child: Arc<Sock>,
    pub(super) number: u64,
}

/// What a socket has while it listens.
#[pin_data]
pub(crate) struct Listener {
    sk: ARef<Sk>,
    /// The listening socket, until it stops to listen.
    #[pin]
    owner: SpinLock<Option<Arc<Sock>>>,
    /// Lock order: see `Documentation/locking.md`.
    #[pin]
    queue: SpinLock<List<AcceptEntry>>,
    #[pin]
    pub(super) order: AcceptOrder,
    /// Held while connections that accept(2) will not return are ended.
    #[pin]
    cleanup: Mutex<()>,
    /// Connections whose data are awaited (TCP_DEFER_ACCEPT).
    #[pin]
    deferred: Mutex<KVec<Arc<Sock>>>,
    /// Connections taken from TCP so far. Held while one is.
    #[pin]
    taken: Mutex<u64>,
    /// Connections in `queue`.
    ready: Atomic<u32>,
    /// Connections that the work has begun to take from TCP, and has done with.
    begun: Atomic<u32>,
    done: Atomic<u32>,
    backlog: Atomic<u32>,
    /// The work stopped, as the backlog was full.
    pub(super) is_work_stopped: Atomic<bool>,
    /// Why connections go over TCP without a handshake, if they do.
    pub(super) fallback: Option<FallbackInfo>,
}

impl Listener {
    fn new(sock: &Arc<Sock>, backlog: i32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                sk: sock.sk.clone(),
                fallback: sock.why(),
                owner <- new_spinlock!(Some(sock.clone()), "smc::Listener::owner"),
                queue <- new_spinlock!(List::new(), "smc::Listener::queue"),
                order <- AcceptOrder::new(),
                cleanup <- new_mutex!((), "smc::Listener::cleanup"),
                deferred <- new_mutex!(KVec::new(), "smc::Listener::deferred"),
                taken <- new_mutex!(0, "smc::Listener::taken"),
                ready: Atomic::new(0),
                begun: Atomic::new(0),
                done: Atomic::new(0),
                backlog: Atomic::new(u32::try_from(backlog).unwrap_or(0)),
                is_work_stopped: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Connections that wait for accept(2), besides those in TCP's queue.
    /// Context: any.
    pub(super) fn ready(&self) -> u32 {
        self.ready.load(Acquire)
    }

    /// The backlog as the application has set it: of TCP's own, it is what is left.
    /// Context: any.
    pub(super) fn backlog(&self) -> u32 {
        self.backlog.load(Relaxed)
    }

    /// The number of the connection that was taken from TCP last.
    /// Context: may sleep.
    pub(super) fn last_taken(&self) -> u64 {
        *self.taken.lock()
    }

    /// Takes a connection from TCP, and returns its number.
    pub(super) fn take(&self, this: &Sock) -> Result<(TcpSocket, u64)> {
        let mut taken = self.taken.lock();
        let tcp = this.tcp.accept()?;
        *taken += 1;
        limit_backlog(this);
        Ok((tcp, *taken))
    }

    /// Runs the part of the work that takes one connection from TCP and queues it.
    pub(super) fn while_taking<R>(&self, take: impl FnOnce() -> R) -> R {
        self.begun.fetch_add(1, Full);
        let result = take();
        self.done.fetch_add(1, Full);
        result
    }

    /// Whether the work takes no connection from TCP just now, after `begun` were begun.
    fn is_work_done(&self, begun: u32) -> bool {
        // Both wrap around; `done` may be past `begun` by now.
        begun.wrapping_sub(self.done.load(Acquire)).wrapping_sub(1) > u32::MAX / 2
    }

    /// Whether connections that were taken from TCP before may not have been returned by accept(2).
    pub(super) fn has_earlier(&self) -> bool {
        !self.is_work_done(self.begun.load(Acquire)) || self.ready() > 0
    }

    /// Waits for the connection that the work takes from TCP just now: poll(2) may have seen it there. Returns whether
    /// there is one for accept(2).
    /// Context: may sleep, but does not wait for a peer.
    pub(super) fn await_taken(&self) -> bool {
        let begun = self.begun.load(Acquire);
        let is_done = || self.is_work_done(begun);
        while !is_done() {
            if let Err(WaitEnd::Signal(_)) = self.sk.wait_until(1, false, is_done) {
                break;
            }
        }
        self.ready() > 0
    }

    /// Whether the backlog is full. As with TCP, it takes one connection more than listen(2) was given.
    pub(super) fn is_full(&self) -> bool {
        self.ready() > self.backlog()
    }

    /// Limits TCP's queue to the room that the backlog has left, and restarts the work if it stopped and there is room.
    fn adjust(&self) {
        // Closing the listener waits for work that was queued before the owner was taken out.
        if let Some(owner) = &*self.owner.lock() {
            owner.ready.store(self.ready(), Release);
            smp_mb(Full);
            limit_backlog(owner);
            if !self.is_full() && self.is_work_stopped.xchg(false, Full) {
                Sock::schedule_work(owner.as_arc_borrow());
            }
        }
    }

    /// A handshake is queued, or has ended: counts it for the socket, while that listens, and for its namespace.
    pub(super) fn count_handshake(&self, begins: bool) {
        let count = |of: &Atomic<u32>| match begins {
            true => of.fetch_add(1, Relaxed),
            false => of.fetch_sub(1, Relaxed),
        };
        count(&namespace::of(&self.sk).queues().workers.queued_handshakes);
        if let Some(owner) = &*self.owner.lock() {
            count(&owner.handshakes);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.owner.lock().is_some()
    }

    /// How long a connection waits for data before it is one for accept(2).
    pub(super) fn defer_time(&self) -> Duration {
        let owner = self.owner.lock();
        let seconds = owner
            .as_ref()
            .map(|owner| owner.defer_accept_s.load(Relaxed));
        Duration::from_secs(seconds.unwrap_or(0).into())
    }

    /// The data of a connection are awaited from now on; returns `false` without memory.
    /// Context: may sleep.
    pub(super) fn add_deferred(&self, child: &Arc<Sock>) -> bool {
        let mut deferred = self.deferred.lock();
        deferred.push(child.clone(), GFP_KERNEL).is_ok()
    }

    /// Undoes [`Self::add_deferred`]; returns false if the connection was ended with the listener in between.
    /// Context: may sleep.
    pub(super) fn remove_deferred(&self, child: &Arc<Sock>) -> bool {
        let mut deferred = self.deferred.lock();
        let before = deferred.len();
        deferred.retain(|one| !Arc::ptr_eq(one, child));
        deferred.len() < before
    }

    /// Queues an entry behind those that were taken from TCP before.
    fn push(&self, entry: ListArc<AcceptEntry>) {
        let mut queue = self.queue.lock();
        let mut at = queue.cursor_back();
        while at
            .peek_prev()
            .is_some_and(|before| before.number > entry.number)
        {
            at.move_prev();
        }
        at.insert(entry);
        drop(queue);
        self.ready.fetch_add(1, Full);
        self.adjust();
    }

    /// Queues a connection for accept(2), which was the `number`th to be taken from TCP.
    pub(super) fn accept_enqueue(&self, child: &Arc<Sock>, number: u64) {
        let entry = try_pin_init!(AcceptEntry {
            sock: child.clone(),
            number,
            links <- ListLinks::new(),
        });
        match ListArc::pin_init(entry, GFP_KERNEL) {
            Ok(entry) => {
                self.push(entry);
                self.sk.wake_readable();
                // The listener may have been closed in between.
                if !self.is_open() {
                    self.cleanup_listen();
                }
            }
            Err(_) => Sock::end(child.clone()),
        }
    }

    /// Queues a connection for accept(2) that goes over TCP.
    pub(super) fn enqueue_taken(&self, taken: PlainChild) {
        *taken.child.unaccepted.lock() = Some(taken.unattached);
        self.accept_enqueue(&taken.child, taken.number);
    }

    pub(super) fn pop(&self) -> Option<Arc<Sock>> {
        // What is pushed at the same time is counted later, and waiters are woken after that.
        if self.ready() == 0 {
            return None;
        }
        let entry = self.queue.lock().pop_front()?;
        self.ready.fetch_sub(1, Full);
        self.adjust();
        Some(entry.sock.clone())
    }

    /// The socket does not listen any more.
    /// Context: may sleep.
    pub(super) fn close(&self) {
        let owner = self.owner.lock().take();
        drop(owner);
        self.order.abort();
        let deferred = mem::take(&mut *self.deferred.lock());
        for child in deferred {
            // Its worker.
            child.sk.wake_state();
            Sock::end(child);
        }
        self.cleanup_listen();
    }

    /// Ends all connections that wait for accept(2), as it will not come. When this returns, those that others have
    /// begun to end meanwhile are ended, too.
    fn cleanup_listen(&self) {
        let _cleanup = self.cleanup.lock();
        while let Some(child) = self.pop() {
            Sock::end(child);
        }
    }
}

/// Limits TCP's queue to the room that the backlog of this listener has left; called whenever more or fewer connections
/// wait, there or here. TCP has the same limit for its requests, so it is not lowered while there is room, and then as
/// little as needed.
/// Context: any.
pub(super) fn limit_backlog(this: &Sock) {
    let numbers = || (this.ready.load(Acquire), this.tcp.pending());
    let mut now = numbers();
    loop {
        let (backlog, (ready, pending)) = (this.sk.max_backlog(), now);
        this.tcp
            .set_max_pending(match pending.saturating_add(ready) > backlog {
                true => pending.saturating_sub(1),
                false => backlog,
            });
        smp_mb(Full);
        match numbers() {
            later if later == now => return,
            later => now = later,
        }
    }
}

/// listen(2).
pub(super) fn listen(this: ArcBorrow<'_, Sock>, backlog: i32) -> Result {
    let _setup = this.setup.lock();
    if let Some(listener) = this.listener() {
        this.tcp.listen(backlog)?;
        listener
            .backlog
            .store(u32::try_from(backlog).unwrap_or(0), Relaxed);
        this.sk.set_max_backlog(u32::try_from(backlog).unwrap_or(0));
        listener.adjust();
        return Ok(());
    }
    match this.phase() {
        // One with a protocol on top of TCP cannot listen.
        Phase::Init | Phase::Fallback if this.tcp.state().is_closed() && !this.tcp.has_ulp() => {}
        _ => return Err(EINVAL),
    }
    start_listen(&this.into(), backlog)
}

fn start_listen(this: &Arc<Sock>, backlog: i32) -> Result {
    this.tcp.follow(&this.sk)?;
    if this.tcp.has_keys() {
        fallback::switch_to_fallback(this, &[Phase::Init], FallbackInfo::keys());
    }
    let listener = Listener::new(this, backlog)?;
    let offers_smc = listener.fallback.is_none();
    // The hook depends on it.
    this.tcp.set_syn_smc(offers_smc);
    // A connection's hook would be copied into every connection that comes.
    let mut hook = this.hook.lock();
    *hook = None;
    *hook = Some(Hook::listener(this.tcp.clone(), this.clone())?);
    drop(hook);
    this.handshakes.store(0, Relaxed);
    // accept(2) does not return errors of earlier connections.
    let before = this.sk.take_err();
    let old = this
        .transition(
            &[Phase::Init, Phase::Fallback],
            SockState::Listening(listener.clone()),
        )
        .map_err(|_| EINVAL)?;
    this.ready.store(0, Relaxed);
    this.sk.set_max_backlog(u32::try_from(backlog).unwrap_or(0));
    if let Err(e) = this.tcp.listen(backlog) {
        listener.close();
        this.tcp.set_syn_smc(false);
        let _ = this.transition(&[Phase::Listening], old);
        unhook(this);
        if let Err(e) = before {
            this.sk.note_err(e);
        }
        return Err(e);
    }
    Ok(())
}

/// The TCP socket has stopped to listen, since it was shut down.
pub(super) fn stop_listening(this: &Arc<Sock>) {
    let Some(listener) = this.listener() else {
        return;
    };
    let next = listener
        .fallback
        .map_or(SockState::Init, SockState::Fallback);
    if this.transition(&[Phase::Listening], next).is_ok() {
        listener.close();
        unhook(this);
        this.sk.wake_state();
    }
}

/// Exchanges the hook of a listener for the one of a connection, or none, as the socket is now.
/// Context: may sleep.
fn unhook(this: &Arc<Sock>) {
    *this.hook.lock() = None;
    if this.phase() == Phase::Fallback {
        if Sock::hook_connection(this).is_err() {
            // Something else in the kernel has its events, which would be lost here.
            this.sk.set_err(EBUSY);
        }
        fallback::share_waiters(this);
    }
}
