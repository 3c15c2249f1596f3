// SPDX-License-Identifier: GPL-2.0

//! Link groups: two machines, one role, the links between them, and all connections that share them
//! (RFC 7609 section 2.2).
//!
//! A group is found or made in the handshake, and lives while connections use it and for a while
//! after. It never names a connection's type: what arrives for one goes through [`Member`].

pub(crate) mod chores;
mod life;
mod links;
mod members;

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
    time::Jiffies,
    workqueue::Work, //
};
use kernel_ext::{
    net::Sk,
    time, //
};
use smc_proto::{
    id::{
        Eid,
        PeerId,
        Token, //
    },
    lgr::{
        redundancy::Occasion,
        rtoken::{
            Row,
            RowId,
            Rtoken,
            Rtokens,
            MAX_ROWS, //
        },
        token,
        End,
        Role,
        LINK_SLOTS, //
    },
    llc::{
        keepalive::KeepAlive,
        Finished,
        Llc, //
    },
    stream::Cdc,
    time::{
        Duration,
        Instant, //
    },
    wire::{
        clc::{
            Limits,
            OsType,
            Release, //
        },
        llc::PeerOrder,
        Version, //
    }, //
};

use crate::{
    config::Depth,
    link::Link,
    namespace,
    rmb::{
        RmbPool,
        SendPool, //
    }, //
};
use chores::{
    Chore,
    Chores, //
};
pub(crate) use links::At;
use links::Links;
use members::Members;
pub(crate) use members::{
    Member,
    Seat, //
};

/// Who looks after link groups: their list, which is above this module. Nothing here sleeps.
pub(crate) trait Keeper: Sync {
    /// [`LinkGroup::end`] is to be called where sleeping is allowed, or if the group does not end,
    /// [`LinkGroup::trim`].
    fn tend_soon(&self, group: Arc<LinkGroup>);
    /// Something is to be done about the links of the group where sleeping is allowed: see
    /// [`LinkGroup::next_chore`].
    fn relink_soon(&self, group: Arc<LinkGroup>);
    /// Time demands something of a group in `delay` at the latest.
    fn look_within(&self, delay: Duration);
}

/// What both sides agreed on at first contact, and what our settings were then.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) role: Role,
    pub(crate) version: Version,
    /// Release of version 2.
    pub(crate) release: Release,
    pub(crate) limits: Limits,
    pub(crate) peer: PeerId,
    /// VLAN of the group, 0 for none.
    pub(crate) vlan: u16,
    /// The enterprise id that both have, in version 2.
    #[expect(dead_code, reason = "for those who list link groups")]
    pub(crate) eid: Option<Eid>,
    /// No gateway is between the two.
    pub(crate) is_direct: bool,
    pub(crate) times: Times,
    /// How deep the queues of links are.
    pub(crate) depth: Depth,
    /// Address of the network namespace of the first connection, for comparison only.
    pub(crate) net: usize,
}

/// What the settings were when the group began.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// Silence after which the link is tested; zero for never.
    pub(crate) test_after: Duration,
    /// Time without connections after which the group ends.
    pub(crate) idle: Duration,
    /// Time without connections after which a region goes.
    pub(crate) unused: Duration,
}

impl Times {
    /// The settings of the socket's namespace.
    pub(crate) fn of(sk: &Sk, role: Role) -> Self {
        let config = &namespace::of(sk).config;
        Self {
            test_after: config.test_after(),
            idle: role.idle_time(config.idle_time()),
            unused: Duration::from_nanos(config.idle_time().as_nanos() / 10),
        }
    }
}

/// What a group remembers of the LLC conversation.
pub(crate) struct Conversation {
    pub(crate) core: Llc,
    /// The core asked to prepare the link, and nobody did yet.
    pub(crate) prepare: bool,
    /// How the last flow ended, until who waits for it takes it.
    pub(crate) finished: Option<Finished>,
    /// What is to be done about the links.
    pub(crate) chores: Chores,
    /// When to look for another link again.
    pub(crate) add_at: Option<Instant>,
    /// How long to wait before that, the next time.
    pub(crate) add_wait: Duration,
    /// The client knows whether there will be a second link.
    pub(crate) is_promise_kept: bool,
    /// The first contact is not over.
    pub(crate) is_first: bool,
    /// The peer ended the group, too.
    pub(crate) is_over: bool,
    /// Watch the links from when they are active.
    pub(crate) watches: [Option<KeepAlive>; LINK_SLOTS],
}

/// The connections of a group and the peer's buffers.
struct Table {
    members: Members,
    rtokens: KVec<Row>,
    /// Why the group ends, once it does.
    end: Option<End>,
    /// When to look for regions that nobody uses.
    trim_at: Option<Instant>,
    llc: Conversation,
    /// Decides the byte order of some fields of version 2.
    peer_os: OsType,
}

/// A link group.
#[pin_data]
pub(crate) struct LinkGroup {
    pub(crate) id: u32,
    pub(crate) terms: Terms,
    #[pin]
    links: Links,
    #[pin]
    pub(crate) rmbs: RmbPool,
    #[pin]
    pub(crate) sndbufs: SendPool,
    #[pin]
    table: SpinLock<Table>,
    /// Who waits for the LLC conversation.
    #[pin]
    talk: CondVar,
    /// One exchange of remote keys at a time.
    #[pin]
    pub(crate) flow: Mutex<()>,
    keeper: &'static dyn Keeper,
    #[pin]
    work: Work<LinkGroup>,
    #[pin]
    relinking: Work<LinkGroup, RELINKING>,
}

impl_has_work! {
    impl HasWork<Self> for LinkGroup { self.work }
    impl HasWork<Self, RELINKING> for LinkGroup { self.relinking }
}

/// Which of a group's works looks after its links.
pub(crate) const RELINKING: u64 = 1;

/// Time after which a link that could not be added is tried again; twice as long each time that fails,
/// too.
pub(crate) const ADD_AGAIN: Duration = Duration::from_secs(2);

/// The slot of the first link.
pub(crate) const FIRST: usize = 0;

/// The time, as the protocol core counts it.
fn now() -> Instant {
    Instant::from_nanos(time::now_ns())
}

/// The last token given out; one counter for all groups.
static LAST_TOKEN: Atomic<u32> = Atomic::new(0);

impl LinkGroup {
    /// A group around its first link.
    pub(crate) fn new(
        id: u32,
        terms: Terms,
        link: Arc<Link>,
        keeper: &'static dyn Keeper,
    ) -> Result<Arc<Self>> {
        let table = Table {
            members: Members::new(terms.role, terms.limits)?,
            rtokens: KVec::from_elem(Row::EMPTY, MAX_ROWS, GFP_KERNEL)?,
            end: None,
            trim_at: None,
            llc: Conversation {
                core: Llc::new(terms.role, terms.version),
                prepare: false,
                finished: None,
                chores: Chores::default(),
                add_at: None,
                add_wait: ADD_AGAIN,
                is_promise_kept: false,
                is_first: true,
                is_over: false,
                watches: [None; LINK_SLOTS],
            },
            peer_os: OsType::LINUX,
        };
        Arc::pin_init(
            pin_init!(Self {
                id,
                terms,
                rmbs <- RmbPool::new(usize::from(terms.limits.max_conns)),
                sndbufs <- SendPool::new(),
                links <- Links::new(link),
                table <- new_spinlock!(table, "smc::LinkGroup::table"),
                talk <- new_condvar!("smc::LinkGroup::talk"),
                flow <- new_mutex!((), "smc::LinkGroup::flow"),
                keeper,
                work <- new_work!("smc::LinkGroup::work"),
                relinking <- new_work!("smc::LinkGroup::relinking"),
            }? Error),
            GFP_KERNEL,
        )
    }

    // --- Connections.

    /// Chooses the token of a new connection.
    pub(crate) fn next_token(&self) -> Result<Token> {
        let table = self.table.lock();
        loop {
            let last = LAST_TOKEN.load(Relaxed);
            let next = token::next(Token(last), |t| table.members.has(t)).ok_or(ENOSPC)?;
            if LAST_TOKEN.cmpxchg(last, next.0, Relaxed).is_ok() {
                return Ok(next);
            }
        }
    }

    /// Takes a connection out; a second call does nothing. Does not sleep.
    pub(crate) fn leave(&self, token: Token) {
        let node = self.table.lock().members.remove(token);
        // The last reference may go with the node: not under the lock.
        drop(node);
        self.trim_by(now().saturating_add(self.terms.times.unused));
        self.look_if_idle();
    }

    /// Connections in the group, and those that are about to join.
    #[expect(dead_code, reason = "for those who list link groups")]
    pub(crate) fn len(&self) -> usize {
        self.table.lock().members.len()
    }

    /// Hands a message of the peer to the connection that it names. Does not sleep.
    pub(crate) fn on_cdc(&self, token: Token, cdc: &Cdc) {
        let member = self.table.lock().members.find(token);
        if let Some(member) = member {
            member.on_cdc(cdc);
        }
    }

    // --- Send slots.

    /// Puts a connection into the queue for a send slot of the link in `slot`.
    pub(crate) fn wait_for_slot(&self, token: Token, slot: usize) {
        let mut table = self.table.lock();
        table.members.wait(token, slot);
        if let Some(link) = self.link(slot) {
            link.want_slot(true);
        }
    }

    /// Takes a connection out of the queue for a send slot.
    pub(crate) fn stop_waiting(&self, token: Token) {
        self.table.lock().members.stop_waiting(token);
    }

    /// Send slots of the link in `slot` are free: who has waited longest may send. Does not sleep.
    pub(crate) fn on_free_slot(&self, slot: usize) {
        let Some(link) = self.link(slot) else {
            return;
        };
        loop {
            let mut table = self.table.lock();
            if !table.members.has_waiters_for(slot) {
                // At the end of the group somebody waits for all slots to be free.
                link.want_slot(table.members.is_closed());
                break;
            }
            // One look suffices: who fails to get a slot after this is in the queue first, and the
            // slot that was missing comes back here.
            if !link.has_slot() {
                break;
            }
            let member = table.members.next_waiter(slot);
            drop(table);
            // Who has nothing to send any more leaves the slot to the next.
            if let Some(member) = member {
                member.on_slot();
            }
        }
        if self.table.lock().members.is_closed() {
            // Somebody may wait for the last message to leave.
            self.talk.notify_all();
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

    // --- Chores.

    /// Has something done about the links. Does not sleep.
    pub(crate) fn note(self: &Arc<Self>, chore: Chore) {
        self.table.lock().llc.chores.push(chore);
        self.relink_soon();
    }

    /// A port became active: another link may be of use now. Does not sleep.
    pub(crate) fn on_port(self: &Arc<Self>) {
        self.table.lock().llc.add_wait = ADD_AGAIN;
        self.note(Chore::Add(Occasion::OwnPort));
    }

    /// Has the worker look for chores. Does not sleep.
    pub(crate) fn relink_soon(self: &Arc<Self>) {
        self.keeper.relink_soon(self.clone());
    }

    /// As [`LinkGroup::note`], by the worker itself.
    pub(crate) fn note_quietly(&self, chore: Chore) {
        self.table.lock().llc.chores.push(chore);
    }

    /// Keeps flows from beginning, as `Llc::hold` does, unless one is under way or a link is to go. Does
    /// not sleep.
    pub(crate) fn try_hold(&self) -> bool {
        let llc = &mut self.table.lock().llc;
        !llc.chores.has_losses() && llc.core.hold().is_ok()
    }

    /// Says whether the client need not be told any more that no second link comes: the first time that
    /// is not so, if there can be one.
    pub(crate) fn keep_promise(&self) -> bool {
        let is_kept = core::mem::replace(&mut self.table.lock().llc.is_promise_kept, true);
        is_kept || self.terms.limits.max_links <= 1
    }

    /// A link is not watched any more; says whether it was, as it is from when it is active.
    pub(crate) fn stop_watching(&self, slot: usize) -> bool {
        let watches = &mut self.table.lock().llc.watches;
        watches.get_mut(slot).and_then(Option::take).is_some()
    }

    /// What the worker does next, if the group does not end.
    pub(crate) fn next_chore(&self) -> Option<Chore> {
        let mut table = self.table.lock();
        match table.end {
            None => table.llc.chores.pop(),
            Some(_) => None,
        }
    }

    // --- The LLC conversation.

    /// Runs `f` on the conversation and the table of remote keys.
    pub(crate) fn with_llc<R>(
        &self,
        f: impl FnOnce(&mut Conversation, &mut Rtokens<'_>) -> R,
    ) -> R {
        let mut table = self.table.lock();
        let table = &mut *table;
        f(&mut table.llc, &mut Rtokens::new(&mut table.rtokens))
    }

    /// Wakes who waits in [`LinkGroup::sleep_llc`].
    pub(crate) fn wake_llc(&self) {
        self.talk.notify_all();
    }

    /// Sleeps until woken, at most `timeout` jiffies, unless `is_due` already.
    pub(crate) fn sleep_llc(&self, timeout: Jiffies, is_due: impl FnOnce(&Conversation) -> bool) {
        let mut table = self.table.lock();
        if !is_due(&table.llc) {
            // A signal does not end a flow that the peer takes part in: its own timeout does.
            let _ = self.talk.wait_interruptible_timeout(&mut table, timeout);
        }
    }

    /// How the peer reads the fields that C peers write in their own byte order.
    pub(crate) fn peer_order(&self) -> PeerOrder {
        PeerOrder::of(self.table.lock().peer_os)
    }

    /// The peer said which operating system it is.
    pub(crate) fn set_peer_os(&self, os: OsType) {
        self.table.lock().peer_os = os;
    }
}
