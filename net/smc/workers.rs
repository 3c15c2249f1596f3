// SPDX-License-Identifier: GPL-2.0

//! Workers that wait for a peer: for handshakes, and for the first data of an accepted connection.
//!
//! Each occupies a thread of the kernel meanwhile, which no limit of processes counts. A namespace that the
//! administrator has made, such as that of a container, has a set of its own, so that those of others cannot delay it.
//! The namespaces of ordinary users (user namespaces), who can have any number, share one.

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::{
    global::{
        Global,
        Published, //
    },
    net::NetNs,
    prelude::*,
    workqueue::OwnedWorkqueue, //
};

/// Workers for handshakes of each kind: the kernel's maximum for a workqueue.
const WQ_MAX_ACTIVE: u16 = 2048;

/// Handshakes at a time: of clients, and of listeners where ordinary users share the workers, so that nobody waits for
/// those of another user. Further connections are TCP's alone; those of clients need a worker for a moment, for which
/// the rest is there. Other listeners are limited one by one (`MAX_HANDSHAKES`), and together by SMC_LIMIT_HS.
const MAX_CONCURRENT: u32 = 1536;

/// Connections whose first data are awaited at a time, each by a worker (TCP_DEFER_ACCEPT). Further ones are accepted
/// without data, as accept(2) may return one without in any case.
const MAX_DEFERRED: u16 = 1024;

static OF_USERS: Global<Workers> = Global::new();

/// Holds what the namespaces of ordinary users share, for the life of the module.
pub(crate) struct UserWorkers(#[expect(dead_code, reason = "for its drop")] Published<Workers>);

impl UserWorkers {
    /// Creates the workers, before any namespace.
    pub(crate) fn new() -> Result<Self> {
        let workers = Arc::new(Workers::new(true)?, GFP_KERNEL)?;
        Ok(Self(OF_USERS.publish(workers)?))
    }
}

/// The workers of a namespace, or of several.
pub(crate) struct Workers {
    /// They are those of all ordinary users.
    is_shared: bool,
    /// Run handshakes of listeners. A peer can block one for seconds.
    pub(crate) handshakes: OwnedWorkqueue,
    /// Handshakes of all listeners that run, or wait for a worker of `handshakes`.
    pub(crate) queued_handshakes: Atomic<u32>,
    /// Run handshakes of sockets that connect.
    pub(crate) connects: OwnedWorkqueue,
    /// Those of them that run.
    running_connects: Atomic<u32>,
    /// Wait for the first data of listeners' connections (TCP_DEFER_ACCEPT).
    pub(crate) deferred: OwnedWorkqueue,
    /// Connections of all listeners that wait so.
    deferred_accepts: Atomic<u32>,
}

impl Workers {
    fn new(is_shared: bool) -> Result<Self> {
        Ok(Self {
            is_shared,
            handshakes: OwnedWorkqueue::unbound(c"smc_handshake", WQ_MAX_ACTIVE.into())?,
            queued_handshakes: Atomic::new(0),
            connects: OwnedWorkqueue::unbound(c"smc_connect", WQ_MAX_ACTIVE.into())?,
            running_connects: Atomic::new(0),
            deferred: OwnedWorkqueue::unbound(c"smc_deferred", MAX_DEFERRED.into())?,
            deferred_accepts: Atomic::new(0),
        })
    }

    /// Returns those for a namespace that has none yet.
    pub(crate) fn of(net: &NetNs) -> Result<Arc<Self>> {
        match OF_USERS.get().filter(|_| net.is_of_user()) {
            Some(shared) => Ok(shared),
            None => Ok(Arc::new(Self::new(false)?, GFP_KERNEL)?),
        }
    }

    /// Whether as many handshakes of listeners run, or wait for a worker, as can run at once.
    /// Context: any.
    pub(crate) fn is_congested(&self) -> bool {
        self.queued_handshakes.load(Relaxed) >= WQ_MAX_ACTIVE.into()
    }

    /// Whether a listener is to take on no further handshake, whatever its SMC_LIMIT_HS.
    /// Context: any.
    pub(crate) fn refuses_handshakes(&self) -> bool {
        self.is_shared && self.queued_handshakes.load(Relaxed) >= MAX_CONCURRENT
    }

    /// Counts the handshake of a socket that connects, for as long as the result lives; `None` if there are so many
    /// that this connection is to be without SMC.
    /// Context: any.
    pub(crate) fn begin_connect(&self) -> Option<RunningConnect<'_>> {
        let others = self.running_connects.fetch_add(1, Relaxed);
        let running = RunningConnect(self);
        (others < MAX_CONCURRENT).then_some(running)
    }

    /// Counts a connection whose first data are awaited, until [`Self::end_deferred`]; returns whether one more may be.
    /// Context: any.
    pub(crate) fn begin_deferred(&self) -> bool {
        let may_begin = self.deferred_accepts.fetch_add(1, Relaxed) < MAX_DEFERRED.into();
        if !may_begin {
            self.end_deferred();
        }
        may_begin
    }

    /// Undoes a [`Self::begin_deferred`] that returned true.
    /// Context: any.
    pub(crate) fn end_deferred(&self) {
        self.deferred_accepts.fetch_sub(1, Relaxed);
    }
}

/// A handshake of a socket that connects, which ends when this is dropped.
pub(crate) struct RunningConnect<'a>(&'a Workers);

impl Drop for RunningConnect<'_> {
    fn drop(&mut self) {
        self.0.running_connects.fetch_sub(1, Relaxed);
    }
}
