// SPDX-License-Identifier: GPL-2.0

//! sendmsg of a connection over RDMA: copies from user space to the send buffer.

use core::mem;

use kernel::sync::Arc;
use kernel_ext::{
    net::{
        memory,
        Charge,
        Msg,
        Purpose,
        Sk, //
    },
    prelude::*,
    trace, //
};
use smc_proto::{
    buffer::SizeClass,
    conn::{
        SendError,
        SendFlags, //
    },
    cursor::Chunks, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::{
    blocking::{
        self,
        LongCall,
        SendOptions,
        StreamTx, //
    },
    link::Link,
    namespace,
    rmb::{
        class_for,
        SendBuf,
        SndbufGuard,
        LEAST, //
    },
    stats::Buffers, //
};

/// The smallest buffer, in bytes.
const SNDBUF_MIN: usize = 16 * 1024;

/// The largest message, in bytes, that is copied with the connection's lock held: copying more takes longer than the
/// further acquisitions of locks that it saves.
const SHORT_MAX: usize = 512;

/// Result of an attempt to reserve space.
enum SndbufSpace {
    /// Space in this buffer; [`Stream::commit`](smc_proto::conn::Stream::commit) has to follow.
    Reserved(Chunks, Arc<SendBuf>),
    /// The send buffer is full.
    Full,
    /// A send buffer has to be attached first.
    NoSndbuf,
    /// The data are to be discarded, and the call succeeds.
    Discard,
}

/// The size of a send buffer that a connection has in any case: what the program has set by SO_SNDBUF, which the kernel
/// doubles, or twice the setting.
fn asked_sndbuf(sk: &Sk) -> SizeClass {
    class_for(match sk.is_sndbuf_locked() {
        true => sk.sndbuf() / 2,
        false => namespace::of(sk).config.sndbuf_bytes(),
    })
}

/// The size of a connection's send buffer: that of [`asked_sndbuf`], or a larger one, see [`grown_sndbuf`].
pub(crate) fn sndbuf_class(sk: &Sk, peer: Option<SizeClass>) -> SizeClass {
    grown_sndbuf(sk, asked_sndbuf(sk), peer)
}

/// `asked`, or, if the program has not set SO_SNDBUF and there is memory, twice the peer's RMBE, of which one half is
/// filled while the other is on its way.
fn grown_sndbuf(sk: &Sk, asked: SizeClass, peer: Option<SizeClass>) -> SizeClass {
    let twice = |peer: SizeClass| class_for(peer.bytes().saturating_mul(2));
    match peer.map(twice) {
        Some(twice) if twice > asked && !sk.is_sndbuf_locked() && !memory::is_short() => {
            let most = class_for(namespace::of(sk).config.sndbuf_max_bytes());
            asked.max(twice.min(most))
        }
        _ => asked,
    }
}

impl ConnInner {
    /// Reserves space for at most `len` bytes.
    fn reserve(&mut self, len: u32) -> Result<SndbufSpace> {
        match self.stream.can_send() {
            Ok(()) => {}
            Err(SendError::NotConnected) => return Err(ENOTCONN),
            Err(SendError::Pipe) => return Err(EPIPE),
            Err(SendError::ConnReset) => return Err(ECONNRESET),
            Err(SendError::PeerClosed) => return Ok(SndbufSpace::Discard),
        }
        let Some(buf) = &self.sndbuf else {
            return Ok(SndbufSpace::NoSndbuf);
        };
        if self.stream.writable() == 0 {
            return Ok(SndbufSpace::Full);
        }
        let buf = Arc::clone(buf);
        Ok(SndbufSpace::Reserved(self.stream.reserve(len), buf))
    }

    /// Copies a short message of `len` bytes to the send buffer, which the caller commits. Returns false, with the
    /// message as it was, if a writer is copying already, or if there is no send buffer, no room in one piece, or
    /// memory of the message that is not present.
    #[inline]
    fn copy_short(&mut self, msg: &mut Msg<'_>, len: u32) -> bool {
        if self.stream.is_filling() || self.stream.can_send().is_err() {
            return false;
        }
        let Some(buf) = &self.sndbuf else {
            return false;
        };
        let [chunk, _] = self.stream.reserve(len);
        let is_copied = chunk.len == len
            && msg.copy_from_user_nofault(&**buf.block(), chunk.offset as usize, len as usize);
        if !is_copied {
            self.stream.commit(0, SendFlags::default());
        }
        is_copied
    }

    /// Returns whether a writer can continue: there is space, or an error. If not, it is woken once it can.
    fn is_writer_due(&mut self) -> bool {
        let is_due = self.stream.can_send().is_err()
            || self.stream.writable() > 0
            || (self.stream.needs_sndbuf() && self.sndbuf.is_none() && self.can_lend());
        self.wants_space |= !is_due;
        is_due
    }
}

/// The sending side, with the counters of its namespace.
struct ConnTx<'a> {
    conn: &'a Arc<Conn>,
    stats: &'a Buffers,
}

impl StreamTx for ConnTx<'_> {
    fn send_some(&self, sk: &Sk, msg: &mut Msg<'_>, how: &SendOptions) -> Result<usize> {
        self.conn.send_some(sk, msg, how, self.stats)
    }

    fn can_send(&self) -> Result<(), SendError> {
        self.conn.with(|inner| inner.stream.can_send())
    }

    fn is_writer_due(&self) -> bool {
        self.conn.with(|inner| inner.is_writer_due())
    }
}

impl Conn {
    /// sendmsg(2); see [`blocking::send`].
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Those of [`blocking::send`].
    pub(crate) fn send(
        self: &Arc<Self>,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: &SendOptions,
        call: &impl LongCall,
        stats: &Buffers,
    ) -> Result<usize> {
        self.count_sndbuf_undersized(sk, msg.len(), stats);
        let tx = ConnTx { conn: self, stats };
        blocking::send(&tx, sk, msg, how, call, || stats.full.add(1))
    }

    /// Sends a short message without urgent data, if that needs no waiting and no send buffer. Returns false, with the
    /// message as it was, if [`Conn::send`] has to send it.
    /// Context: does not sleep.
    #[inline]
    pub(crate) fn send_short(
        self: &Arc<Self>,
        sk: &Sk,
        msg: &mut Msg<'_>,
        flags: &SendFlags,
        stats: &Buffers,
    ) -> bool {
        let len = msg.len();
        if len == 0 || len > SHORT_MAX {
            return false;
        }
        // CAST: at most `SHORT_MAX`.
        let short = len as u32;
        let copy = |inner: &mut ConnInner| inner.copy_short(msg, short).then_some(short);
        let is_sent = self.commit(flags, stats, copy).is_some();
        if is_sent {
            trace::tx_sendmsg(sk, len, || self.device_name());
        }
        is_sent
    }

    /// Counts a call that sends more than a buffer holds, here or at the peer.
    fn count_sndbuf_undersized(&self, sk: &Sk, len: usize, stats: &Buffers) {
        if len <= SNDBUF_MIN {
            return;
        }
        let peer = self.with(|inner| inner.peer_size());
        if len > sndbuf_class(sk, peer).bytes() as usize {
            stats.small.add(1);
        }
        if peer.is_some_and(|peer| len > peer.bytes() as usize) {
            stats.peer_small.add(1);
        }
    }

    /// Copies what fits now; returns 0 if nothing does.
    fn send_some(
        self: &Arc<Self>,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: &SendOptions,
        stats: &Buffers,
    ) -> Result<usize> {
        let flags = SendFlags {
            oob: how.oob,
            last: true,
            corked: how.corked,
            autocork_bytes: how.autocork_bytes,
        };
        let _order = self.send_order.lock();
        let len = u32::try_from(msg.len()).unwrap_or(u32::MAX);
        let mut space = self.with(|inner| inner.reserve(len))?;
        if let SndbufSpace::NoSndbuf = space {
            if !self.lend_send_buffer(sk, stats)? {
                return Ok(0);
            }
            space = self.with(|inner| inner.reserve(len))?;
        }
        let (chunks, buf) = match space {
            SndbufSpace::Reserved(chunks, buf) => (chunks, buf),
            SndbufSpace::Full | SndbufSpace::NoSndbuf => return Ok(0),
            SndbufSpace::Discard => {
                let discarded = blocking::discard(sk, msg)?;
                self.note_discarded(sk);
                return Ok(discarded);
            }
        };
        let copied = blocking::copy_in(msg, buf.block(), &chunks);
        let flags = SendFlags {
            // A call that does not wait may end here, so this may be its last chunk.
            last: msg.len() == 0 || how.nonblock,
            ..flags
        };
        // CAST: not more than was reserved.
        self.commit(&flags, stats, |_| Some(copied as u32));
        if copied == 0 {
            // No completion comes that would give the send buffer back.
            let idle = self.with(ConnInner::take_idle_sndbuf);
            self.release_idle_sndbuf(idle);
            return Err(EFAULT);
        }
        trace::tx_sendmsg(sk, copied, || self.device_name());
        Ok(copied)
    }

    /// Data were sent to a peer that has closed, unless the connection was reset meanwhile: later sends fail.
    fn note_discarded(self: &Arc<Self>, sk: &Sk) {
        let transmits = self.with(|inner| match inner.stream.can_send() {
            Err(SendError::PeerClosed) => Some(inner.stream.discard_after_close()),
            _ => None,
        });
        let Some(transmits) = transmits else {
            return;
        };
        if transmits {
            self.transmit();
        }
        sk.set_err(EPIPE);
        sk.wake_err();
        sk.wake_state();
    }

    /// Commits what `copy`, called with the lock held, says that the send buffer holds of a message, and transmits what
    /// may be sent; does nothing if that is `None`. Returns the same.
    #[inline]
    fn commit(
        self: &Arc<Self>,
        flags: &SendFlags,
        stats: &Buffers,
        copy: impl FnOnce(&mut ConnInner) -> Option<u32>,
    ) -> Option<u32> {
        let (mut copied, mut is_peer_full, mut is_held) = (None, false, false);
        let mut is_unwatched = false;
        self.transmit_if(|inner| {
            copied = copy(inner);
            let Some(len) = copied else {
                return false;
            };
            is_peer_full = inner.stream.is_peer_full();
            let leaves = inner.stream.commit(len, *flags);
            is_held = inner.note_cork(flags.corked && !leaves);
            is_unwatched = inner.user_timeout.needs_begin();
            leaves
        });
        if is_held {
            self.watch_cork();
        }
        if is_unwatched {
            self.watch_user_timeout();
        }
        if is_peer_full {
            stats.peer_full.add(1);
        }
        copied
    }

    /// Attaches a send buffer; returns false if the connection has no working link, or there is no memory.
    // Out of line, as a writer with data in flight has one.
    #[inline(never)]
    fn lend_send_buffer(&self, sk: &Sk, stats: &Buffers) -> Result<bool> {
        let (can_lend, link, peer) =
            self.with(|inner| (inner.can_lend(), inner.at.link.clone(), inner.peer_size()));
        if !can_lend {
            return Ok(false);
        }
        match self.try_lend(sk, link, peer, stats) {
            Err(e) if e == ENOMEM => {
                self.await_memory();
                Ok(false)
            }
            result => result,
        }
    }

    /// Attaches a send buffer that is mapped for `link`, or for that which the connection uses by then.
    fn try_lend(
        &self,
        sk: &Sk,
        mut link: Arc<Link>,
        peer: Option<SizeClass>,
        stats: &Buffers,
    ) -> Result<bool> {
        let links = || self.group.links();
        let most = self.group.sndbufs.max_bytes(&link, links);
        let asked = asked_sndbuf(sk);
        let want = grown_sndbuf(sk, asked, peer).at_most(most).max(LEAST);
        let asked = asked.min(want);
        let (mut guard, charge, is_new) = self.alloc_sndbuf(sk, asked, want, stats)?;
        let mut charge = Some(charge);
        // Keeps the memory from being freed under the spinlock.
        let buf = Arc::clone(&guard);
        loop {
            let source = match buf.map(&link) {
                Ok(source) => source,
                Err(e) => {
                    self.group.sndbufs.release(guard);
                    return if link.is_up() { Err(e) } else { Ok(false) };
                }
            };
            // Only a writer attaches a buffer, and writers are serialized.
            let result = self.with(|inner| {
                self.attach_sndbuf(inner, guard, &link, source, &mut charge)?;
                Ok(mem::replace(&mut inner.has_sent, true))
            });
            match result {
                Ok(has_sent) => {
                    // Counted once for each connection.
                    if !has_sent {
                        // One that may be larger than asked for need not be.
                        let want = asked.max(buf.size()).min(want);
                        stats.count(want.bytes(), buf.size().bytes(), is_new);
                    }
                    if buf.size() > asked {
                        sk.raise_sndbuf(buf.size().bytes());
                    }
                    return Ok(true);
                }
                Err(back) => (guard, link) = (back, self.link()),
            }
        }
    }

    /// Takes a send buffer of size `want` from the pool, charged to the socket, and returns whether it is new. If the
    /// socket's cgroup is at its limit it gets one of size `asked`, at last one of the smallest size whatever the limit
    /// is: nothing is in flight, so nothing would ever wake the writer.
    fn alloc_sndbuf(
        &self,
        sk: &Sk,
        asked: SizeClass,
        want: SizeClass,
        stats: &Buffers,
    ) -> Result<(SndbufGuard, Charge, bool)> {
        let pool = &self.group.sndbufs;
        // More than that only where no other memory of the cgroup has to be given up for it.
        let larger = (want > asked && Charge::has_room(sk, want.bytes())).then_some(want);
        for size in [larger, Some(asked)].into_iter().flatten() {
            let (guard, is_new) = pool.take(size, stats)?;
            match Charge::new(sk, Purpose::Send, guard.size().bytes()) {
                Ok(charge) => return Ok((guard, charge, is_new)),
                Err(_) => pool.release(guard),
            }
        }
        let (guard, is_new) = pool.take(LEAST, stats)?;
        let charge = Charge::force(sk, guard.size().bytes())?;
        Ok((guard, charge, is_new))
    }
}
