// SPDX-License-Identifier: GPL-2.0
//! Cursors of a ring, and the arithmetic between them and stream positions.
//!
//! On the wire a cursor is a wrap count (mod 65536) and an offset (RFC 7609 section 4.3). Inside, every
//! place in a stream is a plain `u64` count of bytes since its start: differences are subtractions,
//! and no wrap ever happens in practice. [`Ring`] converts. A ring is a power of two
//! ([`crate::buffer`]), so a cursor is the position modulo `size << 16`.

use crate::buffer::SizeClass;

/// A cursor as a CDC message carries it. The offset may be any number until [`Ring::distance`] has
/// accepted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// How often the ring has been passed, mod 65536.
    pub wrap: u16,
    /// Byte offset in the ring.
    pub offset: u32,
}

/// A stretch of a ring that does not cross its end. `len` is 0 in an unused chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Byte offset in the ring.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// At most two chunks: what lies before the ring's end, then what lies after it.
pub type Chunks = [Chunk; 2];

/// The geometry of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    class: SizeClass,
}

impl Ring {
    /// The ring of a size class.
    #[inline]
    pub const fn new(class: SizeClass) -> Self {
        Self { class }
    }

    /// Its size class.
    #[inline]
    pub const fn class(self) -> SizeClass {
        self.class
    }

    /// Its bytes.
    #[inline]
    pub const fn size(self) -> u32 {
        self.class.bytes()
    }

    /// Where stream position `pos` lies in the ring.
    #[inline]
    pub const fn offset(self, pos: u64) -> u32 {
        // CAST: masked to less than the size, which is a u32.
        (pos & (self.size() as u64).wrapping_sub(1)) as u32
    }

    /// The cursor of stream position `pos`.
    #[inline]
    pub const fn cursor(self, pos: u64) -> Cursor {
        Cursor {
            // CAST: the wrap count is defined mod 65536.
            wrap: pos.wrapping_shr(self.class.shift()) as u16,
            offset: self.offset(pos),
        }
    }

    /// How far `to` lies ahead of stream position `from`, in bytes; negative if it lies behind.
    ///
    /// `None` if the cursor's offset is outside the ring. The result is right for distances below
    /// 32768 rings; bounding it further is the caller's task.
    #[inline]
    pub const fn distance(self, from: u64, to: Cursor) -> Option<i64> {
        if to.offset >= self.size() {
            return None;
        }
        let to = (to.wrap as u64).wrapping_shl(self.class.shift()) | to.offset as u64;
        // Both counts are mod `size << 16`: move that many bits to the top and back, which extends
        // the sign of the difference.
        let unused = u64::BITS.wrapping_sub(self.class.shift().wrapping_add(u16::BITS));
        let ahead = to.wrapping_sub(from).wrapping_shl(unused) as i64;
        Some(ahead.wrapping_shr(unused))
    }

    /// The cursor `len` bytes, at most a whole ring, after `from`, which is in the ring.
    #[inline]
    pub const fn after(self, from: Cursor, len: u32) -> Cursor {
        let pos = (from.wrap as u64).wrapping_shl(self.class.shift()) | from.offset as u64;
        self.cursor(pos.wrapping_add(len as u64))
    }

    /// The chunks of `len` bytes from stream position `pos`; at most a whole ring.
    #[inline]
    pub const fn chunks(self, pos: u64, len: u32) -> Chunks {
        let offset = self.offset(pos);
        let to_end = self.size().wrapping_sub(offset);
        let len = if len < self.size() { len } else { self.size() };
        let first = if len < to_end { len } else { to_end };
        [
            Chunk { offset, len: first },
            Chunk {
                offset: 0,
                len: len.wrapping_sub(first),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring::new(SizeClass::SMALLEST);
    const SIZE: u64 = 16_384;

    fn at(wrap: u16, offset: u32) -> Cursor {
        Cursor { wrap, offset }
    }

    #[test]
    fn cursors_count_wraps_and_offsets() {
        assert_eq!(RING.cursor(0), at(0, 0));
        assert_eq!(RING.cursor(SIZE - 1), at(0, 16_383));
        assert_eq!(RING.cursor(SIZE), at(1, 0));
        assert_eq!(RING.cursor(SIZE * 65_536 - 1), at(65_535, 16_383));
        assert_eq!(RING.cursor(SIZE * 65_536), at(0, 0));
    }

    #[test]
    fn full_and_empty_rings_differ() {
        assert_eq!(RING.distance(5, at(0, 5)), Some(0));
        assert_eq!(RING.distance(5, at(1, 5)), Some(16_384));
        assert_eq!(RING.distance(SIZE + 5, at(0, 5)), Some(-16_384));
    }

    #[test]
    fn distance_survives_the_wrap_of_the_wrap_count() {
        let last = SIZE * 65_536 - 3;
        assert_eq!(RING.distance(last, at(0, 4)), Some(7));
        assert_eq!(
            RING.distance(SIZE * 65_536 + 4, at(65_535, 16_381)),
            Some(-7)
        );
    }

    #[test]
    fn offsets_outside_the_ring_are_refused() {
        assert_eq!(RING.distance(0, at(0, 16_384)), None);
        assert_eq!(RING.distance(0, at(0, u32::MAX)), None);
        let largest = Ring::new(SizeClass::LARGEST);
        assert_eq!(largest.distance(0, at(0, 1 << 29)), None);
        assert_eq!(largest.distance(0, at(1, 0)), Some(1 << 29));
    }

    #[test]
    fn distance_inverts_cursor_for_every_class() {
        for code in 0..=15 {
            let ring = Ring::new(SizeClass::from_code(code).unwrap());
            let size = i64::from(ring.size());
            for from in [0u64, 1, 77, 1 << 29, (1 << 45) - 1, 1 << 45, 1 << 60] {
                for by in [-size, -1, 0, 1, size - 1, size, size * 32_767] {
                    let Some(to) = from.checked_add_signed(by) else {
                        continue;
                    };
                    assert_eq!(
                        ring.distance(from, ring.cursor(to)),
                        Some(by),
                        "{code} {from}"
                    );
                }
            }
        }
    }

    #[test]
    fn chunks_split_at_the_end_only() {
        let chunk = |offset, len| Chunk { offset, len };
        assert_eq!(RING.chunks(0, 16_384), [chunk(0, 16_384), chunk(0, 0)]);
        assert_eq!(RING.chunks(SIZE - 1, 1), [chunk(16_383, 1), chunk(0, 0)]);
        assert_eq!(RING.chunks(SIZE - 1, 2), [chunk(16_383, 1), chunk(0, 1)]);
        assert_eq!(RING.chunks(9, u32::MAX), [chunk(9, 16_375), chunk(0, 9)]);
        assert_eq!(RING.chunks(7, 0), [chunk(7, 0), chunk(0, 0)]);
    }
}
