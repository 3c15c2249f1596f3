// SPDX-License-Identifier: GPL-2.0

//! Lock-free set of a queue's free slots.
//!
//! `kernel::bitmap` is not used: finding and clearing a set bit are two steps there, which need a lock around them.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::prelude::*;

/// A set of numbers below a fixed length.
pub(super) struct SlotBitmap {
    words: KVec<AtomicUsize>,
}

impl SlotBitmap {
    /// Creates the set of all numbers below `len`.
    /// Context: may sleep.
    pub(super) fn full(len: usize) -> Result<Self> {
        let bits = usize::BITS as usize;
        let mut words = KVec::with_capacity(len.div_ceil(bits), GFP_KERNEL)?;
        let mut left = len;
        while left > 0 {
            let word = match left {
                left if left >= bits => usize::MAX,
                left => (1 << left) - 1,
            };
            words.push(AtomicUsize::new(word), GFP_KERNEL)?;
            left = left.saturating_sub(bits);
        }
        Ok(Self { words })
    }

    /// Removes a number from the set and returns it.
    /// Context: any.
    pub(super) fn take(&self) -> Option<usize> {
        let mut base = 0;
        for word in self.words.iter() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                // ORDERING: Acquire pairs with the release in `put`: accesses by the previous holder of the number are
                // visible here.
                let before = word.fetch_and(!bit, Ordering::Acquire);
                if before & bit != 0 {
                    return Some(base + bit.trailing_zeros() as usize);
                }
                seen = before & !bit;
            }
            base += usize::BITS as usize;
        }
        None
    }

    /// Whether the set is not empty at present.
    /// Context: any.
    pub(super) fn has_any(&self) -> bool {
        self.words
            .iter()
            .any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Present size of the set.
    /// Context: any.
    pub(super) fn count(&self) -> usize {
        let ones = |word: &AtomicUsize| word.load(Ordering::Relaxed).count_ones() as usize;
        self.words.iter().map(ones).sum()
    }

    /// Returns a number from `take` to the set.
    /// Context: any.
    pub(super) fn put(&self, number: usize) {
        let bits = usize::BITS as usize;
        if let Some(word) = self.words.get(number / bits) {
            // ORDERING: See `take`.
            word.fetch_or(1 << (number % bits), Ordering::Release);
        }
    }
}
