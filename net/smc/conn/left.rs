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
    /// How much there was when it was looked at, and when that was.
    seen: Option<(u32, Instant)>,
}

impl Inner {
    /// The application goes; says whether there are data that outlive it.
    pub(crate) fn leave_behind(&mut self, patience: Duration) -> bool {
        let is_closing = self.stream.is_closing();
        self.left = is_closing.then_some(Left {
            patience,
            seen: None,
        });
        is_closing
    }

    /// When to look again for data that were left behind. `Err` if it is over.
    fn look_at_left(&mut self, now: Instant) -> Result<Option<Instant>, ()> {
        let is_closing = self.stream.is_closing();
        let amount = self.stream.queues().map_or(0, |queues| queues.outq);
        let Some(left) = self.left.as_mut().filter(|_| is_closing) else {
            self.left = None;
            return Ok(None);
        };
        match left.seen {
            Some((before, since)) if before == amount => {
                let end = since.saturating_add(left.patience);
                if end.is_due(now) {
                    Err(())
                } else {
                    Ok(Some(end))
                }
            }
            _ => {
                left.seen = Some((amount, now));
                Ok(Some(now.saturating_add(left.patience)))
            }
        }
    }
}

impl Conn {
    /// When to look again for data that the application left behind; `None` if there are none. Those that the
    /// peer does not take are given up. Does not sleep.
    pub(super) fn look(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let next = self.with(|inner| inner.look_at_left(now));
        next.unwrap_or_else(|()| {
            self.kill(ETIMEDOUT);
            None
        })
    }
}
