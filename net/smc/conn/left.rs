// SPDX-License-Identifier: GPL-2.0

//! Data that an application left behind when it closed: they go on to the peer as long as that takes some, as
//! over TCP. One that takes none loses them after `net.ipv4.tcp_fin_timeout`.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};

use super::{
    Conn,
    Inner, //
};

/// What an application left behind.
#[derive(Clone, Copy)]
pub(super) struct Left {
    /// How long the peer may take nothing.
    patience: Duration,
    /// How much there was when the peer was last seen to have taken some.
    amount: u32,
    /// When that was.
    since: Instant,
}

impl Inner {
    /// The application goes at `now`; says whether there are data that outlive it.
    pub(crate) fn leave_behind(&mut self, patience: Duration, now: Instant) -> bool {
        self.left = self.stream.is_closing().then(|| Left {
            patience,
            amount: self.amount_left(),
            since: now,
        });
        self.left.is_some()
    }

    /// Bytes that the peer has yet to take.
    fn amount_left(&self) -> u32 {
        self.stream.queues().map_or(0, |queues| queues.outq)
    }

    /// When the patience with a peer that takes nothing ends; `None` if there is nothing for it to take.
    fn left_until(&mut self, now: Instant) -> Option<Instant> {
        let amount = self.amount_left();
        self.left = self.left.filter(|_| self.stream.is_closing());
        let left = self.left.as_mut()?;
        if left.amount != amount {
            (left.amount, left.since) = (amount, now);
        }
        Some(left.since.saturating_add(left.patience))
    }
}

impl Conn {
    /// When to look again for data that the application left behind; `None` if there are none. Those that the
    /// peer does not take are given up. Does not sleep.
    pub(super) fn look(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let end = self.with(|inner| inner.left_until(now))?;
        if end.is_due(now) {
            self.kill(ETIMEDOUT);
            return None;
        }
        Some(end)
    }
}
