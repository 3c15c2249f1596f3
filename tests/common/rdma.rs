// SPDX-License-Identifier: GPL-2.0
//! Two links with a queue pair at each end, as the streams see them.
//!
//! A link over iWARP is a TCP stream in each direction. What was posted on it may be delivered after the link failed at
//! the sender, until the receiver takes its queue pair down. The sender learns of delivery from an acknowledgement.
//!
//! The simulation uses all freedom that verbs give to a device: a send buffer is read when its work request is
//! executed, not when it is posted; a completion may be reported much later; a failing link executes any number of the
//! posted work requests, and loses any number of their completions.

use std::collections::VecDeque;

use smc_proto::conn::{
    Cdc,
    SentRecord,
    WritePlan, //
};
use smc_proto::cursor::Chunk;
use smc_proto::id::LinkNum;
use smc_proto::lgr::MAX_LINKS;
use smc_proto::link::Transport;

use super::{
    rng::Rng,
    Side, //
};

/// A posted work request.
#[derive(Debug)]
enum WorkRequest {
    Write {
        buffer: usize,
        /// The RMBE of the other end.
        to: usize,
        dst_offset: u32,
        src: Vec<Chunk>,
    },
    Send {
        cdc: Cdc,
        record: SentRecord,
    },
    /// After the write that carries the immediate data.
    Immediate {
        arrived: Arrived,
        record: SentRecord,
    },
}

impl WorkRequest {
    /// The record of one with a completion of its own.
    fn record(&self) -> Option<SentRecord> {
        match self {
            Self::Write { .. } => None,
            Self::Send { record, .. } | Self::Immediate { record, .. } => Some(*record),
        }
    }
}

/// What a receive completion reports.
#[derive(Clone, Copy, Debug)]
pub enum Arrived {
    Message(Cdc),
    /// Immediate data of a write.
    Immediate {
        seq: u16,
        len: u32,
        /// The message that they stand for.
        cdc: Cdc,
    },
}

/// What is in flight in a TCP stream.
#[derive(Debug)]
enum Segment {
    Write {
        to: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Send(Cdc),
}

/// What a completion reports of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It was delivered, or was lost.
    Sent(bool),
    /// It was sent; over iWARP that does not mean delivered.
    Left,
}

/// Messages that may be on their way over iWARP.
const WINDOW: usize = 16;

/// One end of one link.
#[derive(Default)]
struct QueuePair {
    posted: VecDeque<WorkRequest>,
    /// Executed SENDs whose acknowledgement has not come back.
    unacked: VecDeque<SentRecord>,
    /// Completions to be polled.
    completions: VecDeque<(SentRecord, Completion)>,
    /// Messages to be polled.
    received: VecDeque<Arrived>,
    // Over iWARP only:
    /// In flight to the other end.
    stream: VecDeque<Segment>,
    /// Messages sent that are not acknowledged.
    awaiting_ack: VecDeque<SentRecord>,
    /// How many of them the other end has received.
    handled: usize,
    /// An acknowledgement was requested.
    ack_requested: bool,
    /// The queue pair is down: it receives nothing.
    stopped: bool,
}

impl QueuePair {
    fn slots_used(&self) -> usize {
        let sends = self.posted.iter();
        let sends = sends.filter_map(WorkRequest::record);
        sends.count() + self.unacked.len() + self.completions.len()
    }
}

/// Memory of one end.
pub struct Memory {
    /// All send buffers ever lent; a returned one is filled with a pattern that no stream contains
    /// for long.
    pub sndbufs: Vec<Vec<u8>>,
    /// All RMBEs that the connection ever had; one that was released is empty.
    pub rmbes: Vec<Vec<u8>>,
}

/// Both links.
pub struct Fabric {
    /// By link, then by side.
    qps: [[QueuePair; 2]; 2],
    up: [bool; 2],
    kinds: [Transport; 2],
    /// How often each link was repaired.
    repairs: [u8; 2],
    slots: usize,
    pub writes: u64,
    /// Writes with immediate data.
    pub immediates: u64,
}

/// Links by number.
pub const LINKS: [usize; 2] = [0, 1];

impl Fabric {
    pub fn new(slots: usize) -> Self {
        Self {
            qps: Default::default(),
            up: [true; 2],
            kinds: [Transport::Roce; 2],
            repairs: [0; 2],
            slots,
            writes: 0,
            immediates: 0,
        }
    }

    pub fn set_kinds(&mut self, kinds: [Transport; 2]) {
        self.kinds = kinds;
    }

    /// The number of a link: another one when it comes back.
    pub fn number(&self, link: usize) -> LinkNum {
        LinkNum(self.repairs[link] * 2 + link as u8 + 1)
    }

    /// The numbers of the links over iWARP that one end took down.
    pub fn retired(&self, side: Side) -> [LinkNum; MAX_LINKS] {
        let mut numbers = [LinkNum::NONE; MAX_LINKS];
        for link in LINKS {
            if self.is_iwarp(link) && self.is_stopped(side, link) {
                numbers[link] = self.number(link);
            }
        }
        numbers
    }

    pub fn is_stopped(&self, side: Side, link: usize) -> bool {
        self.qps[link][side.index()].stopped
    }

    pub fn is_iwarp(&self, link: usize) -> bool {
        self.kinds[link] == Transport::Iwarp
    }

    pub fn is_up(&self, link: usize) -> bool {
        self.up[link]
    }

    pub fn has_slot(&self, side: Side, link: usize) -> bool {
        let qp = &self.qps[link][side.index()];
        let used = qp.slots_used();
        used < self.slots && used + qp.awaiting_ack.len() < WINDOW
    }

    /// Posts a plan, with data of `buffer` for RMBE `to`; false if the link is down, and then nothing of it was posted.
    pub fn post(
        &mut self,
        side: Side,
        link: usize,
        plan: &WritePlan,
        buffer: Option<usize>,
        to: usize,
    ) -> bool {
        if !self.up[link] {
            return false;
        }
        let posted = &mut self.qps[link][side.index()].posted;
        for write in plan.writes() {
            let src: Vec<Chunk> = write.sources().copied().collect();
            assert_eq!(src.iter().map(|chunk| chunk.len).sum::<u32>(), write.len);
            posted.push_back(WorkRequest::Write {
                buffer: buffer.expect("data come from a send buffer"),
                to,
                dst_offset: write.dst_offset,
                src,
            });
        }
        let (cdc, record) = (plan.cdc, plan.record);
        posted.push_back(match plan.immediate() {
            None => WorkRequest::Send { cdc, record },
            Some(seq) => {
                assert_eq!(plan.writes().count(), 1);
                assert_eq!(self.kinds[link], Transport::Roce);
                self.immediates += 1;
                let len = plan.len();
                WorkRequest::Immediate {
                    arrived: Arrived::Immediate { seq, len, cdc },
                    record,
                }
            }
        });
        true
    }

    /// Whether [`Fabric::execute`] would do something.
    pub fn can_execute(&self, side: Side, link: usize) -> bool {
        !self.qps[link][side.index()].posted.is_empty()
    }

    /// Executes the next work request of a queue pair.
    pub fn execute(&mut self, side: Side, link: usize, memory: &mut [Memory; 2]) {
        let request = self.qps[link][side.index()].posted.pop_front();
        if let Some(WorkRequest::Write { .. }) = request {
            // One with immediate data is one work request.
            let posted = &mut self.qps[link][side.index()].posted;
            if let Some(WorkRequest::Immediate { arrived, record }) = posted.front() {
                let (arrived, record) = (*arrived, *record);
                posted.pop_front();
                self.receive(side, link, arrived, record);
            }
        }
        match request {
            None => {}
            Some(WorkRequest::Write {
                buffer,
                to,
                dst_offset,
                src,
            }) => {
                self.writes += 1;
                let mut bytes = Vec::new();
                for Chunk { offset, len } in src {
                    let (offset, len) = (offset as usize, len as usize);
                    bytes.extend(&memory[side.index()].sndbufs[buffer][offset..offset + len]);
                }
                let at = dst_offset as usize;
                match self.kinds[link] {
                    Transport::Roce => place(&mut memory[side.peer().index()], to, at, &bytes),
                    Transport::Iwarp => {
                        let segment = Segment::Write { to, at, bytes };
                        self.qps[link][side.index()].stream.push_back(segment);
                    }
                }
            }
            Some(WorkRequest::Immediate { .. }) => panic!("executed with its write"),
            Some(WorkRequest::Send { cdc, record }) => match self.kinds[link] {
                Transport::Roce => self.receive(side, link, Arrived::Message(cdc), record),
                Transport::Iwarp => {
                    let qp = &mut self.qps[link][side.index()];
                    qp.stream.push_back(Segment::Send(cdc));
                    qp.awaiting_ack.push_back(record);
                    qp.completions.push_back((record, Completion::Left));
                    qp.ack_requested |= qp.awaiting_ack.len() >= WINDOW / 2;
                }
            },
        }
    }

    /// The other end of a link over RoCE receives what `side` posted.
    fn receive(&mut self, side: Side, link: usize, arrived: Arrived, record: SentRecord) {
        self.qps[link][side.peer().index()]
            .received
            .push_back(arrived);
        self.qps[link][side.index()].unacked.push_back(record);
    }

    /// Whether [`Fabric::bring`] would do something.
    pub fn can_bring(&self, side: Side, link: usize) -> bool {
        let [from, to] = [side, side.peer()].map(|side| &self.qps[link][side.index()]);
        !from.stream.is_empty() && !to.stopped
    }

    /// TCP delivers the next segment that `side` sent.
    pub fn bring(&mut self, side: Side, link: usize, memory: &mut [Memory; 2]) {
        let peer = side.peer().index();
        match self.qps[link][side.index()].stream.pop_front() {
            None => {}
            Some(Segment::Write { to, at, bytes }) => place(&mut memory[peer], to, at, &bytes),
            Some(Segment::Send(cdc)) => {
                let received = &mut self.qps[link][peer].received;
                received.push_back(Arrived::Message(cdc));
            }
        }
    }

    /// Requests an acknowledgement, unless one was requested.
    pub fn request_ack(&mut self, side: Side, link: usize) {
        self.qps[link][side.index()].ack_requested |= self.is_iwarp(link);
    }

    /// Whether the other end acknowledges now: everything sent before the request has been received.
    pub fn can_tell(&self, side: Side, link: usize) -> bool {
        let [from, to] = [side, side.peer()].map(|side| &self.qps[link][side.index()]);
        let is_there = from.posted.is_empty() && from.stream.is_empty() && to.received.is_empty();
        from.ack_requested && is_there && !to.stopped && !from.stopped
    }

    /// Returns the records of the messages that the other end has acknowledged.
    pub fn tell(&mut self, side: Side, link: usize) -> Vec<SentRecord> {
        let qp = &mut self.qps[link][side.index()];
        qp.ack_requested &= qp.handled < qp.awaiting_ack.len() || !qp.posted.is_empty();
        let handled = std::mem::take(&mut qp.handled);
        qp.awaiting_ack.drain(..handled).collect()
    }

    /// Takes one end of a link over iWARP down: it receives nothing any more. Returns the records of messages that will
    /// not be acknowledged.
    pub fn stop(&mut self, side: Side, link: usize) -> Vec<SentRecord> {
        if !self.is_iwarp(link) {
            return Vec::new();
        }
        let qp = &mut self.qps[link][side.index()];
        qp.stopped = true;
        qp.handled = 0;
        qp.awaiting_ack.drain(..).collect()
    }

    pub fn can_ack(&self, side: Side, link: usize) -> bool {
        !self.qps[link][side.index()].unacked.is_empty()
    }

    /// The acknowledgement of the oldest executed SEND arrives.
    pub fn ack(&mut self, side: Side, link: usize) {
        let qp = &mut self.qps[link][side.index()];
        if let Some(record) = qp.unacked.pop_front() {
            qp.completions.push_back((record, Completion::Sent(true)));
        }
    }

    pub fn has_completion(&self, side: Side, link: usize) -> bool {
        !self.qps[link][side.index()].completions.is_empty()
    }

    pub fn poll_completion(&mut self, side: Side, link: usize) -> Option<(SentRecord, Completion)> {
        self.qps[link][side.index()].completions.pop_front()
    }

    pub fn has_message(&self, side: Side, link: usize) -> bool {
        !self.qps[link][side.index()].received.is_empty()
    }

    pub fn poll_message(&mut self, side: Side, link: usize) -> Option<Arrived> {
        let arrived = self.qps[link][side.index()].received.pop_front()?;
        let sender = &mut self.qps[link][side.peer().index()];
        sender.handled = (sender.handled + 1).min(sender.awaiting_ack.len());
        Some(arrived)
    }

    /// Whether a validation was posted on a link, and not polled by the other end.
    pub fn has_validation(&self, link: usize) -> bool {
        self.qps[link].iter().any(|qp| {
            let posted = qp.posted.iter().filter_map(|request| match request {
                WorkRequest::Write { .. } | WorkRequest::Immediate { .. } => None,
                WorkRequest::Send { cdc, .. } => Some(cdc),
            });
            let received = qp.received.iter().filter_map(|arrived| match arrived {
                Arrived::Message(cdc) => Some(cdc),
                Arrived::Immediate { .. } => None,
            });
            posted.chain(received).any(Cdc::is_validation)
        })
    }

    /// The link fails now: some of what was posted is executed, some of that is acknowledged, and
    /// the rest is flushed.
    pub fn fail(&mut self, link: usize, rng: &mut Rng, memory: &mut [Memory; 2]) {
        self.up[link] = false;
        for side in Side::BOTH {
            let posted = self.qps[link][side.index()].posted.len();
            for _ in 0..rng.between(0, posted as u32) {
                self.execute(side, link, memory);
            }
            let unacked = self.qps[link][side.index()].unacked.len();
            for _ in 0..rng.between(0, unacked as u32) {
                self.ack(side, link);
            }
            let qp = &mut self.qps[link][side.index()];
            let flushed = qp.posted.drain(..);
            let flushed = flushed.filter_map(|request| request.record());
            let flushed = qp.unacked.drain(..).chain(flushed);
            let lost = Completion::Sent(false);
            qp.completions.extend(flushed.map(|record| (record, lost)));
        }
    }

    /// Messages received by `side` on a failed link and not polled yet are lost, as when its adapter is removed.
    pub fn lose_received(&mut self, side: Side, link: usize) -> usize {
        let received = &mut self.qps[link][side.index()].received;
        let lost = received.len();
        received.clear();
        lost
    }

    /// Brings a failed link back with new queue pairs, once everything of the old ones was polled.
    pub fn repair(&mut self, link: usize) -> bool {
        let is_iwarp = self.is_iwarp(link);
        let idle = self.qps[link].iter().all(|qp| {
            let is_down = qp.stopped || !is_iwarp;
            is_down && qp.completions.is_empty() && qp.received.is_empty()
        });
        if idle {
            self.up[link] = true;
            self.repairs[link] += 1;
            self.qps[link] = Default::default();
        }
        idle
    }
}

fn place(memory: &mut Memory, to: usize, at: usize, bytes: &[u8]) {
    let rmbe = &mut memory.rmbes[to];
    assert!(!rmbe.is_empty(), "a write to an RMBE that was released");
    rmbe[at..at + bytes.len()].copy_from_slice(bytes);
}
