// SPDX-License-Identifier: GPL-2.0

//! What is to be done about a group's links where sleeping is allowed: noted under the group's lock when
//! a message or a failure asks for it, done by a worker of the group, one after the other.

use smc_proto::{
    lgr::{
        redundancy::Occasion,
        LINK_SLOTS, //
    },
    wire::llc::NewLink, //
};

/// Why a link goes.
#[derive(Clone, Copy)]
pub(crate) enum Loss {
    /// It failed here: the peer is to be told.
    Failed,
    /// The server does not need it: the client is to be told, then it goes.
    Unneeded,
    /// Both know.
    Agreed,
}

/// One thing to do.
#[derive(Clone, Copy)]
pub(crate) enum Chore {
    /// A connection waits for what may have been received by another link.
    Drain,
    /// The link in a slot goes.
    Lose(usize, Loss),
    /// The server offered a link: on the link in slot `on`, for `slot`.
    Answer {
        on: usize,
        slot: usize,
        link: NewLink,
    },
    /// The client accepted the link in a slot.
    Connect(usize, NewLink),
    /// The server tries the link in a slot.
    Prepare(usize),
    /// There is one more link: connections of others use it.
    Spread,
    /// Another link may be of use.
    Add(Occasion),
}

/// What is to be done. A flow asks for one thing at a time, so that nothing is lost here.
#[derive(Default)]
pub(crate) struct Chores {
    drain: bool,
    losses: [Option<Loss>; LINK_SLOTS],
    step: Option<Chore>,
    spread: bool,
    add: Option<Occasion>,
}

impl Chores {
    /// Notes something to do.
    pub(crate) fn push(&mut self, chore: Chore) {
        match chore {
            Chore::Drain => self.drain = true,
            Chore::Spread => self.spread = true,
            Chore::Lose(slot, why) => {
                if let Some(place) = self.losses.get_mut(slot) {
                    *place = Some(why);
                }
            }
            // An invitation says more than an occasion of our own.
            Chore::Add(Occasion::OwnPort) if self.add.is_some() => {}
            Chore::Add(why) => self.add = Some(why),
            Chore::Answer { .. } | Chore::Connect(..) | Chore::Prepare(_) => {
                self.step = Some(chore);
            }
        }
    }

    /// Takes the next: first what connections wait for, then slots become free, and what the peer waits
    /// for comes before what it does not know of. A flow of ours cannot begin unless `is_idle`: at the end of
    /// the one under way [`Chores::wants_flow`] tells of it.
    pub(crate) fn pop(&mut self, is_idle: bool) -> Option<Chore> {
        if core::mem::take(&mut self.drain) {
            return Some(Chore::Drain);
        }
        let lost = self.losses.iter().position(Option::is_some);
        if let Some(slot) = lost {
            let why = self.losses.get_mut(slot)?.take()?;
            return Some(Chore::Lose(slot, why));
        }
        if let Some(step) = self.step.take() {
            return Some(step);
        }
        if core::mem::take(&mut self.spread) {
            return Some(Chore::Spread);
        }
        self.add.take_if(|_| is_idle).map(Chore::Add)
    }

    /// Whether a link is to go.
    pub(crate) fn has_losses(&self) -> bool {
        self.losses.iter().any(Option::is_some)
    }

    /// Whether a flow of ours waits to begin.
    pub(crate) fn wants_flow(&self) -> bool {
        self.add.is_some()
    }
}
