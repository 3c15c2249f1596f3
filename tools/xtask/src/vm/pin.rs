// SPDX-License-Identifier: GPL-2.0
//! Guests that run on a single processor of this machine each.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sched::{sched_getaffinity, CpuSet};
use nix::unistd::Pid;

/// How many guests each processor has.
static GUESTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A guest's place on a processor, until it is dropped.
pub(super) struct Pin {
    cpu: usize,
}

impl Pin {
    /// Takes a place on the processor with the fewest guests; `None` if it is not known which there are.
    pub(super) fn take() -> Option<Self> {
        let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let may = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false));
        let mut guests = guests();
        let cpu = emptiest(may, &guests)?;
        *guests.entry(cpu).or_default() += 1;
        Some(Self { cpu })
    }

    pub(super) fn cpu(&self) -> usize {
        self.cpu
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(count) = guests().get_mut(&self.cpu) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Returns the last of those with the fewest guests.
fn emptiest(
    cpus: impl DoubleEndedIterator<Item = usize>,
    guests: &BTreeMap<usize, usize>,
) -> Option<usize> {
    cpus.rev()
        .min_by_key(|cpu| guests.get(cpu).copied().unwrap_or(0))
}

fn guests() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    // Each change is a single assignment.
    GUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_spread_over_processors() {
        let mut guests = BTreeMap::new();
        for expected in [3, 2, 0, 3] {
            let cpu = emptiest([0, 2, 3].into_iter(), &guests);
            assert_eq!(cpu, Some(expected));
            *guests.entry(expected).or_default() += 1;
        }
        assert_eq!(emptiest([].into_iter(), &guests), None);
    }
}
