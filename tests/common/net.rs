// SPDX-License-Identifier: GPL-2.0
//! Messages between two ends, with delays, losses and timers, on a clock that jumps from one event to
//! the next.
//!
//! A channel is a number (0 the TCP connection, else a link): messages of one direction of a channel keep
//! their order. [`Rule`]s see every message and say what happens to it.

use std::collections::BTreeMap;

use smc_proto::time::{
    Duration,
    Instant, //
};

use super::{
    rng::Rng,
    Side, //
};

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<M> {
    pub from: Side,
    pub channel: u8,
    /// Counts all messages from 0, in the order of [`Net::send`].
    pub number: u64,
    pub message: M,
}

/// What a rule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Lose,
    /// Passes so much later; what follows on the channel waits behind it.
    Delay(Duration),
    /// Passes, and once more so much later.
    Twice(Duration),
}

/// Says what happens to a message; the first verdict that is not `Pass` counts.
pub type Rule<M> = Box<dyn FnMut(&Packet<M>) -> Verdict>;

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<M> {
    /// The message arrives at the other end than `from`.
    Arrived(Packet<M>),
    /// The timer that an end asked for is due.
    Timer { side: Side, id: u32 },
}

/// The network and the clock.
pub struct Net<M> {
    now: Instant,
    rng: Rng,
    events: BTreeMap<(Instant, u64), Event<M>>,
    /// When the last message of a direction of a channel arrives.
    busy: BTreeMap<(Side, u8), Instant>,
    rules: Vec<Rule<M>>,
    count: u64,
    sent: u64,
    lost: u64,
}

impl<M: Clone> Net<M> {
    /// A network whose delays come from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            rng: Rng::new(seed),
            events: BTreeMap::new(),
            busy: BTreeMap::new(),
            rules: Vec::new(),
            count: 0,
            sent: 0,
            lost: 0,
        }
    }

    pub fn add_rule(&mut self, rule: impl FnMut(&Packet<M>) -> Verdict + 'static) {
        self.rules.push(Box::new(rule));
    }

    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether a message is on its way.
    pub fn has_packets(&self) -> bool {
        let mut events = self.events.values();
        events.any(|event| matches!(event, Event::Arrived(_)))
    }

    /// Messages that rules took.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Sends a message; it arrives 1 to 50 us later unless a rule objects.
    pub fn send(&mut self, from: Side, channel: u8, message: M) {
        let packet = Packet {
            from,
            channel,
            number: self.sent,
            message,
        };
        self.sent += 1;
        let verdict = self
            .rules
            .iter_mut()
            .map(|rule| rule(&packet))
            .find(|verdict| *verdict != Verdict::Pass)
            .unwrap_or(Verdict::Pass);
        let extra = match verdict {
            Verdict::Pass => Duration::ZERO,
            Verdict::Delay(extra) => extra,
            Verdict::Twice(later) => {
                let at = self.now.saturating_add(later);
                self.schedule(at, Event::Arrived(packet.clone()));
                Duration::ZERO
            }
            Verdict::Lose => {
                self.lost += 1;
                return;
            }
        };
        let delay = Duration::from_nanos(u64::from(self.rng.between(1_000, 50_000)));
        let at = self.now.saturating_add(delay).saturating_add(extra);
        let busy = self.busy.entry((from, channel)).or_default();
        *busy = at.max(*busy);
        let at = *busy;
        self.schedule(at, Event::Arrived(packet));
    }

    /// Asks for a timer event at `at`. There is no taking back: who is asked ignores what is stale.
    pub fn set_timer(&mut self, side: Side, at: Instant, id: u32) {
        let at = at.max(self.now);
        self.schedule(at, Event::Timer { side, id });
    }

    /// Throws away what is under way on a channel, as a failing link does.
    pub fn cut(&mut self, channel: u8) {
        self.events.retain(
            |_, event| !matches!(event, Event::Arrived(packet) if packet.channel == channel),
        );
    }

    /// The next event; the clock jumps to it. `None` when nothing is under way.
    pub fn step(&mut self) -> Option<Event<M>> {
        let ((at, _), event) = self.events.pop_first()?;
        self.now = at;
        Some(event)
    }

    fn schedule(&mut self, at: Instant, event: Event<M>) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }
}
