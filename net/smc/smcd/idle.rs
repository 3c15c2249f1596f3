// SPDX-License-Identifier: GPL-2.0

//! All connections, to give back rings that nobody uses: an idle connection holds none.

use kernel::{
    new_spinlock,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::Relaxed,
        Arc,
        SpinLock, //
    },
    time::Jiffies, //
};
use kernel_ext::{
    delayed_work::{
        DelayedWork,
        Job, //
    },
    global::{
        Global,
        Published, //
    },
    net::Sk,
    prelude::*,
    time, //
};

use smc_proto::{
    lgr::Role,
    smcd::ring, //
};

use super::pair::{
    Pair,
    SmcdConn,
    SmcdEnd, //
};
use crate::clock;

/// How often rings are looked at, in jiffies.
const PERIOD: Jiffies = time::HZ;

/// How long a writer waits for memory before it tries again, in jiffies, about as long as over TCP.
const SHORTAGE: Jiffies = time::HZ / 10 + 1;

/// Connections to look at with the lock taken once.
const BATCH: usize = 64;

/// The connections, by the token of the server's end.
#[pin_data]
struct PairTree {
    #[pin]
    pairs: SpinLock<RBTree<u64, Arc<Pair>>>,
}

/// The job that looks at all connections.
struct Sweep(Pin<KBox<PairTree>>);

/// The connections, and the timer.
type Pairs = DelayedWork<Sweep>;

static PAIRS: Global<Pairs> = Global::new();

/// Holds the list of connections for the life of the module.
pub(super) struct PairList {
    _pairs: Published<Pairs>,
}

impl PairList {
    /// Context: may sleep.
    pub(super) fn new() -> Result<Self> {
        let pairs = Arc::pin_init(Pairs::new(Sweep::new()?), GFP_KERNEL)?;
        Ok(Self {
            _pairs: PAIRS.publish(pairs)?,
        })
    }
}

/// Adds a connection, which stays until [`forget`].
/// Context: may sleep.
pub(super) fn add(pair: &Arc<Pair>) -> Result {
    PAIRS.get().ok_or(ENODEV)?.add(pair)
}

/// Both sockets of a connection are closed.
/// Context: may sleep.
pub(super) fn forget(pair: &Pair) {
    if let Some(pairs) = PAIRS.get() {
        pairs.remove(pair.server.token);
    }
}

/// Returns how many connections there are, in all namespaces.
/// Context: does not sleep.
#[cold]
pub(crate) fn connections() -> usize {
    PAIRS.with(|pairs| pairs.count()).unwrap_or(0)
}

/// Has the connections looked at in at most `delay` jiffies.
/// Context: does not sleep.
fn look_within(delay: Jiffies) {
    PAIRS.with(|pairs| pairs.run_within(delay));
}

impl Sweep {
    fn new() -> Result<Self> {
        let tree = pin_init!(PairTree {
            pairs <- new_spinlock!(RBTree::new(), "smc::smcd::PairTree::pairs"),
        });
        Ok(Self(KBox::pin_init(tree, GFP_KERNEL)?))
    }

    fn add(&self, pair: &Arc<Pair>) -> Result {
        let node = RBTreeNode::new(pair.server.token, pair.clone(), GFP_KERNEL)?;
        let replaced = self.0.pairs.lock().insert(node);
        // A token of 64 random bits has been drawn twice.
        drop(replaced);
        Ok(())
    }

    fn remove(&self, token: u64) {
        let node = self.0.pairs.lock().remove_node(&token);
        drop(node);
    }

    fn count(&self) -> usize {
        self.0.pairs.lock().iter().count()
    }

    /// Up to [`BATCH`] connections from that token on.
    fn batch(&self, from: u64) -> Result<KVec<Arc<Pair>>> {
        let mut found = KVec::with_capacity(BATCH, GFP_KERNEL)?;
        let mut tree = self.0.pairs.lock();
        let mut cursor = tree.cursor_lower_bound_mut(&from);
        while let Some(at) = cursor.take().filter(|_| found.len() < BATCH) {
            let (_, pair) = at.current();
            if found.push_within_capacity(pair.clone()).is_err() {
                break;
            }
            cursor = at.move_next();
        }
        Ok(found)
    }
}

impl Job for Sweep {
    fn run(&self) -> Option<Jiffies> {
        let (mut from, mut next, now) = (0, None, clock::now());
        loop {
            let Ok(pairs) = self.batch(from) else {
                return Some(PERIOD);
            };
            for pair in &pairs {
                for role in [Role::Client, Role::Server] {
                    // What this end writes.
                    let conn = SmcdConn {
                        pair: pair.clone(),
                        role,
                    };
                    let (pipe, reader) = (conn.tx(), conn.peer());
                    let held = conn.look_at_held(now);
                    let held = held.map(|until| clock::jiffies(until.saturating_since(now)).max(1));
                    if conn.own().is_closed() {
                        reader.sk().inspect(|sk| pipe.charge_to_reader(sk));
                    }
                    let rings = pipe.give_back_idle(now, reader.is_closed());
                    let rings = rings.then_some(PERIOD);
                    next = [next, held, rings].into_iter().flatten().min();
                }
                end_shortage(&pair.client);
                end_shortage(&pair.server);
            }
            match pairs.last().map(|pair| pair.server.token.checked_add(1)) {
                Some(Some(token)) => from = token,
                Some(None) | None => return next,
            }
        }
    }
}

/// Writers may try again to get memory.
fn end_shortage(end: &SmcdEnd) {
    if end.is_short.load(Relaxed) {
        end.is_short.store(false, Relaxed);
        end.with_sk(Sk::wake_writable);
    }
}

/// A ring was made: looks at it later.
/// Context: does not sleep.
pub(super) fn watch() {
    look_within(PERIOD);
}

/// Data are held back.
/// Context: does not sleep.
pub(super) fn watch_held() {
    look_within(clock::jiffies(ring::CORK_TIME));
}

/// A writer waits for memory.
/// Context: does not sleep.
pub(super) fn watch_shortage() {
    look_within(SHORTAGE);
}
