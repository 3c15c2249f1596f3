// SPDX-License-Identifier: GPL-2.0

//! A DECLINE of the peer that crossed ours.
//!
//! Both sides of a first contact may give up at the same moment. Each sends a DECLINE then, goes on over TCP and
//! looks for no message of the handshake any more, so that the peer's would be the first that the application
//! reads. So where the peer may have declined as well, what comes first is looked at before the application
//! gets it: one DECLINE is taken away, as long as all bytes that are here may be the beginning of one there is
//! nothing to read, and after any other byte nothing is looked at any more.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    net,
    time, //
};
use smc_proto::wire::clc::Head;

use super::Sock;

/// Time for the rest of a DECLINE to come, ns: it was sent as a whole. After that it is the application's.
const REST_WAIT: u64 = 1_000_000_000;

/// Whether such a DECLINE may come.
#[pin_data]
pub(super) struct CrossedDecline {
    /// Written under `turn`, but for the first time.
    is_awaited: Atomic<bool>,
    /// One thread at a time looks. Lock order: TCP's own lock is taken inside.
    #[pin]
    turn: Mutex<()>,
}

impl CrossedDecline {
    /// None will come.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_awaited: Atomic::new(false),
            turn <- new_mutex!((), "smc::CrossedDecline::turn"),
        })
    }

    /// From now on one may come. Nobody reads from TCP yet.
    pub(super) fn expect(&self) {
        self.is_awaited.store(true, Release);
    }

    /// Whether one may come. Any context.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Acquire)
    }
}

/// What is in front of TCP's data.
enum Front {
    /// Nothing, yet.
    Nothing,
    /// Perhaps the beginning of a DECLINE.
    Open,
    /// The application's data, if there are any.
    Clear,
}

impl Sock {
    /// Whether what is to be read from TCP is the application's. Takes away a DECLINE that is not. May sleep
    /// for a lock, not for the peer.
    pub(super) fn is_front_clear(&self) -> bool {
        if !self.crossed_decline.is_awaited() {
            return true;
        }
        let _turn = self.crossed_decline.turn.lock();
        matches!(self.look_in_front(), Front::Clear)
    }

    fn look_in_front(&self) -> Front {
        if !self.crossed_decline.is_awaited() {
            return Front::Clear;
        }
        // Before the look, so that nothing comes behind it.
        let is_all = !self.tcp.state().may_receive();
        let mut head = [0; Head::LEN];
        let front = match self.tcp.recv(&mut head, true, &mut 0) {
            Err(e) if e == EAGAIN => Front::Nothing,
            Err(e) => {
                self.sk.set_err(e);
                Front::Clear
            }
            Ok(len) => match Head::of(head.get(..len).unwrap_or(&[])) {
                Head::Open if len > 0 => Front::Open,
                Head::Open | Head::Data => Front::Clear,
                Head::Decline(len) => {
                    let decline = head.get_mut(..len).unwrap_or(&mut []);
                    // All of it is here.
                    let _ = self.tcp.recv_exact(decline, &mut 0);
                    Front::Clear
                }
            },
        };
        match front {
            Front::Nothing | Front::Open if !is_all => front,
            _ => {
                self.crossed_decline.is_awaited.store(false, Release);
                Front::Clear
            }
        }
    }

    /// The work of a socket over TCP for which a DECLINE may come: what begins like one and does not go on is
    /// the application's. May sleep.
    pub(super) fn settle_front(this: &Arc<Self>) {
        let front = {
            let _turn = this.crossed_decline.turn.lock();
            this.look_in_front()
        };
        if matches!(front, Front::Open) {
            let mut left = time::timeout(REST_WAIT);
            let is_clear = |bytes: &[u8]| Head::of(bytes) != Head::Open;
            let _ = this
                .tcp
                .peek_until(&mut [0; Head::LEN], &mut left, is_clear);
            let _turn = this.crossed_decline.turn.lock();
            if matches!(this.look_in_front(), Front::Open) {
                this.crossed_decline.is_awaited.store(false, Release);
            }
        }
        this.sk.wake_readable();
    }

    /// What poll(2) says of TCP, of what is the application's.
    pub(super) fn poll_tcp(&self) -> u32 {
        match self.is_front_clear() {
            true => self.tcp.poll(),
            false => self.tcp.poll() & !(net::POLLIN | net::POLLRDNORM),
        }
    }

    /// Waits until the application has something to read from TCP.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when there is nothing in time, `ERESTARTSYS` or `EINTR` for a signal.
    pub(super) fn await_front(&self, flags: u32) -> Result {
        if flags & (net::MSG_OOB | net::MSG_ERRQUEUE) != 0 || self.is_front_clear() {
            return Ok(());
        }
        let timeout = self.sk.rcvtimeo(flags & net::MSG_DONTWAIT != 0);
        let waited = self.sk.wait_until(timeout, false, || self.is_front_clear());
        waited.map(drop).map_err(|end| end.errno())
    }
}
