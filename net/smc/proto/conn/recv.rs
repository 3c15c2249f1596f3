// SPDX-License-Identifier: GPL-2.0
//! The receiving half: the peer's write position, the application's read position, consumer cursor updates, and the
//! urgent byte.
//!
//! Stream positions: `advertised` (sent to the peer) <= `consumed` (read) <= `received`. If the urgent byte is next,
//! `advertised` may be one ahead of `consumed`.

use crate::conn::replace::{
    end_of_replaced,
    position_near,
    OwnRmbes, //
};
use crate::conn::{
    ProducerFlags,
    RmbeNum, //
};
use crate::cursor::{
    Chunks,
    Cursor,
    Ring, //
};
use crate::error::PeerMisbehaved;

/// State of the peer's last urgent byte. As with TCP there is one: an earlier one that was not reached yet becomes part
/// of the stream again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UrgentState {
    /// None came, or it was read.
    #[default]
    Read,
    /// The peer has announced one.
    NotYet,
    /// It is here and was not read.
    Valid,
}

/// Until when no newer consumer cursor is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConsHold {
    #[default]
    No,
    /// We moved, and no message of the peer has arrived on another link since.
    LocalSwitch,
    /// The peer moved; its validation waits for messages that arrived on the old link.
    PeerValidating,
    /// The validation was processed; the peer repeats messages that it does not know to have arrived.
    PeerResending,
}

/// Ring and read position of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecvState {
    rmbes: OwnRmbes,
    received: u64,
    consumed: u64,
    advertised: u64,
    /// One past the urgent byte.
    urgent_end: u64,
    urgent: UrgentState,
    /// The urgent byte itself, saved because its space in the ring is released.
    urgent_byte: u8,
    /// The reader has not passed the last urgent byte, before `urgent_end`, read by MSG_OOB or not.
    has_mark: bool,
    /// SO_OOBINLINE.
    inline: bool,
    /// The peer has more to send than fits, and waits.
    peer_blocked: bool,
    /// Why consumer updates are held: see [`Self::hold_cons`].
    cons_hold: ConsHold,
    /// Only data that arrived before the peer's newest message are advertised as read, unless it waits for more.
    advertises_late: bool,
    /// `received` before that message.
    received_before: u64,
    /// The peer waits for the full read position.
    advertises_all: bool,
    /// Flags of the peer's last message.
    flags: ProducerFlags,
    /// Its producer cursor: behind `received` while the peer repeats data.
    prod: Cursor,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConsUpdate {
    /// A consumer cursor update is due now.
    pub(super) update_due: bool,
    /// The read ends here, at the urgent mark.
    pub(super) at_mark: bool,
}

impl RecvState {
    /// The C module's least step of a consumer update: half of `SOCK_MIN_SNDBUF`.
    const LEAST_UPDATE: u32 = 2304;

    pub(super) const fn new(ring: Ring) -> Self {
        Self {
            rmbes: OwnRmbes::new(ring),
            received: 0,
            consumed: 0,
            advertised: 0,
            urgent_end: 0,
            urgent: UrgentState::Read,
            urgent_byte: 0,
            has_mark: false,
            inline: false,
            peer_blocked: false,
            cons_hold: ConsHold::No,
            advertises_late: false,
            received_before: 0,
            advertises_all: false,
            flags: ProducerFlags::from_bits(0),
            prod: Cursor { wrap: 0, offset: 0 },
        }
    }

    pub(super) fn set_oob_inline(&mut self, inline: bool) {
        self.inline = inline;
    }

    // --- Which RMBE.

    /// Our RMBEs.
    #[inline]
    pub(super) const fn rmbes(&self) -> &OwnRmbes {
        &self.rmbes
    }

    pub(super) const fn rmbes_mut(&mut self) -> &mut OwnRmbes {
        &mut self.rmbes
    }

    #[inline]
    const fn ring(&self) -> Ring {
        self.rmbes.ring()
    }

    /// Checks that data from position `since` on may be in RMBE `num`, for a message with a producer cursor that
    /// [`Self::check_prod`] accepted. Returns where the data in the present one end, if the peer has adopted the other.
    pub(super) fn check_refs(
        &self,
        num: RmbeNum,
        since: u32,
        cursor: Cursor,
    ) -> Result<Option<u64>, PeerMisbehaved> {
        if num == self.rmbes.num() {
            return Ok(None);
        }
        let ring = self.rmbes.ring_of(num)?;
        let ahead = ring.distance(self.received, cursor).unwrap_or(0);
        let prod = self.received.saturating_add_signed(ahead);
        let since = position_near(self.received, since);
        let end = end_of_replaced(self.received, since, prod)?;
        // All unread data before `end` have to fit into the RMBE in use, and into the offered one.
        let unread = end
            .wrapping_sub(self.received)
            .saturating_add(self.not_advertised());
        let most = self.ring().size().min(ring.size());
        match unread <= u64::from(most) {
            true => Ok(Some(end)),
            false => Err(PeerMisbehaved::ProducerOverrun),
        }
    }

    /// Whether unread data are in the RMBE before.
    pub(super) fn needs_replaced(&self) -> bool {
        self.rmbes.replaced_at(self.consumed).is_some()
    }

    /// Whether [`Self::peek`] from `offset` on returns chunks of the RMBE before.
    pub(super) fn is_in_replaced(&self, offset: u32) -> bool {
        let (from, _) = self.readable_from(offset);
        self.rmbes.replaced_at(from).is_some()
    }

    // --- What the peer wrote.

    /// The peer's write position.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Checks a producer cursor of the peer, for RMBE `num`; returns the new position if it moves forward.
    pub(super) fn check_prod(
        &self,
        num: RmbeNum,
        prod: Cursor,
    ) -> Result<Option<u64>, PeerMisbehaved> {
        let ring = self.rmbes.ring_of(num)?;
        let size = u64::from(ring.size());
        let ahead = ring
            .distance(self.received, prod)
            .ok_or(PeerMisbehaved::CursorOutsideRing)?;
        match u64::try_from(ahead) {
            Ok(0) => Ok(None),
            Ok(ahead) if ahead <= size.saturating_sub(self.not_advertised()) => {
                Ok(Some(self.received.wrapping_add(ahead)))
            }
            Ok(_) => Err(PeerMisbehaved::ProducerOverrun),
            // A peer that changed links goes back to the last position that it knows to have arrived.
            Err(_) if ahead.unsigned_abs() <= size => Ok(None),
            Err(_) => Err(PeerMisbehaved::CursorJump),
        }
    }

    /// The producer cursor of the peer's last message.
    pub(super) const fn prod(&self) -> Cursor {
        self.prod
    }

    /// Whether the peer's last message announced as much as any before: it repeats nothing.
    pub(super) fn has_all_announced(&self) -> bool {
        self.prod == self.ring().cursor(self.received)
    }

    /// Applies a message with the producer cursor `cursor`, of which [`Self::check_prod`] returned `prod`. Returns the
    /// ring offset of an urgent byte that came with it.
    pub(super) fn on_prod(
        &mut self,
        cursor: Cursor,
        prod: Option<u64>,
        flags: ProducerFlags,
    ) -> Option<u32> {
        self.prod = cursor;
        self.received_before = self.received;
        self.advertises_all |= flags.contains(ProducerFlags::UPDATE_REQUESTED);
        self.flags = flags;
        self.peer_blocked = flags.contains(ProducerFlags::WRITE_BLOCKED);
        let present = flags.contains(ProducerFlags::URGENT_PRESENT);
        let Some(received) = prod else {
            let is_announced = flags.contains(ProducerFlags::URGENT_PENDING) && !present;
            // A C peer announces the next one while the last one is unread.
            if is_announced && self.urgent == UrgentState::Read {
                self.urgent = UrgentState::NotYet;
            }
            return None;
        };
        self.received = received;
        if self.unread() > self.ring().size().into() {
            // The space of the urgent byte was reused, as advertised to the peer. The byte itself was saved.
            self.consumed = self.urgent_end;
            self.has_mark = false;
        }
        if !present {
            return None;
        }
        // A reader at the last mark cannot read its byte any more.
        if self.is_at_hole() {
            self.step_over();
        }
        self.urgent = UrgentState::Valid;
        self.urgent_end = received;
        self.has_mark = true;
        Some(self.ring().offset(received.wrapping_sub(1)))
    }

    /// Whether an urgent byte that arrived requires a consumer update at once: the peer waits until it was read, and a
    /// reader positioned before it may never read it.
    pub(super) fn answer_urgent(&mut self) -> bool {
        let is_asked = self.advertises_late && self.is_at_hole();
        is_asked && self.cons_update(true, false).update_due
    }

    pub(super) fn store_urgent(&mut self, byte: u8) {
        self.urgent_byte = byte;
    }

    pub(super) const fn cons_cursor(&self) -> Cursor {
        self.ring().cursor(self.consumed)
    }

    /// Bytes of the ring that the peer may not overwrite.
    fn not_advertised(&self) -> u64 {
        self.received
            .wrapping_sub(self.consumed.max(self.advertised))
    }

    /// The peer's write position, the application's read position, and the flags of the peer's last message
    /// (diagnosis).
    pub(super) const fn view(&self) -> ([Cursor; 2], ProducerFlags) {
        let received = self.ring().cursor(self.received);
        ([received, self.cons_cursor()], self.flags)
    }

    // --- What the application reads.

    /// Bytes in the ring, the urgent one included.
    pub(super) const fn unread(&self) -> u64 {
        self.received.wrapping_sub(self.consumed)
    }

    /// The position of the last urgent byte, if the reader has not passed it.
    fn mark(&self) -> Option<u64> {
        self.has_mark.then_some(self.urgent_end.wrapping_sub(1))
    }

    /// SIOCATMARK: the urgent byte is next.
    pub(super) fn is_at_mark(&self) -> bool {
        self.is_mark_at(0)
    }

    /// Whether the urgent byte is `offset` bytes behind what is next.
    pub(super) fn is_mark_at(&self, offset: u32) -> bool {
        self.mark() == Some(self.consumed.wrapping_add(offset.into()))
    }

    /// Whether the urgent byte is next, and normal reading skips it.
    pub(super) fn is_at_hole(&self) -> bool {
        !self.inline && self.is_at_mark()
    }

    /// Passes the urgent byte.
    fn step_over(&mut self) {
        self.consumed = self.consumed.max(self.urgent_end);
        self.pass_mark();
    }

    fn pass_mark(&mut self) {
        self.has_mark = false;
        self.urgent = UrgentState::Read;
    }

    /// Bytes that normal reading returns.
    pub(super) fn readable(&self) -> u32 {
        let hole = u64::from(self.has_mark && !self.inline);
        // CAST: never more than the ring.
        self.unread().saturating_sub(hole) as u32
    }

    /// SIOCINQ: as [`Self::readable`], up to the urgent mark.
    pub(super) fn readable_now(&self) -> u32 {
        match self.mark().filter(|_| !self.inline) {
            // CAST: never more than the ring.
            Some(mark) => mark.wrapping_sub(self.consumed) as u32,
            None => self.readable(),
        }
    }

    /// Whether to wake a reader that waits for `lowat` bytes: they are there, or the ring is almost full. With a mark
    /// next TCP counts its byte, and requires one more (`tcp_poll`).
    pub(super) fn is_worth_reading(&self, lowat: u32) -> bool {
        let wanted = u64::from(lowat).saturating_add(self.is_at_hole().into());
        let room = u64::from(self.ring().size())
            .saturating_sub(self.received.saturating_sub(self.advertised));
        let is_tight = room <= self.least_update().into();
        let unread = self.unread();
        self.readable() > 0 && (unread >= wanted || is_tight)
    }

    /// Returns the readable bytes from `offset` on. A read ends at the urgent mark, and begins after the urgent byte
    /// unless that is inline.
    ///
    /// All chunks are in one RMBE: see [`Self::is_in_replaced`].
    pub(super) fn peek(&self, offset: u32, len: u32) -> Chunks {
        let (from, to) = self.readable_from(offset);
        self.rmbes.chunks(from, to, len)
    }

    /// The stream positions between which a read from `offset` on may return data.
    fn readable_from(&self, offset: u32) -> (u64, u64) {
        let (mut from, mut to) = (self.consumed, self.received);
        match self.mark() {
            Some(mark) if mark != from => to = mark,
            Some(_) if !self.inline => from = from.wrapping_add(1),
            Some(_) | None => {}
        }
        (from.wrapping_add(offset.into()), to)
    }

    /// To be called before a read: skips the urgent byte if it is next and not inline.
    pub(super) fn skip_urgent(&mut self) -> ConsUpdate {
        let steps = self.is_at_hole();
        if steps {
            self.step_over();
        }
        self.cons_update(steps, false)
    }

    /// Where a read begins that [`Self::skip_urgent`] came before: the stream position of the first byte of
    /// [`Self::peek`] from 0 on.
    pub(super) fn read_position(&self) -> u64 {
        self.readable_from(0).0
    }

    /// Marks the `len` bytes as read that were found at `from`, which [`Self::read_position`] returned. While they were
    /// copied the urgent byte may have come out of line, or have been passed: what counts is which bytes were copied.
    pub(super) fn consume(&mut self, from: u64, len: u32) -> ConsUpdate {
        let end = from.wrapping_add(len.into()).min(self.received);
        let passes = len > 0 && self.mark().is_none_or(|mark| end > mark);
        let had_mark = self.has_mark;
        self.consumed = self.consumed.max(end);
        if passes {
            self.pass_mark();
        }
        let at_mark = self.is_at_mark();
        self.cons_update(passes && had_mark || self.is_at_hole(), at_mark)
    }

    /// The saved urgent byte, unless it was read.
    pub(super) const fn urgent_byte(&self) -> Option<u8> {
        match self.urgent {
            UrgentState::Valid if !self.inline => Some(self.urgent_byte),
            _ => None,
        }
    }

    pub(super) const fn urgent_end(&self) -> u64 {
        self.urgent_end
    }

    /// Marks the urgent byte as read by MSG_OOB, if it ends at `end`. The mark stays where it is.
    pub(super) fn take_urgent(&mut self, end: u64) -> ConsUpdate {
        if self.urgent_end == end {
            self.urgent = UrgentState::Read;
        }
        self.cons_update(self.is_at_hole(), false)
    }

    pub(super) const fn urgent_state(&self) -> UrgentState {
        self.urgent
    }

    // --- Consumer cursor updates.

    /// Decides whether a consumer cursor update is due now (`smc_tx_consumer_update`).
    ///
    /// Unlike the C module this also updates a blocked peer when the ring was read empty.
    fn cons_update(&mut self, forced: bool, at_mark: bool) -> ConsUpdate {
        let size = u64::from(self.ring().size());
        let unadvertised = self.given_back().saturating_sub(self.advertised);
        let free = size.saturating_sub(self.received.saturating_sub(self.advertised));
        let least = self.least_update();
        let empty = self.unread() == 0;
        let is_large = unadvertised > least.into() && (free <= size / 2 || self.peer_blocked);
        let is_starved = unadvertised > 0 && empty && self.peer_blocked;
        self.advertises_all |= forced || self.peer_blocked;
        if empty {
            self.peer_blocked = false;
        }
        ConsUpdate {
            update_due: self.cons_hold == ConsHold::No
                && (forced && unadvertised > 0 || is_large || is_starved),
            at_mark,
        }
    }

    /// Whether a peer that waits for room is to be told of what was read before it began to.
    pub(super) fn owes_update(&self) -> bool {
        let room = self.advertisable().saturating_sub(self.advertised);
        self.peer_blocked && room > self.least_update().into()
    }

    /// Least number of bytes for an update of the peer.
    fn least_update(&self) -> u32 {
        (self.ring().size() / 10).max(Self::LEAST_UPDATE)
    }

    /// The read position, plus one if the urgent byte is next: that is kept outside the ring, and its sender may wait
    /// until the cursor is past it.
    fn given_back(&self) -> u64 {
        let apart = u64::from(self.is_at_hole());
        self.consumed.wrapping_add(apart).max(self.advertised)
    }

    /// The read position that may be advertised now.
    fn advertisable(&self) -> u64 {
        match self.advertises_late && !self.advertises_all {
            _ if self.cons_hold != ConsHold::No => self.advertised,
            true => self
                .given_back()
                .min(self.received_before)
                .max(self.advertised),
            false => self.given_back(),
        }
    }

    /// For a peer for which [`Self::hold_cons`] may come too late: it may lose its link just after it sent data, and
    /// receive a consumer cursor past them before it knows that they arrived. By then it knows that data sent before
    /// those arrived.
    pub(super) fn advertise_late(&mut self) {
        self.advertises_late = true;
    }

    /// Whether [`Self::advertise_late`] was called.
    pub(super) const fn advertises_late(&self) -> bool {
        self.advertises_late
    }

    /// Whether so much was read since the last consumer cursor that the next message should carry one: soon enough that
    /// none has to be sent for the cursor alone.
    pub(super) fn owes_cons(&self) -> bool {
        let unadvertised = self.given_back().saturating_sub(self.advertised);
        self.advertises_all || unadvertised >= u64::from(self.ring().size() / 4)
    }

    /// Returns the consumer cursor to send, which counts as advertised.
    pub(super) fn advertise(&mut self) -> Cursor {
        self.advertised = self.advertisable();
        self.advertises_all &= self.cons_hold != ConsHold::No;
        self.advertised_cursor()
    }

    /// The consumer cursor that was sent last.
    pub(super) fn advertised_cursor(&self) -> Cursor {
        self.ring().cursor(self.advertised)
    }

    /// Whether all received data were advertised as read, so that there is room.
    pub(super) const fn is_all_advertised(&self) -> bool {
        self.advertised == self.received
    }

    /// Whether the peer's last message has the B flag: it may have more to send than there is room for.
    pub(super) const fn is_blocked(&self) -> bool {
        self.flags.contains(ProducerFlags::WRITE_BLOCKED)
    }

    /// The peer changed links, and does not know that all its messages arrived: its producer cursor is behind
    /// `received` until it has repeated them. Until then no newer consumer cursor is sent.
    ///
    /// A C peer does not expect a consumer cursor ahead of its producer cursor: if the ring wraps between the two, it
    /// repeats to the ring's end and beyond, into what belongs to another connection.
    pub(super) fn hold_cons(&mut self, until: ConsHold) {
        self.cons_hold = until;
    }

    /// The connection's link is gone, and the peer has yet to move: a consumer cursor sent meanwhile may reach it just
    /// after that.
    pub(super) fn hold_cons_if_late(&mut self) {
        if self.advertises_late && self.cons_hold == ConsHold::No {
            self.cons_hold = ConsHold::LocalSwitch;
        }
    }

    /// Whether the peer has yet to move as we did.
    pub(super) const fn awaits_peer_switch(&self) -> bool {
        matches!(self.cons_hold, ConsHold::LocalSwitch)
    }

    /// Whether the peer has moved, and may have messages to repeat.
    pub(super) const fn awaits_resend(&self) -> bool {
        matches!(self.cons_hold, ConsHold::PeerResending)
    }

    /// The peer knows that all its data arrived. Returns whether a consumer cursor update is due.
    pub(super) fn release_all(&mut self) -> bool {
        self.advertises_all = true;
        self.release_cons()
    }

    /// Processes a producer cursor. Returns whether a consumer cursor update is due, as the peer has repeated all data
    /// that were read, or has nothing to repeat.
    pub(super) fn release_if_resent(&mut self, prod: Cursor) -> bool {
        match self.cons_hold {
            ConsHold::No | ConsHold::PeerValidating => false,
            ConsHold::LocalSwitch => self.release_cons(),
            ConsHold::PeerResending => {
                let behind = self.ring().distance(self.received, prod).unwrap_or(0);
                let position = self.received.saturating_add_signed(behind);
                position >= self.consumed && self.release_cons()
            }
        }
    }

    /// The peer's move is over, as a message that it sent after its validation was taken. Returns whether a consumer
    /// cursor update is due.
    pub(super) fn release_if_validated(&mut self) -> bool {
        if self.cons_hold != ConsHold::PeerValidating {
            return false;
        }
        self.cons_hold = ConsHold::PeerResending;
        self.release_if_resent(self.prod())
    }

    /// The peer has repeated its messages. Returns whether a consumer cursor update is due.
    pub(super) fn release_cons(&mut self) -> bool {
        core::mem::take(&mut self.cons_hold) != ConsHold::No && self.advertised != self.given_back()
    }

    /// Whether the ring is full.
    pub(super) fn is_full(&self) -> bool {
        self.unread() >= self.ring().size().into()
    }

    /// Bytes of the ring.
    pub(super) const fn size(&self) -> u32 {
        self.ring().size()
    }
}
