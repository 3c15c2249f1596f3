// SPDX-License-Identifier: GPL-2.0

//! Any bytes as a list of operations on one link group's LLC (link layer control) state, with a
//! peer that says anything.
//!
//! The operations and the promises are those of the seeded test in `tests/llc_promises.rs`.

#![no_main]

#[path = "../common/llc_ops.rs"]
mod llc_ops;
#[path = "../common/params.rs"]
mod params;

use libfuzzer_sys::fuzz_target;
use params::params;

fuzz_target!(|bytes: &[u8]| {
    llc_ops::run(bytes);
});
