// SPDX-License-Identifier: GPL-2.0
//! One connection's data transfer: cursors, window, urgent data, close state, failover (RFC 7609 sections 4.3 to 4.8),
//! as a state machine without I/O.
//!
//! # How the kernel side uses it
//!
//! Each connection holds one [`Stream`] under one spinlock, here called *the lock*. No method sleeps. Posting is done
//! **under the lock**: the order of sequence numbers must be the order on the queue pair.
//!
//! All messages are sent by one function:
//!
//! ```text
//! transmit():                              // any context; after every call that returns `transmit`
//!     get a send slot of the link          // none free: retry when one is
//!     lock
//!     while let Some(plan) = stream.plan() {
//!         slot.record = plan.record        // kept until the completion of the SEND
//!         plan.immediate() -> post the only one of plan.writes() as RDMA WRITE WITH IMMEDIATE (signalled)
//!         else post each of plan.writes() as RDMA WRITE (unsignalled), then plan.cdc as SEND (signalled)
//!         post failed: stream.plan_failed(&plan.record); break, and report the link
//!     }
//!     unlock                               // unused slot: give back
//! completion of the last, good or flushed: lock; fx = stream.on_sent(&record, good); unlock; act on fx
//! ```
//!
//! Every record that was not handed to `plan_failed` is passed to `on_sent` exactly once. Where a completion does not
//! imply delivery, `on_sent` is split: `on_local_completion` at the completion, `on_acked` when the peer has
//! acknowledged the message, or the link is gone; an acknowledgement is requested at once when `needs_ack`, and after a
//! while when `needs_ack_eventually`.
//!
//! ```text
//! sendmsg (one writer at a time, by a mutex of its own), in a loop:
//!     lock; can_send()?; needs_sndbuf() -> get one from the link group, attach_sndbuf(class);
//!     writable() == 0 -> return the bytes accepted, or wait; chunks = reserve(rest); unlock
//!     copy from the application into the send buffer at the chunks   // may sleep
//!     lock; now = commit(copied, how); unlock                        // 0 if the copy failed
//!     now -> transmit()
//!
//! recvmsg (one reader at a time, by another mutex), in a loop:
//!     lock; set_oob_inline(); skip_urgent(); match recv_state(); at = read_position();
//!     chunks = peek_chunks(offset, len); unlock
//!     copy from the RMBE at the chunks to the application            // may sleep
//!     lock; fx = consume(at, copied); unlock                         // not for MSG_PEEK
//!     fx.transmit -> transmit();  fx.at_mark -> the read ends
//!
//! a CDC message for this connection's token arrives, or immediate data, as [`CdcHold::expand`] completes them:
//!     lock; match stream.on_cdc(&cdc)
//!         Ok(fx): fx.urgent_at -> stream.store_urgent(rmbe[offset]);  unlock; act on fx
//!         Err(why): stream.abort(); unlock; count `why`; transmit(); queue the abort work
//!     a message with the F flag comes after everything that arrived by failed links: [`CdcHold`]
//! abort work: wait until is_quiet() or the link is gone; lock; aborted(); unlock; reset the TCP socket
//!
//! close, and shutdown of both directions:
//!     lock; needs_flush() -> unlock, transmit(), wait until it does not; lock
//!     fx = close(released); unlock; fx.transmit -> transmit(); shut the TCP socket down, after a close
//! free the connection when is_finished(), here or after on_cdc() and on_sent()
//!
//! link failure: old queue pair to the error state; lock; choose the new link; fx = on_link_switch();
//!     set_immediate(whether the new link and the peer can); unlock; act on fx
//! another link has fewer connections: transmit() moves the connection to it when handover() permits, with
//!     set_immediate() as above
//! after on_sent(): may_release_sndbuf() -> detach_sndbuf(false), and back to the link group with it
//! after each of these: begin_echo() -> TEST_LINK; some time after its answer: lock; fx = on_silence(); unlock;
//!     act on fx
//! ```

mod arrivals;
mod cdc;
mod cdc_hold;
mod close;
mod echo;
mod effects;
mod failover;
mod immediate;
mod plan;
mod post_close;
mod recv;
mod replace;
pub mod rmbe_size;
mod send;
mod state;
mod user_timeout;
mod view;

pub use self::arrivals::{
    Arrivals,
    ArrivedBytes, //
};
pub use self::cdc::{
    Cdc,
    ProducerFlags,
    RmbeNum,
    RmbeOffer,
    RmbeRefs,
    StateFlags, //
};
pub use self::cdc_hold::{
    CdcHold,
    HeldCdcs,
    RxVerdict, //
};
pub use self::effects::{
    CloseEffects,
    ConsumeEffects,
    Effects,
    Fault,
    SendFlags, //
};
pub use self::failover::Handover;
pub use self::plan::{
    RdmaWrite,
    SentRecord,
    WritePlan, //
};
pub use self::recv::UrgentState;
pub use self::state::{
    ConnEvent,
    ConnState,
    TcpEquivalent, //
};
pub use self::user_timeout::{
    Look,
    PeerProgress,
    UserTimeout, //
};
pub use self::view::{
    ConnInfo,
    EpollMask,
    IoctlQueues,
    Recv,
    SendError, //
};

use self::{
    immediate::ImmediateUse,
    post_close::AfterClose,
    recv::RecvState,
    send::SendState, //
};
use crate::buffer::SizeClass;
use crate::cursor::{
    Chunks,
    Ring, //
};

// One per connection, under a spinlock; one record per send slot.
const _: () = assert!(size_of::<Stream>() <= 232);
const _: () = assert!(size_of::<SentRecord>() <= 24);

/// The state of data transfer of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    send: SendState,
    recv: RecvState,
    state: ConnState,
    /// Our state flags; sent with every message.
    own: StateFlags,
    /// The peer's state flags, as last received.
    peer: StateFlags,
    /// Number of the last message sent.
    seq: u16,
    /// Number of the last message known to have arrived.
    seq_fin: u16,
    /// Number of the last message accepted from the peer.
    seq_peer: u16,
    /// A message was sent: the numbers come round to 0 again.
    has_sent: bool,
    /// A message was accepted from the peer.
    has_heard: bool,
    /// Messages posted and not completed: work requests may read the send buffer.
    pending: u16,
    /// Messages posted whose delivery is neither confirmed nor ruled out.
    unacked: u16,
    /// Counts link switches, to recognise late completions.
    epoch: u8,
    /// A message is due even without data.
    cdc_due: bool,
    /// A failover validation is due first.
    validation_due: bool,
    /// The message with our close or abort flag was posted: the peer may reuse its RMBE.
    close_posted: bool,
    /// The application has released the socket.
    released: bool,
    /// Bytes received when the close flag was set.
    received_at_close: u64,
    /// Aborted locally by [`Stream::abort`].
    killed: bool,
    /// The peer's stream had ended in order when it aborted, or we did.
    ended_before_abort: bool,
    /// The connection has no link any more.
    has_no_link: bool,
    /// What the application shut down.
    shutdown: Shutdown,
    /// Data were sent after the peer's close.
    sent_after_close: bool,
    /// Messages of the peer are no longer accepted.
    out_of_sync: bool,
    /// The peer has moved off the link that the connection uses here.
    peer_moved: bool,
    /// What may follow the peer's close.
    after_close: AfterClose,
    /// An echo is outstanding as [`Stream::may_have_nothing_to_resend`] says.
    resend_asked: bool,
    /// Whether immediate data may take the place of messages.
    immediate: ImmediateUse,
    /// The position that the last message announced.
    announced: u64,
    /// Both ends can replace their RMBEs.
    replaces: bool,
}

/// Directions that the application shut down: shutdown(2).
#[derive(Clone, Copy, Debug, Default)]
struct Shutdown {
    recv: bool,
    send: bool,
}

impl Stream {
    /// A connection in the handshake, with its own RMBE. The peer may send from now on.
    pub const fn new(own_rmbe: SizeClass) -> Self {
        Self {
            send: SendState::new(),
            recv: RecvState::new(Ring::new(own_rmbe)),
            state: ConnState::Init,
            own: StateFlags::from_bits(0),
            peer: StateFlags::from_bits(0),
            seq: 0,
            seq_fin: 0,
            seq_peer: 0,
            has_sent: false,
            has_heard: false,
            pending: 0,
            unacked: 0,
            epoch: 0,
            cdc_due: false,
            validation_due: false,
            close_posted: false,
            released: false,
            received_at_close: 0,
            killed: false,
            ended_before_abort: false,
            has_no_link: false,
            shutdown: Shutdown {
                recv: false,
                send: false,
            },
            sent_after_close: false,
            out_of_sync: false,
            peer_moved: false,
            after_close: AfterClose::Nothing,
            resend_asked: false,
            immediate: ImmediateUse::No,
            announced: 0,
            replaces: false,
        }
    }

    // --- Send buffer.

    /// Whether a send buffer has to be attached before data can be accepted.
    #[inline]
    pub const fn needs_sndbuf(&self) -> bool {
        !self.send.has_sndbuf()
    }

    /// Attaches a send buffer. Its cursor starts at 0; the cursor in the peer's RMBE continues.
    ///
    /// Returns false if one is attached already.
    pub fn attach_sndbuf(&mut self, class: SizeClass) -> bool {
        self.send.attach_sndbuf(class)
    }

    /// Whether the send buffer can be released: all data were completed, no work request that could read the buffer is
    /// in flight, and no copy into it is under way.
    #[inline]
    pub const fn may_release_sndbuf(&self) -> bool {
        self.send.is_sndbuf_idle() && self.pending == 0
    }

    /// Detaches the send buffer if [`Stream::may_release_sndbuf`], or if no work request can read it any more because
    /// the connection is over (`force`). Returns whether one was detached.
    pub fn detach_sndbuf(&mut self, force: bool) -> bool {
        let detach = self.send.has_sndbuf() && (force || self.may_release_sndbuf());
        if detach {
            self.send.detach_sndbuf();
        }
        detach
    }

    // --- Sending.

    /// Bytes that [`Stream::reserve`] can provide; 0 without a send buffer.
    #[inline]
    pub fn writable(&self) -> u32 {
        self.send.space()
    }

    /// Whether so much of the send buffer is free that writers are worth waking, as `sk_stream_is_writeable` has it: at
    /// least half of what is in use.
    #[inline]
    pub fn has_write_space(&self) -> bool {
        self.send.space() > 0 && self.send.space() >= self.send.outstanding() / 2
    }

    /// Whether writers are to be woken now that there were `before` bytes free.
    fn has_freed(&self, before: u32) -> bool {
        self.send.space() > before && self.has_write_space()
    }

    /// Reserves at most `len` bytes of the send buffer to copy to. Ends with [`Stream::commit`].
    #[inline]
    pub fn reserve(&mut self, len: u32) -> Chunks {
        self.send.reserve(len.min(self.writable()))
    }

    /// Whether bytes are reserved of which [`Stream::commit`] is still missing.
    #[inline]
    pub const fn is_filling(&self) -> bool {
        self.send.is_filling()
    }

    /// Commits the first `len` reserved bytes. Returns whether to transmit now; if not, the data are corked until a
    /// later commit, completion, window update or [`Stream::uncork`].
    #[inline(always)]
    pub fn commit(&mut self, len: u32, how: SendFlags) -> bool {
        self.send.commit(len, how);
        if len == 0 || self.send.unsent() == 0 {
            return false;
        }
        if self.send.is_urgent_outstanding() {
            // As with TCP, nothing is held back for larger messages then.
            return true;
        }
        let bound = (self.send.sndbuf_size() / 2).min(how.autocork_bytes);
        let autocorked = self.pending > 0 && self.send.unsent() <= bound;
        let corked = how.corked && self.has_write_space();
        !autocorked && !corked
    }

    /// Ends corking (TCP_NODELAY set, TCP_CORK cleared, delayed work). Returns whether to transmit.
    pub fn uncork(&self) -> bool {
        self.has_work()
    }

    // --- Receiving.

    /// Sets SO_OOBINLINE; to be called before reading and polling.
    pub fn set_oob_inline(&mut self, inline: bool) {
        self.recv.set_oob_inline(inline);
    }

    /// Bytes that can be read.
    #[inline]
    pub fn readable(&self) -> u32 {
        self.recv.readable()
    }

    /// Returns where in our RMBE the readable bytes from `offset` on are (those before were peeked or spliced), at most
    /// `len`. Ends at an urgent mark, so it may be shorter than [`Stream::readable`].
    pub fn peek_chunks(&self, offset: u32, len: u32) -> Chunks {
        self.recv.peek(offset, len)
    }

    /// Skips an urgent byte that comes next. To be called before each read, but not before a peek.
    pub fn skip_urgent(&mut self) -> ConsumeEffects {
        let consumed = self.recv.skip_urgent();
        self.after_consume(consumed)
    }

    /// Whether a read would skip an urgent byte. A read that a signal is about to interrupt does not skip it.
    pub fn is_at_hole(&self) -> bool {
        self.recv.is_at_hole()
    }

    /// Whether the reader stands at an urgent byte, in line or not.
    pub fn is_at_mark(&self) -> bool {
        self.recv.is_at_mark()
    }

    /// Whether the urgent byte is `offset` bytes behind what is read next: a call that has seen those ends there.
    pub fn is_mark_at(&self, offset: u32) -> bool {
        self.recv.is_mark_at(offset)
    }

    /// The position in the stream of the first byte of [`Stream::peek_chunks`] from 0 on.
    pub fn read_position(&self) -> u64 {
        self.recv.read_position()
    }

    /// Marks `len` bytes as read, which began at `from`, by [`Stream::read_position`] when they were found; their space
    /// may be overwritten.
    pub fn consume(&mut self, from: u64, len: u32) -> ConsumeEffects {
        let consumed = self.recv.consume(from, len);
        self.after_consume(consumed)
    }

    fn after_consume(&mut self, consumed: recv::ConsUpdate) -> ConsumeEffects {
        self.update_peer(consumed.update_due);
        ConsumeEffects {
            transmit: self.cdc_due,
            at_mark: consumed.at_mark,
        }
    }

    /// Schedules a consumer cursor update if one is `due` and of use to the peer.
    fn update_peer(&mut self, due: bool) {
        let is_heard = !self.peer.any_close() || self.may_miss_data_after_close();
        self.cdc_due |= due && is_heard && !self.killed;
    }

    /// The state of the peer's urgent byte.
    #[inline]
    pub const fn urgent_state(&self) -> UrgentState {
        self.recv.urgent_state()
    }

    /// The urgent byte for recv(MSG_OOB); `None` (EINVAL) with SO_OOBINLINE, without one, or once read.
    pub const fn urgent(&self) -> Option<u8> {
        self.recv.urgent_byte()
    }

    /// The position behind the last urgent byte that came.
    pub const fn urgent_end(&self) -> u64 {
        self.recv.urgent_end()
    }

    /// Marks the urgent byte that ends at `end` as read by recv(MSG_OOB) without MSG_PEEK. One that has come since then
    /// was not read.
    pub fn take_urgent(&mut self, end: u64) -> ConsumeEffects {
        let consumed = self.recv.take_urgent(end);
        self.after_consume(consumed)
    }

    /// Saves the byte that [`Effects::urgent_at`] pointed at, under the same lock.
    pub fn store_urgent(&mut self, byte: u8) {
        self.recv.store_urgent(byte);
    }

    /// Whether nothing can be written to the peer now (statistics).
    #[inline]
    pub fn is_peer_full(&self) -> bool {
        self.send.has_peer() && self.send.window() == 0
    }

    /// Whether our RMBE is full (statistics).
    pub fn is_rmbe_full(&self) -> bool {
        self.recv.is_full()
    }

    /// Processes a CDC message of the peer.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the message is invalid, or implies that others were lost; call [`Stream::abort`] then. Old messages
    /// are ignored.
    pub fn on_cdc(&mut self, cdc: &Cdc) -> Result<Effects, Fault> {
        if self.killed {
            // Only the peer's close or abort matters: after it the peer writes no more.
            self.peer.insert(cdc.state);
            self.forget_echo(true);
            return Ok(Effects::default());
        }
        if self.out_of_sync {
            return Ok(Effects::default());
        }
        if self.is_stale(cdc) {
            // It was not when it came, and was held back; a message that followed it was taken before it.
            self.cdc_due |= self.recv.release_if_validated();
            return Ok(Effects {
                transmit: self.cdc_due,
                ..Effects::default()
            });
        }
        if cdc.is_validation() {
            self.on_validation(cdc.seq)?;
            return Ok(Effects {
                transmit: self.cdc_due,
                ..Effects::default()
            });
        }
        if is_before(cdc.seq, self.seq_peer) {
            return Ok(Effects::default());
        }
        let refs = self.refs_of_peer(cdc.rmbes);
        let cons = self.send.check_cons(refs.cons, cdc.cons)?;
        let prod = self.recv.check_prod(refs.prod, cdc.prod)?;
        let replaced = self.recv.check_refs(refs.prod, refs.since, cdc.prod)?;
        self.seq_peer = cdc.seq;
        self.has_heard = true;
        if let Some(end) = replaced {
            self.recv.rmbes_mut().replace(end);
        }
        self.forget_echo(prod.is_some());
        self.resend_asked = false;
        self.cdc_due |= self.recv.release_if_resent(cdc.prod);

        let mut fx = Effects {
            wake_readers: prod.is_some() || cdc.flags.contains(ProducerFlags::WRITE_BLOCKED),
            urgent_at: self.recv.on_prod(cdc.prod, prod, cdc.flags),
            replaced: replaced.is_some(),
            ..Effects::default()
        };
        if fx.urgent_at.is_some() {
            let due = self.recv.answer_urgent();
            self.update_peer(due);
        }
        if let Some(cons) = cons {
            let space = self.send.space();
            fx.wake_writers = self.send.acknowledge(cons);
            if self.pending == 0 {
                self.send.complete_read();
            }
            fx.wake_writers |= self.has_freed(space);
        }
        if cdc.flags.contains(ProducerFlags::UPDATE_REQUESTED) && !self.killed {
            //= rfc7609#section-4.3
            // The C module answers at the next read only.
            self.cdc_due = true;
        }
        self.on_peer_state(cdc.state, &mut fx);
        self.abort_on_data_after_close();
        fx.offer = self.adoptable(&refs);
        // The reader may be waiting for more than fits behind what it has read.
        self.cdc_due |= self.recv.owes_update() && !self.killed;
        // A peer that waits for room may have had a reason not to adopt it when it was offered.
        self.cdc_due |= self.recv.is_blocked() && self.recv.rmbes().offered().is_some();
        let is_asked = cons.is_some() || self.is_close_ready();
        fx.transmit = self.cdc_due || (is_asked && self.has_work());
        Ok(fx)
    }
}

/// Whether sequence number `a` comes before `b`.
const fn is_before(a: u16, b: u16) -> bool {
    // CAST: the sign of the difference is the order, as for TCP.
    (a.wrapping_sub(b) as i16) < 0
}
