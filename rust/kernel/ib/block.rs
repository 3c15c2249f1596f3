// SPDX-License-Identifier: GPL-2.0

//! Memory shared between device and CPU: contiguous pages, of which `kernel::page::Page` has only one.

use core::ptr::NonNull;

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};

use crate::{
    bindings,
    net::memory::CountedPages,
    prelude::*, //
};

/// Physically contiguous pages that may be shared with devices, and through them with a peer.
///
/// A peer may change the memory at any time, so it is never exposed as a slice: bytes are copied in and out, and a
/// check done in place proves nothing. Offsets and lengths are in bytes.
///
/// # Invariants
///
/// `base` is a compound page block of `1 << order` pages that this object owns.
pub struct Block {
    base: NonNull<u8>,
    order: u32,
    /// Set for a socket buffer.
    _counted: Option<CountedPages>,
}

// SAFETY: Memory has no thread affinity.
unsafe impl Send for Block {}
// SAFETY: All access is by copies made outside of Rust, which may race with each other as they may with the device's
// accesses: the only effect is torn bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Largest order that is tried.
    const MAX_ORDER: u32 = 10;

    /// Allocates zeroed memory of at least `len` bytes, rounded up to a power of two of pages.
    /// Context: may sleep, but does not retry hard: large blocks may not be available.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, `ENOMEM`.
    pub fn new(len: usize) -> Result<Arc<Self>> {
        Self::with(len, None)
    }

    /// As [`Block::new`], for a socket buffer, which counts in the memory of all sockets.
    ///
    /// # Errors
    ///
    /// As for [`Block::new`].
    pub fn counted(len: usize, counted: CountedPages) -> Result<Arc<Self>> {
        Self::with(len, Some(counted))
    }

    fn with(len: usize, counted: Option<CountedPages>) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(EINVAL);
        }
        let order = len
            .div_ceil(PAGE_SIZE)
            .checked_next_power_of_two()
            .ok_or(ENOMEM)?
            .trailing_zeros();
        if order > Self::MAX_ORDER {
            return Err(ENOMEM);
        }
        // SAFETY: No precondition.
        let addr = unsafe { bindings::ib_block_alloc(order) };
        let base = NonNull::new(addr as *mut u8).ok_or(ENOMEM)?;
        // INVARIANT: Just allocated with this order, as a compound page.
        let block = Self {
            base,
            order,
            _counted: counted,
        };
        Ok(Arc::new(block, GFP_KERNEL)?)
    }

    /// Size of the block in bytes.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// Whether a range lies in the block.
    pub(super) fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the address of a range after checking it.
    pub(super) fn range(&self, offset: usize, len: usize) -> Result<*mut u8> {
        if !self.contains(offset, len) {
            return Err(EINVAL);
        }
        // The result is in or one past the block.
        Ok(self.as_ptr().wrapping_add(offset))
    }

    /// Copies `from` in at `offset`.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result {
        let to = self.range(offset, from.len())?;
        // SAFETY: `range` checked the destination, and the source is a slice; a slice of Rust
        // memory cannot overlap the block.
        unsafe { bindings::ib_block_copy(to.cast(), from.as_ptr().cast(), from.len()) };
        Ok(())
    }

    /// Copies out from `offset`.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result {
        let from = self.range(offset, to.len())?;
        // SAFETY: As in `write`, with the directions swapped.
        unsafe { bindings::ib_block_copy(to.as_mut_ptr().cast(), from.cast(), to.len()) };
        Ok(())
    }

    /// Fills a range with zeroes.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn zero(&self, offset: usize, len: usize) -> Result {
        let to = self.range(offset, len)?;
        // SAFETY: `range` checked the destination.
        unsafe { bindings::ib_block_zero(to.cast(), len) };
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own the pages.
        unsafe { bindings::free_pages(self.base.as_ptr() as usize, self.order) };
    }
}

// SAFETY: By the type invariant the block is `len` bytes of memory while it lives; its only writers are the device and
// code that copies.
unsafe impl crate::window::Window for Block {
    fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn len(&self) -> usize {
        self.len()
    }
}
