// SPDX-License-Identifier: GPL-2.0
//! The receiving half: what the peer has written, what the application has read, when to tell the
//! peer, and the urgent byte.
//!
//! Places are stream positions: `advertised` (told to the peer) <= `consumed` (read) <= `received`. Where the
//! urgent byte is next, `advertised` may be one ahead of `consumed`.

use crate::conn::ProducerFlags;
use crate::cursor::{
    Chunk,
    Chunks,
    Cursor,
    Ring, //
};
use crate::error::PeerMisbehaved;

/// What is known of the peer's last urgent byte. As with TCP there is one: the byte before it, if nobody has
/// read that far, is part of the stream again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UrgentState {
    /// None came, or it was read.
    #[default]
    Read,
    /// The peer has one waiting.
    NotYet,
    /// It is here and was not read.
    Valid,
}

/// Until when the peer is not told that more was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConsHold {
    #[default]
    No,
    /// We moved, and it was not heard by another link since.
    LocalSwitch,
    /// It moved, and its word which of its messages arrived last waits for those that came by the old link.
    PeerValidating,
    /// It was heard, and repeats those that it does not know of.
    PeerResending,
}

/// Ring and read position of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    ring: Ring,
    received: u64,
    consumed: u64,
    advertised: u64,
    /// One past the urgent byte.
    urgent_end: u64,
    urgent: UrgentState,
    /// The urgent byte itself, saved because its place in the ring is given back.
    urgent_byte: u8,
    /// The reader has not passed the byte before `urgent_end`, the last urgent one, read by itself or not.
    has_mark: bool,
    /// SO_OOBINLINE.
    inline: bool,
    /// The peer has more to send than fits, and waits.
    peer_blocked: bool,
    /// Whether the peer repeats what is here: see [`Self::hold`].
    cons_hold: ConsHold,
    /// The peer is told no more than what was here before its newest message, unless it waits for it.
    advertises_late: bool,
    /// What was here before that.
    received_before: u64,
    /// The peer waits to be told all.
    advertises_all: bool,
    /// As last received.
    flags: ProducerFlags,
}

/// What reading did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConsUpdate {
    /// The peer has to be told now.
    pub(super) update_due: bool,
    /// The read ends here, at the urgent mark.
    pub(super) at_mark: bool,
}

impl Receiver {
    /// The C module's least step of a consumer update: half of `SOCK_MIN_SNDBUF`.
    const LEAST_UPDATE: u32 = 2304;

    pub(super) const fn new(ring: Ring) -> Self {
        Self {
            ring,
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
        }
    }

    pub(super) fn set_oob_inline(&mut self, inline: bool) {
        self.inline = inline;
    }

    /// The ring.
    pub(super) const fn ring(&self) -> Ring {
        self.ring
    }

    // --- What the peer wrote.

    /// How far it has written.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Checks a producer cursor of the peer; the new position if it moves forward.
    pub(super) fn check_prod(&self, prod: Cursor) -> Result<Option<u64>, PeerMisbehaved> {
        let size = u64::from(self.ring.size());
        let ahead = self
            .ring
            .distance(self.received, prod)
            .ok_or(PeerMisbehaved::CursorOutsideRing)?;
        match u64::try_from(ahead) {
            Ok(0) => Ok(None),
            Ok(ahead) if ahead <= size.saturating_sub(self.not_advertised()) => {
                Ok(Some(self.received.wrapping_add(ahead)))
            }
            Ok(_) => Err(PeerMisbehaved::ProducerOverrun),
            // A peer that changed links goes back to what it knows to have arrived.
            Err(_) if ahead.unsigned_abs() <= size => Ok(None),
            Err(_) => Err(PeerMisbehaved::CursorJump),
        }
    }

    /// Takes over a position that [`Self::check_prod`] gave. Returns the ring offset of an urgent
    /// byte that came with it.
    pub(super) fn on_prod(&mut self, prod: Option<u64>, flags: ProducerFlags) -> Option<u32> {
        self.received_before = self.received;
        self.advertises_all |= flags.contains(ProducerFlags::UPDATE_REQUESTED);
        self.flags = flags;
        self.peer_blocked = flags.contains(ProducerFlags::WRITE_BLOCKED);
        let present = flags.contains(ProducerFlags::URGENT_PRESENT);
        let Some(received) = prod else {
            let is_announced = flags.contains(ProducerFlags::URGENT_PENDING) && !present;
            // A C peer says so of the next one while the last one is here.
            if is_announced && self.urgent == UrgentState::Read {
                self.urgent = UrgentState::NotYet;
            }
            return None;
        };
        self.received = received;
        if self.unread() > self.ring.size().into() {
            // The place of the urgent byte has been used again, as the peer was told that it may. The byte itself
            // was saved.
            self.consumed = self.urgent_end;
            self.has_mark = false;
        }
        if !present {
            return None;
        }
        // Who stands at the last mark does not get its byte any more.
        if self.is_at_hole() {
            self.step_over();
        }
        self.urgent = UrgentState::Valid;
        self.urgent_end = received;
        self.has_mark = true;
        Some(self.ring.offset(received.wrapping_sub(1)))
    }

    /// Whether the peer has to be told at once of an urgent byte that came: it waits until that was read, and
    /// a reader who stands before it may never read it.
    pub(super) fn answer_urgent(&mut self) -> bool {
        let is_asked = self.advertises_late && self.is_at_hole();
        is_asked && self.cons_update(true, false).update_due
    }

    pub(super) fn store_urgent(&mut self, byte: u8) {
        self.urgent_byte = byte;
    }

    pub(super) const fn cons_cursor(&self) -> Cursor {
        self.ring.cursor(self.consumed)
    }

    /// Bytes of the ring that the peer may not write.
    fn not_advertised(&self) -> u64 {
        self.received
            .wrapping_sub(self.consumed.max(self.advertised))
    }

    /// How far the peer has written, how far the application has read, and the flags of the peer's
    /// last message (diagnosis).
    pub(super) const fn view(&self) -> ([Cursor; 2], ProducerFlags) {
        let received = self.ring.cursor(self.received);
        ([received, self.cons_cursor()], self.flags)
    }

    // --- What the application reads.

    /// Bytes in the ring, the urgent one included.
    const fn unread(&self) -> u64 {
        self.received.wrapping_sub(self.consumed)
    }

    /// The position of the last urgent byte, if the reader has not passed it.
    fn mark(&self) -> Option<u64> {
        self.has_mark.then_some(self.urgent_end.wrapping_sub(1))
    }

    /// SIOCATMARK: the urgent byte is next.
    pub(super) fn is_at_mark(&self) -> bool {
        self.mark() == Some(self.consumed)
    }

    /// Whether the urgent byte is next, and normal reading leaves it out.
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

    /// Bytes that normal reading will give.
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

    /// Whether a reader who waits for `lowat` bytes is to be woken: they are there, or the ring has hardly room
    /// for more. With a mark next TCP counts its byte, and asks for one more (`tcp_poll`).
    pub(super) fn is_worth_reading(&self, lowat: u32) -> bool {
        let wanted = u64::from(lowat).saturating_add(self.is_at_hole().into());
        let room = u64::from(self.ring.size())
            .saturating_sub(self.received.saturating_sub(self.advertised));
        let is_tight = room <= self.least_update().into();
        let unread = self.unread();
        self.readable() > 0 && (unread >= wanted || is_tight)
    }

    /// The bytes from `offset` readable ones on. A read ends at the urgent mark, and begins behind its byte
    /// unless that is in line.
    pub(super) fn peek(&self, offset: u32, len: u32) -> Chunks {
        let (mut from, mut to) = (self.consumed, self.received);
        match self.mark() {
            Some(mark) if mark != from => to = mark,
            Some(_) if !self.inline => from = from.wrapping_add(1),
            Some(_) | None => {}
        }
        let from = from.wrapping_add(offset.into());
        let rest = to.saturating_sub(from);
        self.ring
            .chunks(from, len.min(u32::try_from(rest).unwrap_or(u32::MAX)))
    }

    /// The application is about to read: it passes the urgent byte that is next, unless that is in line.
    pub(super) fn skip_urgent(&mut self) -> ConsUpdate {
        let steps = self.is_at_hole();
        if steps {
            self.step_over();
        }
        self.cons_update(steps, false)
    }

    /// The application has read `len` bytes.
    pub(super) fn consume(&mut self, len: u32) -> ConsUpdate {
        let stepped = self.skip_urgent();
        let had_mark = self.has_mark;
        let len = total(&self.peek(0, len));
        self.consumed = self.consumed.wrapping_add(len.into());
        let passes = len > 0 && self.mark().is_none_or(|mark| self.consumed > mark);
        if passes {
            self.pass_mark();
        }
        let at_mark = self.is_at_mark();
        let settled = self.cons_update(passes && had_mark || self.is_at_hole(), at_mark);
        ConsUpdate {
            update_due: settled.update_due || stepped.update_due,
            ..settled
        }
    }

    /// The saved urgent byte, as long as it was not read.
    pub(super) const fn urgent_byte(&self) -> Option<u8> {
        match self.urgent {
            UrgentState::Valid if !self.inline => Some(self.urgent_byte),
            _ => None,
        }
    }

    /// The urgent byte was read by itself. The mark stays where it is.
    pub(super) fn take_urgent(&mut self) -> ConsUpdate {
        self.urgent = UrgentState::Read;
        self.cons_update(self.is_at_hole(), false)
    }

    pub(super) const fn urgent_state(&self) -> UrgentState {
        self.urgent
    }

    // --- Telling the peer.

    /// Whether the peer has to learn the read position now (`smc_tx_consumer_update`).
    ///
    /// Unlike the C module this also answers a blocked peer when the ring was read empty.
    fn cons_update(&mut self, forced: bool, at_mark: bool) -> ConsUpdate {
        let size = u64::from(self.ring.size());
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

    /// Bytes that are worth an update of the peer.
    fn least_update(&self) -> u32 {
        (self.ring.size() / 10).max(Self::LEAST_UPDATE)
    }

    /// The read position, or one more where the urgent byte is next, which is kept apart from the ring: its
    /// sender may wait until the peer is past it.
    fn given_back(&self) -> u64 {
        let apart = u64::from(self.is_at_hole());
        self.consumed.wrapping_add(apart).max(self.advertised)
    }

    /// The read position as the peer may know it.
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

    /// The peer is one for which [`Self::hold`] comes too late now and then: it may lose its link just after it
    /// sent something, and may hear that this was read before it knows that it arrived. What it sent before
    /// that it knows by then.
    pub(super) fn advertise_late(&mut self) {
        self.advertises_late = true;
    }

    /// Whether the peer is one of those.
    pub(super) const fn advertises_late(&self) -> bool {
        self.advertises_late
    }

    /// The cursor of the read position for the peer, which is being told it.
    pub(super) fn advertise(&mut self) -> Cursor {
        self.advertised = self.advertisable();
        self.advertises_all &= self.cons_hold != ConsHold::No;
        self.advertised_cursor()
    }

    /// The cursor of the read position that the peer was told last.
    pub(super) fn advertised_cursor(&self) -> Cursor {
        self.ring.cursor(self.advertised)
    }

    /// Whether the peer was told that all was read, so that there is room.
    pub(super) const fn is_all_advertised(&self) -> bool {
        self.advertised == self.received
    }

    /// Whether the peer's last message said that it may have more to send than there is room for.
    pub(super) const fn is_blocked(&self) -> bool {
        self.flags.contains(ProducerFlags::WRITE_BLOCKED)
    }

    /// The peer changed links, and does not know that all its messages arrived: its producer cursor is
    /// behind what is here, until it has repeated that. So long it is not told that more was read.
    ///
    /// A C peer does not expect a consumer cursor ahead of its producer cursor: where the ring wraps between
    /// the two, it repeats to the ring's end and beyond, into what belongs to another connection.
    pub(super) fn hold_cons(&mut self, until: ConsHold) {
        self.cons_hold = until;
    }

    /// The connection's link is gone, and the peer has not moved: it will, and what it is told meanwhile may
    /// reach it just after that.
    pub(super) fn hold_cons_if_late(&mut self) {
        if self.advertises_late && self.cons_hold == ConsHold::No {
            self.cons_hold = ConsHold::LocalSwitch;
        }
    }

    /// Whether it is waited for that the peer moves as we did.
    pub(super) const fn awaits_peer_switch(&self) -> bool {
        matches!(self.cons_hold, ConsHold::LocalSwitch)
    }

    /// The peer says how far it has written. Whether it has to be told the read position, as it has repeated
    /// all that was read, or has nothing to repeat.
    pub(super) fn release_if_resent(&mut self, prod: Cursor) -> bool {
        match self.cons_hold {
            ConsHold::No | ConsHold::PeerValidating => false,
            ConsHold::LocalSwitch => self.release_cons(),
            ConsHold::PeerResending => {
                let behind = self.ring.distance(self.received, prod).unwrap_or(0);
                let position = self.received.saturating_add_signed(behind);
                position >= self.consumed && self.release_cons()
            }
        }
    }

    /// The peer repeated what it had to. Whether it has to be told the read position.
    pub(super) fn release_cons(&mut self) -> bool {
        core::mem::take(&mut self.cons_hold) != ConsHold::No && self.advertised != self.given_back()
    }

    /// Whether the ring is full.
    pub(super) fn is_full(&self) -> bool {
        self.unread() >= self.ring.size().into()
    }

    /// Bytes of the ring.
    pub(super) const fn size(&self) -> u32 {
        self.ring.size()
    }
}

/// Total bytes of two chunks.
pub(super) fn total(chunks: &Chunks) -> u32 {
    chunks
        .iter()
        .fold(0, |sum: u32, Chunk { len, .. }| sum.saturating_add(*len))
}
