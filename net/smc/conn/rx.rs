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
        Recv,
        UrgentState, //
    },
    cursor::Chunks, //
};

use super::Conn;
use crate::{
    namespace,
    rmb::Rmbe, //
};

/// Options of one receive call.
#[derive(Clone, Copy)]
pub(crate) struct RecvOptions {
    /// MSG_DONTWAIT or O_NONBLOCK.
    pub(crate) nonblock: bool,
    /// MSG_PEEK.
    pub(crate) peek: bool,
    /// MSG_TRUNC: count, but do not copy.
    pub(crate) discard: bool,
    /// MSG_WAITALL.
    pub(crate) all: bool,
}

/// Result of one attempt to read from the ring.
enum ReadStep {
    Copied(usize),
    /// The read ends at the urgent mark.
    Mark(usize),
    Wait,
    Eof,
}

/// What a read found, without the lock.
struct Readable {
    state: Recv,
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
        let mut copied = 0;
        for chunk in self.chunks.iter().filter(|chunk| chunk.len > 0) {
            let (offset, len) = (chunk.offset as usize, chunk.len as usize);
            let n = match discard {
                true => msg.skip(len),
                false => msg.copy_to_user(&**block, offset, len),
            };
            copied += n;
            if n < len {
                break;
            }
        }
        match copied {
            0 => Err(EFAULT),
            _ => Ok(copied),
        }
    }
}

/// Counts reads that found more data than requested, or a full ring.
fn count_rmb(sk: &Sk, is_small: bool, is_full: bool) {
    if is_small || is_full {
        let namespace = namespace::of(sk);
        let stats = &namespace.stats.rmbs;
        stats.small.add(is_small.into());
        stats.full.add(is_full.into());
    }
}

impl Conn {
    /// Copies received data to the application. Sleeps unless `nonblock`; other readers may run meanwhile. Returns 0 at
    /// the end of the stream. A call for zero bytes waits for data as well, as with TCP.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `ENOTCONN`, `EFAULT`, the socket's error or that of a signal; no error if some bytes were copied
    /// before.
    pub(crate) fn recv(
        self: &Arc<Self>,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: RecvOptions,
    ) -> Result<usize> {
        let target = sk.rcvlowat(how.all, msg.len());
        let mut timeout = sk.rcvtimeo(how.nonblock);
        let inline = sk.is_urg_inline();
        let mut done = 0;
        loop {
            if self.is_interrupted(how.peek) {
                // The SIGURG handler may read the urgent byte, which this read would skip.
                return match sk.wait_until(timeout, false, || false) {
                    _ if done > 0 => Ok(done),
                    Ok(_) => Err(EAGAIN),
                    Err(end) => Err(end.errno()),
                };
            }
            match self.recv_some(sk, msg, how, inline, done) {
                Ok(ReadStep::Copied(len)) => {
                    done += len;
                    if msg.len() > 0 {
                        continue;
                    }
                    break;
                }
                Ok(ReadStep::Mark(len)) => {
                    done += len;
                    break;
                }
                Ok(ReadStep::Eof) => {
                    // The end of a reset connection is reported once as an error. For a connection that the peer closed
                    // it is the end of the stream, whatever was sent after that.
                    if done == 0 && !self.with(|inner| inner.stream.has_sent_after_close()) {
                        sk.take_err()?;
                    }
                    break;
                }
                Ok(ReadStep::Wait) if done >= target && done > 0 => break,
                Ok(ReadStep::Wait) => {}
                Err(_) if done > 0 => break,
                // The socket's error is more specific than the state's.
                Err(e) => return sk.take_err().and(Err(e)),
            }
            if sk.has_err() {
                if done > 0 {
                    break;
                }
                return sk.take_err().map(|()| 0);
            }
            if timeout == 0 {
                return if done > 0 { Ok(done) } else { Err(EAGAIN) };
            }
            let skip = if how.peek { done } else { 0 };
            let waited = self.while_reading(|| {
                sk.wait_until(timeout, false, || self.is_reader_due(skip) || sk.has_err())
            });
            match waited {
                Ok(left) => timeout = left,
                Err(_) if done > 0 => break,
                Err(end) => return Err(end.errno()),
            }
        }
        Ok(done)
    }

    /// Returns whether a signal is pending before a read that would skip an urgent byte.
    fn is_interrupted(&self, is_peek: bool) -> bool {
        let is_pending = kernel::current!().signal_pending();
        is_pending && !is_peek && self.with(|inner| inner.stream.is_at_hole())
    }

    /// Returns whether a reader that has seen `skip` bytes can continue: more data, the end, or an error.
    fn is_reader_due(&self, skip: usize) -> bool {
        self.with(|inner| match inner.stream.recv_state() {
            Recv::Ready(len) => len as usize > skip,
            Recv::Wait => false,
            Recv::Eof | Recv::NotConnected => true,
        })
    }

    /// Copies what there is to read, or says why nothing was copied. `done` bytes were copied by this call before.
    fn recv_some(
        self: &Arc<Self>,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: RecvOptions,
        inline: bool,
        done: usize,
    ) -> Result<ReadStep> {
        let _order = self.recv_order.lock();
        let skip = if how.peek { done } else { 0 };
        // CAST: a ring is less than 4 GiB.
        let want = msg.len().min(u32::MAX as usize) as u32;
        let readable = self.begin_read(how.peek, inline, skip, want);
        match readable.state {
            Recv::Ready(len) if len as usize > skip => {
                if done == 0 {
                    count_rmb(sk, want < len, readable.is_full);
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
            false => self.consume(copied),
        })
    }

    /// Looks what is to be read of `want` bytes after `skip`. An urgent byte that is not in line is skipped by a read
    /// of what follows it.
    fn begin_read(
        self: &Arc<Self>,
        is_peek: bool,
        inline: bool,
        skip: usize,
        want: u32,
    ) -> Readable {
        let (readable, fx) = self.with(|inner| {
            inner.stream.set_oob_inline(inline);
            let fx = match is_peek || want == 0 {
                true => ConsumeEffects::default(),
                false => inner.stream.skip_urgent(),
            };
            let state = inner.stream.recv_state();
            let is_ready = matches!(state, Recv::Ready(_));
            let readable = Readable {
                state,
                // CAST: within a ring.
                chunks: inner.stream.peek_chunks(skip as u32, want),
                is_full: inner.stream.is_rmbe_full(),
                rmbe: inner.rmbe().filter(|_| is_ready).cloned(),
                unread: inner.unread().cloned(),
            };
            (readable, fx)
        });
        if fx.transmit {
            self.transmit();
        }
        readable
    }

    /// Removes `copied` bytes from the ring, which may open the window of the peer.
    fn consume(self: &Arc<Self>, copied: usize) -> ReadStep {
        // CAST: not more than the chunks hold.
        let (fx, read) = self.with(|inner| {
            let fx = inner.stream.consume(copied as u32);
            (fx, inner.forget_read())
        });
        drop(read);
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
        let byte = match self.with(|inner| (inner.stream.urgent(), inner.stream.urgent_state())) {
            (Some(byte), _) => byte,
            (None, UrgentState::NotYet) => {
                let is_shut = self.with(|inner| inner.stream.is_read_shut());
                return if is_shut { Ok(0) } else { Err(EAGAIN) };
            }
            (None, _) => return Err(EINVAL),
        };
        msg.set_oob();
        if msg.len() == 0 {
            msg.set_truncated();
            return Ok(0);
        }
        msg.copy_bytes_to_user(&[byte])?;
        if !peek {
            let fx = self.with(|inner| inner.stream.take_urgent());
            if fx.transmit {
                self.transmit();
            }
        }
        Ok(1)
    }
}
