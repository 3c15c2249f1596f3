// SPDX-License-Identifier: GPL-2.0
//! Two machines with one link group whose links come and go: the LLC (link layer control) cores of
//! both, with what the module does around them.
//!
//! A link is a queue pair on each side. What is sent to a queue pair that is gone breaks the
//! sender's link, as no acknowledgement comes. What the caller of a core does takes time.

use smc_proto::lgr::redundancy::{
    superfluous,
    Occasion, //
};
use smc_proto::lgr::Rtokens;
use smc_proto::llc::{
    add,
    Action,
    Actions,
    Arrival,
    Finished,
    Llc, //
};
use smc_proto::reason::Reason;
use smc_proto::time::{
    Duration,
    Instant, //
};
use smc_proto::wire::llc::{
    Body,
    DeleteReason,
    Message,
    PeerOrder,
    MAX_LEN, //
};
use smc_proto::wire::{
    List,
    Received,
    Version, //
};

use super::net::{
    Event,
    Net, //
};
use super::rng::Rng;
use super::Side;

mod machine;
mod ops;
mod views;

pub use machine::{
    key,
    Link,
    Machine, //
};
use machine::{
    port,
    token,
    Work, //
};

/// Longest time that a caller takes for what a core asked it for.
pub const WORK: u32 = 1_500;

pub type Wire = Net<Vec<u8>>;

pub struct World {
    pub net: Wire,
    pub rng: Rng,
    pub machines: [Machine; 2],
    next_qp: u8,
}

/// The limits of all groups here.
pub const MAX_LINKS: u8 = 4;

impl World {
    pub fn new(seed: u64, version: Version, ports: [u8; 2]) -> Self {
        Self {
            net: Net::new(seed),
            rng: Rng::new(seed ^ 0x5555),
            machines: [
                Machine::new(Side::Client, version, ports[0]),
                Machine::new(Side::Server, version, ports[1]),
            ],
            next_qp: 3,
        }
    }

    pub fn machine(&mut self, side: Side) -> &mut Machine {
        &mut self.machines[side.index()]
    }

    /// Runs a step of a core and carries out what it wants.
    pub fn run_llc(
        &mut self,
        side: Side,
        step: impl FnOnce(&mut Llc, Instant) -> Actions<'static>,
    ) {
        let now = self.net.now();
        let actions = step(&mut self.machine(side).llc, now);
        self.act(side, actions);
    }

    pub fn act(&mut self, side: Side, actions: Actions<'_>) {
        let now = self.net.now();
        for action in actions {
            self.carry_out(side, &action);
        }
        let machine = self.machine(side);
        machine.busy_since = match machine.llc.is_idle() {
            true => None,
            false => machine.busy_since.or(Some(now)),
        };
        if let Some(at) = machine.llc.deadline() {
            self.net.set_timer(side, at, 0);
        }
    }

    fn carry_out(&mut self, side: Side, action: &Action<'_>) {
        match action {
            Action::Send { slot, message } => self.send(side, *slot, message),
            Action::SendKeys {
                on,
                kind,
                link_num,
                from,
            } => {
                let machine = self.machine(side);
                let new = machine.links.iter().flatten();
                let new = new.copied().find(|link| link.number == *link_num);
                let keys = machine.keys(*on, new.map_or(0, |link| link.qp));
                let message = Message {
                    version: machine.version,
                    kind: *kind,
                    body: add::keys_from(*link_num, List::new(&keys).unwrap(), *from),
                };
                self.send(side, *on, &message);
            }
            Action::PrepareLink { slot, .. } => self.work(side, Work::Prepare { slot: *slot }),
            Action::ConnectLink { slot, peer } => self.work(
                side,
                Work::Connect {
                    slot: *slot,
                    peer: *peer,
                },
            ),
            Action::LinkOffered { on, slot, link } => self.work(
                side,
                Work::Answer {
                    on: *on,
                    slot: *slot,
                    link: *link,
                },
            ),
            Action::Invited { on } => self.offer_because(*on, Occasion::Invitation),
            Action::ActivateLink { slot, .. } => {
                if let Some(link) = &mut self.machine(side).links[*slot] {
                    link.is_active = true;
                }
            }
            Action::TakeDownLink { slot } => self.take_down(side, *slot),
            Action::TerminateGroup(_) => self.machine(side).is_dead = true,
            Action::Finished(how) => self.finish(side, *how),
            Action::Ignored(_) => {}
        }
    }

    fn finish(&mut self, side: Side, how: Finished) {
        let now = self.net.now();
        let machine = self.machine(side);
        let since = machine.busy_since.replace(now).unwrap_or(now);
        machine.longest = machine.longest.max(now.saturating_since(since));
        machine.finished.push(how);
        match how {
            Finished::ConfirmRkey(result) => {
                let rmb = machine.announcing.take().expect("it was announced");
                if result.is_ok() {
                    machine.rmbs.push(rmb);
                }
            }
            Finished::AddLink {
                slot,
                result: Err(_),
            } => self.take_down(side, slot),
            Finished::AddLink { result: Ok(()), .. } if side == Side::Server => {
                if let Some(slot) = superfluous(&self.machine(side).ends()) {
                    self.delete(side, slot, DeleteReason::ASYMMETRIC_UNNEEDED);
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, side: Side, work: Work) {
        let millis = match self.rng.one_in(2) {
            true => 0,
            false => self.rng.below(WORK),
        };
        let at = self
            .net
            .now()
            .saturating_add(Duration::from_millis(millis.into()));
        let machine = self.machine(side);
        let id = machine.next_work;
        machine.next_work += 1;
        machine.work.insert(id, work);
        self.net.set_timer(side, at, id);
    }

    fn fails(&mut self, side: Side) -> bool {
        let fails = self.machine(side).fails;
        fails != 0 && self.rng.one_in(fails)
    }

    fn do_work(&mut self, side: Side, work: Work) {
        let result = match self.fails(side) {
            true => Err(Reason::LinkNotReady),
            false => Ok(()),
        };
        match work {
            Work::Answer { on, slot, link } => self.answer(side, (on, slot), link, result.is_err()),
            Work::Connect { slot, peer } => {
                if let Some(link) = &mut self.machine(side).links[slot] {
                    link.peer_qp = Some(peer.qp_num.get() as u8);
                    link.peer.gid = peer.gid;
                }
                self.run_llc(side, |llc, now| llc.on_link_prepared(slot, result, now));
            }
            Work::Prepare { slot } => {
                self.run_llc(side, |llc, now| llc.on_link_prepared(slot, result, now));
            }
        }
    }

    fn take_down(&mut self, side: Side, slot: usize) {
        let machine = self.machine(side);
        if machine.links[slot].take().is_none() {
            return;
        }
        Rtokens::new(&mut machine.rows).delete_link(slot);
        if machine.active().is_empty() {
            machine.is_dead = true;
        }
        self.run_llc(side, |llc, now| llc.on_link_down(slot, now));
    }

    fn send(&mut self, side: Side, slot: usize, message: &Message<'_>) {
        let Some(link) = self.machine(side).links[slot] else {
            return;
        };
        let mut buf = [0; MAX_LEN];
        let bytes = message.emit(PeerOrder::Linux, &mut buf).expect("it fits");
        self.net.send(side, link.qp, bytes.to_vec());
    }

    /// A test of every link, as a silent link gets it.
    pub fn test_links(&mut self) {
        for side in [Side::Client, Side::Server] {
            for slot in self.machine(side).active() {
                self.run_llc(side, |llc, _| llc.test_link(slot));
            }
        }
    }

    pub fn run(&mut self) {
        for _ in 0..20_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the machines do not come to rest");
    }

    /// Runs what happens in the next `millis`.
    pub fn run_for(&mut self, millis: u64) {
        let end = self.net.now().saturating_add(Duration::from_millis(millis));
        self.net.set_timer(Side::Client, end, u32::MAX);
        while self.net.now() < end && self.step() {}
    }

    pub fn step(&mut self) -> bool {
        match self.net.step() {
            None => return false,
            Some(Event::Timer { side, id }) => match self.machine(side).work.remove(&id) {
                Some(work) => self.do_work(side, work),
                None => self.run_llc(side, |llc, now| llc.on_timeout(now)),
            },
            Some(Event::Arrived(packet)) => {
                self.arrive(packet.from, packet.channel, &packet.message);
            }
        }
        true
    }

    fn arrive(&mut self, from: Side, qp: u8, bytes: &[u8]) {
        let now = self.net.now();
        let sender = self.machine(from);
        let by_qp = |link: &Option<Link>| link.is_some_and(|link| link.qp == qp);
        let from_slot = sender.links.iter().position(by_qp);
        let receiver = self.machine(from.peer());
        let to_us = |link: &Option<Link>| link.is_some_and(|link| link.peer_qp == Some(qp));
        let Some(slot) = receiver.links.iter().position(to_us) else {
            if let Some(slot) = from_slot {
                self.lose(from, slot);
            }
            return;
        };
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            panic!("not an LLC message");
        };
        if matches!(message.body, Body::TestLink(_)) && receiver.is_dead {
            return;
        }
        let numbers = receiver.numbers();
        let mut arrival = Arrival {
            slot,
            spare: receiver.spare(),
            links: &numbers,
            rtokens: &mut Rtokens::new(&mut receiver.rows),
        };
        let actions = receiver.llc.on_message(&message, &mut arrival, now);
        self.act(from.peer(), actions);
    }
}
