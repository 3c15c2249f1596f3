// SPDX-License-Identifier: GPL-2.0
//! Replaces the RMBE of a connection by one of another size, between two ends that both support it: a connection begins
//! with a small one, and gets a larger one when the peer has more to send than fits (`Documentation/rmbe.md`).
//!
//! The end that owns the RMBE offers another one in its CDC messages. The peer adopts it at once: data after the stream
//! position at which it does so are written there, and its next message says so. Positions in the stream go on, and a
//! cursor is that of a position in the RMBE that the message names. The owner then releases the one before, as soon as
//! the application has read what is there: nothing is written to it any more, not even by a failover, which repeats in
//! the new one what the peer does not know to have arrived.
//!
//! What a message says of RMBEs is absolute, as its cursors and state flags are, so the loss of an earlier one does no
//! harm.

use crate::buffer::SizeClass;
use crate::conn::{
    ArrivedBytes,
    RmbeNum,
    RmbeOffer,
    RmbeRefs,
    StateFlags,
    Stream, //
};
use crate::cursor::{
    Chunks,
    Ring, //
};
use crate::error::PeerMisbehaved;
use crate::id::{
    Rkey,
    RmbeIndex, //
};

/// Our RMBEs of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnRmbes {
    /// The one in use, and its number.
    ring: Ring,
    num: RmbeNum,
    /// The size and index of the one that was offered to the peer in its place.
    offered: Option<(SizeClass, RmbeIndex)>,
    /// The one before, and the stream position before which data are there; 0 if nothing is.
    replaced: Ring,
    replaced_end: u64,
    /// The peer has moved to another link since the offer: what it wrote on the one before may still arrive.
    has_peer_moved: bool,
}

/// The RMBE that was in use before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) ring: Ring,
    /// Data before this stream position are there, those after it in the present one.
    pub(super) end: u64,
}

impl OwnRmbes {
    pub(super) const fn new(ring: Ring) -> Self {
        Self {
            ring,
            num: RmbeNum(0),
            offered: None,
            replaced: ring,
            replaced_end: 0,
            has_peer_moved: false,
        }
    }

    /// The one in use.
    #[inline]
    pub(super) const fn ring(&self) -> Ring {
        self.ring
    }

    /// The number of the one in use.
    pub(super) const fn num(&self) -> RmbeNum {
        self.num
    }

    /// RMBE `num`: the one in use, or the one that was offered.
    pub(super) fn ring_of(&self, num: RmbeNum) -> Result<Ring, PeerMisbehaved> {
        match self.offered {
            _ if num == self.num => Ok(self.ring),
            Some((size, _)) if num == self.num.next() => Ok(Ring::new(size)),
            Some(_) | None => Err(PeerMisbehaved::UnknownRmbe),
        }
    }

    /// The size and index of the one that was offered.
    pub(super) const fn offered(&self) -> Option<(SizeClass, RmbeIndex)> {
        self.offered
    }

    fn offer(&mut self, size: SizeClass, index: RmbeIndex) {
        self.offered = Some((size, index));
        self.has_peer_moved = false;
    }

    /// The peer moves to another link.
    pub(super) fn note_peer_switch(&mut self) {
        self.has_peer_moved = true;
    }

    /// The peer has adopted the one that was offered, for the data after `end`.
    pub(super) fn replace(&mut self, end: u64) {
        if let Some((size, _)) = self.offered.take() {
            self.replaced = self.ring;
            self.replaced_end = end;
            self.ring = Ring::new(size);
            self.num = self.num.next();
        }
    }

    /// The one before, if the byte at stream position `pos` is there.
    pub(super) fn replaced_at(&self, pos: u64) -> Option<Replaced> {
        (pos < self.replaced_end).then_some(Replaced {
            ring: self.replaced,
            end: self.replaced_end,
        })
    }

    /// Where the bytes between two stream positions are, apart from the RMBE that was offered.
    pub(super) fn arrived(&self, from: u64, to: u64) -> ArrivedBytes {
        let mut arrived = ArrivedBytes::default();
        let mut from = from;
        if let Some(Replaced { ring, end }) = self.replaced_at(from) {
            arrived.replaced = between(ring, from, to.min(end));
            from = end;
        }
        arrived.present = between(self.ring, from, to);
        arrived
    }

    /// Where the bytes between two stream positions are in the RMBE that was offered.
    pub(super) fn arrived_in_offered(&self, from: u64, to: u64) -> Chunks {
        let ring = self.offered.map(|(size, _)| Ring::new(size));
        ring.map_or_else(Chunks::default, |ring| between(ring, from, to))
    }

    /// The chunks of at most `len` bytes between two stream positions that are in the same RMBE as the first.
    pub(super) fn chunks(&self, from: u64, to: u64, len: u32) -> Chunks {
        let (ring, to) = match self.replaced_at(from) {
            Some(Replaced { ring, end }) => (ring, to.min(end)),
            None => (self.ring, to),
        };
        let rest = to.saturating_sub(from);
        ring.chunks(from, len.min(u32::try_from(rest).unwrap_or(u32::MAX)))
    }
}

/// The chunks between two stream positions.
fn between(ring: Ring, from: u64, to: u64) -> Chunks {
    let len = to.saturating_sub(from);
    ring.chunks(from, u32::try_from(len).unwrap_or(u32::MAX))
}

impl Stream {
    /// The peer replaces RMBEs, too. To be called before [`Stream::establish`].
    pub fn set_replaceable(&mut self) {
        self.replaces = true;
    }

    /// Whether both ends replace RMBEs.
    pub const fn replaces_rmbes(&self) -> bool {
        self.replaces
    }

    /// Whether another RMBE may be offered to the peer in place of ours.
    pub fn may_offer_rmbe(&self) -> bool {
        let is_open =
            !self.killed && !self.has_no_link && self.peer.is_empty() && !self.own.any_close();
        self.replaces
            && is_open
            && self.send.has_peer()
            && self.recv.rmbes().offered().is_none()
            && !self.needs_replaced()
    }

    /// Offers an RMBE of this size and index, which the peer may write to from now on. To be called only if
    /// [`Stream::may_offer_rmbe`]; then transmit.
    pub fn offer_rmbe(&mut self, size: SizeClass, index: RmbeIndex) {
        self.recv.rmbes_mut().offer(size, index);
        self.cdc_due = true;
    }

    /// Whether an RMBE was offered that the peer has not adopted.
    pub const fn has_offered_rmbe(&self) -> bool {
        self.recv.rmbes().offered().is_some()
    }

    /// Makes the offer again, if the peer has not adopted it, with a message of its own: transmit then. Returns whether
    /// there is one.
    pub fn repeat_offer(&mut self) -> bool {
        let is_offered = self.has_offered_rmbe() && !self.killed && self.peer.is_empty();
        self.cdc_due |= is_offered;
        is_offered
    }

    /// Whether data may still be written to the RMBE that was replaced: the peer has changed its link between the offer
    /// and the message by which it adopted it, and packets of the link before may be on their way.
    pub const fn may_write_replaced(&self) -> bool {
        self.recv.rmbes().has_peer_moved
    }

    /// Whether the application has yet to read data in the RMBE that was in use before.
    pub fn needs_replaced(&self) -> bool {
        self.recv.needs_replaced()
    }

    /// Whether [`Stream::peek_chunks`] from `offset` on returns chunks of the RMBE that was in use before.
    pub fn is_in_replaced(&self, offset: u32) -> bool {
        self.recv.is_in_replaced(offset)
    }

    /// The peer's new RMBE, if it may be adopted now. If not, the peer's next message offers it again.
    pub(super) fn adoptable(&self, refs: &RmbeRefs) -> Option<RmbeOffer> {
        let has_ended = self.own.any_close() || self.peer.any_close();
        let is_open = !self.killed && !self.has_no_link && !has_ended;
        let offer = refs
            .offer
            .filter(|_| is_open && refs.cons == self.send.rmbe())?;
        self.send.may_move_to(offer.size).then_some(offer)
    }

    /// Adopts the RMBE of [`Effects::offer`](super::Effects::offer), of this size, under the same hold of the lock: all
    /// data are written there from now on. Transmit afterwards: the peer keeps both until it is told.
    pub fn adopt_rmbe(&mut self, size: SizeClass) {
        self.send.move_to(size);
        self.cdc_due = true;
    }

    /// What our next message says of RMBEs.
    pub(super) fn rmbe_refs(&self) -> RmbeRefs {
        if !self.replaces {
            return RmbeRefs::default();
        }
        let offer = self.recv.rmbes().offered().map(|(size, index)| RmbeOffer {
            size,
            index,
            rkey: Rkey(0),
        });
        RmbeRefs {
            prod: self.send.rmbe(),
            cons: self.recv.rmbes().num(),
            since: self.send.in_rmbe_since(),
            offer,
        }
    }

    /// What a message of the peer says, as far as it may.
    pub(super) fn refs_of_peer(&self, refs: RmbeRefs) -> RmbeRefs {
        match self.replaces {
            true => refs,
            false => RmbeRefs::default(),
        }
    }

    /// Bytes received so far.
    pub const fn bytes_received(&self) -> u64 {
        self.recv.received()
    }

    /// The size of our RMBE.
    pub const fn rmbe_class(&self) -> SizeClass {
        self.recv.rmbes().ring().class()
    }

    /// Whether the peer has more to send than there is room for in our RMBE, and keeps its end open.
    pub fn is_rmbe_short(&self) -> bool {
        self.recv.is_blocked() && !self.peer.contains(StateFlags::DONE_WRITING)
    }
}

/// The stream position whose lower half is `low`, near `at`.
pub(super) const fn position_near(at: u64, low: u32) -> u64 {
    // CAST: the lower half; the sign of the difference of the two extends to the whole.
    let ahead = low.wrapping_sub(at as u32) as i32;
    at.saturating_add_signed(ahead as i64)
}

/// Where our data are once the peer has adopted the RMBE offered to it: it says so with stream position `since`, and
/// its data end at `prod`.
pub(super) const fn end_of_replaced(
    received: u64,
    since: u64,
    prod: u64,
) -> Result<u64, PeerMisbehaved> {
    if since > prod {
        return Err(PeerMisbehaved::UnknownRmbe);
    }
    // What arrived before is in the one before, even if the peer has repeated it in the other since.
    Ok(if since > received { since } else { received })
}
