// SPDX-License-Identifier: GPL-2.0

//! String parameters of the module, which `module!` does not support.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use crate::{
    bindings,
    prelude::*, //
};

/// `ueid=`, if it was given. To be called while the module initialises.
pub fn ueid() -> Option<&'static [u8]> {
    // SAFETY: No precondition.
    let value = unsafe { bindings::param_ueid() };
    if value.is_null() {
        return None;
    }
    // SAFETY: A parameter that was given is a C string that lives as long as the module, and it cannot be changed.
    Some(unsafe { CStr::from_char_ptr(value) }.to_bytes())
}
