// SPDX-License-Identifier: GPL-2.0

//! The order in which accept(2) returns the connections of one peer.
//!
//! With TCP it is the order in which that peer's calls of connect(2) returned, and programs rely on it: a control
//! connection first, then one for data. Here each handshake has a worker of its own, and that of an earlier one may be
//! the last to run. So before a connection is queued for accept(2), its worker waits for earlier ones of its peer whose
//! connect(2) may have returned: they wait for nothing but this host, if the peer is honest.

use core::net::IpAddr;

use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex, //
    }, //
};
use kernel_ext::{
    net::TcpSocket,
    prelude::*, //
};
use smc_proto::time::Duration;

use crate::{
    clock::{
        self,
        now, //
    },
    handshake::Progress, //
};

/// Longest wait for earlier connections: what a busy host takes to run a worker, and not long for those who share the
/// address of a peer that is not honest.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// A connection between TCP's queue and that of accept(2).
#[pin_data]
pub(super) struct Arriving {
    tcp: Arc<TcpSocket>,
    /// `None` if it was gone by then.
    peer: Option<IpAddr>,
    /// Grows in the order in which connections were taken from TCP.
    pub(super) number: u64,
    /// It goes to accept(2), so it is no longer the listener's alone. Changes under the lock of `arriving`.
    has_left: Atomic<bool>,
    #[pin]
    pub(super) progress: Progress,
}

impl Arriving {
    /// Whether accept(2) has to return this one before `later`.
    /// Context: may sleep, but does not wait for a peer.
    fn is_before(&self, later: &Self) -> bool {
        self.number < later.number
            && self.peer.is_some()
            && self.peer == later.peer
            // Nobody looks at the TCP of one that may be accepted: calls of the application may have it locked.
            && (self.has_left.load(Relaxed) || self.progress.may_be_connected(&self.tcp))
    }
}

/// The connections of a listener that shake hands.
#[pin_data]
pub(super) struct AcceptOrder {
    #[pin]
    arriving: Mutex<KVec<Arc<Arriving>>>,
    /// [`AcceptOrder::abort`] was called. Changes under the lock of `arriving`.
    is_aborted: Atomic<bool>,
    /// A connection has left.
    #[pin]
    left: CondVar,
}

impl AcceptOrder {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            arriving <- new_mutex!(KVec::new(), "smc::AcceptOrder::arriving"),
            is_aborted: Atomic::new(false),
            left <- new_condvar!("smc::AcceptOrder::left"),
        })
    }

    /// The handshake of the connection begins that was the `number`th to be taken from TCP.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` if the listener has been closed; `ENOMEM`.
    pub(super) fn begin(&self, tcp: &Arc<TcpSocket>, number: u64) -> Result<Arc<Arriving>> {
        let arriving = Arc::pin_init(
            pin_init!(Arriving {
                tcp: tcp.clone(),
                peer: tcp.peer().ok().map(|peer| peer.ip),
                number,
                has_left: Atomic::new(false),
                progress <- Progress::new(),
            }),
            GFP_KERNEL,
        )?;
        let mut all = self.arriving.lock();
        if self.is_aborted.load(Relaxed) {
            return Err(ECONNABORTED);
        }
        all.push(arriving.clone(), GFP_KERNEL)?;
        drop(all);
        Ok(arriving)
    }

    /// The listener is closed: resets the connections, which ends their handshakes, and lets no other begin one. A
    /// handshake whose client would not see that goes on, and is ended over RDMA then. Waits until those whose
    /// handshakes have succeeded are queued for accept(2), or have ended: they are the caller's then.
    /// Context: may sleep, but does not wait for a peer.
    pub(super) fn abort(&self) {
        let mut all = self.arriving.lock();
        self.is_aborted.store(true, Relaxed);
        for one in &*all {
            if !one.has_left.load(Relaxed) && one.progress.give_up() {
                one.tcp.abort(ECONNABORTED);
            }
        }
        while all.iter().any(|one| one.has_left.load(Relaxed)) {
            self.left.wait(&mut all);
        }
    }

    /// The handshake of `this` has succeeded. To be called before the connection is queued for accept(2): nobody looks
    /// at its TCP after this.
    /// Context: may sleep, but does not wait for a peer.
    pub(super) fn leave(&self, this: &Arriving) {
        let _all = self.arriving.lock();
        this.has_left.store(true, Relaxed);
    }

    /// Waits until no connection has to be returned before this one, whose handshake is over.
    /// Context: may sleep, [`LONGEST_WAIT`] at most.
    pub(super) fn await_turn(&self, this: &Arriving) {
        let end = now().saturating_add(LONGEST_WAIT);
        let mut all = self.arriving.lock();
        while all.iter().any(|one| one.is_before(this)) {
            let left = end.saturating_since(now());
            if left == Duration::ZERO {
                return;
            }
            // Workers get no signals, so this is only the task state.
            let _ = self
                .left
                .wait_interruptible_timeout(&mut all, clock::jiffies(left));
        }
    }

    /// The connection is queued for accept(2), or has ended.
    pub(super) fn end(&self, this: &Arc<Arriving>) {
        self.arriving.lock().retain(|one| !Arc::ptr_eq(one, this));
        self.left.notify_all();
    }
}
