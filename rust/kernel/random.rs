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

/// A random number, of the same quality and cheaper than [`bytes`].
/// Context: any.
pub fn number_u64() -> u64 {
    // SAFETY: May be called in any context.
    unsafe { bindings::get_random_u64() }
}

/// As [`number_u64`].
/// Context: any.
pub fn number_u32() -> u32 {
    // SAFETY: As above.
    unsafe { bindings::get_random_u32() }
}
