// SPDX-License-Identifier: GPL-2.0

//! Any bytes as a list of operations on one connection's stream, with a peer that says anything.
//!
//! The operations and the promises are those of the seeded test in `tests/stream.rs`.

#![no_main]

#[path = "../common/stream_ops.rs"]
mod stream_ops;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stream_ops::run(bytes);
});
