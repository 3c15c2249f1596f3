// SPDX-License-Identifier: GPL-2.0
//! Size classes of send buffers and RMB elements (RMBE).
//!
//! A CLC message carries the size of a ring in four bits: class `c` means `16 KiB << c`, 16 KiB to
//! 512 MiB (RFC 7609 stops at class 5). Every ring is therefore a power of two, which [`crate::cursor`]
//! relies on.

/// The size class of one ring.
///
/// # Invariants
///
/// The number is at most [`SizeClass::LARGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// 16 KiB, the smallest ring.
    pub const SMALLEST: Self = Self(0);
    /// 512 MiB, the largest ring that four bits can name.
    pub const LARGEST: Self = Self(15);
    /// log2 of the smallest ring.
    const BASE_SHIFT: u32 = 14;

    /// The class that a CLC message names, or `None` beyond 15.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code <= Self::LARGEST.0 {
            Some(Self(code))
        } else {
            None
        }
    }

    /// The number that goes into a CLC message.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The smallest class that holds `bytes`, or the largest class if none does.
    pub const fn for_bytes(bytes: u32) -> Self {
        let bits = u32::BITS.wrapping_sub(bytes.saturating_sub(1).leading_zeros());
        let code = bits.saturating_sub(Self::BASE_SHIFT);
        // INVARIANT: not beyond the largest class.
        match code < Self::LARGEST.0 as u32 {
            // CAST: less than 15.
            true => Self(code as u8),
            false => Self::LARGEST,
        }
    }

    /// Bytes of a ring of this class.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1u32.wrapping_shl(self.shift())
    }

    /// log2 of [`SizeClass::bytes`].
    #[inline]
    pub const fn shift(self) -> u32 {
        Self::BASE_SHIFT.wrapping_add(self.0 as u32)
    }

    /// This class, or the largest one of at most `bytes`; the smallest if there is none.
    pub fn at_most(self, bytes: usize) -> Self {
        let fits = |class: &Self| usize::try_from(class.bytes()).is_ok_and(|len| len <= bytes);
        self.downwards().find(fits).unwrap_or(Self::SMALLEST)
    }

    /// This class and every smaller one, largest first: the order in which a buffer is looked for
    /// when memory is short.
    pub fn downwards(self) -> impl Iterator<Item = Self> {
        self.downwards_to(Self::SMALLEST)
    }

    /// As [`SizeClass::downwards`], no further than `least`; `least` alone if that is larger.
    pub fn downwards_to(self, least: Self) -> impl Iterator<Item = Self> {
        (least.0..=self.0.max(least.0)).rev().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_up_to_the_next_class() {
        for (bytes, code) in [
            (0, 0),
            (1, 0),
            (16_384, 0),
            (16_385, 1),
            (65_536, 2),
            (65_537, 3),
            (1 << 29, 15),
            (u32::MAX, 15),
        ] {
            assert_eq!(SizeClass::for_bytes(bytes).code(), code, "{bytes}");
        }
    }

    #[test]
    fn codes_above_fifteen_name_no_class() {
        assert_eq!(SizeClass::from_code(15), Some(SizeClass::LARGEST));
        assert_eq!(SizeClass::from_code(16), None);
        assert_eq!(SizeClass::LARGEST.bytes(), 512 << 20);
    }

    #[test]
    fn downwards_ends_at_the_smallest() {
        let codes = SizeClass::for_bytes(65_536)
            .downwards()
            .map(SizeClass::code);
        assert!(codes.eq([2, 1, 0]));
    }

    #[test]
    fn downwards_ends_where_it_is_told() {
        let least = SizeClass::for_bytes(65_536);
        for (from, codes) in [(4, &[4, 3, 2][..]), (2, &[2]), (0, &[2])] {
            let from = SizeClass::from_code(from).unwrap();
            assert!(from
                .downwards_to(least)
                .map(SizeClass::code)
                .eq(codes.iter().copied()));
        }
    }
}
