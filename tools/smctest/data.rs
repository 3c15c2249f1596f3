// SPDX-License-Identifier: GPL-2.0

//! Random data that both ends can make from a seed.

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that differs from run to run.
    pub(crate) fn fresh_seed() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = now.map_or(1, |time| time.subsec_nanos());
        Self::new(u64::from(nanos) << 32 | u64::from(std::process::id())).next()
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A size from 1 to `max`, each order of magnitude as likely as the others.
    pub(crate) fn size(&mut self, max: usize) -> usize {
        let bits = usize::BITS - max.max(1).leading_zeros();
        let limit = 1usize << (self.next() % u64::from(bits) + 1).min(62);
        let random = usize::try_from(self.next() >> 1).unwrap_or(usize::MAX);
        1 + random % limit.min(max.max(1))
    }
}

/// An endless stream of bytes; position n is the same however the stream is cut.
pub(crate) struct Stream {
    random: Random,
    left: [u8; 8],
    used: usize,
}

impl Stream {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            left: [0; 8],
            used: 8,
        }
    }

    /// Writes the next bytes of the stream into `buffer`.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            if self.used == self.left.len() {
                self.left = self.random.next().to_le_bytes();
                self.used = 0;
            }
            *byte = self.left[self.used];
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_does_not_depend_on_how_it_is_cut() {
        let (mut whole, mut parts) = ([0; 1000], [0; 1000]);
        Stream::new(7).fill(&mut whole);

        let (mut stream, mut random, mut at) = (Stream::new(7), Random::new(1), 0);
        while at < parts.len() {
            let len = random.size(64).min(parts.len() - at);
            stream.fill(&mut parts[at..at + len]);
            at += len;
        }
        assert_eq!(whole, parts);
    }

    #[test]
    fn sizes_stay_within_their_bounds() {
        let mut random = Random::new(3);
        for max in [1, 2, 3, 1000, 65536] {
            for _ in 0..1000 {
                assert!((1..=max).contains(&random.size(max)));
            }
        }
    }
}
