// SPDX-License-Identifier: GPL-2.0

//! Memory shared between device and CPU: several pages, of which `kernel::page::Page` has only one.

use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicBool,
        Ordering, //
    }, //
};

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};

use crate::{
    bindings,
    net::memory::CountedPages,
    prelude::*, //
};

/// How the pages of a block lie in physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// One after another.
    Contiguous,
    /// Anywhere: the block is contiguous for the CPU only.
    Virtual,
    /// One after another if there are such pages, else anywhere.
    Either,
}

/// Pages that may be shared with devices, and through them with a peer.
///
/// A peer may change the memory at any time, so it is never exposed as a slice: bytes are copied in and out, and a
/// check done in place proves nothing. Offsets and lengths are in bytes.
///
/// # Invariants
///
/// `base` is the start of `1 << order` pages that this object owns: memory of vmalloc if `is_virtual`, else a compound
/// page block.
pub struct Block {
    base: NonNull<u8>,
    order: u32,
    is_virtual: bool,
    /// The pages are not freed.
    is_leaked: AtomicBool,
    /// Set for a socket buffer.
    _counted: Option<CountedPages>,
}

// SAFETY: Memory has no thread affinity.
unsafe impl Send for Block {}
// SAFETY: All access is by copies made outside of Rust, which may race with each other as they may with the device's
// accesses: the only effect is torn bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Largest order of contiguous pages that is tried.
    const MAX_ORDER: u32 = 10;
    /// Most bytes of contiguous memory that can be had.
    pub const MAX_BYTES: usize = PAGE_SIZE << Self::MAX_ORDER;
    /// Largest order of other pages that is tried.
    const MAX_VIRTUAL_ORDER: u32 = 17;

    /// Allocates zeroed, contiguous memory of at least `len` bytes, rounded up to a power of two of pages.
    /// Context: may sleep, but does not retry hard: large blocks may not be available.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0, `ENOMEM`.
    pub fn new(len: usize) -> Result<Arc<Self>> {
        Self::with(len, BlockKind::Contiguous, None)
    }

    /// As [`Block::new`], for a socket buffer of any kind, which counts in the memory of all sockets.
    ///
    /// # Errors
    ///
    /// As for [`Block::new`].
    pub fn counted(len: usize, kind: BlockKind, counted: CountedPages) -> Result<Arc<Self>> {
        Self::with(len, kind, Some(counted))
    }

    fn with(len: usize, kind: BlockKind, counted: Option<CountedPages>) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(EINVAL);
        }
        let order = len
            .div_ceil(PAGE_SIZE)
            .checked_next_power_of_two()
            .ok_or(ENOMEM)?
            .trailing_zeros();
        let (base, is_virtual) = match kind {
            BlockKind::Contiguous => (Self::contiguous(order), false),
            BlockKind::Virtual => (Self::scattered(order), true),
            BlockKind::Either => match Self::contiguous(order) {
                None => (Self::scattered(order), true),
                base => (base, false),
            },
        };
        // INVARIANT: Just allocated so.
        let block = Self {
            base: base.ok_or(ENOMEM)?,
            order,
            is_virtual,
            is_leaked: AtomicBool::new(false),
            _counted: counted,
        };
        Ok(Arc::new(block, GFP_KERNEL)?)
    }

    /// Allocates a compound page block of that order.
    fn contiguous(order: u32) -> Option<NonNull<u8>> {
        if order > Self::MAX_ORDER {
            return None;
        }
        // SAFETY: No precondition.
        let addr = unsafe { bindings::ib_block_alloc(order) };
        NonNull::new(addr as *mut u8)
    }

    /// Allocates as many pages by vmalloc.
    fn scattered(order: u32) -> Option<NonNull<u8>> {
        if order > Self::MAX_VIRTUAL_ORDER {
            return None;
        }
        // SAFETY: No precondition.
        let addr = unsafe { bindings::ib_block_valloc(PAGE_SIZE << order) };
        NonNull::new(addr.cast())
    }

    /// Whether a device needs more than one address for the block, as its pages lie anywhere.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// The length of each part of the block that is contiguous for a device: a page, or all.
    pub(super) fn part_len(&self) -> usize {
        match self.is_virtual {
            true => PAGE_SIZE,
            false => self.len(),
        }
    }

    /// The number of these parts.
    pub(super) fn parts(&self) -> usize {
        match self.is_virtual {
            true => 1 << self.order,
            false => 1,
        }
    }

    /// The address of such a part from which it can be mapped for devices.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block; `ENOMEM` for a page of high memory, which has none.
    pub(super) fn part(&self, index: usize) -> Result<*mut u8> {
        let addr = self.range(
            index.checked_mul(self.part_len()).ok_or(EINVAL)?,
            self.part_len(),
        )?;
        if !self.is_virtual {
            return Ok(addr);
        }
        // SAFETY: By the type invariant, and as `range` checked it, the address is that of a page of vmalloc.
        let page = unsafe { bindings::ib_block_page(addr.cast()) };
        match page.is_null() {
            true => Err(ENOMEM),
            false => Ok(page.cast()),
        }
    }

    /// Size of the block in bytes.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// Leaks the memory, as a device may still write to it.
    pub(super) fn leak(&self) {
        self.is_leaked.store(true, Ordering::Relaxed);
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
        if self.is_leaked.load(Ordering::Relaxed) {
            return;
        }
        let base = self.base.as_ptr();
        match self.is_virtual {
            // SAFETY: By the type invariant we own the memory.
            true => unsafe { bindings::ib_block_vfree(base.cast()) },
            // SAFETY: By the type invariant we own the pages.
            false => unsafe { bindings::free_pages(base as usize, self.order) },
        }
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
