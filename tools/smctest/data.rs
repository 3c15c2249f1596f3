// SPDX-License-Identifier: GPL-2.0

//! Random data that both ends generate from a seed.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use anyhow::bail;
use anyhow::Result;

/// The SplitMix64 generator.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a seed that differs from run to run.
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

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns one of `choices`, which are not empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        // CAST: an index below the length.
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a size from 1 to `max`; each order of magnitude is equally likely.
    pub(crate) fn size(&mut self, max: usize) -> usize {
        let bits = usize::BITS - max.max(1).leading_zeros();
        let limit = 1usize << (self.next() % u64::from(bits) + 1).min(62);
        let random = usize::try_from(self.next() >> 1).unwrap_or(usize::MAX);
        1 + random % limit.min(max.max(1))
    }
}

/// An endless stream of random bytes; the byte at position n does not depend on the chunk sizes.
#[derive(Clone)]
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

/// Exit status after a wrong byte: a script that expects connections to fail can tell that from lost data.
pub(crate) const WRONG_DATA: u8 = 3;

static IS_WRONG: AtomicBool = AtomicBool::new(false);

/// Notes that a wrong byte was received.
pub(crate) fn note_wrong() {
    // ORDERING: only the flag itself is shared.
    IS_WRONG.store(true, Ordering::Relaxed);
}

/// Returns whether a wrong byte was received.
pub(crate) fn is_wrong() -> bool {
    // ORDERING: only the flag itself is shared.
    IS_WRONG.load(Ordering::Relaxed)
}

/// Returns the exit status of this program after an error.
pub(crate) fn exit_code() -> ExitCode {
    match is_wrong() {
        true => ExitCode::from(WRONG_DATA),
        false => ExitCode::FAILURE,
    }
}

/// Compares received data with a stream.
pub(crate) struct Check {
    seed: u64,
    stream: Stream,
    expected: Vec<u8>,
    at: u64,
}

/// Number of equal bytes that identify another position of the stream.
const TELLING: usize = 16;

/// How far behind the wrong byte that position is searched, bytes.
const AHEAD: usize = 1 << 20;

impl Check {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            stream: Stream::new(seed),
            expected: Vec::new(),
            at: 0,
        }
    }

    /// Returns the number of correct bytes so far.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Checks the next bytes. The error for a wrong byte contains the stream position that the byte
    /// belongs to, which shows whether data was lost or duplicated.
    pub(crate) fn take(&mut self, got: &[u8]) -> Result<()> {
        self.expected.resize(got.len(), 0);
        self.stream.fill(&mut self.expected);
        if let Some(wrong) = got.iter().zip(&self.expected).position(|(a, b)| a != b) {
            note_wrong();
            let at = self.at + wrong as u64;
            match self.find(&got[wrong..], at) {
                Some(place) => bail!("wrong byte at {at}: it is that of {place}"),
                None => bail!("wrong byte at {at}: it is from nowhere near"),
            }
        }
        self.at += got.len() as u64;
        Ok(())
    }

    /// Returns the position of these bytes in the stream.
    fn find(&self, bytes: &[u8], near: u64) -> Option<usize> {
        let telling = bytes.get(..TELLING)?;
        let mut all = vec![0; usize::try_from(near).ok()? + AHEAD];
        Stream::new(self.seed).fill(&mut all);
        all.windows(TELLING).rposition(|window| window == telling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_told_with_its_place() {
        let mut all = vec![0; 5000];
        Stream::new(9).fill(&mut all);
        let mut check = Check::new(9);
        assert!(check.take(&all[..2000]).is_ok());
        let told = check.take(&all[2500..3000]).unwrap_err().to_string();
        assert_eq!(told, "wrong byte at 2000: it is that of 2500");
        assert_eq!(check.at(), 2000);

        let told = Check::new(9).take(&[0; 100]).unwrap_err().to_string();
        assert!(told.ends_with("from nowhere near"), "{told}");
    }

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
