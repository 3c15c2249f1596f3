// SPDX-License-Identifier: GPL-2.0

//! Any bytes as the messages of a peer in the handshake, towards a client and towards a server.
//!
//! The promises are those of the seeded test in `tests/handshake.rs`.

#![no_main]

#[path = "../common/handshake_ops.rs"]
mod handshake_ops;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    handshake_ops::run(bytes);
});
