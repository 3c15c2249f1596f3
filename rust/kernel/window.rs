// SPDX-License-Identifier: GPL-2.0

//! Memory that others write while we copy: for instance a ring that a peer fills by RDMA.

/// A block of memory that is copied from and to with raw pointers only, never borrowed.
///
/// # Safety
///
/// For as long as `self` lives, `as_ptr` must be valid for reads and writes of `len` bytes, and
/// other writers must be devices or code that goes through this trait.
pub unsafe trait Window {
    /// The first byte.
    fn as_ptr(&self) -> *mut u8;

    /// The length in bytes.
    fn len(&self) -> usize;

    /// Whether there is nothing to copy.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Checks a range against the block; returns its start and how much of it is inside.
pub(crate) fn range<W: Window + ?Sized>(window: &W, offset: usize, len: usize) -> (*mut u8, usize) {
    let Some(room) = window.len().checked_sub(offset) else {
        return (window.as_ptr(), 0);
    };
    // CAST: `offset` is not above the length, so the result stays inside the block or at its end.
    (window.as_ptr().wrapping_add(offset), len.min(room))
}
