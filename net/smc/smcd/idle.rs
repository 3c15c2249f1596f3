// SPDX-License-Identifier: GPL-2.0

//! Looks at connections that need it after some time: to give back rings that nobody uses (an idle connection holds
//! none), to send data that are held back, and to let writers without memory try again.

use core::mem;

use kernel::{
    list::{
        List,
        ListArc, //
    },
    new_spinlock,
    sync::{
        atomic::Relaxed,
        Arc,
        SpinLock, //
    },
    time::Jiffies, //
};
use kernel_ext::{
    barrier::{
        self,
        smp_mb, //
    },
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
    smcd::ring,
    time::Instant, //
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

/// The connections that are to be looked at; those that hold nothing are not among them, however many there are.
#[pin_data]
struct Watched {
    #[pin]
    pairs: SpinLock<List<Pair>>,
}

/// The job that looks at them.
struct Sweep(Pin<KBox<Watched>>);

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

impl Sweep {
    fn new() -> Result<Self> {
        let watched = pin_init!(Watched {
            pairs <- new_spinlock!(List::new(), "smc::smcd::Watched::pairs"),
        });
        Ok(Self(KBox::pin_init(watched, GFP_KERNEL)?))
    }

    /// Has a connection looked at by the next run. What the caller did before is seen then, also if the connection was
    /// in the list already.
    fn add(&self, pair: &Arc<Pair>) {
        smp_mb(barrier::Full);
        if let Ok(entry) = ListArc::try_from_arc(pair.clone()) {
            self.0.pairs.lock().push_back(entry);
        }
    }
}

impl Job for Sweep {
    fn run(&self) -> Option<Jiffies> {
        let now = clock::now();
        let mut next = None;
        let mut due = mem::replace(&mut *self.0.pairs.lock(), List::new());
        while let Some(entry) = due.pop_front() {
            // From here on it may be added again, by whoever is too late for this look.
            let pair = entry.into_arc();
            smp_mb(barrier::Full);
            if let Some(again) = look_at(&pair, now) {
                self.add(&pair);
                next = Some(next.map_or(again, |next: Jiffies| next.min(again)));
            }
        }
        next
    }
}

/// Looks at both directions of a connection. Returns after how many jiffies to do so again, if there is anything left.
/// Context: may sleep.
fn look_at(pair: &Arc<Pair>, now: Instant) -> Option<Jiffies> {
    let mut next = None;
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
        end_shortage(conn.own());
    }
    next
}

/// Writers may try again to get memory.
fn end_shortage(end: &SmcdEnd) {
    if end.is_short.load(Relaxed) {
        end.is_short.store(false, Relaxed);
        end.with_sk(Sk::wake_writable);
    }
}

/// Has a connection looked at in at most `delay` jiffies.
fn look_within(pair: &Arc<Pair>, delay: Jiffies) {
    PAIRS.with(|pairs| {
        pairs.add(pair);
        pairs.run_within(delay);
    });
}

/// A ring was made: looks at it later.
/// Context: does not sleep.
pub(super) fn watch(pair: &Arc<Pair>) {
    look_within(pair, PERIOD);
}

/// Data are held back.
/// Context: does not sleep.
pub(super) fn watch_held(pair: &Arc<Pair>) {
    look_within(pair, clock::jiffies(ring::CORK_TIME));
}

/// A writer waits for memory.
/// Context: does not sleep.
pub(super) fn watch_shortage(pair: &Arc<Pair>) {
    look_within(pair, SHORTAGE);
}
