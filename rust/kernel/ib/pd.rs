// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use core::{mem, ptr, ptr::NonNull};

use kernel::{
    error::from_err_ptr,
    prelude::fmt,
    str::CString,
    sync::Arc, //
};

use super::{
    deferred::{Deferred, OnDevice},
    Device,
};
use crate::{
    bindings,
    prelude::*, //
};

/// The domain that queue pairs and memory regions must share to be used together.
pub struct Pd {
    raw: Deferred<RawPd>,
}

/// # Invariants
///
/// `ptr` is a protection domain of `dev` that this object owns.
struct RawPd {
    ptr: NonNull<bindings::ib_pd>,
    dev: Arc<Device>,
    /// What the RDMA core calls the owner as long as it knows the domain.
    name: Option<CString>,
}

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for RawPd {}
// SAFETY: As above; only fields that do not change after allocation are read.
unsafe impl Sync for RawPd {}

impl Pd {
    /// Allocates a domain.
    /// Context: may sleep.
    pub fn new(dev: &Arc<Device>) -> Result<Arc<Self>> {
        // Not a constant of the module, see `drop`.
        let name = CString::try_from_fmt(fmt!("smc"))?;
        // SAFETY: The device is alive while `dev` is, and the name is that long or leaked.
        let ptr = unsafe { bindings::__ib_alloc_pd(dev.as_ptr(), 0, name.as_ptr().cast()) };
        let ptr = NonNull::new(from_err_ptr(ptr)?).ok_or(ENOMEM)?;
        // INVARIANT: Just allocated on `dev`.
        let raw = RawPd {
            ptr,
            dev: dev.clone(),
            name: Some(name),
        };
        let raw = Deferred::new(raw)?;
        Ok(Arc::new(Self { raw }, GFP_KERNEL)?)
    }

    /// The device the domain belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.raw.dev
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_pd {
        self.raw.ptr.as_ptr()
    }

    /// The key for local access to all memory mapped for the device.
    pub(super) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariant `ptr` is valid; the key is constant.
        unsafe { (*self.as_ptr()).local_dma_lkey }
    }
}

impl OnDevice for RawPd {
    fn device(&self) -> &Device {
        &self.dev
    }
}

impl Drop for RawPd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own the domain; objects made in it held a reference to it and are gone.
        let ret = unsafe { bindings::ib_dealloc_pd_user(self.ptr.as_ptr(), ptr::null_mut()) };
        if ret != 0 {
            pr_warn!("cannot free a protection domain: {ret}\n");
            // The RDMA core lists it still.
            mem::forget(self.name.take());
        }
    }
}
