// SPDX-License-Identifier: GPL-2.0
//! Two links with a queue pair at each end, as the streams see them.
//!
//! Meaner than hardware where hardware may be mean: the send buffer is read when a work request is
//! executed, not when it is posted; a completion may be reported long after; a failing link executes
//! any number of the posted work requests, and loses any number of their completions.

use std::collections::VecDeque;

use smc_proto::cursor::Chunk;
use smc_proto::stream::{
    Cdc,
    SentRecord,
    WritePlan, //
};

use super::{
    rng::Rng,
    Side, //
};

/// A posted work request.
#[derive(Debug)]
enum WorkRequest {
    Write {
        buffer: usize,
        dst_offset: u32,
        src: Vec<Chunk>,
    },
    Send {
        cdc: Cdc,
        record: SentRecord,
    },
}

/// One end of one link.
#[derive(Default)]
struct QueuePair {
    posted: VecDeque<WorkRequest>,
    /// Executed SENDs whose acknowledgement has not come back.
    unacked: VecDeque<SentRecord>,
    /// Completions to be polled.
    completions: VecDeque<(SentRecord, bool)>,
    /// Messages to be polled.
    received: VecDeque<Cdc>,
}

impl QueuePair {
    fn slots_used(&self) -> usize {
        let sends = self.posted.iter();
        let sends = sends.filter(|wr| matches!(wr, WorkRequest::Send { .. }));
        sends.count() + self.unacked.len() + self.completions.len()
    }
}

/// Memory of one end.
pub struct Memory {
    /// All send buffers ever lent; a returned one is filled with a pattern that no stream contains
    /// for long.
    pub sndbufs: Vec<Vec<u8>>,
    pub rmbe: Vec<u8>,
}

/// Both links.
pub struct Fabric {
    /// By link, then by side.
    qps: [[QueuePair; 2]; 2],
    up: [bool; 2],
    slots: usize,
    pub writes: u64,
}

/// Links by number.
pub const LINKS: [usize; 2] = [0, 1];

impl Fabric {
    pub fn new(slots: usize) -> Self {
        Self {
            qps: Default::default(),
            up: [true; 2],
            slots,
            writes: 0,
        }
    }

    pub fn is_up(&self, link: usize) -> bool {
        self.up[link]
    }

    pub fn has_slot(&self, side: Side, link: usize) -> bool {
        self.qps[link][side.index()].slots_used() < self.slots
    }

    /// Posts a plan; false if the link is down, and then nothing of it was posted.
    pub fn post(
        &mut self,
        side: Side,
        link: usize,
        plan: &WritePlan,
        buffer: Option<usize>,
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
                dst_offset: write.dst_offset,
                src,
            });
        }
        posted.push_back(WorkRequest::Send {
            cdc: plan.cdc,
            record: plan.record,
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
        match request {
            None => {}
            Some(WorkRequest::Write {
                buffer,
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
                memory[side.peer().index()].rmbe[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Some(WorkRequest::Send { cdc, record }) => {
                self.qps[link][side.peer().index()].received.push_back(cdc);
                self.qps[link][side.index()].unacked.push_back(record);
            }
        }
    }

    pub fn can_ack(&self, side: Side, link: usize) -> bool {
        !self.qps[link][side.index()].unacked.is_empty()
    }

    /// The acknowledgement of the oldest executed SEND comes back.
    pub fn ack(&mut self, side: Side, link: usize) {
        let qp = &mut self.qps[link][side.index()];
        if let Some(record) = qp.unacked.pop_front() {
            qp.completions.push_back((record, true));
        }
    }

    pub fn has_completion(&self, side: Side, link: usize) -> bool {
        !self.qps[link][side.index()].completions.is_empty()
    }

    pub fn poll_completion(&mut self, side: Side, link: usize) -> Option<(SentRecord, bool)> {
        self.qps[link][side.index()].completions.pop_front()
    }

    pub fn next_message(&self, side: Side, link: usize) -> Option<&Cdc> {
        self.qps[link][side.index()].received.front()
    }

    pub fn poll_message(&mut self, side: Side, link: usize) -> Option<Cdc> {
        self.qps[link][side.index()].received.pop_front()
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
            let flushed = qp.posted.drain(..).filter_map(|request| match request {
                WorkRequest::Write { .. } => None,
                WorkRequest::Send { record, .. } => Some(record),
            });
            let flushed = qp.unacked.drain(..).chain(flushed);
            qp.completions.extend(flushed.map(|record| (record, false)));
        }
    }

    /// What arrived at `side` by a failed link and was not polled is lost, as when its adapter dies.
    pub fn lose_received(&mut self, side: Side, link: usize) -> usize {
        let received = &mut self.qps[link][side.index()].received;
        let lost = received.len();
        received.clear();
        lost
    }

    /// Brings a failed link back with new queue pairs, once everything of the old ones was polled.
    pub fn repair(&mut self, link: usize) -> bool {
        let idle = self.qps[link]
            .iter()
            .all(|qp| qp.completions.is_empty() && qp.received.is_empty());
        self.up[link] |= idle;
        idle
    }
}
