// SPDX-License-Identifier: GPL-2.0

//! TEST_LINK for connections that wait for what the peer may send after its close: an answer shows that the
//! peer has seen what was sent before, and has posted what it had to send then.
//!
//! On each link one request is on its way at a time, for all connections that waited when it was sent. One that
//! is answered by nobody is no matter of its own: a link on which nothing is heard is taken down, and connections
//! that the peer does not end are given up.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use smc_proto::{
    id::{
        AlertToken,
        QpNum, //
    },
    lgr::LINK_SLOTS, //
};

use super::{
    LgrConn,
    LinkGroup, //
};

/// A request on its way: its number, and the queue pair of the link that carried it.
type Asked = Option<(QpNum, u64)>;

/// A connection that waits for an answer.
struct Waiter {
    token: AlertToken,
    slot: usize,
    /// The request that it waits for; `None` if that was not sent yet.
    number: Option<u64>,
}

/// What a group has asked, and for whom.
pub(super) struct Echoes {
    last: u64,
    asked: [Asked; LINK_SLOTS],
    /// Each connection at most once; there is room for all, so it does not allocate.
    waiting: KVec<Waiter>,
}

impl Echoes {
    /// Nothing, for a group of at most so many connections.
    pub(super) fn new(limit: usize) -> Result<Self> {
        Ok(Self {
            last: 0,
            asked: [None; LINK_SLOTS],
            waiting: KVec::with_capacity(limit, GFP_KERNEL)?,
        })
    }

    /// The connection waits no more.
    pub(super) fn forget(&mut self, token: AlertToken) {
        self.waiting.retain(|waiter| waiter.token != token);
    }

    /// The number of a request that is to be sent now on the link in `slot`, whose queue pair this is: if somebody
    /// waits for one, and none is on its way.
    fn next(&mut self, slot: usize, qp: QpNum) -> Option<u64> {
        let asked = self.asked.get_mut(slot)?;
        let is_under_way = asked.is_some_and(|(on, _)| on == qp);
        let mut unasked = self
            .waiting
            .iter_mut()
            .filter(|waiter| waiter.slot == slot && waiter.number.is_none())
            .peekable();
        if is_under_way || unasked.peek().is_none() {
            return None;
        }
        self.last += 1;
        *asked = Some((qp, self.last));
        unasked.for_each(|waiter| waiter.number = Some(self.last));
        Some(self.last)
    }

    /// The request with this number was answered, on the link in `slot`: says whether there was one.
    fn answered(&mut self, slot: usize, number: u64) -> bool {
        let asked = self.asked.get_mut(slot);
        asked.is_some_and(|asked| {
            asked
                .take_if(|(_, on_its_way)| *on_its_way == number)
                .is_some()
        })
    }

    /// A connection that waited for the answer with this number, and waits no more.
    fn pop(&mut self, number: u64) -> Option<AlertToken> {
        let is_it = |waiter: &Waiter| waiter.number == Some(number);
        let place = self.waiting.iter().position(is_it)?;
        Some(self.waiting.remove(place).ok()?.token)
    }
}

impl LinkGroup {
    /// Has [`LgrConn::on_echo`] called for a connection once the peer has answered a TEST_LINK on the link in `slot`
    /// that is sent from now on. Forgets what the connection waited for before. Does not sleep.
    pub(crate) fn want_echo(self: &Arc<Self>, token: AlertToken, slot: usize) {
        let waiter = Waiter {
            token,
            slot,
            number: None,
        };
        let mut table = self.table.lock();
        table.echoes.forget(token);
        if table.conns.has(token) {
            let _ = table.echoes.waiting.push_within_capacity(waiter);
        }
        drop(table);
        self.send_echo(slot);
    }

    /// The link in `slot` is gone, and with it an answer that was on its way. Who waited asks again on another
    /// link. Does not sleep.
    pub(crate) fn forget_echo(&self, slot: usize) {
        if let Some(asked) = self.table.lock().echoes.asked.get_mut(slot) {
            *asked = None;
        }
    }

    fn send_echo(self: &Arc<Self>, slot: usize) {
        let Some(link) = self.link(slot) else {
            return;
        };
        let next = self.table.lock().echoes.next(slot, link.qp_num());
        if let Some(number) = next {
            self.ask_echo(slot, number);
        }
    }

    /// The peer answered the TEST_LINK with this number on the link in `slot`. Does not sleep.
    pub(crate) fn on_echo(self: &Arc<Self>, slot: usize, number: u64) {
        if !self.table.lock().echoes.answered(slot, number) {
            return;
        }
        while let Some(member) = self.next_echoed(number) {
            member.on_echo();
        }
        self.send_echo(slot);
    }

    fn next_echoed(&self, number: u64) -> Option<Arc<dyn LgrConn>> {
        let mut table = self.table.lock();
        // Who has left was forgotten before.
        let token = table.echoes.pop(number)?;
        table.conns.find(token)
    }
}
