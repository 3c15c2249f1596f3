// SPDX-License-Identifier: GPL-2.0

//! recvmsg: copies from the ring that the peer writes to, to user space.

use kernel_ext::{
    net::{
        Msg,
        Sk, //
    },
    prelude::*,
    trace, //
};
use smc_proto::{
    conn::EpollMask,
    smcd::{
        mark::Reach,
        ring, //
    }, //
};

use super::pair::SmcdConn;
use crate::{
    blocking::{
        self,
        ReadStep,
        RecvOptions,
        StreamRx, //
    },
    namespace, //
};

impl StreamRx for SmcdConn {
    fn recv_some(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: RecvOptions,
        done: usize,
    ) -> Result<ReadStep> {
        let pipe = self.rx();
        let mut reader = pipe.reader.lock();
        // Before the data: those that came before the end are not overlooked.
        let ends = self.ends();
        let produced = pipe.produced();
        let consumed = pipe.consumed();
        // The same that `readable` counts with, or a peek would be woken for nothing, again and again.
        let inline = self.own().is_urg_inline();
        let reach = self.reach(how.peek, inline, done, consumed, produced);
        let at = match how.peek {
            // What a peek has seen is still there, and so is the byte that it stepped over.
            true => reach.skip + consumed + done as u64,
            false => reach.skip + consumed,
        };
        if reach.len == 0 && !reach.is_at_mark {
            if reach.skip > 0 && !how.peek {
                pipe.consume(at);
                drop(reader);
                self.tell_writer();
            }
            if ends.is_read_shut() {
                return Ok(ReadStep::Eof);
            }
            self.end_gathering();
            return Ok(ReadStep::Wait);
        }
        if msg.len() == 0 {
            return Ok(ReadStep::Copied(0));
        }
        if reach.len == 0 {
            return Ok(ReadStep::Mark(0));
        }
        let other;
        let ring = match reader.ring_at(at) {
            Some(ring) => ring,
            None => {
                other = pipe.next_ring(&mut reader, at, consumed);
                other.as_deref().ok_or(ECONNABORTED)?
            }
        };
        let (is_small, is_full) = ((msg.len() as u64) < reach.len, pipe.is_full());
        if done == 0 && (is_small || is_full) {
            let stats = &namespace::of(sk).stats;
            stats.smcd.rmbs.count_read(is_small, is_full);
        }
        let here = reach.len.min(ring.end().saturating_sub(at));
        let step = match here > ring::STEP.into() {
            true => pipe.fill(self.rx_limit()).read_step(),
            false => ring::STEP,
        };
        let want = msg.len().min(here.min(step.into()) as usize);
        // CAST: at most a step.
        let chunks = ring::chunks(ring.class, at, want as u32);
        let copied = blocking::copy_out(msg, &ring.block, &chunks, how.discard)?;
        trace::rx_recvmsg(sk, copied, || None);
        if !how.peek {
            pipe.consume(at + copied as u64);
            drop(reader);
            self.tell_writer();
        }
        Ok(
            match reach.is_at_mark && copied as u64 == reach.len && !how.peek {
                true => ReadStep::Mark(copied),
                false => ReadStep::Copied(copied),
            },
        )
    }

    fn is_reader_due(&self, skip: usize) -> bool {
        self.readable() > skip as u64 || self.ends().is_read_shut()
    }

    fn is_worth_reading(&self, _: &Sk) -> bool {
        self.readiness().contains(EpollMask::IN)
    }

    fn is_at_hole(&self) -> bool {
        let at = self.rx().consumed();
        !self.own().is_urg_inline() && self.rx().mark().is_some_and(|mark| mark.is_at(at))
    }

    fn is_at_mark(&self) -> bool {
        let at = self.rx().consumed();
        self.rx().mark().is_some_and(|mark| mark.is_at(at))
    }

    fn has_ended_in_order(&self) -> bool {
        self.ends().is_peer_done()
    }

    fn while_reading<R>(&self, wait: impl FnOnce() -> R) -> R {
        wait()
    }
}

impl SmcdConn {
    /// What a reader may read now, after `done` bytes.
    fn reach(&self, peek: bool, inline: bool, done: usize, consumed: u64, produced: u64) -> Reach {
        let seen = if peek { done as u64 } else { 0 };
        let Some(mark) = self.rx().mark_before(consumed, produced) else {
            return Reach {
                skip: 0,
                len: produced.saturating_sub(consumed).saturating_sub(seen),
                is_at_mark: false,
            };
        };
        if seen == 0 {
            return mark.reach(consumed, produced, inline, done > 0);
        }
        // What the first step of this peek stepped over.
        let first = mark.reach(consumed, produced, inline, false);
        let rest = mark.reach(consumed + first.skip + seen, produced, inline, true);
        Reach {
            skip: first.skip + rest.skip,
            ..rest
        }
    }

    /// Wakes the writer if it waits for space, and there is some.
    /// Context: does not sleep.
    pub(super) fn tell_writer(&self) {
        let pipe = self.rx();
        if pipe.take_writer(|| pipe.fill(self.rx_limit()).is_writeable()) {
            self.peer().with_sk(Sk::wake_writable);
        }
    }

    /// Bytes that can be read, without an urgent byte that is not in line and would be stepped over.
    pub(super) fn readable(&self) -> u64 {
        let pipe = self.rx();
        let consumed = pipe.consumed();
        let produced = pipe.produced();
        match pipe.mark_before(consumed, produced) {
            None => produced.saturating_sub(consumed),
            Some(mark) => {
                let reach = mark.reach(consumed, produced, self.own().is_urg_inline(), false);
                let at = consumed + reach.skip;
                produced.saturating_sub(at)
            }
        }
    }

    /// Copies the urgent byte to the application (MSG_OOB).
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none, or it was read.
    pub(crate) fn recv_urgent(&self, msg: &mut Msg<'_>, peek: bool) -> Result<usize> {
        let pipe = self.rx();
        let _reader = pipe.reader.lock();
        let mark = pipe.mark().ok_or(EINVAL)?;
        let copied = blocking::put_urgent(msg, mark.byte().ok_or(EINVAL)?)?;
        if copied > 0 && !peek {
            pipe.take_mark(mark);
        }
        Ok(copied)
    }
}
