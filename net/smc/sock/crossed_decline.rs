// SPDX-License-Identifier: GPL-2.0

//! A DECLINE of the peer that crossed ours.
//!
//! Both sides of a first contact may give up at the same moment. Each then sends a DECLINE, falls back to TCP, and
//! expects no more messages of the handshake. So the peer's DECLINE would be the first bytes that the application
//! reads.
//!
//! Where this is possible, the first bytes from TCP are peeked at before the application gets them:
//!
//! - A whole DECLINE is consumed. Nothing is checked after that.
//! - As long as the bytes may be the beginning of a DECLINE, the socket is not readable. If the rest does not arrive
//!   within [`REST_WAIT`], they are the application's.
//! - Any other bytes are the application's, and nothing is checked after them.

use kernel::{
    new_mutex,
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
    prelude::*, //
};
use smc_proto::{
    time::Duration,
    wire::clc::Head, //
};

use super::{
    fallback,
    uaccess,
    Sock, //
};
use crate::clock;

/// Time for the rest of a DECLINE to arrive: it was sent as a whole.
const REST_WAIT: Duration = Duration::from_secs(1);

/// Whether such a DECLINE may arrive.
#[pin_data]
pub(super) struct CrossedDecline {
    /// Cleared under `turn`.
    is_awaited: Atomic<bool>,
    /// Serialises peeking. Lock order: TCP's own lock is taken inside.
    #[pin]
    turn: Mutex<()>,
}

impl CrossedDecline {
    /// No DECLINE is expected.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_awaited: Atomic::new(false),
            turn <- new_mutex!((), "smc::CrossedDecline::turn"),
        })
    }

    /// A DECLINE may arrive from now on. To be called before anything reads from TCP.
    pub(super) fn expect(&self) {
        self.is_awaited.store(true, Release);
    }

    /// Whether a DECLINE may arrive.
    /// Context: any.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Acquire)
    }
}

/// What the first bytes from TCP are.
enum DeclineState {
    /// None has arrived.
    Nothing,
    /// Maybe the beginning of a DECLINE.
    Open,
    /// The application's data, or the end of the stream.
    Clear,
}

impl Sock {
    /// Returns true if the application may read from TCP. Consumes a DECLINE that has arrived.
    /// Context: may sleep for a lock, not for the peer.
    pub(super) fn is_decline_settled(&self) -> bool {
        if !self.crossed_decline.is_awaited() {
            return true;
        }
        let _turn = self.crossed_decline.turn.lock();
        matches!(self.look_for_decline(), DeclineState::Clear)
    }

    fn look_for_decline(&self) -> DeclineState {
        if !self.crossed_decline.is_awaited() {
            return DeclineState::Clear;
        }
        // Read before the peek: if TCP cannot receive more, the peek shows everything.
        let is_all = !self.tcp.state().may_receive();
        let mut head = [0; Head::LEN];
        let state = match self.tcp.peek(&mut head, &mut 0) {
            Err(e) if e == EAGAIN => DeclineState::Nothing,
            Err(e) => {
                self.sk.set_err(e);
                DeclineState::Clear
            }
            Ok(len) => match Head::of(head.get(..len).unwrap_or(&[])) {
                Head::Open if len > 0 => DeclineState::Open,
                Head::Open | Head::Data => DeclineState::Clear,
                Head::Decline(len) => {
                    let decline = head.get_mut(..len).unwrap_or(&mut []);
                    // All of it is here.
                    let _ = self.tcp.recv_exact(decline, &mut 0);
                    DeclineState::Clear
                }
            },
        };
        match state {
            DeclineState::Nothing | DeclineState::Open if !is_all => state,
            _ => {
                self.crossed_decline.is_awaited.store(false, Release);
                DeclineState::Clear
            }
        }
    }

    /// The work of a socket over TCP for which a DECLINE may arrive: waits for the rest of it, and gives the bytes to
    /// the application if it does not arrive.
    /// Context: may sleep.
    pub(super) fn settle_decline(this: &Arc<Self>) {
        let mut state = None;
        this.tcp.wait_until(clock::timeout(REST_WAIT), || {
            state = this.look_in_work();
            !matches!(state, Some(DeclineState::Open))
        });
        match state {
            // The end of a call queues this again.
            None => return,
            Some(DeclineState::Open) => {
                let Some(_work) = uaccess::begin_work(this) else {
                    return;
                };
                let _turn = this.crossed_decline.turn.lock();
                this.crossed_decline.is_awaited.store(false, Release);
            }
            Some(DeclineState::Nothing | DeclineState::Clear) => {}
        }
        fallback::share_waiters(this);
        this.sk.wake_readable();
    }

    /// As [`Self::look_for_decline`]; `None` while a call of the application may have TCP locked. Others begin no such
    /// call meanwhile, nor, as a DECLINE is awaited until the turn is over, one that does not say so.
    fn look_in_work(&self) -> Option<DeclineState> {
        let _work = uaccess::begin_work(self)?;
        let _turn = self.crossed_decline.turn.lock();
        Some(self.look_for_decline())
    }

    /// The poll mask of TCP, without readability as long as a DECLINE may be all that has arrived.
    pub(super) fn poll_tcp(&self) -> u32 {
        fallback::settle_err(self);
        fallback::fetch_err(self);
        match self.is_decline_settled() {
            true => self.tcp.poll(),
            false => self.tcp.poll() & !(net::POLLIN | net::POLLRDNORM),
        }
    }

    /// Waits until the application may read from TCP.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when there is nothing in time, `ERESTARTSYS` or `EINTR` for a signal.
    #[inline]
    pub(super) fn await_decline_settled(&self, flags: u32) -> Result {
        match self.crossed_decline.is_awaited() {
            true => self.await_crossed_decline(flags),
            false => Ok(()),
        }
    }

    #[cold]
    fn await_crossed_decline(&self, flags: u32) -> Result {
        if flags & (net::MSG_OOB | net::MSG_ERRQUEUE) != 0 || self.is_decline_settled() {
            return Ok(());
        }
        let timeout = self.sk.rcvtimeo(flags & net::MSG_DONTWAIT != 0);
        let waited = self
            .sk
            .wait_until(timeout, false, || self.is_decline_settled());
        waited.map(drop).map_err(|end| end.errno())
    }
}
