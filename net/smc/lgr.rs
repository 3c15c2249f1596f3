// SPDX-License-Identifier: GPL-2.0

//! Link groups: the links with one peer in one role, and all connections that share them (RFC 7609 section 2.2).
//!
//! A group is found or created in the handshake, and lives while connections use it and for a while after. It does not
//! depend on the type of connections: their events go through [`LgrConn`].

mod conn_table;
mod echo;
mod life;
mod links;
mod llc_state;
mod params;
mod rkey_turn;
mod view;

use kernel::{
    impl_has_work,
    new_condvar,
    new_work,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar, //
    },
    workqueue::Work, //
};
use kernel_ext::{
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    conn::Cdc,
    id::AlertToken,
    lgr::{
        rtoken::{
            Rtoken,
            RtokenEntry,
            RtokenIdx,
            Rtokens,
            MAX_ROWS, //
        },
        token,
        LgrType,
        LinkIdx,
        TerminateReason, //
    },
    time::{
        Duration,
        Instant, //
    },
    wire::immediate::Immediate, //
};

use crate::{
    link::Link,
    rmb::{
        Announcing,
        RmbPool,
        SendPool, //
    }, //
};
use conn_table::ConnTable;
pub(crate) use conn_table::{
    ConnReservation,
    LgrConn, //
};
use echo::Echoes;
pub(crate) use links::LinkRef;
use links::Links;
pub(crate) use llc_state::LlcState;
pub(crate) use params::{
    LgrParams,
    LgrTimeouts, //
};
use rkey_turn::RkeyTurns;
pub(crate) use view::PeerSystem;

/// Schedules work and timers of link groups. Implemented by the list of groups, which is above this module. No method
/// sleeps.
pub(crate) trait LgrScheduler: Sync {
    /// Schedules [`LinkGroup::terminate`], or [`LinkGroup::free_unused_rmbs`] if the group does not end (C function
    /// `smc_lgr_schedule_free_work`).
    fn schedule_free_work(&self, group: Arc<LinkGroup>);
    /// Schedules the work that takes from [`LinkGroup::next_link_work`].
    fn schedule_link_work(&self, group: Arc<LinkGroup>);
    /// Calls [`LinkGroup::run_timer_if_due`] within `delay`.
    fn arm_timer(&self, delay: Duration);
}

/// State guarded by the spinlock of a group: its connections, the peer's RMBs, and the LLC state.
struct LgrInner {
    conns: ConnTable,
    /// In one piece only if memory is not fragmented: 42 KiB.
    rtokens: KVVec<RtokenEntry>,
    /// Why the group is terminated, if it is.
    end: Option<TerminateReason>,
    /// When to free unused RMBs.
    free_rmbs_at: Option<Instant>,
    /// When the next timer of a connection is due ([`LgrConn::on_timer`]).
    conn_timer_at: Option<Instant>,
    echoes: Echoes,
    llc: LlcState,
    peer: PeerSystem,
}

/// A link group.
#[pin_data]
pub(crate) struct LinkGroup {
    pub(crate) id: u32,
    pub(crate) params: LgrParams,
    #[pin]
    links: Links,
    #[pin]
    pub(crate) rmbs: RmbPool,
    /// Whether keys of an RMB are being announced for a connection that has another RMBE already.
    pub(crate) announcing: Announcing,
    #[pin]
    pub(crate) sndbufs: SendPool,
    #[pin]
    inner: SpinLockBh<LgrInner>,
    /// Threads that wait for the end of an LLC flow.
    #[pin]
    llc_waiters: CondVar,
    /// Serializes exchanges of RKeys.
    #[pin]
    pub(crate) rkey_turns: RkeyTurns,
    scheduler: &'static dyn LgrScheduler,
    /// The type that was logged last, as its number.
    logged_type: Atomic<u32>,
    /// When the timer of the group is due, in ns.
    due: Atomic<u64>,
    #[pin]
    work: Work<LinkGroup>,
    #[pin]
    link_work: Work<LinkGroup, LINK_WORK>,
}

impl_has_work! {
    impl HasWork<Self> for LinkGroup { self.work }
    impl HasWork<Self, LINK_WORK> for LinkGroup { self.link_work }
}

/// The id of the work item that processes [`LinkGroup::next_link_work`].
pub(crate) const LINK_WORK: u64 = 1;

/// The last alert token assigned; one counter for all groups.
static LAST_TOKEN: Atomic<u32> = Atomic::new(0);

impl LinkGroup {
    /// Creates a group with its first link.
    pub(crate) fn new(
        id: u32,
        params: LgrParams,
        link: Arc<Link>,
        scheduler: &'static dyn LgrScheduler,
    ) -> Result<Arc<Self>> {
        let conns = ConnTable::new(params.role, params.limits)?;
        let echoes = Echoes::new(conns.limit())?;
        let rtokens = KVVec::from_elem(RtokenEntry::EMPTY, MAX_ROWS, GFP_KERNEL)?;
        // Initialized in place: too large for the stack of a handshake.
        let inner = init!(LgrInner {
            conns,
            rtokens,
            end: None,
            free_rmbs_at: None,
            conn_timer_at: None,
            echoes,
            llc: LlcState::new(&params),
            peer: PeerSystem::UNKNOWN,
        });
        Arc::pin_init(
            pin_init!(Self {
                id,
                params,
                rmbs <- RmbPool::new(usize::from(params.limits.max_conns), params.buf_type),
                announcing: Announcing::new(),
                sndbufs <- SendPool::new(params.buf_type),
                links <- Links::new(link),
                inner <- new_spinlock_bh!(inner, "smc::LinkGroup::inner"),
                llc_waiters <- new_condvar!("smc::LinkGroup::llc_waiters"),
                rkey_turns <- RkeyTurns::new(),
                scheduler,
                logged_type: Atomic::new(LgrType::None.code().into()),
                due: Atomic::new(life::NEVER),
                work <- new_work!("smc::LinkGroup::work"),
                link_work <- new_work!("smc::LinkGroup::link_work"),
            }? Error),
            GFP_KERNEL,
        )
    }

    // --- Connections.

    /// Chooses the alert token of a new connection.
    pub(crate) fn next_token(&self) -> Result<AlertToken> {
        let inner = self.inner.lock();
        loop {
            let last = LAST_TOKEN.load(Relaxed);
            let next = token::next(AlertToken(last), |t| inner.conns.has_short(t)).ok_or(ENOSPC)?;
            if LAST_TOKEN.cmpxchg(last, next.0, Relaxed).is_ok() {
                return Ok(next);
            }
        }
    }

    /// Removes a connection; a second call does nothing.
    /// Context: does not sleep.
    pub(crate) fn leave(&self, token: AlertToken) {
        let mut inner = self.inner.lock();
        let node = inner.conns.remove(token);
        inner.echoes.forget(token);
        drop(inner);
        // The last reference may be dropped with the node: not under the lock.
        drop(node);
        self.note_rmbe_released();
        self.arm_idle_timer();
    }

    /// Returns the number of connections and reservations.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().conns.len()
    }

    /// Delivers a CDC message, received on link `idx`, to the connection with that alert token.
    /// Context: does not sleep.
    pub(crate) fn on_cdc(&self, idx: LinkIdx, token: AlertToken, cdc: &Cdc) {
        let member = self.inner.lock().conns.find(token);
        if let Some(member) = member {
            member.on_cdc(idx, cdc);
        }
    }

    /// Delivers immediate data of a write of `len` bytes, received on link `idx`, to the connection that they name.
    /// Those of a peer that has not agreed to that format mean something else (RFC 7609 appendix A.2.3), and a CDC
    /// message follows.
    /// Context: does not sleep.
    pub(crate) fn on_immediate(&self, idx: LinkIdx, immediate: Immediate, len: u32) {
        let inner = self.inner.lock();
        let is_agreed = inner.peer.takes_immediate;
        let member = inner
            .conns
            .find_short(immediate.token)
            .filter(|_| is_agreed);
        drop(inner);
        if let Some(member) = member {
            member.on_immediate(idx, immediate.seq, len);
        }
    }

    // --- Send slots.

    /// Puts a connection into the queue for a send slot of link `idx`.
    pub(crate) fn wait_for_slot(&self, token: AlertToken, idx: LinkIdx) {
        let mut inner = self.inner.lock();
        inner.conns.wait(token, idx);
        if let Some(link) = self.link(idx) {
            link.request_slot_wakeup(true);
        }
    }

    /// Takes a connection out of the queue for a send slot.
    pub(crate) fn stop_waiting(&self, token: AlertToken) {
        self.inner.lock().conns.stop_waiting(token);
    }

    /// Lets connections send, longest waiting first, while link `idx` has free send slots.
    /// Context: does not sleep.
    pub(crate) fn on_free_slot(&self, idx: LinkIdx) {
        let Some(link) = self.link(idx) else {
            return;
        };
        loop {
            let mut inner = self.inner.lock();
            if !inner.conns.has_waiters_for(idx) {
                // The end of the group waits until all slots are free.
                link.request_slot_wakeup(inner.conns.is_closed());
                break;
            }
            // One check suffices: a connection that gets no slot after this has queued itself before its last try, and
            // the slot that was missing is reported here.
            if !link.has_slot() {
                break;
            }
            let member = inner.conns.next_waiter(idx);
            drop(inner);
            // A connection with nothing left to send leaves the slot to the next.
            if let Some(member) = member {
                member.on_slot();
            }
        }
        let inner = self.inner.lock();
        if inner.conns.is_closed() {
            // A thread may wait until the last message is sent.
            drop(inner);
            self.llc_waiters.notify_all();
        }
    }

    // --- The peer's RMBs.

    /// Runs `f` on the table of RTokens with the lock held.
    pub(crate) fn with_rtokens<R>(&self, f: impl FnOnce(&mut Rtokens<'_>) -> R) -> R {
        let mut inner = self.inner.lock();
        f(&mut Rtokens::new(&mut inner.rtokens))
    }

    /// Returns the RToken of the peer's RMB in `row` for link `idx`.
    pub(crate) fn rtoken(&self, row: RtokenIdx, idx: LinkIdx) -> Option<Rtoken> {
        self.with_rtokens(|rtokens| rtokens.get(row, idx))
    }
}
