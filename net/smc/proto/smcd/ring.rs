// SPDX-License-Identifier: GPL-2.0

//! The rings of one direction: how many bytes may be under way, how large a ring is, and where a position of the
//! stream lies in it.
//!
//! Positions are counts of bytes since the start of the stream. The first ring is as large as what is written first. A
//! writer that needs more room makes one that holds all that may be under way, and goes on there; the reader empties
//! the old one first. So a direction has at most two rings, and one that nobody uses has none.

use crate::buffer::SizeClass;
use crate::cursor::{
    Chunk,
    Chunks,
    Ring, //
};
use crate::time::Duration;

/// Bytes to copy before the other side hears of them, so that both sides copy at the same time.
pub const STEP: u32 = 64 * 1024;

/// The same if the other side has something to copy meanwhile.
pub const LONG_STEP: u32 = 256 * 1024;

/// Bytes that may be under way at most, where no application has set SO_RCVBUF: of more, the first would not be in a
/// processor's cache any more when the reader comes.
pub const LIMIT_MAX: u32 = 1024 * 1024;

/// Bytes that are held back at most for MSG_MORE or TCP_CORK: TCP sends full segments, too.
pub const CORK_MAX: u64 = 16 * 1024;

/// How long they are held back at most, as with TCP.
pub const CORK_TIME: Duration = Duration::from_millis(200);

/// One direction of a connection at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// How far the writer has written, with what is held back.
    pub produced: u64,
    /// How far the reader has read.
    pub consumed: u64,
    /// The most bytes that may lie between these two.
    pub limit: u32,
}

impl Fill {
    /// How many bytes the reader has yet to read.
    pub const fn used(self) -> u64 {
        self.produced.saturating_sub(self.consumed)
    }

    /// How many bytes the writer may add.
    pub fn free(self) -> u32 {
        let used = u32::try_from(self.used()).unwrap_or(u32::MAX);
        self.limit.saturating_sub(used)
    }

    /// How many bytes a writer may copy before the reader hears of them.
    pub fn write_step(self) -> u32 {
        let has_reader_work = self.used() >= STEP.into();
        self.free().min(match has_reader_work {
            true => LONG_STEP,
            false => STEP,
        })
    }

    /// How many bytes a reader may copy before the writer hears of that.
    pub fn read_step(self) -> u32 {
        match self.free() >= LONG_STEP {
            true => LONG_STEP,
            false => STEP,
        }
    }

    /// Whether a writer that waits is to go on: a third of the limit is free (C function `sk_stream_is_writeable`), so
    /// that it does not wake up for each byte.
    pub fn is_writeable(self) -> bool {
        u64::from(self.free()).saturating_mul(3) >= u64::from(self.limit)
    }

    /// By how much to raise the limit for a writer of `len` more bytes: it has not enough room, and the reader has read
    /// as much as the limit since that was `since` (as C function `tcp_rcv_space_adjust`). A reader that does not
    /// read gets no more.
    pub fn raise(self, len: usize, since: u64) -> Option<u32> {
        let is_short = usize::try_from(self.free()).is_ok_and(|free| free < len);
        let is_read = self.consumed.saturating_sub(since) >= self.limit.into();
        let more = self.limit.min(LIMIT_MAX.saturating_sub(self.limit));
        (is_short && is_read && more > 0).then_some(more)
    }

    /// The size of the ring for a writer of `len` more bytes which has one of `current` bytes; `None` if that will do.
    pub fn larger_ring(self, len: usize, current: Option<SizeClass>) -> Option<SizeClass> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let used = u32::try_from(self.used()).unwrap_or(u32::MAX);
        let bytes = used.saturating_add(len);
        if current.is_some_and(|current| bytes <= current.bytes()) {
            return None;
        }
        let all = SizeClass::for_bytes(self.limit);
        let need = SizeClass::for_bytes(bytes).min(all);
        match current {
            None => Some(need),
            Some(current) => (need > current).then_some(all),
        }
    }
}

/// Where a writer at `produced` may write up to `len` bytes in a ring that begins at `start`, whose reader is at
/// `consumed`: at most two chunks, together as long as fits.
pub fn room(class: SizeClass, start: u64, produced: u64, consumed: u64, len: u32) -> Chunks {
    let used = produced.saturating_sub(consumed.max(start));
    let free = u64::from(class.bytes()).saturating_sub(used);
    chunks(
        class,
        produced,
        len.min(u32::try_from(free).unwrap_or(u32::MAX)),
    )
}

/// The `len` bytes from `from` on, at most a whole ring.
pub fn chunks(class: SizeClass, from: u64, len: u32) -> Chunks {
    let ring = Ring::new(class);
    let offset = ring.offset(from);
    let first = len.min(ring.size().saturating_sub(offset));
    [
        Chunk { offset, len: first },
        Chunk {
            offset: 0,
            len: len.saturating_sub(first),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(produced: u64, consumed: u64, limit: u32) -> Fill {
        Fill {
            produced,
            consumed,
            limit,
        }
    }

    fn class(kib: u32) -> SizeClass {
        SizeClass::for_bytes(kib << 10)
    }

    #[test]
    fn a_writer_goes_on_when_a_third_is_free() {
        assert!(fill(200, 0, 300).is_writeable());
        assert!(!fill(201, 0, 300).is_writeable());
        assert_eq!(fill(201, 100, 300).free(), 199);
        // The limit was lowered.
        assert_eq!(fill(500, 0, 300).free(), 0);
        assert!(!fill(500, 0, 300).is_writeable());
    }

    #[test]
    fn steps_are_long_while_the_other_side_is_busy() {
        let limit = 4 * LONG_STEP;
        let filled = |used: u32| fill(used.into(), 0, limit);
        assert_eq!(filled(0).write_step(), STEP);
        assert_eq!(filled(STEP - 1).write_step(), STEP);
        assert_eq!(filled(STEP).write_step(), LONG_STEP);
        assert_eq!(filled(limit - 5).write_step(), 5);
        assert_eq!(filled(limit).write_step(), 0);
        assert_eq!(filled(limit - LONG_STEP).read_step(), LONG_STEP);
        assert_eq!(filled(limit - LONG_STEP + 1).read_step(), STEP);
        assert_eq!(filled(limit).read_step(), STEP);
    }

    #[test]
    fn a_ring_grows_with_what_is_written() {
        let limit = 128 * 1024;
        assert_eq!(fill(0, 0, limit).larger_ring(1, None), Some(class(16)));
        assert_eq!(
            fill(0, 0, limit).larger_ring(1 << 20, None),
            Some(class(128))
        );
        assert_eq!(fill(9, 0, limit).larger_ring(64, Some(class(16))), None);
        // At once to what the limit needs, as there can be no third ring.
        let full = fill(16 * 1024, 0, limit);
        assert_eq!(full.larger_ring(1, Some(class(16))), Some(class(128)));
        assert_eq!(full.larger_ring(1 << 20, Some(class(16))), Some(class(128)));
        let full = fill(limit.into(), 0, limit);
        assert_eq!(full.larger_ring(1, Some(class(128))), None);
    }

    #[test]
    fn a_chunk_ends_with_the_ring() {
        let size = class(16).bytes();
        let at = u64::from(size) * 5 + u64::from(size) - 10;
        assert_eq!(
            chunks(class(16), at, 30),
            [
                Chunk {
                    offset: size - 10,
                    len: 10
                },
                Chunk { offset: 0, len: 20 }
            ]
        );
    }

    #[test]
    fn a_new_ring_has_room_for_itself_whatever_is_left_in_the_old_one() {
        let len = |chunks: Chunks| chunks.iter().map(|chunk| chunk.len).sum::<u32>();
        let size = class(16).bytes();
        assert_eq!(len(room(class(16), 1000, 1000, 0, u32::MAX)), size);
        assert_eq!(len(room(class(16), 1000, 1010, 0, u32::MAX)), size - 10);
        assert_eq!(len(room(class(16), 1000, 1010, 1005, u32::MAX)), size - 5);
        assert_eq!(len(room(class(16), 0, 16384, 0, u32::MAX)), 0);
    }
}
