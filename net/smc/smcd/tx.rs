// SPDX-License-Identifier: GPL-2.0

//! sendmsg: copies from user space to the ring that the peer reads from.

use kernel::sync::{
    atomic::Relaxed,
    Arc,
    MutexGuard, //
};
use kernel_ext::{
    barrier::{
        smp_mb,
        Full, //
    },
    ib::{
        Block,
        BlockKind, //
    },
    net::{
        memory::CountedPages,
        Charge,
        Msg,
        Purpose,
        Sk, //
    },
    prelude::*,
    read_once::ReadOnce,
    trace, //
};
use smc_proto::{
    buffer::SizeClass,
    conn::SendError,
    smcd::{
        ring::{
            self,
            Fill, //
        },
        view::EndFlags, //
    },
    time::Instant, //
};

use super::{
    idle,
    pair::SmcdConn,
    pipe::{
        Pipe,
        RingWriter,
        ShmRing, //
    }, //
};
use crate::{
    blocking::{
        self,
        LongCall,
        SendOptions,
        StreamTx, //
    },
    namespace,
    stats::Buffers, //
};

impl StreamTx for SmcdConn {
    fn send_some(&self, sk: &Sk, msg: &mut Msg<'_>, how: &SendOptions) -> Result<usize> {
        let (mut writer, mut sent) = (Some(self.tx().writer.lock()), 0);
        // As over TCP, what one call sends lies together unless it has to wait.
        while let Some(guard) = writer.take() {
            match self.send_step(sk, msg, how, guard) {
                Ok((0, _)) => break,
                Ok((len, guard)) => {
                    sent += len;
                    writer = guard.filter(|_| msg.len() > 0);
                }
                // The next call meets it again.
                Err(_) if sent > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    fn can_send(&self) -> Result<(), SendError> {
        self.ends().can_send()
    }

    fn is_writer_due(&self) -> bool {
        let is_due = || self.ends().can_send().is_err() || self.has_space();
        if is_due() {
            return true;
        }
        self.want_space();
        is_due()
    }
}

/// The lock of who writes.
type WriterGuard<'a> = MutexGuard<'a, RingWriter>;

impl SmcdConn {
    /// Copies a part of the message, and tells the reader. Returns its length, 0 if there is no room, and the lock
    /// unless the call is over.
    fn send_step<'a>(
        &'a self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: &SendOptions,
        mut writer: WriterGuard<'a>,
    ) -> Result<(usize, Option<WriterGuard<'a>>)> {
        let pipe = self.tx();
        let ends = self.ends();
        match ends.can_send() {
            Ok(()) => {}
            Err(SendError::PeerClosed) => {
                let ring = writer
                    .ring
                    .take_if(|_| ends.peer.contains(EndFlags::CLOSED));
                drop(writer);
                drop(ring);
                let discarded = blocking::discard(sk, msg)?;
                self.note_sent_after_close();
                return Ok((discarded, None));
            }
            Err(_) => return Err(EPIPE),
        }
        let fill = self.fill_for(&mut writer, msg.len());
        let len = u32::try_from(msg.len()).unwrap_or(u32::MAX);
        let len = len.min(fill.write_step());
        if len == 0 {
            self.after_release(pipe.release_held(&mut writer));
            return Ok((0, None));
        }
        self.provide_ring(sk, &mut writer, fill, msg.len());
        let Some(ring) = &writer.ring else {
            return Ok((0, None));
        };
        let chunks = ring::room(ring.class, ring.start, fill.produced, fill.consumed, len);
        let copied = blocking::copy_in(msg, &ring.block, &chunks);
        if copied == 0 {
            if chunks.iter().any(|chunk| chunk.len > 0) {
                return Err(EFAULT);
            }
            pipe.set_stuck(fill.consumed);
            self.after_release(pipe.release_held(&mut writer));
            return Ok((0, None));
        }
        trace::tx_sendmsg(sk, copied, || None);
        let end = fill.produced + copied as u64;
        // A call that may not wait ends with what there is room for.
        let is_urgent = how.oob && (msg.len() == 0 || how.nonblock);
        if is_urgent {
            self.mark_last(pipe, ring, end);
        }
        let is_held = how.corked && !is_urgent && end - pipe.produced() < ring::CORK_MAX;
        if is_held {
            if pipe.hold(&mut writer, end) {
                idle::watch_held(&self.pair);
            }
            return Ok((copied, Some(writer)));
        }
        pipe.produce(&mut writer, end);
        if is_urgent {
            drop(writer);
            self.wake_for_urgent();
            self.look_for_close(end);
            return Ok((copied, None));
        }
        let fill = Fill {
            produced: end,
            ..fill
        };
        self.tell_reader(&mut writer, how, fill);
        self.look_for_close(end);
        Ok((copied, Some(writer)))
    }

    /// sendmsg(2); see [`blocking::send`].
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Those of [`blocking::send`].
    pub(crate) fn send(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: &SendOptions,
        call: &impl LongCall,
        stats: &Buffers,
    ) -> Result<usize> {
        blocking::send(self, sk, msg, how, call, || stats.full.add(1))
    }

    /// Notes that a writer or poller waits for space. The caller looks for space again after this.
    pub(super) fn want_space(&self) {
        self.tx().want_space();
        self.end_gathering();
        let peer = self.peer();
        if peer.lowat() > 1 {
            // As many bytes as it waits for do not fit.
            peer.with_sk(Sk::wake_readable);
        }
    }

    /// Whether there is space enough for a writer to go on.
    pub(super) fn has_space(&self) -> bool {
        !self.own().is_short.read_once() && self.tx().has_space(self.tx_limit())
    }

    /// What is under way, for a writer of `len` bytes: the limit is raised for it unless the peer has set SO_RCVBUF.
    fn fill_for(&self, writer: &mut RingWriter, len: usize) -> Fill {
        match self.peer().is_rcvbuf_locked() {
            true => self.tx().fill(self.tx_limit()),
            false => self.tx().fill_for(writer, self.tx_limit(), len),
        }
    }

    /// Sends what was held back for MSG_MORE or TCP_CORK.
    /// Context: may sleep, also until a writer has copied.
    pub(crate) fn uncork(&self) {
        let pipe = self.tx();
        if pipe.written() != pipe.produced() {
            let is_released = pipe.release_held(&mut pipe.writer.lock());
            self.after_release(is_released);
        }
    }

    /// Timer for data that are held back; returns when to look again.
    /// Context: does not sleep.
    pub(super) fn look_at_held(&self, now: Instant) -> Option<Instant> {
        let (is_released, again) = self.tx().look_at_held(now);
        self.after_release(is_released);
        again
    }

    /// Says what ends, with `flags`, to the peer. No writer copies meanwhile: what one has sent comes before the end.
    /// The caller wakes the reader.
    /// Context: may sleep, also until a writer has copied.
    pub(super) fn end_writing(&self, flags: EndFlags) {
        let pipe = self.tx();
        let mut writer = pipe.writer.lock();
        pipe.release_held(&mut writer);
        self.add(self.role, flags);
    }

    /// Wakes the reader if data for it are no longer held back, and looks whether it has closed meanwhile.
    fn after_release(&self, is_released: bool) {
        if is_released {
            self.wake_reader();
            self.look_for_close(self.tx().produced());
        }
    }

    /// Looks, after data up to position `end` were sent, whether a peer has closed that does not read them. A reader
    /// that closes looks for data after it said so.
    fn look_for_close(&self, end: u64) {
        smp_mb(Full);
        // One that has read them, and closed at once, has lost nothing.
        if self.ends().peer.contains(EndFlags::CLOSED) && self.tx().consumed() < end {
            self.note_sent_after_close();
        }
    }

    /// Notes the last byte before `end` as urgent.
    fn mark_last(&self, pipe: &Pipe, ring: &ShmRing, end: u64) {
        let position = end - 1;
        let [chunk, _] = ring::chunks(ring.class, position, 1);
        let mut byte = [0];
        if ring.block.read(chunk.offset as usize, &mut byte).is_ok() {
            let [byte] = byte;
            pipe.set_mark(position, byte, self.peer().is_urg_inline());
        }
    }

    /// Makes a ring to write `len` bytes to if there is none, or a larger one is needed. Without memory for any there
    /// is none after this.
    fn provide_ring(&self, sk: &Sk, writer: &mut RingWriter, fill: Fill, len: usize) {
        let class = writer.ring.as_ref().map(|ring| ring.class);
        let want = fill
            .larger_ring(len, class)
            .filter(|_| self.tx().may_grow(fill.consumed));
        let made = want.and_then(|want| self.make_ring(sk, want, class, fill.produced));
        match made {
            Some(ring) => {
                self.tx().add_ring(writer, ring);
                idle::watch(&self.pair);
            }
            None if class.is_none() => {
                // Tried again a moment later.
                self.own().is_short.store(true, Relaxed);
                idle::watch_shortage(&self.pair);
            }
            None => {}
        }
    }

    /// Makes a ring of class `want`, or a smaller one above `than`, which begins at `start`. Charged to both sockets;
    /// the first ring of a connection is had whatever limits are reached, if it is of the smallest class: nothing would
    /// ever wake its writer.
    fn make_ring(
        &self,
        sk: &Sk,
        want: SizeClass,
        than: Option<SizeClass>,
        start: u64,
    ) -> Option<Arc<ShmRing>> {
        // It is the reader's buffer (DMB): a writer has none of its own.
        let reader = self.peer().sk();
        let namespace = reader.as_ref().map(|reader| namespace::of(reader));
        let stats = namespace
            .as_ref()
            .map(|namespace| &namespace.stats.smcd.rmbs);
        let make = |class: SizeClass, is_forced: bool| {
            let bytes = class.bytes();
            let (charges, counted) = match is_forced {
                false => (self.charge(sk, bytes)?, CountedPages::new(bytes as usize)?),
                true => (
                    [Some(Charge::force(sk, bytes)?), None],
                    CountedPages::force(bytes as usize)?,
                ),
            };
            let block = Block::counted(bytes as usize, BlockKind::Contiguous, counted)?;
            let hold = stats.map(|stats| stats.hold(bytes));
            ShmRing::new(class, block, start, charges, hold)
        };
        // Beyond that none can be had, so that none is counted meanwhile, either.
        let mut classes = want
            .at_most(Block::MAX_BYTES)
            .downwards()
            .take_while(|class| than.is_none_or(|than| *class > than));
        let made = classes
            .find_map(|class| make(class, false).ok())
            .or_else(|| match than {
                None => make(SizeClass::SMALLEST, true).ok(),
                Some(_) => None,
            });
        if let (Some(ring), Some(stats)) = (&made, stats) {
            stats.count(want.bytes(), ring.class.bytes(), true);
        }
        made
    }

    /// Charges a ring of so many bytes to the sockets of writer and reader.
    fn charge(&self, sk: &Sk, bytes: u32) -> Result<[Option<Charge>; 2]> {
        let own = self.writer_part(bytes);
        let reader = match bytes.saturating_sub(own) {
            0 => None,
            rest => {
                let reader = self.peer().sk().ok_or(EPIPE)?;
                Some(Charge::try_received(&reader, rest)?)
            }
        };
        Ok([Some(Charge::new(sk, Purpose::Send, own)?), reader])
    }
}
