// SPDX-License-Identifier: GPL-2.0
//! Link layer control with a caller and a peer that do anything, in any order; the fuzzer `llc_flows`
//! does the same.

mod common;

use common::llc_ops;
use common::rng::{
    for_seeds,
    Rng, //
};

/// What the fuzzer has found before.
#[test]
fn what_was_found_breaks_no_promise() {
    llc_ops::run(include_bytes!("fuzz/found/llc_flows-superseded"));
}

#[test]
fn no_operations_break_the_promises() {
    for_seeds(3000, |seed| {
        let mut rng = Rng::new(seed);
        // Small numbers meet the links, keys and flags that are there more often.
        let bytes: Vec<u8> = (0..rng.below(600))
            .map(|_| match rng.one_in(3) {
                true => rng.next() as u8,
                false => rng.below(10) as u8,
            })
            .collect();
        llc_ops::run(&bytes);
    });
}
