// SPDX-License-Identifier: GPL-2.0
//! The sending half: send space, the peer's window, cutting a write at both ring ends, urgent data.
//!
//! All are stream positions ([`crate::cursor`]), in this order: `acked` (read by the peer) <= `sent` (posted) <=
//! `prepared` (copied from the application), and `fin` (completed) <= `sent`. Positions apply to both rings: the peer's
//! RMBE from 0 on, the send buffer from `base` on. The latter moves each time a buffer is attached, so that short
//! exchanges stay in its first, cached bytes. The two rings need neither the same size nor the same phase.

use core::num::NonZeroU64;

use crate::buffer::SizeClass;
use crate::conn::{
    PeerProgress,
    RdmaWrite,
    RmbeNum,
    SendFlags, //
};
use crate::cursor::{
    Chunk,
    Chunks,
    Cursor,
    Ring, //
};
use crate::error::PeerMisbehaved;

/// The last urgent byte sent in this direction (RFC 7609 section 4.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Urgent {
    /// None.
    #[default]
    None,
    /// An urgent send began: messages have the P flag.
    Announced,
    /// The byte before this position is in the send buffer.
    Staged(u64),
    /// The message with the U flag was posted, and the peer has not read that far.
    Posted(u64),
}

/// Send space and window of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendState {
    /// End of the data copied from the application.
    prepared: u64,
    /// End of the data posted as RDMA writes.
    sent: u64,
    /// End of the data whose message was completed.
    fin: u64,
    /// The peer's read position.
    acked: u64,
    /// Maximum of `sent`: a link switch sets `sent` back, the peer may know more.
    sent_max: u64,
    /// Stream position of offset 0 of the send buffer.
    base: u64,
    urgent: Urgent,
    /// The end of a later urgent byte, which waits until the peer has read the previous one.
    urgent_behind: Option<NonZeroU64>,
    /// Data after an urgent byte wait until the peer has read the byte.
    waits_behind_urgent: bool,
    sndbuf: Option<Ring>,
    /// The peer's RMBE, once it is known.
    peer: Option<Ring>,
    /// Which of the peer's RMBEs that is.
    rmbe: RmbeNum,
    /// The one before: the peer may still name it in its messages.
    replaced: Option<Ring>,
    /// Data after this position are in `peer`.
    in_rmbe_since: u64,
    /// Where it was adopted: data after that were written there from the beginning.
    adopted_at: u64,
    /// A copy from the application into the send buffer is under way.
    filling: bool,
}

impl SendState {
    pub(super) const fn new() -> Self {
        Self {
            prepared: 0,
            sent: 0,
            fin: 0,
            acked: 0,
            sent_max: 0,
            base: 0,
            urgent: Urgent::None,
            urgent_behind: None,
            waits_behind_urgent: false,
            sndbuf: None,
            peer: None,
            rmbe: RmbeNum(0),
            replaced: None,
            in_rmbe_since: 0,
            adopted_at: 0,
            filling: false,
        }
    }

    pub(super) fn set_peer_rmbe(&mut self, class: SizeClass) {
        self.peer.get_or_insert(Ring::new(class));
    }

    /// The number of the peer's RMBE.
    pub(super) const fn rmbe(&self) -> RmbeNum {
        self.rmbe
    }

    /// The stream position, modulo 2^32, from which on data are in that RMBE.
    pub(super) const fn in_rmbe_since(&self) -> u32 {
        // CAST: the lower half.
        self.in_rmbe_since as u32
    }

    /// Whether data can be written to another RMBE of the peer from now on: nothing has to be repeated, and all that
    /// the peer may have yet to read would fit there, so that the window is not negative.
    pub(super) fn may_move_to(&self, class: SizeClass) -> bool {
        let unread = self.sent.wrapping_sub(self.acked);
        self.peer.is_some() && self.sent == self.sent_max && unread <= class.bytes().into()
    }

    /// Data are written to another RMBE of the peer from now on.
    pub(super) fn move_to(&mut self, class: SizeClass) {
        self.replaced = self.peer.replace(Ring::new(class));
        self.rmbe = self.rmbe.next();
        self.in_rmbe_since = self.sent;
        self.adopted_at = self.sent;
    }

    /// Makes data after an urgent byte wait until the peer has read it. A C peer keeps one mark, and delivers the byte
    /// as part of the stream when more follows.
    pub(super) fn wait_behind_urgent(&mut self) {
        self.waits_behind_urgent = true;
    }

    pub(super) const fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// In the peer's RMBE: the read and write positions; in the send buffer, or one of class `default_size`: the ends
    /// of the data copied, written, and known to have arrived (diagnosis).
    pub(super) fn view(&self, default_size: SizeClass) -> ([Cursor; 2], [Cursor; 3]) {
        let peer = |pos| self.peer.map_or(Cursor::default(), |ring| ring.cursor(pos));
        let buffer = self.sndbuf.unwrap_or(Ring::new(default_size));
        (
            [self.acked, self.sent].map(peer),
            [self.prepared, self.sent, self.fin].map(|pos| buffer.cursor(pos)),
        )
    }

    /// Bytes of the peer's RMBE and of the send buffer; 0 for one that does not exist.
    pub(super) fn sizes(&self) -> (u32, u32) {
        let size = |ring: Option<Ring>| ring.map_or(0, Ring::size);
        (size(self.peer), size(self.sndbuf))
    }

    /// Whether data were posted of which it is not known that they have arrived.
    pub(super) const fn is_in_flight(&self) -> bool {
        self.fin != self.sent
    }

    /// What the peer is known to have, and has read.
    pub(super) const fn progress(&self) -> PeerProgress {
        PeerProgress::new(self.fin, self.acked)
    }

    /// The peer's consumer cursor.
    pub(super) fn acked_cursor(&self) -> Cursor {
        self.peer
            .map_or(Cursor::default(), |ring| ring.cursor(self.acked))
    }

    // --- The send buffer.

    pub(super) const fn has_sndbuf(&self) -> bool {
        self.sndbuf.is_some()
    }

    /// Whether the buffer holds nothing that a work request could still read, apart from what the
    /// caller knows to be in flight.
    pub(super) const fn is_sndbuf_idle(&self) -> bool {
        self.sndbuf.is_some() && !self.filling && self.fin == self.prepared
    }

    pub(super) fn attach_sndbuf(&mut self, class: SizeClass) -> bool {
        if self.sndbuf.is_some() {
            return false;
        }
        self.sndbuf = Some(Ring::new(class));
        self.base = self.prepared;
        true
    }

    pub(super) fn detach_sndbuf(&mut self) {
        self.sndbuf = None;
    }

    #[inline]
    pub(super) fn sndbuf_size(&self) -> u32 {
        self.sndbuf.map_or(0, Ring::size)
    }

    /// Free bytes of the send buffer.
    #[inline]
    pub(super) fn space(&self) -> u32 {
        u64::from(self.sndbuf_size())
            .saturating_sub(self.outstanding().into())
            .try_into()
            .unwrap_or(u32::MAX)
    }

    /// Whether an urgent byte is on its way.
    #[inline]
    pub(super) const fn is_urgent_outstanding(&self) -> bool {
        matches!(self.urgent, Urgent::Staged(_) | Urgent::Posted(_))
    }

    /// Whether an urgent byte was posted that the peer has not read.
    pub(super) const fn is_urgent_posted(&self) -> bool {
        matches!(self.urgent, Urgent::Posted(_))
    }

    #[inline]
    pub(super) const fn is_filling(&self) -> bool {
        self.filling
    }

    #[inline]
    pub(super) fn reserve(&mut self, len: u32) -> Chunks {
        let Some(ring) = self.sndbuf else {
            return Chunks::default();
        };
        self.filling = true;
        ring.chunks(self.prepared.wrapping_sub(self.base), len.min(self.space()))
    }

    #[inline(always)]
    pub(super) fn commit(&mut self, len: u32, how: SendFlags) {
        self.filling = false;
        self.prepared = self.prepared.wrapping_add(len.min(self.space()).into());
        match (how.oob, how.last && len > 0) {
            (true, true) => self.mark_urgent(),
            (true, false) if self.urgent == Urgent::None => self.urgent = Urgent::Announced,
            (_, _) => {}
        }
    }

    /// Marks the last byte copied as urgent. It replaces an earlier one, as with TCP; but with `waits_behind_urgent`
    /// the peer has to read an earlier one first that it may know of.
    fn mark_urgent(&mut self) {
        let waits = self.waits_behind_urgent
            && match self.urgent {
                Urgent::Posted(_) => true,
                // A link was lost since: the peer may know of it nevertheless.
                Urgent::Staged(end) => end <= self.sent_max,
                Urgent::None | Urgent::Announced => false,
            };
        match waits {
            true => self.urgent_behind = NonZeroU64::new(self.prepared),
            false => self.urgent = Urgent::Staged(self.prepared),
        }
    }

    // --- Counts.

    /// Bytes prepared and not posted.
    #[inline]
    pub(super) const fn unsent(&self) -> u32 {
        // CAST: never more than the send buffer.
        self.prepared.wrapping_sub(self.sent) as u32
    }

    /// Bytes prepared that may be posted as far as urgent data allow: a message with the U flag ends with the urgent
    /// byte.
    pub(super) fn postable(&self) -> u32 {
        let until = match self.urgent {
            Urgent::Staged(end) if end > self.sent => end,
            Urgent::Posted(_) if self.waits_behind_urgent => self.sent,
            _ => self.prepared,
        };
        // CAST: never more than the send buffer.
        until.wrapping_sub(self.sent) as u32
    }

    /// Bytes prepared and not completed.
    #[inline]
    pub(super) const fn outstanding(&self) -> u32 {
        // CAST: never more than the send buffer.
        self.prepared.wrapping_sub(self.fin) as u32
    }

    /// Bytes that may be written to the peer's RMBE now.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        // CAST: never more than the RMBE.
        let in_rmbe = self.sent.wrapping_sub(self.acked) as u32;
        self.peer.map_or(0, Ring::size).saturating_sub(in_rmbe)
    }

    /// End of the posted data.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn prod_cursor(&self) -> Cursor {
        self.peer
            .map_or(Cursor::default(), |ring| ring.cursor(self.sent))
    }

    /// The B flag: no window would be left if all prepared data went out.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.peer.is_some() && self.unsent() >= self.window()
    }

    /// The P flag.
    pub(super) const fn is_urgent_pending(&self) -> bool {
        matches!(self.urgent, Urgent::Announced | Urgent::Staged(_))
    }

    // --- Transmission.

    /// Returns what may be written now, and advances `sent` by it.
    pub(super) fn take_writes(&mut self) -> [RdmaWrite; 2] {
        let mut writes = [RdmaWrite::default(); 2];
        let (Some(src), Some(dst)) = (self.sndbuf, self.peer) else {
            return writes;
        };
        let len = self.postable().min(self.window());
        let mut from = self.sent.wrapping_sub(self.base);
        for (write, Chunk { offset, len }) in writes.iter_mut().zip(dst.chunks(self.sent, len)) {
            *write = RdmaWrite {
                dst_offset: offset,
                len,
                src: src.chunks(from, len),
            };
            from = from.wrapping_add(len.into());
        }
        self.sent = self.sent.wrapping_add(len.into());
        self.sent_max = self.sent_max.max(self.sent);
        writes
    }

    /// Whether the next message has the U flag ("urgent data present"); if so, the byte counts as posted from here on.
    pub(super) fn take_urgent_present(&mut self) -> bool {
        match self.urgent {
            Urgent::Staged(end) if end == self.sent => {
                self.urgent = Urgent::Posted(end);
                true
            }
            _ => false,
        }
    }

    /// Undoes the last [`Self::take_writes`] and, if `urgent`, [`Self::take_urgent_present`].
    pub(super) fn give_back(&mut self, sent: u64, urgent: bool) {
        self.sent = sent;
        self.unpost_urgent(urgent);
    }

    /// The message that announced all data up to `end` was completed.
    pub(super) fn complete(&mut self, end: u64) {
        self.fin = self.fin.max(end.min(self.sent));
    }

    /// Completes data that the peer has read: no work request reads that part of the send buffer any more.
    pub(super) fn complete_read(&mut self) {
        self.complete(self.acked);
    }

    /// As [`Self::complete`], for a message on a previous link.
    ///
    /// If data are being resent already, their own completion counts: work requests still read that part of the send
    /// buffer. What was written to an RMBE that was replaced since is resent, too: a message says where the data in the
    /// present one begin, and could not leave a part of them out.
    pub(super) fn complete_late(&mut self, end: u64) {
        if self.fin == self.sent && self.adopted_at <= self.sent {
            self.sent = self.sent.max(end.min(self.sent_max));
            self.fin = self.sent;
            if let Urgent::Staged(end) = self.urgent {
                if end <= self.sent {
                    self.urgent = Urgent::Posted(end);
                }
            }
        }
    }

    /// Goes back to the completed data, so that all data after it are resent.
    pub(super) fn rewind(&mut self) {
        self.sent = self.fin.max(self.acked);
        self.fin = self.sent;
        self.in_rmbe_since = self.in_rmbe_since.min(self.sent);
        let lost = matches!(self.urgent, Urgent::Posted(end) if end > self.sent);
        self.unpost_urgent(lost);
    }

    /// Whether data were posted whose completion is missing.
    pub(super) const fn has_unconfirmed(&self) -> bool {
        self.fin != self.sent
    }

    /// Checks a consumer cursor of the peer, for its RMBE `num`; returns the new position if it moves forward.
    pub(super) fn check_cons(
        &self,
        num: RmbeNum,
        cons: Cursor,
    ) -> Result<Option<u64>, PeerMisbehaved> {
        let ring = match num == self.rmbe {
            true => self.peer,
            false if num.next() == self.rmbe => self.replaced,
            false => return Err(PeerMisbehaved::UnknownRmbe),
        };
        let Some(ring) = ring else {
            // Nothing was written yet, so nothing can have been read.
            return if cons == Cursor::default() {
                Ok(None)
            } else {
                Err(PeerMisbehaved::ConsumerOverrun)
            };
        };
        let ahead = ring
            .distance(self.acked, cons)
            .ok_or(PeerMisbehaved::CursorOutsideRing)?;
        match u64::try_from(ahead) {
            Ok(0) => Ok(None),
            Ok(ahead) if ahead <= self.sent_max.wrapping_sub(self.acked) => {
                Ok(Some(self.acked.wrapping_add(ahead)))
            }
            Ok(_) => Err(PeerMisbehaved::ConsumerOverrun),
            Err(_) if ahead.unsigned_abs() <= ring.size().into() => Ok(None),
            Err(_) => Err(PeerMisbehaved::CursorJump),
        }
    }

    /// Applies a position that [`Self::check_cons`] returned. Returns whether send space was freed.
    pub(super) fn acknowledge(&mut self, acked: u64) -> bool {
        self.acked = acked;
        let overtook = acked > self.sent;
        if overtook {
            // The peer had read data that a link switch was about to repeat. None were posted again yet: the window
            // covers all of them at once, so `sent` would be past them.
            self.sent = acked;
            self.fin = acked;
        }
        let urgent_done = match self.urgent {
            Urgent::Staged(end) | Urgent::Posted(end) => acked >= end,
            Urgent::None | Urgent::Announced => false,
        };
        if urgent_done {
            let next = self.urgent_behind.take();
            self.urgent = next.map_or(Urgent::None, |end| Urgent::Staged(end.get()));
        }
        overtook
    }

    fn unpost_urgent(&mut self, undo: bool) {
        if let (true, Urgent::Posted(end)) = (undo, self.urgent) {
            self.urgent = Urgent::Staged(end);
        }
    }
}
