// SPDX-License-Identifier: GPL-2.0

//! Random bytes.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use crate::bindings;

/// Fresh random bytes.
/// Context: any.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: The array may be written.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), N) };
    bytes
}
