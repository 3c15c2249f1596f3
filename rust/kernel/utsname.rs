// SPDX-License-Identifier: GPL-2.0

//! The host name.
//!
//! C header: [`include/linux/utsname.h`](srctree/include/linux/utsname.h)

use crate::bindings;

/// The host name as the current task sees it, padded with NUL.
/// Context: process.
pub fn nodename() -> [u8; 64] {
    let mut name = [0; 64];
    // SAFETY: There is room for 64 bytes, and the helper writes no more.
    unsafe { bindings::copy_nodename(name.as_mut_ptr().cast(), name.len()) };
    name
}
