// SPDX-License-Identifier: GPL-2.0
//! Plans the next message and its writes, and processes its completion.

use crate::conn::{
    is_before,
    Cdc,
    Effects,
    ProducerFlags,
    StateFlags,
    Stream, //
};
use crate::cursor::{
    Chunk,
    Chunks,
    Cursor, //
};

/// One RDMA write: `len` bytes of the send buffer, in one or two pieces, to one place in the peer's RMBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaWrite {
    /// Byte offset in the peer's RMBE.
    pub dst_offset: u32,
    /// Bytes, the sum of the pieces.
    pub len: u32,
    /// Where in the send buffer they are. The second piece is empty unless the buffer wraps.
    pub src: Chunks,
}

impl RdmaWrite {
    /// The non-empty pieces.
    pub fn sources(&self) -> impl Iterator<Item = &Chunk> {
        self.src.iter().filter(|chunk| chunk.len > 0)
    }
}

/// What the module keeps in the send slot until the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentRecord {
    /// Positions of the posted data before and after.
    start: u64,
    end: u64,
    seq: u16,
    epoch: u8,
    urgent: bool,
    validation: bool,
    /// The message is the first with our close flag.
    first_close: bool,
}

/// Work requests to post in this order: the writes, then the message, unless there are [immediate
/// data](WritePlan::immediate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    writes: [RdmaWrite; 2],
    /// The message.
    pub cdc: Cdc,
    /// To be kept until the completion of the message.
    pub record: SentRecord,
    immediate: bool,
}

impl WritePlan {
    /// The RDMA writes: two if the peer's RMBE wraps, none if there are no data.
    pub fn writes(&self) -> impl Iterator<Item = &RdmaWrite> {
        self.writes.iter().filter(|write| write.len > 0)
    }

    /// The sequence number for the immediate data of the only write, which take the place of the message.
    pub fn immediate(&self) -> Option<u16> {
        self.immediate.then_some(self.cdc.seq)
    }

    /// Bytes of data.
    pub fn len(&self) -> u32 {
        // OVERFLOW: together at most one RMBE.
        self.writes
            .iter()
            .fold(0, |sum: u32, write| sum.wrapping_add(write.len))
    }

    /// Whether only the message goes out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Stream {
    /// Whether [`Stream::plan`] would return a plan. Never before [`Stream::establish`].
    pub fn has_work(&self) -> bool {
        let due = self.validation_due || self.cdc_due || self.is_close_ready();
        self.send.has_peer() && !self.has_no_link && (due || self.can_write_data())
    }

    /// Whether our close is due and can be posted: all data have been posted, unless the peer has closed, and are known
    /// to have arrived, so that no link failure requires repeating them: after the close the peer may give its RMBE to
    /// another connection, and nothing can be repeated.
    ///
    /// The C module waits only two seconds, in close(2): it loses data that the peer has no room for by then, and
    /// silently data lost with a link that fails after a close.
    pub(super) fn is_close_ready(&self) -> bool {
        let pending = self.own.any_close() && !self.close_posted;
        let is_unsaid = self.send.unsent() > 0 && !self.peer.any_close();
        let is_through = !is_unsaid && !self.send.has_unconfirmed();
        pending && (self.own.contains(StateFlags::ABORTED) || is_through)
    }

    /// Our state flags that may be sent now: "done writing" follows the last data.
    fn flags_to_send(&self) -> StateFlags {
        let mut flags = self.own;
        if !self.close_posted && !self.is_close_ready() {
            flags = flags.without(StateFlags::CLOSED);
        }
        if !flags.contains(StateFlags::CLOSED) && self.send.unsent() > 0 {
            flags = flags.without(StateFlags::DONE_WRITING);
        }
        flags
    }

    /// Whether data may be written: there are some, the peer has room, and neither side has closed.
    ///
    /// Nothing may be written after our close was posted; after the peer's close nothing is read.
    fn can_write_data(&self) -> bool {
        self.send.postable() > 0
            && self.send.window() > 0
            && !self.close_posted
            && !self.peer.any_close()
            && !self.killed
    }

    /// Returns the next message and its writes, which count as sent. `None` if nothing is due.
    pub fn plan(&mut self) -> Option<WritePlan> {
        if !self.has_work() {
            return None;
        }
        if self.validation_due {
            return Some(self.plan_validation());
        }
        let start = self.send.sent();
        let blocked = self.send.is_write_blocked();
        let writes = if self.can_write_data() {
            self.send.take_writes()
        } else {
            Default::default()
        };
        let pending = self.send.is_urgent_pending();
        let urgent = self.send.take_urgent_present();
        let state = self.flags_to_send();
        let first_close = state.any_close() && !self.close_posted;
        let seq = self.seq.wrapping_add(1);
        let flags = ProducerFlags::default()
            .with(ProducerFlags::WRITE_BLOCKED, blocked)
            .with(ProducerFlags::URGENT_PENDING, pending)
            .with(ProducerFlags::URGENT_PRESENT, urgent);
        let immediate = self.take_immediate(start, &writes, flags, state);
        self.announced = self.send.sent();

        let cons = match immediate || self.is_final_message(state) {
            true => self.recv.advertised_cursor(),
            false => self.recv.advertise(),
        };
        let record = SentRecord {
            start,
            end: self.send.sent(),
            seq,
            epoch: self.epoch,
            urgent,
            validation: false,
            first_close,
        };
        self.forget_echo(false);
        self.seq = seq;
        self.has_sent = true;
        self.cdc_due = false;
        self.close_posted |= first_close;
        self.count_posted();
        Some(WritePlan {
            writes,
            cdc: Cdc {
                seq,
                prod: self.send.prod_cursor(),
                cons,
                flags,
                state,
                rmbes: self.rmbe_refs(),
            },
            record,
            immediate,
        })
    }

    /// The producer cursor of a validation: see [`Stream::is_stale`].
    fn last_before_move(&self) -> Cursor {
        let wrap = match self.recv.advertises_late() {
            true => 0,
            false => self.seq,
        };
        Cursor { wrap, offset: 0 }
    }

    fn plan_validation(&mut self) -> WritePlan {
        self.validation_due = false;
        self.count_posted();
        WritePlan {
            writes: Default::default(),
            cdc: Cdc {
                seq: self.seq_fin,
                prod: self.last_before_move(),
                flags: ProducerFlags::FAILOVER,
                ..Cdc::default()
            },
            record: SentRecord {
                epoch: self.epoch,
                validation: true,
                ..SentRecord::default()
            },
            immediate: false,
        }
    }

    /// Reverts a plan that could not be posted: all of it counts as not sent. To be called under the same hold of the
    /// lock as [`Stream::plan`].
    pub fn plan_failed(&mut self, record: &SentRecord) {
        self.pending = self.pending.saturating_sub(1);
        self.unacked = self.unacked.saturating_sub(1);
        self.immediate.suspend();
        if record.validation {
            self.validation_due = true;
            return;
        }
        self.send.give_back(record.start, record.urgent);
        self.seq = record.seq.wrapping_sub(1);
        self.close_posted &= !record.first_close;
        // The message may have carried the read position, a flag or an answer.
        self.cdc_due = true;
    }

    fn count_posted(&mut self) {
        self.pending = self.pending.saturating_add(1);
        self.unacked = self.unacked.saturating_add(1);
    }

    /// Processes the completion of a plan's message; `delivered` if without error. For links whose completions imply
    /// delivery.
    pub fn on_sent(&mut self, record: &SentRecord, delivered: bool) -> Effects {
        let left = self.on_local_completion();
        let told = self.on_acked(record, delivered);
        Effects {
            transmit: left.transmit || told.transmit,
            wake_writers: left.wake_writers || told.wake_writers,
            ..told
        }
    }

    /// Processes a completion that does not imply delivery: no work request reads the send buffer for the message any
    /// more. [`Stream::on_acked`] is called for its outcome, before or after this.
    pub fn on_local_completion(&mut self) -> Effects {
        self.pending = self.pending.saturating_sub(1);
        let space = self.send.space();
        if self.pending == 0 {
            self.send.complete_read();
        }
        Effects {
            transmit: self.pending == 0 && self.has_work(),
            wake_writers: self.has_freed(space),
            ..Effects::default()
        }
    }

    /// The peer has received a plan's message and the data before it (`arrived`), or will not receive it on its link.
    pub fn on_acked(&mut self, record: &SentRecord, arrived: bool) -> Effects {
        self.unacked = self.unacked.saturating_sub(1);
        let space = self.send.space();
        if arrived && !record.validation {
            if record.epoch == self.epoch {
                self.send.complete(record.end);
            } else {
                self.send.complete_late(record.end);
            }
            // A validation does not change `seq_fin`: what it stands for was lost with the old link.
            if is_before(self.seq_fin, record.seq) {
                self.seq_fin = record.seq;
            }
        }
        Effects {
            transmit: self.unacked == 0 && self.has_work(),
            wake_writers: self.has_freed(space),
            ..Effects::default()
        }
    }

    /// Whether progress needs an acknowledgement of what was posted, and no message of the peer is due that would imply
    /// one: our close waits for it, or the send buffer is short while the window is open.
    pub fn needs_ack(&self) -> bool {
        let is_closing = self.own.any_close() && !self.close_posted;
        let has_posted_all = self.send.unsent() == 0 && self.send.window() > 0;
        let is_short = has_posted_all && self.send.space() < self.send.sndbuf_size() / 2;
        self.unacked > 0 && (is_closing || is_short)
    }

    /// Whether an acknowledgement is needed eventually, as no message will follow that the peer answers: the connection
    /// is kept until its last message is acknowledged.
    pub fn needs_ack_eventually(&self) -> bool {
        self.unacked > 0 && (self.close_posted || self.killed)
    }
}
