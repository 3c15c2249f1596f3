// SPDX-License-Identifier: GPL-2.0

//! recvmsg of a connection over RDMA: copies from the RMB element to user space.

use kernel::sync::Arc;
use kernel_ext::{
    ib::Block,
    net::{
        Msg,
        Sk, //
    },
    prelude::*,
    trace, //
};
use smc_proto::{
    conn::{
        ConsumeEffects,
        EpollMask,
        Recv,
        UrgentState, //
    },
    cursor::Chunks, //
};

use super::Conn;
use crate::{
    blocking::{
        self,
        ReadStep,
        RecvOptions,
        StreamRx, //
    },
    namespace,
    rmb::Rmbe, //
};

/// What a read found, without the lock.
struct Readable {
    state: Recv,
    /// The call has read something, and comes to an urgent byte.
    is_over: bool,
    /// Position in the stream of the first byte that can be read.
    at: u64,
    chunks: Chunks,
    /// The peer cannot send more.
    is_full: bool,
    /// Holds the RMBE while data are copied, even if the group ends meanwhile.
    rmbe: Option<Arc<Rmbe>>,
    /// Where the data are if the RMBE was released before.
    unread: Option<Arc<Block>>,
}

impl Readable {
    /// Copies the chunks to the application, or skips them if `discard`. Returns how many bytes.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if nothing could be copied, `ECONNABORTED` if the data are gone.
    fn copy_to(&self, msg: &mut Msg<'_>, discard: bool) -> Result<usize> {
        let memory = self.rmbe.as_ref().and_then(|rmbe| rmbe.memory());
        let block = memory.or(self.unread.as_ref()).ok_or(ECONNABORTED)?;
        blocking::copy_out(msg, block, &self.chunks, discard)
    }
}

impl StreamRx for Arc<Conn> {
    fn recv_some(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: RecvOptions,
        done: usize,
    ) -> Result<ReadStep> {
        let _order = self.recv_order.lock();
        let skip = if how.peek { done } else { 0 };
        // CAST: a ring is less than 4 GiB.
        let want = msg.len().min(u32::MAX as usize) as u32;
        let readable = self.begin_read(sk, how.peek, done, want);
        if readable.is_over {
            return Ok(ReadStep::Mark(0));
        }
        match readable.state {
            Recv::Ready(len) if len as usize > skip => {
                let (is_small, is_full) = (want < len, readable.is_full);
                if done == 0 && (is_small || is_full) {
                    let stats = &namespace::of(sk).stats;
                    stats.smcr.rmbs.count_read(is_small, is_full);
                }
            }
            Recv::Ready(_) | Recv::Wait => return Ok(ReadStep::Wait),
            Recv::Eof => return Ok(ReadStep::Eof),
            Recv::NotConnected => return Err(ENOTCONN),
        }
        if want == 0 {
            return Ok(ReadStep::Copied(0));
        }
        if readable.chunks.iter().all(|chunk| chunk.len == 0) {
            // A peek has reached the urgent mark.
            return Ok(ReadStep::Mark(0));
        }
        let copied = readable.copy_to(msg, how.discard)?;
        trace::rx_recvmsg(sk, copied, || self.device_name());
        Ok(match how.peek {
            true => ReadStep::Copied(copied),
            false => self.consume(readable.at, copied),
        })
    }

    fn is_reader_due(&self, skip: usize) -> bool {
        self.with(|inner| match inner.stream.recv_state() {
            // CAST: within a ring.
            _ if skip > 0 && inner.stream.is_mark_at(skip as u32) => true,
            Recv::Ready(len) => len as usize > skip,
            Recv::Wait => false,
            Recv::Eof | Recv::NotConnected => true,
        })
    }

    fn is_worth_reading(&self, sk: &Sk) -> bool {
        self.with(|inner| inner.readiness(sk).contains(EpollMask::IN))
    }

    fn is_at_hole(&self) -> bool {
        self.with(|inner| inner.stream.is_at_hole())
    }

    fn is_at_mark(&self) -> bool {
        self.with(|inner| inner.stream.is_at_mark())
    }

    fn has_ended_in_order(&self) -> bool {
        self.with(|inner| inner.stream.has_ended_in_order())
    }

    fn while_reading<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.with(|inner| inner.reading += 1);
        let result = wait();
        self.with(|inner| inner.reading -= 1);
        result
    }
}

impl Conn {
    /// Looks what is to be read of `want` bytes by a call that has read, or seen, `done`. An urgent byte that is not in
    /// line is skipped by a call that begins there.
    fn begin_read(self: &Arc<Self>, sk: &Sk, is_peek: bool, done: usize, want: u32) -> Readable {
        let skip = if is_peek { done } else { 0 };
        let (readable, fx) = self.with(|inner| {
            // With the lock held: whoever has just set SO_OOBINLINE says so to the stream after this, or did before.
            inner.stream.set_oob_inline(sk.is_urg_inline());
            // CAST: within a ring.
            let is_over = done > 0 && inner.stream.is_mark_at(skip as u32);
            let fx = match is_peek || want == 0 || is_over {
                true => ConsumeEffects::default(),
                false => inner.stream.skip_urgent(),
            };
            let state = inner.stream.recv_state();
            let is_ready = matches!(state, Recv::Ready(_));
            let readable = Readable {
                state,
                is_over,
                at: inner.stream.read_position(),
                // CAST: within a ring.
                chunks: inner.stream.peek_chunks(skip as u32, want),
                is_full: inner.stream.is_rmbe_full(),
                // CAST: within a ring.
                rmbe: inner
                    .rmbe_to_read(skip as u32)
                    .filter(|_| is_ready)
                    .cloned(),
                unread: inner.unread().cloned(),
            };
            (readable, fx)
        });
        if fx.transmit {
            self.transmit();
        }
        readable
    }

    /// Removes `copied` bytes from the ring, those from `at` on, which may open the window of the peer.
    fn consume(self: &Arc<Self>, at: u64, copied: usize) -> ReadStep {
        // CAST: not more than the chunks hold.
        let (fx, read, is_released) = self.with(|inner| {
            let fx = inner.stream.consume(at, copied as u32);
            let had_replaced = inner.others.replaced().is_some();
            let read = inner.forget_read();
            let has_replaced = inner.others.replaced().is_some();
            (fx, read, had_replaced && !has_replaced)
        });
        drop(read);
        if is_released {
            self.group.note_rmbe_released();
        }
        if fx.transmit {
            self.transmit();
        }
        match fx.at_mark {
            true => ReadStep::Mark(copied),
            false => ReadStep::Copied(copied),
        }
    }

    /// Copies the urgent byte to the application (MSG_OOB).
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none, it was read, or it is in line; `EAGAIN` if it was announced only.
    pub(crate) fn recv_urgent(self: &Arc<Self>, msg: &mut Msg<'_>, peek: bool) -> Result<usize> {
        let _order = self.recv_order.lock();
        let (urgent, state, end) = self.with(|inner| {
            let stream = &inner.stream;
            (stream.urgent(), stream.urgent_state(), stream.urgent_end())
        });
        let byte = match (urgent, state) {
            (Some(byte), _) => byte,
            (None, UrgentState::NotYet) => {
                let is_shut = self.with(|inner| inner.stream.is_read_shut());
                return if is_shut { Ok(0) } else { Err(EAGAIN) };
            }
            (None, _) => return Err(EINVAL),
        };
        let copied = blocking::put_urgent(msg, byte)?;
        if copied > 0 && !peek {
            let fx = self.with(|inner| inner.stream.take_urgent(end));
            if fx.transmit {
                self.transmit();
            }
        }
        Ok(copied)
    }
}
