// SPDX-License-Identifier: GPL-2.0

//! Memory regions: memory that the peer may write, or of which a write reads that needs a key of its own.

use core::{
    ptr,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use kernel::{
    error::from_err_ptr,
    page::{
        PAGE_MASK,
        PAGE_SIZE, //
    },
    sync::Arc, //
};

use super::{
    deferred::{Deferred, OnDevice},
    Device, DmaDirection, Mapping, Pd,
};
use crate::{
    bindings,
    prelude::*, //
};

/// A memory region: memory under one key, for local and remote writing, or for reading by work requests of its domain.
///
/// The key can be used once [`Qp::post_register`](super::Qp::post_register) succeeded, until
/// the memory region is dropped.
pub struct Mr {
    raw: Deferred<RawMr>,
    posted: AtomicBool,
}

/// # Invariants
///
/// `ptr` is a memory region of `pd` that we own, made of all of `maps`.
struct RawMr {
    ptr: NonNull<bindings::ib_mr>,
    maps: KVec<Arc<Mapping>>,
    pd: Arc<Pd>,
}

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for RawMr {}
// SAFETY: As above; the fields read here do not change after `Mr::new`.
unsafe impl Sync for RawMr {}

impl Mr {
    /// Creates a memory region of one or more consecutive whole blocks, which the peer addresses from `iova` on. That
    /// address is meaningful only to the two devices; a kernel address would disclose needless information to the peer.
    /// If a block is mapped for the device's reading only, the peer has no access, and the device reads only.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no block, an `iova` that is not page-aligned or too near the end, a block mapped for another
    /// device, or more pages than the device allows; `ENOSPC` if the device has no memory region left; else the
    /// driver's error.
    pub fn new(pd: &Arc<Pd>, maps: &[Arc<Mapping>], iova: u64) -> Result<Arc<Self>> {
        let len = Self::check(pd, maps, iova)?;
        let mut kept = KVec::with_capacity(maps.len(), GFP_KERNEL)?;
        for map in maps {
            kept.push(map.clone(), GFP_KERNEL)?;
        }
        let pages = u32::try_from(len / PAGE_SIZE)?;
        // SAFETY: The domain is valid by its type invariant.
        let ptr = unsafe {
            bindings::ib_alloc_mr(pd.as_ptr(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        };
        // INVARIANT: Ours; `map` makes it of `maps` before anything else sees it.
        let raw = RawMr {
            ptr: NonNull::new(from_err_ptr(ptr).map_err(|_| ENOSPC)?).ok_or(ENOMEM)?,
            maps: kept,
            pd: pd.clone(),
        };
        raw.map(len)?;
        // SAFETY: The memory region is ours, and no work request uses it yet.
        unsafe { (*raw.ptr.as_ptr()).iova = iova };
        let this = Self {
            raw: Deferred::new(raw)?,
            posted: AtomicBool::new(false),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Creates a memory region of a block that is a ring of which writes read: all of it twice, so that a range that
    /// goes on at its start is one, too. (Soft iWARP would look for it in the wrong page, if a work request named the
    /// start after the end.) The peer has no access.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// As for [`Mr::new`].
    pub fn ring(pd: &Arc<Pd>, map: &Arc<Mapping>) -> Result<Arc<Self>> {
        if map.direction() != DmaDirection::ToDevice {
            return Err(EINVAL);
        }
        // Nobody but the device sees the address.
        Self::new(pd, &[map.clone(), map.clone()], 0)
    }

    /// Checks the arguments of [`Mr::new`] and returns the total length in bytes.
    fn check(pd: &Pd, maps: &[Arc<Mapping>], iova: u64) -> Result<usize> {
        let mut len = 0usize;
        for map in maps {
            if !Arc::ptr_eq(map.device(), pd.device()) {
                return Err(EINVAL);
            }
            len = len.checked_add(map.block().len()).ok_or(EINVAL)?;
        }
        let max = usize::try_from(pd.device().limits().max_fast_reg_pages)?;
        let fits = iova.checked_add(u64::try_from(len)?).is_some();
        let aligned = iova & u64::try_from(!PAGE_MASK)? == 0;
        if len == 0 || len / PAGE_SIZE > max || !fits || !aligned {
            return Err(EINVAL);
        }
        Ok(len)
    }

    /// The key that the peer uses for the memory region.
    pub fn rkey(&self) -> u32 {
        // SAFETY: By the type invariant of `RawMr`; the key does not change.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The flags of `enum ib_access_flags` with which it is to be registered.
    pub(super) fn access(&self) -> bindings::ib_access_flags {
        let is_read_only = |map: &Arc<Mapping>| map.direction() == DmaDirection::ToDevice;
        match self.raw.maps.iter().any(is_read_only) {
            true => 0,
            false => {
                bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        }
    }

    /// Returns the SGE of a range.
    pub(super) fn sge(&self, offset: usize, len: usize) -> Result<bindings::ib_sge> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(EINVAL);
        }
        Ok(bindings::ib_sge {
            addr: self.iova().wrapping_add(u64::try_from(offset)?),
            length: u32::try_from(len)?,
            // SAFETY: By the type invariant of `RawMr`; the key does not change.
            lkey: unsafe { (*self.as_ptr()).lkey },
        })
    }

    /// The address the peer uses for the first byte.
    pub fn iova(&self) -> u64 {
        // SAFETY: By the type invariant of `RawMr`; the address does not change.
        unsafe { (*self.as_ptr()).iova }
    }

    /// Bytes of the memory region.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.raw.maps.iter().map(|map| map.block().len()).sum()
    }

    /// The blocks of the memory region, in order.
    pub fn mappings(&self) -> &[Arc<Mapping>] {
        &self.raw.maps
    }

    /// The domain the memory region belongs to.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.raw.pd
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_mr {
        self.raw.ptr.as_ptr()
    }

    /// Claims the one registration a memory region can have.
    pub(super) fn claim(&self) -> Result {
        match self.posted.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(EALREADY),
        }
    }

    /// Releases the claim if the registration could not be posted.
    pub(super) fn unclaim(&self) {
        self.posted.store(false, Ordering::Relaxed);
    }
}

impl RawMr {
    /// Sets the pages of the memory region in the driver.
    fn map(&self, len: usize) -> Result {
        let parts = || {
            let parts_of = |map: &'_ Arc<Mapping>| map.block().part_len();
            self.maps
                .iter()
                .flat_map(move |map| map.addrs().map(move |addr| (addr, parts_of(map))))
        };
        let count = u32::try_from(parts().count())?;
        let mut table = KVVec::with_capacity(parts().count(), GFP_KERNEL)?;
        for _ in 0..count {
            table.push(bindings::scatterlist::default(), GFP_KERNEL)?;
        }
        // SAFETY: The table has `count` entries.
        unsafe { bindings::sg_init_table(table.as_mut_ptr(), count) };
        for (index, (addr, len)) in (0..count).zip(parts()) {
            let len = u32::try_from(len)?;
            // SAFETY: `index` is below `count`.
            unsafe { bindings::ib_sg_set_dma(table.as_mut_ptr(), index, addr, len) };
        }
        let nents = i32::try_from(count)?;
        let page_size = u32::try_from(PAGE_SIZE)?;
        // SAFETY: The memory region is valid by the type invariant, the table has `nents` mapped entries.
        let mapped = unsafe {
            bindings::ib_map_mr_sg(
                self.ptr.as_ptr(),
                table.as_mut_ptr(),
                nents,
                ptr::null_mut(),
                page_size,
            )
        };
        // SAFETY: The memory region is valid by the type invariant.
        let mapped_len = unsafe { (*self.ptr.as_ptr()).length };
        match mapped {
            negative if negative < 0 => Err(Error::from_errno(negative)),
            n if n == nents && mapped_len == u64::try_from(len)? => Ok(()),
            _ => Err(EINVAL),
        }
    }
}

impl OnDevice for RawMr {
    fn device(&self) -> &Device {
        self.pd.device()
    }
}

impl Drop for RawMr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own the memory region; a work request that registers it holds a
        // reference to its `Mr` and is gone.
        let ret = unsafe { bindings::ib_dereg_mr_user(self.ptr.as_ptr(), ptr::null_mut()) };
        if ret != 0 {
            // The device may still write to the memory: leak it rather than let it be reused. It is unmapped all the
            // same, as a mapping would keep the device from being removed.
            pr_warn!(
                "{}: cannot deregister memory, {} blocks lost: {ret}\n",
                self.device().name(),
                self.maps.len()
            );
            for map in self.maps.iter() {
                map.block().leak();
            }
        }
    }
}
