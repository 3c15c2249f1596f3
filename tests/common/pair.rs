// SPDX-License-Identifier: GPL-2.0
//! Two hosts, each with one `Stream`, its rings and an application, over [`super::rdma`].
//!
//! [`Pair::step`] does one thing that could happen now, chosen by the seed. A host does only what the
//! stream's effects allow: an application that was told to wait sleeps until an effect wakes it, and
//! nothing is transmitted unless an effect asked for it. So a missing effect shows as a standstill,
//! which [`Pair::run`] reports.

mod app;
mod end;
mod receive;
mod rmbes;

use std::collections::BTreeSet;

use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    CdcHold,
    Effects,
    Fault,
    Handover,
    Recv,
    SendError,
    SendFlags,
    Stream, //
};
use smc_proto::cursor::Chunks;
use smc_proto::link::Transport;

use self::rmbes::Rmbes;
use super::{
    rdma::{
        Completion,
        Fabric,
        Memory,
        LINKS, //
    },
    rng::{
        mix,
        Rng, //
    },
    ReadNext as _,
    Side, //
};

/// What one application does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes to send before it shuts down writing.
    pub send: u64,
    /// One send call in so many is urgent; 0 for none.
    pub oob_one_in: u32,
    /// SO_OOBINLINE.
    pub inline: bool,
    /// One send call in so many says "more comes".
    pub cork_one_in: u32,
    /// Largest send and read.
    pub chunk: u32,
    /// Closes at once when all was sent, instead of shutting down writing and reading to the end.
    pub close_early: bool,
    /// Sizes of RMBE and send buffers.
    pub rmbe: SizeClass,
    pub sndbuf: SizeClass,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            send: 100_000,
            oob_one_in: 0,
            inline: false,
            cork_one_in: 8,
            chunk: 20_000,
            close_early: false,
            rmbe: SizeClass::SMALLEST,
            sndbuf: SizeClass::SMALLEST,
        }
    }
}

/// One end.
pub struct Host {
    pub stream: Stream,
    cdc_hold: CdcHold,
    /// The completion queues are to be emptied.
    drain: bool,
    pub plan: Plan,
    pub link: usize,
    /// The link that it is to use as soon as it can.
    next: Option<usize>,
    /// The send buffer that the stream has now.
    buffer: Option<usize>,
    rmbes: Rmbes,
    pub written: u64,
    /// Stream position of the next byte to read, skipped urgent bytes included.
    pub read: u64,
    /// Stream positions of the urgent bytes that this end sent.
    urgents: BTreeSet<u64>,
    writer_awake: bool,
    reader_awake: bool,
    transmit: bool,
    shut: bool,
    /// The reader saw the end.
    pub ended: bool,
    pub released: bool,
    /// How often SIGURG was raised, and the stream position of the last urgent byte.
    pub signals: usize,
    pub urgent: Option<u64>,
    pub reset: bool,
    pub fault: Option<Fault>,
    pub send_error: Option<SendError>,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug)]
enum Action {
    Write(Side),
    Read(Side),
    Finish(Side),
    Transmit(Side),
    Switch(Side),
    Handover(Side),
    Offer(Side),
    Execute(Side, usize),
    Ack(Side, usize),
    Bring(Side, usize),
    Tell(Side, usize),
    Completion(Side, usize),
    Message(Side, usize),
    Drain(Side),
    Fail(usize),
    Repair(usize),
}

/// Both ends and what is between them.
pub struct Pair {
    pub seed: u64,
    pub rng: Rng,
    pub hosts: [Host; 2],
    pub memory: [Memory; 2],
    pub fabric: Fabric,
    /// How many more links may fail.
    pub failures: u32,
    /// How many more times a host may be told to use the other link, though its own works.
    pub handovers: u32,
    /// How many times it did.
    pub handed_over: u32,
    /// How many more times a host may offer another RMBE, and how many times the peer adopted one.
    pub offers: u32,
    pub adopted: u32,
    /// The ends treat each other as they treat a C module.
    like_c: bool,
    pub steps: u64,
}

impl Pair {
    pub fn new(seed: u64, client: Plan, server: Plan) -> Self {
        let mut rng = Rng::new(mix(seed));
        let slots = rng.between(1, 16) as usize;
        let like_c = seed % 2 == 0;
        let host = |plan: Plan, peer: Plan| {
            let mut stream = Stream::new(plan.rmbe);
            stream.establish(peer.rmbe);
            stream.set_oob_inline(plan.inline);
            match like_c {
                true => stream.advertise_late(),
                false => {
                    stream.set_immediate(true);
                    stream.set_replaceable();
                }
            }
            Host::new(stream, plan)
        };
        let memory = |plan: Plan| Memory {
            sndbufs: Vec::new(),
            rmbes: vec![vec![0; plan.rmbe.bytes() as usize]],
        };
        Self {
            seed,
            rng,
            hosts: [host(client, server), host(server, client)],
            memory: [memory(client), memory(server)],
            fabric: Fabric::new(slots),
            failures: 0,
            handovers: 0,
            handed_over: 0,
            offers: 0,
            adopted: 0,
            like_c,
            steps: 0,
        }
    }

    /// Two machines with links of these kinds, which run what the C module does not.
    pub fn over(kinds: [Transport; 2], seed: u64, client: Plan, server: Plan) -> Self {
        // Those of an odd seed are not like the C module.
        let mut pair = Self::new(seed | 1, client, server);
        pair.fabric.set_kinds(kinds);
        for side in Side::BOTH {
            pair.allow_immediate(side);
        }
        pair
    }

    /// A host begins to use a link.
    fn allow_immediate(&mut self, side: Side) {
        let host = &mut self.hosts[side.index()];
        let is_allowed = !self.like_c && !self.fabric.is_iwarp(host.link);
        host.stream.set_immediate(is_allowed);
    }

    pub fn host(&mut self, side: Side) -> &mut Host {
        &mut self.hosts[side.index()]
    }

    /// Runs until nothing can happen any more.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Runs while `go_on` holds; panics at a standstill.
    pub fn run_while(&mut self, go_on: impl Fn(&Self) -> bool) {
        while go_on(self) {
            assert!(
                self.step(),
                "standstill: {:#?}",
                self.hosts.each_ref().map(|h| h.stream)
            );
        }
    }

    /// Does one of the things that can happen now; false if there is none.
    pub fn step(&mut self) -> bool {
        let actions = self.actions();
        // What breaks or mends links, or changes their load, does not count as progress.
        let idle = actions.iter().all(|action| {
            matches!(
                action,
                Action::Fail(_) | Action::Repair(_) | Action::Handover(_) | Action::Offer(_)
            )
        });
        if idle {
            return false;
        }
        let mut action = *self.rng.pick(&actions);
        let is_rare = match action {
            Action::Fail(_) | Action::Handover(_) | Action::Offer(_) => true,
            // What a stream still brings after its end may come late.
            Action::Bring(_, link) => !self.fabric.is_up(link),
            _ => false,
        };
        if is_rare && !self.rng.one_in(50) {
            action = *self.rng.pick(&actions);
        }
        self.steps += 1;
        assert!(self.steps < 20_000_000, "no end in sight");
        self.act(action);
        true
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::with_capacity(32);
        for side in Side::BOTH {
            let host = &self.hosts[side.index()];
            actions.extend(host.app_actions(side));
            if host.drain {
                actions.push(Action::Drain(side));
            }
            if !self.fabric.is_up(host.link) {
                if self.fabric.is_up(1 - host.link) {
                    actions.push(Action::Switch(side));
                }
            } else if host.transmit && self.fabric.has_slot(side, host.link) {
                actions.push(Action::Transmit(side));
            }
            let is_up = LINKS.iter().all(|link| self.fabric.is_up(*link));
            if self.handovers > 0 && host.next.is_none() && is_up {
                actions.push(Action::Handover(side));
            }
            if self.offers > 0 && host.stream.may_offer_rmbe() {
                actions.push(Action::Offer(side));
            }
            for link in LINKS {
                let enabled = [
                    (
                        self.fabric.can_execute(side, link),
                        Action::Execute(side, link),
                    ),
                    (self.fabric.can_ack(side, link), Action::Ack(side, link)),
                    (self.fabric.can_bring(side, link), Action::Bring(side, link)),
                    (self.fabric.can_tell(side, link), Action::Tell(side, link)),
                    (
                        self.fabric.has_completion(side, link),
                        Action::Completion(side, link),
                    ),
                    (
                        self.fabric.has_message(side, link),
                        Action::Message(side, link),
                    ),
                ];
                actions.extend(
                    enabled
                        .iter()
                        .filter(|(can, _)| *can)
                        .map(|(_, action)| *action),
                );
            }
        }
        for link in LINKS {
            if self.can_repair(link) {
                actions.push(Action::Repair(link));
            } else if self.failures > 0 && self.fabric.is_up(link) && self.fabric.is_up(1 - link) {
                actions.push(Action::Fail(link));
            }
        }
        actions
    }

    /// A C module adds a link by messages over the only other one, which come after the validations there.
    fn can_repair(&self, link: usize) -> bool {
        let is_used = self.hosts.iter().any(|host| host.link == link);
        let may_validate = |host: &Host| host.transmit;
        let is_early = self.like_c
            && (self.hosts.iter().any(may_validate) || self.fabric.has_validation(1 - link));
        !self.fabric.is_up(link) && !is_used && !is_early
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write(side) => self.write(side),
            Action::Read(side) => self.read(side),
            Action::Finish(side) => self.host(side).finish(),
            Action::Transmit(side) => self.transmit(side),
            Action::Switch(side) => {
                let link = self.host(side).link;
                self.stop(side, link);
                let host = self.host(side);
                host.link = 1 - host.link;
                host.next = None;
                let fx = host.stream.on_link_switch();
                self.allow_immediate(side);
                self.apply(side, fx);
            }
            Action::Handover(side) => {
                self.handovers -= 1;
                let host = self.host(side);
                host.next = Some(1 - host.link);
                host.transmit = true;
            }
            Action::Offer(side) => self.offer_rmbe(side),
            Action::Execute(side, link) => self.fabric.execute(side, link, &mut self.memory),
            Action::Ack(side, link) => self.fabric.ack(side, link),
            Action::Bring(side, link) => self.fabric.bring(side, link, &mut self.memory),
            Action::Tell(side, link) => self.tell(side, link),
            Action::Completion(side, link) => self.completion(side, link),
            Action::Message(side, link) => self.message(side, link),
            Action::Drain(side) => self.drain(side),
            Action::Fail(link) => {
                self.failures -= 1;
                self.fabric.fail(link, &mut self.rng, &mut self.memory);
            }
            Action::Repair(link) => {
                self.fabric.repair(link);
            }
        }
    }

    fn write(&mut self, side: Side) {
        let host = &mut self.hosts[side.index()];
        if let Err(error) = host.stream.can_send() {
            host.send_error = Some(error);
            return;
        }
        if host.stream.needs_sndbuf() {
            let sndbufs = &mut self.memory[side.index()].sndbufs;
            assert!(host.stream.attach_sndbuf(host.plan.sndbuf));
            host.buffer = Some(sndbufs.len());
            sndbufs.push(vec![0xdd; host.plan.sndbuf.bytes() as usize]);
        }
        if host.stream.writable() == 0 {
            host.writer_awake = false;
            return;
        }
        let rest = host.plan.send - host.written;
        let want = self.rng.between(1, host.plan.chunk).min(rest as u32);
        let chunks = host.stream.reserve(want);
        let mut pos = host.written;
        for chunk in chunks {
            for offset in chunk.offset..chunk.offset + chunk.len {
                let buffer = host.buffer.expect("attached above");
                self.memory[side.index()].sndbufs[buffer][offset as usize] =
                    byte_at(self.seed, side, pos);
                pos += 1;
            }
        }
        let taken = (pos - host.written) as u32;
        let oob = host.plan.oob_one_in > 0 && self.rng.one_in(host.plan.oob_one_in);
        let how = SendFlags {
            oob,
            last: taken == want,
            corked: host.plan.cork_one_in > 0 && self.rng.one_in(host.plan.cork_one_in),
            autocork_bytes: 65_536,
        };
        host.written = pos;
        if oob && how.last {
            host.urgents.insert(pos - 1);
        }
        host.transmit |= host.stream.commit(taken, how);
    }

    fn read(&mut self, side: Side) {
        let mut host = &mut self.hosts[side.index()];
        if host.stream.urgent().is_some() && self.rng.one_in(2) {
            self.read_urgent(side);
            host = &mut self.hosts[side.index()];
        }
        host.transmit |= host.stream.skip_urgent().transmit;
        self.release_replaced(side);
        let host = &mut self.hosts[side.index()];
        match host.stream.recv_state() {
            Recv::Wait => host.reader_awake = false,
            Recv::Eof | Recv::NotConnected => host.ended = true,
            Recv::Ready(readable) => {
                assert!(readable <= host.rmbes.largest);
                let want = self.rng.between(1, host.plan.chunk);
                let chunks = host.stream.peek_chunks(0, want);
                let len = chunks[0].len + chunks[1].len;
                assert!(len > 0, "readable, but nothing to read");
                let end = self.check_bytes(side, chunks);
                let host = self.host(side);
                host.read = end;
                host.transmit |= host.stream.consume_next(len).transmit;
                self.release_replaced(side);
            }
        }
    }

    fn read_urgent(&mut self, side: Side) {
        let urgent = self.hosts[side.index()].urgent.expect("SIGURG was raised");
        let expected = byte_at(self.seed, side.peer(), urgent);
        let host = self.host(side);
        assert_eq!(host.stream.urgent(), Some(expected));
        host.transmit |= host.stream.take_urgent(host.stream.urgent_end()).transmit;
        assert_eq!(host.stream.urgent(), None);
    }

    /// Compares what lies in the RMBE with what the peer sent; returns the position behind it.
    fn check_bytes(&self, side: Side, chunks: Chunks) -> u64 {
        let host = &self.hosts[side.index()];
        let mut pos = host.read;
        let rmbe = self.rmbe_to_read(side);
        for chunk in chunks {
            for offset in chunk.offset..chunk.offset + chunk.len {
                pos += u64::from(host.leaves_out(pos));
                let byte = rmbe[offset as usize];
                assert_eq!(
                    byte,
                    byte_at(self.seed, side.peer(), pos),
                    "{side:?} reads {pos}"
                );
                pos += 1;
            }
        }
        pos
    }

    fn transmit(&mut self, side: Side) {
        let host = &mut self.hosts[side.index()];
        if let Some(next) = host.next {
            match host.stream.handover() {
                Handover::Now => {
                    host.link = next;
                    host.next = None;
                    self.handed_over += 1;
                    self.allow_immediate(side);
                }
                Handover::Pause => {
                    host.transmit = false;
                    self.fabric.request_ack(side, host.link);
                    return;
                }
                Handover::Later => {}
            }
        }
        loop {
            let host = &mut self.hosts[side.index()];
            if !self.fabric.has_slot(side, host.link) {
                // Stays marked: goes on when a slot is free.
                return;
            }
            let Some(mut plan) = host.stream.plan() else {
                break;
            };
            if plan.cdc.is_validation() {
                plan.cdc = plan.cdc.with_retired_links(self.fabric.retired(side));
            }
            // A post that fails for no lasting reason: nothing of the plan may count.
            let (buffer, to) = (host.buffer, host.rmbes.remote);
            let posted =
                !self.rng.one_in(40) && self.fabric.post(side, host.link, &plan, buffer, to);
            if !posted {
                host.stream.plan_failed(&plan.record);
                return;
            }
        }
        let host = &mut self.hosts[side.index()];
        host.transmit = false;
        if host.stream.needs_ack() || host.stream.needs_ack_eventually() {
            self.fabric.request_ack(side, host.link);
        }
    }

    fn completion(&mut self, side: Side, link: usize) {
        let Some((record, completion)) = self.fabric.poll_completion(side, link) else {
            return;
        };
        let stream = &mut self.host(side).stream;
        let fx = match completion {
            Completion::Sent(delivered) => stream.on_sent(&record, delivered),
            Completion::Left => stream.on_local_completion(),
        };
        self.apply(side, fx);
        self.release_sndbuf(side);
    }

    /// The peer says what it has.
    fn tell(&mut self, side: Side, link: usize) {
        for record in self.fabric.tell(side, link) {
            let fx = self.host(side).stream.on_acked(&record, true);
            self.apply(side, fx);
        }
        self.release_sndbuf(side);
    }

    /// Takes the queue pair of a link that is down into the error state.
    fn stop(&mut self, side: Side, link: usize) {
        for record in self.fabric.stop(side, link) {
            let fx = self.host(side).stream.on_acked(&record, false);
            self.apply(side, fx);
        }
    }

    fn release_sndbuf(&mut self, side: Side) {
        let release = self.rng.one_in(2);
        let host = &mut self.hosts[side.index()];
        if release && host.stream.detach_sndbuf(false) {
            // Who still reads it fails.
            let buffer = host.buffer.take().expect("attached");
            self.memory[side.index()].sndbufs[buffer] = Vec::new();
        }
    }

    fn apply(&mut self, side: Side, fx: Effects) {
        if fx.replaced {
            self.replace_rmbe(side);
        }
        if let Some(offset) = fx.urgent_at {
            let rmbe = &self.memory[side.index()].rmbes[self.hosts[side.index()].rmbes.present];
            let byte = rmbe[offset as usize];
            let (host, peer) = (&self.hosts[side.index()], &self.hosts[side.peer().index()]);
            // What is not read yet fits the ring. A byte that is left out counts as read: the next may lie there.
            let size = rmbe.len() as u64;
            let urgent = (host.place()..host.place() + size)
                .find(|pos| pos % size == u64::from(offset) && peer.urgents.contains(pos))
                .expect("the peer sent an urgent byte that lies there");
            assert_eq!(byte, byte_at(self.seed, side.peer(), urgent), "urgent byte");
            let host = self.host(side);
            // Who stands at a byte that is not the last urgent one any more does not get it.
            host.read += u64::from(host.leaves_out(host.read));
            host.stream.store_urgent(byte);
            host.signals += 1;
            host.urgent = Some(urgent);
        }
        let host = self.host(side);
        host.transmit |= fx.transmit;
        host.reader_awake |= fx.wake_readers;
        host.writer_awake |= fx.wake_writers;
        host.reset |= fx.reset;
    }
}

/// The byte that `side` sends at a stream position.
pub fn byte_at(seed: u64, side: Side, pos: u64) -> u8 {
    let word = mix(seed ^ mix(pos / 8 * 2 + side.index() as u64));
    word.to_le_bytes()[(pos % 8) as usize]
}
