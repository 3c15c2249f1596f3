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
/// The memory of `block` is mapped for `dev` at `addr`, in the direction `dir`. While `needs_sync` is not set, the
/// device and the CPU see the same bytes.
pub struct Mapping {
    block: Arc<Block>,
    dev: Arc<Device>,
    addr: u64,
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
        // SAFETY: The device is valid by its type invariant, the block's memory by its own.
        let addr = unsafe {
            bindings::ib_dma_map_single(
                dev.as_ptr(),
                block.as_ptr().cast(),
                block.len(),
                dir.as_raw(),
            )
        };
        // SAFETY: The device is valid by its type invariant.
        to_result(unsafe { bindings::ib_dma_mapping_error(dev.as_ptr(), addr) })?;
        // SAFETY: The device is valid by its type invariant, and the address was just mapped for it.
        let needs_sync = unsafe { bindings::ib_dma_need_sync(dev.as_ptr(), addr) };
        // INVARIANT: Just mapped so, and the result holds as long as the mapping.
        let this = Self {
            block: block.clone(),
            dev: dev.clone(),
            addr,
            dir,
            needs_sync,
        };
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

    /// The address at which the device sees the memory.
    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    /// Makes data written by the device visible to the CPU. A block may be mapped several times: the range must have
    /// been written through this mapping, or data written through others is lost.
    /// Context: any; copies bounced bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn sync_for_cpu(&self, offset: usize, len: usize) -> Result {
        let addr = self.range(offset, len)?;
        if !self.needs_sync {
            return Ok(());
        }
        let dir = self.dir.as_raw();
        // SAFETY: By the type invariant the range is mapped so.
        unsafe { bindings::ib_dma_sync_single_for_cpu(self.dev.as_ptr(), addr, len, dir) };
        Ok(())
    }

    /// Makes data written by the CPU visible to the device.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the block.
    pub fn sync_for_device(&self, offset: usize, len: usize) -> Result {
        let addr = self.range(offset, len)?;
        if !self.needs_sync {
            return Ok(());
        }
        let dir = self.dir.as_raw();
        // SAFETY: By the type invariant the range is mapped so.
        unsafe { bindings::ib_dma_sync_single_for_device(self.dev.as_ptr(), addr, len, dir) };
        Ok(())
    }

    /// Returns the address of a range for the device.
    pub(super) fn range(&self, offset: usize, len: usize) -> Result<u64> {
        if !self.block.contains(offset, len) {
            return Err(EINVAL);
        }
        Ok(self.addr.wrapping_add(u64::try_from(offset)?))
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

/// Data written by the device and not synchronised is lost: the block may hold newer bytes written through another
/// mapping.
impl Drop for Mapping {
    fn drop(&mut self) {
        let dir = self.dir.as_raw();
        // SAFETY: By the type invariant the whole block is mapped so; work requests and memory
        // memory regions that use it hold a reference to this object and are gone.
        unsafe {
            bindings::ib_dma_unmap_single_unsynced(
                self.dev.as_ptr(),
                self.addr,
                self.block.len(),
                dir,
            );
        };
    }
}
