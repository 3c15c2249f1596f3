// SPDX-License-Identifier: GPL-2.0

//! TEST_LINK for connections that wait for data after the peer's close: a response shows that the peer has processed
//! what was sent before, and has posted what it had to send then.
//!
//! On each link one request is in flight at a time, for all connections that waited when it was sent. An unanswered one
//! needs no timeout of its own: a link on which nothing arrives is taken down, and connections whose peer does not
//! close are given up.

use kernel::sync::Arc;
use kernel_ext::prelude::*;
use smc_proto::{
    id::{
        AlertToken,
        QpNum, //
    },
    lgr::{
        LinkIdx,
        LinkMap, //
    }, //
};

use super::{
    LgrConn,
    LinkGroup, //
};

/// A request in flight: the QP of the link that carried it, and its number.
type Asked = Option<(QpNum, u64)>;

/// A connection that waits for a response.
struct Waiter {
    token: AlertToken,
    idx: LinkIdx,
    /// Number of the request that it waits for; `None` if that was not sent yet.
    number: Option<u64>,
}

/// The requests of a group, and the connections that wait for responses.
pub(super) struct Echoes {
    last: u64,
    asked: LinkMap<Asked>,
    /// Each connection is there at most once; there is room for all, so it does not allocate.
    waiting: KVec<Waiter>,
}

impl Echoes {
    /// Creates an empty queue, for at most `limit` connections.
    pub(super) fn new(limit: usize) -> Result<Self> {
        Ok(Self {
            last: 0,
            asked: LinkMap::default(),
            waiting: KVec::with_capacity(limit, GFP_KERNEL)?,
        })
    }

    /// Removes a connection from the queue.
    pub(super) fn forget(&mut self, token: AlertToken) {
        self.waiting.retain(|waiter| waiter.token != token);
    }

    /// Returns the number of a request to send on link `idx`, with queue pair `qp`, if a connection waits for one and
    /// none is in flight.
    fn next(&mut self, idx: LinkIdx, qp: QpNum) -> Option<u64> {
        let asked = &mut self.asked[idx];
        let is_under_way = asked.is_some_and(|(on, _)| on == qp);
        let mut unasked = self
            .waiting
            .iter_mut()
            .filter(|waiter| waiter.idx == idx && waiter.number.is_none())
            .peekable();
        if is_under_way || unasked.peek().is_none() {
            return None;
        }
        self.last += 1;
        *asked = Some((qp, self.last));
        unasked.for_each(|waiter| waiter.number = Some(self.last));
        Some(self.last)
    }

    /// Completes the request with this number on link `idx`; returns whether it was in flight.
    fn answered(&mut self, idx: LinkIdx, number: u64) -> bool {
        let answered = self.asked[idx].take_if(|(_, on_its_way)| *on_its_way == number);
        answered.is_some()
    }

    /// Takes a connection that waited for the response with this number out of the queue.
    fn pop(&mut self, number: u64) -> Option<AlertToken> {
        let is_it = |waiter: &Waiter| waiter.number == Some(number);
        let place = self.waiting.iter().position(is_it)?;
        Some(self.waiting.remove(place).ok()?.token)
    }
}

impl LinkGroup {
    /// Calls [`LgrConn::on_echo`] for a connection once the peer has answered a TEST_LINK on link `idx` that is sent
    /// from now on. Replaces an earlier request of the connection.
    /// Context: does not sleep.
    pub(crate) fn want_echo(self: &Arc<Self>, token: AlertToken, idx: LinkIdx) {
        let waiter = Waiter {
            token,
            idx,
            number: None,
        };
        let mut inner = self.inner.lock();
        inner.echoes.forget(token);
        if inner.conns.has(token) {
            let _ = inner.echoes.waiting.push_within_capacity(waiter);
        }
        drop(inner);
        self.send_echo(idx);
    }

    /// Drops the request in flight on link `idx`, which is gone. Connections that waited send another one on another
    /// link.
    /// Context: does not sleep.
    pub(crate) fn forget_echo(&self, idx: LinkIdx) {
        self.inner.lock().echoes.asked[idx] = None;
    }

    fn send_echo(self: &Arc<Self>, idx: LinkIdx) {
        let Some(link) = self.link(idx) else {
            return;
        };
        let next = self.inner.lock().echoes.next(idx, link.qp_num());
        if let Some(number) = next {
            self.ask_echo(idx, number);
        }
    }

    /// Handles the response to the TEST_LINK with this number on link `idx`.
    /// Context: does not sleep.
    pub(crate) fn on_echo(self: &Arc<Self>, idx: LinkIdx, number: u64) {
        if !self.inner.lock().echoes.answered(idx, number) {
            return;
        }
        while let Some(member) = self.next_echoed(number) {
            member.on_echo();
        }
        self.send_echo(idx);
    }

    fn next_echoed(&self, number: u64) -> Option<Arc<dyn LgrConn>> {
        let mut inner = self.inner.lock();
        // Connections that left were removed from the queue.
        let token = inner.echoes.pop(number)?;
        inner.conns.find(token)
    }
}
