// SPDX-License-Identifier: GPL-2.0
//! Two machines with one link group whose links come and go: the LLC (link layer control) cores of
//! both, with what the module does around them.
//!
//! A link is a queue pair on each side. What is sent to a queue pair that is gone breaks the
//! sender's link, as no acknowledgement comes. What the caller of a core does takes time.

use smc_proto::lgr::{
    LinkIdx,
    Rtokens, //
};
use smc_proto::llc::first_contact::Grace;
use smc_proto::llc::first_contact::PeerModule;
use smc_proto::llc::link_work::{
    AddPlan,
    DeleteCause,
    LinkWork, //
};
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
    LlcMessage,
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

use machine::token;
pub use machine::{
    key,
    Link,
    Machine, //
};

/// Longest time that a caller takes for a step of adding a link, in milliseconds.
pub const WORK: u32 = 1_500;

/// The timer of a machine's worker.
const WORKER: u32 = 1;

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
    /// A group after its first contact, whose links are not tested. Nobody has looked for a second link yet.
    pub fn new(seed: u64, version: Version, ports: [u8; 2]) -> Self {
        Self::with_tests(seed, version, ports, Duration::ZERO)
    }

    /// A group whose links are tested after so much silence.
    pub fn with_tests(seed: u64, version: Version, ports: [u8; 2], after: Duration) -> Self {
        let mut world = Self {
            net: Net::new(seed),
            rng: Rng::new(seed ^ 0x5555),
            machines: [
                Machine::new(Side::Client, version, ports[0], after),
                Machine::new(Side::Server, version, ports[1], after),
            ],
            next_qp: 3,
        };
        for side in Side::BOTH {
            // The worker is about something else.
            world.machine(side).working = Some(LinkWork::FlushRx);
            world.begin_first_contact(side);
        }
        while world
            .machines
            .iter()
            .any(|machine| machine.finished.is_empty())
        {
            assert!(world.step());
        }
        for machine in &mut world.machines {
            machine.finished.clear();
            machine.working = None;
            machine.llc.next_link_work();
        }
        world
    }

    fn begin_first_contact(&mut self, side: Side) {
        let now = self.net.now();
        let peer = PeerModule::Same(Grace::new(Duration::ZERO));
        let machine = self.machine(side);
        let end = machine.end(
            LinkIdx::FIRST,
            &machine.links[LinkIdx::FIRST].expect("the first link"),
        );
        let actions = machine.llc.begin_first_contact(end, peer, now);
        self.act(side, actions.expect("the group is new"));
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
        let due = machine.llc.deadline();
        if due != std::mem::replace(&mut machine.due, due) {
            if let Some(at) = due {
                self.net.set_timer(side, at, 0);
            }
        }
        self.wake_worker(side);
    }

    fn carry_out(&mut self, side: Side, action: &Action<'_>) {
        match action {
            Action::Send { idx, message } => {
                let idx = self.link_to_send(side, *idx, message);
                self.send(side, idx, message);
            }
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
                let keys = List::new(&keys).unwrap();
                let message = add::keys_from(*kind, *link_num, keys, *from);
                self.send(side, *on, &message);
            }
            Action::PrepareLink { idx, .. } => {
                self.run_llc(side, |llc, now| llc.on_link_prepared(*idx, Ok(()), now));
            }
            Action::LinkWork(_) => {}
            Action::ActivateLink { idx, .. } => {
                if let Some(link) = &mut self.machine(side).links[*idx] {
                    link.is_active = true;
                }
            }
            Action::LinkDead { idx } => self.lose(side, *idx),
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
        if let Finished::ConfirmRkey(result) = how {
            let rmb = machine.announcing.take().expect("it was announced");
            if result.is_ok() {
                machine.rmbs.push(rmb);
            }
        }
    }

    /// The machine's worker takes the next item, if it has none. Adding a link takes time.
    fn wake_worker(&mut self, side: Side) {
        let machine = self.machine(side);
        if machine.is_dead || machine.working.is_some() {
            return;
        }
        let has_work = machine.llc.has_link_work();
        let next = machine.llc.next_link_work();
        assert_eq!(has_work, next.is_some(), "{side:?}");
        let Some(work) = next else {
            return;
        };
        machine.working = Some(work);
        let is_slow = !matches!(work, LinkWork::DeleteLink(..) | LinkWork::Rebalance);
        let millis = match is_slow && !self.rng.one_in(2) {
            true => self.rng.below(WORK),
            false => 0,
        };
        let wait = Duration::from_millis(millis.into());
        let at = self.net.now().saturating_add(wait);
        self.net.set_timer(side, at, WORKER);
    }

    fn on_worker(&mut self, side: Side) {
        let machine = self.machine(side);
        if let (Some(work), false) = (machine.working, machine.is_dead) {
            self.do_work(side, work);
        }
        self.machine(side).working = None;
        self.wake_worker(side);
    }

    fn fails(&mut self, side: Side) -> bool {
        let fails = self.machine(side).fails;
        fails != 0 && self.rng.one_in(fails)
    }

    fn do_work(&mut self, side: Side, work: LinkWork) {
        match work {
            LinkWork::FlushRx | LinkWork::Rebalance => {}
            LinkWork::DeleteLink(idx, cause) => self.delete_link(side, idx, cause),
            LinkWork::AcceptAddLink { on, idx, link } => self.answer(side, (on, idx), link),
            LinkWork::ConnectLink(idx, peer) => {
                if let Some(link) = &mut self.machine(side).links[idx] {
                    link.peer_qp = Some(peer.qp_num.get() as u8);
                    link.peer.gid = peer.gid;
                }
                self.prepare(side, idx);
            }
            LinkWork::PrepareLink(idx) => self.prepare(side, idx),
            LinkWork::AddLink(why) => {
                let machine = self.machine(side);
                match machine.llc.plan_add_link(&machine.ends()) {
                    Some(AddPlan::DeleteFirst(idx)) => {
                        self.delete_link(side, idx, DeleteCause::AsymmetricUnneeded);
                    }
                    Some(AddPlan::Offer) => self.offer(why),
                    Some(AddPlan::Invite) => self.invite(),
                    None => {}
                }
            }
        }
    }

    fn prepare(&mut self, side: Side, idx: LinkIdx) {
        let result = match self.fails(side) {
            true => Err(Reason::LinkNotReady),
            false => Ok(()),
        };
        self.run_llc(side, |llc, now| llc.on_link_prepared(idx, result, now));
    }

    /// Time passes at a machine: its flows, and tests of links.
    fn on_timer(&mut self, side: Side) {
        self.machine(side).due = None;
        self.run_llc(side, |llc, now| llc.on_timeout(now));
        for idx in LinkIdx::ALL {
            let Some(link) = self.machine(side).links[idx] else {
                continue;
            };
            self.run_llc(side, |llc, now| {
                llc.on_heard(idx, link.heard);
                llc.on_link_timeout(idx, now)
            });
        }
    }

    /// A DELETE LINK takes another link where the one that it is meant for has failed.
    fn link_to_send(&mut self, side: Side, idx: LinkIdx, message: &LlcMessage<'_>) -> LinkIdx {
        let machine = self.machine(side);
        match message.body {
            Body::DeleteLink(_) if !machine.up()[idx] => {
                machine.active().first().copied().unwrap_or(idx)
            }
            _ => idx,
        }
    }

    fn send(&mut self, side: Side, idx: LinkIdx, message: &LlcMessage<'_>) {
        let Some(link) = self.machine(side).links[idx] else {
            return;
        };
        let mut buf = [0; MAX_LEN];
        let bytes = message.emit(PeerOrder::Linux, &mut buf).expect("it fits");
        self.net.send(side, link.qp, bytes.to_vec());
    }

    /// A test of every link, as a silent link gets it.
    pub fn test_links(&mut self) {
        for side in [Side::Client, Side::Server] {
            for idx in self.machine(side).active() {
                self.run_llc(side, |llc, _| llc.test_link(idx));
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

    /// Runs until nothing is under way; attempts to add a link may come later, and so on without end.
    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            if self.is_settled() || !self.step() {
                return;
            }
        }
        panic!("the machines do not settle");
    }

    fn is_settled(&self) -> bool {
        let is_settled = |machine: &Machine| {
            let has_work = !machine.is_dead && machine.llc.has_link_work();
            machine.llc.is_idle() && machine.working.is_none() && !has_work
        };
        !self.net.has_packets() && self.machines.iter().all(is_settled)
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
            Some(Event::Timer { side, id: WORKER }) => self.on_worker(side),
            Some(Event::Timer { side, .. }) => self.on_timer(side),
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
        let from_idx = sender.links.position(by_qp);
        let receiver = self.machine(from.peer());
        let to_us = |link: &Option<Link>| {
            link.is_some_and(|link| link.peer_qp == Some(qp) && !link.is_broken)
        };
        let Some(idx) = receiver.links.position(to_us) else {
            if let Some(idx) = from_idx {
                self.lose(from, idx);
            }
            return;
        };
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            panic!("not an LLC message");
        };
        if matches!(message.body, Body::TestLink(_)) && receiver.is_dead {
            return;
        }
        if let Some(link) = &mut receiver.links[idx] {
            link.heard = now;
        }
        let numbers = receiver.numbers();
        let mut arrival = Arrival {
            idx,
            spare: receiver.spare(),
            links: &numbers,
            rtokens: &mut Rtokens::new(&mut receiver.rows),
        };
        let actions = receiver.llc.on_message(&message, &mut arrival, now);
        self.act(from.peer(), actions);
    }
}
