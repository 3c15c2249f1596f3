// SPDX-License-Identifier: GPL-2.0

//! State of this module.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use core::ffi::c_void;

use crate::bindings;

extern "C" {
    /// The module that this crate is linked into; for tables that are built at compile time.
    pub(crate) static __this_module: c_void;
}

/// The module that this crate is linked into.
pub(crate) fn this_module() -> *mut bindings::module {
    (&raw const __this_module).cast_mut().cast()
}

/// Whether the module has been initialised. Until then nothing that lasts may be started for user space: the rest of
/// the initialisation may fail, and the kernel then frees the module regardless of references to it.
/// Context: any.
pub(crate) fn is_live() -> bool {
    // SAFETY: No precondition.
    unsafe { bindings::this_module_is_live() }
}

/// To be dropped after what user space reaches and before what that uses. If the initialisation fails in between, waits
/// for calls that user space has started meanwhile. At an ordinary unload there are none.
pub struct Quiet(());

impl Quiet {
    /// To be created before anything that user space reaches is registered.
    #[expect(clippy::new_without_default, reason = "it does something when it goes")]
    pub fn new() -> Self {
        Self(())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        /// The reference of the initialisation itself.
        const OWN: i32 = 1;
        // Such a call returns at once, see `is_live`.
        // SAFETY: No precondition.
        while unsafe { bindings::this_module_refcount() } > OWN {
            // SAFETY: Modules are initialised in process context, where sleeping is allowed.
            unsafe { bindings::msleep(1) };
        }
    }
}
