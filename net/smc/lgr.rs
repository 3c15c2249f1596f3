// SPDX-License-Identifier: GPL-2.0

//! Link groups: two machines, one role, the links between them, and all connections that share them
//! (RFC 7609 section 2.2).
//!
//! A group is found or made in the handshake, and lives while connections use it and for a while
//! after. It never names a connection's type: what arrives for one goes through [`LgrConn`].

mod conn_table;
mod echo;
mod life;
mod links;
mod llc_state;
mod params;
mod view;

use kernel::{
    impl_has_work,
    new_condvar,
    new_mutex,
    new_spinlock,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex,
        SpinLock, //
    },
    workqueue::Work, //
};
use smc_proto::{
    conn::Cdc,
    id::AlertToken,
    lgr::{
        rtoken::{
            Row,
            RowId,
            Rtoken,
            Rtokens,
            MAX_ROWS, //
        },
        token,
        End, //
    },
    time::{
        Duration,
        Instant, //
    },
};

use crate::{
    clock::now,
    link::Link,
    rmb::{
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
use links::Links;
pub(crate) use links::{
    LinkRef,
    FRESH, //
};
pub(crate) use llc_state::LlcState;
pub(crate) use params::{
    LgrParams,
    Times, //
};
pub(crate) use view::System;

/// Schedules work and timers of link groups. Implemented by the list of groups, which is above this module. No method
/// sleeps.
pub(crate) trait LgrScheduler: Sync {
    /// Schedules [`LinkGroup::terminate`], or [`LinkGroup::trim`] if the group does not end (C function
    /// `smc_lgr_schedule_free_work`).
    fn schedule_free_work(&self, group: Arc<LinkGroup>);
    /// Schedules the work that takes from [`LinkGroup::next_link_work`].
    fn schedule_link_work(&self, group: Arc<LinkGroup>);
    /// Has [`LinkGroup::run_timer_if_due`] called in `delay` at the latest.
    fn arm_timer(&self, delay: Duration);
}

/// What the spinlock of a group guards: its connections, the peer's RMBs, and the LLC state.
struct Table {
    conns: ConnTable,
    rtokens: KVec<Row>,
    /// Why the group is terminated, once it is.
    end: Option<End>,
    /// When to look for unused RMBs.
    trim_at: Option<Instant>,
    /// When the next timer of an orphan, or of a connection that waits for data after the peer's close, is due.
    closing_at: Option<Instant>,
    echoes: Echoes,
    llc: LlcState,
    peer: System,
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
    #[pin]
    pub(crate) sndbufs: SendPool,
    #[pin]
    table: SpinLock<Table>,
    /// Threads that wait for the end of an LLC flow.
    #[pin]
    llc_waiters: CondVar,
    /// One exchange of remote keys at a time.
    #[pin]
    pub(crate) flow: Mutex<()>,
    scheduler: &'static dyn LgrScheduler,
    /// When the timer of the group is due, ns.
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

/// The id of the work item that runs [`LinkGroup::next_link_work`].
pub(crate) const LINK_WORK: u64 = 1;

/// The slot of the first link.
pub(crate) const FIRST: usize = 0;

/// The last token given out; one counter for all groups.
static LAST_TOKEN: Atomic<u32> = Atomic::new(0);

impl LinkGroup {
    /// A group around its first link.
    pub(crate) fn new(
        id: u32,
        params: LgrParams,
        link: Arc<Link>,
        scheduler: &'static dyn LgrScheduler,
    ) -> Result<Arc<Self>> {
        let conns = ConnTable::new(params.role, params.limits)?;
        let echoes = Echoes::new(conns.limit())?;
        let rtokens = KVec::from_elem(Row::EMPTY, MAX_ROWS, GFP_KERNEL)?;
        // Made where it stays: it is too large to be on the stack of a handshake.
        let table = init!(Table {
            conns,
            rtokens,
            end: None,
            trim_at: None,
            closing_at: None,
            echoes,
            llc: LlcState::new(&params),
            peer: System::UNKNOWN,
        });
        Arc::pin_init(
            pin_init!(Self {
                id,
                params,
                rmbs <- RmbPool::new(usize::from(params.limits.max_conns)),
                sndbufs <- SendPool::new(),
                links <- Links::new(link),
                table <- new_spinlock!(table, "smc::LinkGroup::table"),
                llc_waiters <- new_condvar!("smc::LinkGroup::llc_waiters"),
                flow <- new_mutex!((), "smc::LinkGroup::flow"),
                scheduler,
                due: Atomic::new(life::NEVER),
                work <- new_work!("smc::LinkGroup::work"),
                link_work <- new_work!("smc::LinkGroup::link_work"),
            }? Error),
            GFP_KERNEL,
        )
    }

    // --- Connections.

    /// Chooses the token of a new connection.
    pub(crate) fn next_token(&self) -> Result<AlertToken> {
        let table = self.table.lock();
        loop {
            let last = LAST_TOKEN.load(Relaxed);
            let next = token::next(AlertToken(last), |t| table.conns.has(t)).ok_or(ENOSPC)?;
            if LAST_TOKEN.cmpxchg(last, next.0, Relaxed).is_ok() {
                return Ok(next);
            }
        }
    }

    /// Takes a connection out; a second call does nothing. Does not sleep.
    pub(crate) fn leave(&self, token: AlertToken) {
        let mut table = self.table.lock();
        let node = table.conns.remove(token);
        table.echoes.forget(token);
        drop(table);
        // The last reference may go with the node: not under the lock.
        drop(node);
        self.trim_by(now().saturating_add(self.keeps_unused()));
        self.arm_idle_timer();
    }

    /// Connections in the group, and those that are about to join.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().conns.len()
    }

    /// Delivers a CDC message, received on the link in `slot`, to the connection with that alert token. Does not sleep.
    pub(crate) fn on_cdc(&self, slot: usize, token: AlertToken, cdc: &Cdc) {
        let member = self.table.lock().conns.find(token);
        if let Some(member) = member {
            member.on_cdc(slot, cdc);
        }
    }

    // --- Send slots.

    /// Puts a connection into the queue for a send slot of the link in `slot`.
    pub(crate) fn wait_for_slot(&self, token: AlertToken, slot: usize) {
        let mut table = self.table.lock();
        table.conns.wait(token, slot);
        if let Some(link) = self.link(slot) {
            link.want_slot(true);
        }
    }

    /// Takes a connection out of the queue for a send slot.
    pub(crate) fn stop_waiting(&self, token: AlertToken) {
        self.table.lock().conns.stop_waiting(token);
    }

    /// Send slots of the link in `slot` are free: the connection that has waited longest may send. Does not sleep.
    pub(crate) fn on_free_slot(&self, slot: usize) {
        let Some(link) = self.link(slot) else {
            return;
        };
        loop {
            let mut table = self.table.lock();
            if !table.conns.has_waiters_for(slot) {
                // At the end of the group somebody waits for all slots to be free.
                // While a client waits for its answer in a first contact to arrive, too.
                link.want_slot(table.conns.is_closed() || table.llc.core.has_answered());
                break;
            }
            // One look suffices: who fails to get a slot after this is in the queue first, and the
            // slot that was missing comes back here.
            if !link.has_slot() {
                break;
            }
            let member = table.conns.next_waiter(slot);
            drop(table);
            // Who has nothing to send any more leaves the slot to the next.
            if let Some(member) = member {
                member.on_slot();
            }
        }
        let table = self.table.lock();
        if table.conns.is_closed() || table.llc.core.has_answered() {
            // Somebody may wait for the last message to leave.
            drop(table);
            self.llc_waiters.notify_all();
        }
    }

    // --- The peer's buffers.

    /// Runs `f` on the table of remote keys.
    pub(crate) fn with_rtokens<R>(&self, f: impl FnOnce(&mut Rtokens<'_>) -> R) -> R {
        let mut table = self.table.lock();
        f(&mut Rtokens::new(&mut table.rtokens))
    }

    /// Where the peer's buffer `row` is on link slot `slot`.
    pub(crate) fn rtoken(&self, row: RowId, slot: usize) -> Option<Rtoken> {
        self.with_rtokens(|rtokens| rtokens.get(row, slot))
    }
}
