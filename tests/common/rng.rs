// SPDX-License-Identifier: GPL-2.0
//! Seeded numbers (SplitMix64), and the loop over seeds.

use std::hash::{
    BuildHasher,
    RandomState, //
};

/// A generator; equal seeds give equal numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    /// A number in `from..=to`.
    pub fn between(&mut self, from: u32, to: u32) -> u32 {
        from + (self.next() % (u64::from(to - from) + 1)) as u32
    }

    /// True once in `times` on average.
    pub fn one_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u32) as usize]
    }
}

/// A number that depends on every bit of `value`.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Runs `test` for `count` seeds, `SMC_SEED_FACTOR` times as many, or the one in `SMC_SEED` (both from the
/// environment). The first half is the same in each run, the other half is new: below 2^32, so that a test may count
/// from a seed. Prints the seed of the run that fails.
pub fn for_seeds(count: u64, test: impl Fn(u64)) {
    struct Announce(u64);
    impl Drop for Announce {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with SMC_SEED={}", self.0);
            }
        }
    }

    let number = |name| {
        let value = std::env::var(name).ok()?;
        Some(value.parse::<u64>().expect("a seed or factor is a number"))
    };
    let seeds: Vec<u64> = match number("SMC_SEED") {
        Some(seed) => vec![seed],
        None => {
            let count = count * number("SMC_SEED_FACTOR").unwrap_or(1);
            let known = count.div_ceil(2);
            let mut new = Rng::new(RandomState::new().hash_one(count));
            (0..known)
                .chain((known..count).map(|_| new.next() >> 32))
                .collect()
        }
    };
    for seed in seeds {
        let announce = Announce(seed);
        test(seed);
        drop(announce);
    }
}
