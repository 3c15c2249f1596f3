// SPDX-License-Identifier: GPL-2.0

//! A block mapped for a device.
//!
//! `kernel::dma` is for drivers, which have their device bound, and for coherent memory. Software RDMA devices have no
//! DMA at all; the mapping functions of the RDMA core hide that.

use kernel::{
    error::to_result,
    sync::Arc, //
};

use super::{Block, Device};
use crate::{
    bindings,
    prelude::*, //
};

/// Which side writes to mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaDirection {
    /// The CPU writes, the device reads.
    ToDevice,
    /// The device writes.
    FromDevice,
    /// Both write.
    Bidirectional,
}

impl DmaDirection {
    fn as_raw(self) -> bindings::dma_data_direction {
        match self {
            Self::ToDevice => bindings::dma_data_direction::DMA_TO_DEVICE,
            Self::FromDevice => bindings::dma_data_direction::DMA_FROM_DEVICE,
            Self::Bidirectional => bindings::dma_data_direction::DMA_BIDIRECTIONAL,
        }
    }

    /// Whether the device may read the memory.
    pub(super) fn device_reads(self) -> bool {
        self != Self::FromDevice
    }
}

/// A whole [`Block`] mapped for one device.
///
/// # Invariants
///
/// The memory of `block` is mapped for `dev` in the direction `dir`: its first part at `addr`, the others, if it has
/// more, at `rest`. While `needs_sync` is not set, the device and the CPU see the same bytes. (Until it is handed out
/// `rest` may be shorter.)
pub struct Mapping {
    block: Arc<Block>,
    dev: Arc<Device>,
    addr: u64,
    rest: KVVec<u64>,
    dir: DmaDirection,
    needs_sync: bool,
}

impl Mapping {
    /// Maps a block.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the device cannot reach the memory.
    pub fn new(dev: &Arc<Device>, block: &Arc<Block>, dir: DmaDirection) -> Result<Arc<Self>> {
        let rest = KVVec::with_capacity(block.parts() - 1, GFP_KERNEL)?;
        let (addr, needs_sync) = map(dev, block, 0, dir)?;
        // INVARIANT: Just mapped so, and `needs_sync` holds as long as the mapping.
        let mut this = Self {
            block: block.clone(),
            dev: dev.clone(),
            addr,
            rest,
            dir,
            needs_sync,
        };
        for index in 1..block.parts() {
            // On an error the parts so far are unmapped.
            let (addr, needs_sync) = map(dev, block, index, dir)?;
            this.rest.push(addr, GFP_KERNEL)?;
            this.needs_sync |= needs_sync;
        }
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The memory.
    pub fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.dev
    }

    /// The direction the block is mapped in.
    pub(super) fn direction(&self) -> DmaDirection {
        self.dir
    }

    /// Whether the device may see other bytes than the CPU until they are synchronised: they are bounced, or the device
    /// is not cache-coherent.
    pub fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The addresses at which the device sees the parts of the block, in order.
    pub(super) fn addrs(&self) -> impl Iterator<Item = u64> + '_ {
        Iterator::chain(core::iter::once(self.addr), self.rest.iter().copied())
    }

    /// Calls `f` for the address and length of each piece of a range that is contiguous for the device.
    fn for_each_piece(&self, offset: usize, len: usize, mut f: impl FnMut(u64, usize)) -> Result {
        if !self.block.contains(offset, len) {
            return Err(EINVAL);
        }
        let part_len = self.block.part_len();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            // No block is empty, which the compiler cannot know.
            let within = at.checked_rem(part_len).ok_or(EINVAL)?;
            let n = (part_len - within).min(end - at);
            f(self.range(at, n)?, n);
            at += n;
        }
        Ok(())
    }

    /// Makes data written by the device visible to the CPU. A block may be mapped several times: the range must have
    /// been written through this mapping, or data written through others is lost.
    /// Context: any; copies bounced bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn sync_for_cpu(&self, offset: usize, len: usize) -> Result {
        if !self.needs_sync {
            return self.range_is_inside(offset, len);
        }
        let dir = self.dir.as_raw();
        self.for_each_piece(offset, len, |addr, len| {
            // SAFETY: By the type invariant the piece is mapped so.
            unsafe { bindings::ib_dma_sync_single_for_cpu(self.dev.as_ptr(), addr, len, dir) };
        })
    }

    /// Makes data written by the CPU visible to the device.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn sync_for_device(&self, offset: usize, len: usize) -> Result {
        if !self.needs_sync {
            return self.range_is_inside(offset, len);
        }
        let dir = self.dir.as_raw();
        self.for_each_piece(offset, len, |addr, len| {
            // SAFETY: By the type invariant the piece is mapped so.
            unsafe { bindings::ib_dma_sync_single_for_device(self.dev.as_ptr(), addr, len, dir) };
        })
    }

    fn range_is_inside(&self, offset: usize, len: usize) -> Result {
        match self.block.contains(offset, len) {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }

    /// Returns the address of a range for the device, which must lie in one part of the block.
    pub(super) fn range(&self, offset: usize, len: usize) -> Result<u64> {
        self.range_is_inside(offset, len)?;
        if !self.block.is_virtual() {
            return Ok(self.addr.wrapping_add(u64::try_from(offset)?));
        }
        let part_len = self.block.part_len();
        let (index, within) = (offset / part_len, offset % part_len);
        if len > part_len - within {
            return Err(EINVAL);
        }
        let addr = match index.checked_sub(1) {
            None => self.addr,
            Some(index) => *self.rest.get(index).ok_or(EINVAL)?,
        };
        Ok(addr.wrapping_add(u64::try_from(within)?))
    }

    /// Returns the CPU address of a range, for a work request that copies it when posted.
    pub(super) fn inline_sge(&self, offset: usize, len: usize) -> Result<bindings::ib_sge> {
        Ok(bindings::ib_sge {
            addr: u64::try_from(self.block.range(offset, len)?.addr())?,
            length: u32::try_from(len)?,
            lkey: 0,
        })
    }

    /// Returns the address of a range for the device, with its key.
    pub(super) fn sge(&self, offset: usize, len: usize, lkey: u32) -> Result<bindings::ib_sge> {
        Ok(bindings::ib_sge {
            addr: self.range(offset, len)?,
            length: u32::try_from(len)?,
            lkey,
        })
    }
}

/// Maps part `index` of a block; returns its address for the device, and whether it needs synchronisation.
fn map(dev: &Device, block: &Block, index: usize, dir: DmaDirection) -> Result<(u64, bool)> {
    let (part, len) = (block.part(index)?, block.part_len());
    // SAFETY: The device is valid by its type invariant, the part by that of the block.
    let addr = unsafe { bindings::ib_dma_map_single(dev.as_ptr(), part.cast(), len, dir.as_raw()) };
    // SAFETY: The device is valid by its type invariant.
    to_result(unsafe { bindings::ib_dma_mapping_error(dev.as_ptr(), addr) })?;
    // SAFETY: The device is valid by its type invariant, and the address was just mapped for it.
    let needs_sync = unsafe { bindings::ib_dma_need_sync(dev.as_ptr(), addr) };
    Ok((addr, needs_sync))
}

/// Data written by the device and not synchronised is lost: the block may hold newer bytes written through another
/// mapping.
impl Drop for Mapping {
    fn drop(&mut self) {
        let (dir, len) = (self.dir.as_raw(), self.block.part_len());
        for addr in self.addrs() {
            // SAFETY: By the type invariant the part is mapped so; work requests and memory regions that use it hold a
            // reference to this object and are gone.
            unsafe {
                bindings::ib_dma_unmap_single_unsynced(self.dev.as_ptr(), addr, len, dir);
            };
        }
    }
}
