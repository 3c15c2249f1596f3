// SPDX-License-Identifier: GPL-2.0
//! Which guest scripts run on which day: those that would make a daily run too long take turns.

use std::cmp::Reverse;
use std::time::{SystemTime, UNIX_EPOCH};

/// A script that takes turns.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// It has one day in so many.
    pub(crate) every: u64,
    /// What it takes, compared with others: the same on all machines and days, so that it has its turn.
    pub(crate) weight: u64,
}

/// Returns whether it is the turn of each of the scripts on that day. They are dealt out so that no day has much more
/// than another, the heavy ones first.
pub(crate) fn due(day: u64, scripts: &[Turn]) -> Vec<bool> {
    let days = scripts.iter().map(|turn| turn.every).fold(1, lcm);
    let mut loads = vec![0; usize::try_from(days).unwrap_or(1)];
    let mut heavy_first: Vec<_> = scripts.iter().enumerate().collect();
    heavy_first.sort_by_key(|(_, turn)| Reverse(turn.weight));
    let mut due = vec![false; scripts.len()];
    for (at, turn) in heavy_first {
        let every = usize::try_from(turn.every).unwrap_or(1);
        let of = |first: &usize| loads.iter().skip(*first).step_by(every);
        let rank = |first: &usize| (of(first).max().copied(), of(first).sum::<u64>());
        let first = (0..every).min_by_key(rank).unwrap_or(0);
        loads
            .iter_mut()
            .skip(first)
            .step_by(every)
            .for_each(|load| *load += turn.weight);
        if let Some(due) = due.get_mut(at) {
            *due = day % turn.every == first as u64;
        }
    }
    due
}

fn lcm(a: u64, b: u64) -> u64 {
    let gcd = |mut a, mut b| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    a / gcd(a, b) * b
}

/// Returns the day of the date, in UTC.
pub(crate) fn today() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / (24 * 60 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn() {
        let scripts = [1, 3, 3, 2, 3, 3, 1, 3, 2].map(|every| Turn { every, weight: 1 });
        let mut runs = [0; 9];
        for day in 20_000..20_006 {
            for (runs, due) in runs.iter_mut().zip(due(day, &scripts)) {
                *runs += u64::from(due);
            }
        }
        assert_eq!(runs, scripts.map(|turn| 6 / turn.every));
    }

    #[test]
    fn heavy_ones_are_kept_apart() {
        let scripts = [(3, 100), (7, 900), (3, 100), (7, 800), (3, 100), (7, 900)];
        let scripts = scripts.map(|(every, weight)| Turn { every, weight });
        for day in 0..21 {
            let due = due(day, &scripts);
            let has = |every| {
                let weights = scripts.iter().zip(&due);
                let of = weights.filter(|(turn, due)| **due && turn.every == every);
                of.count()
            };
            assert_eq!(has(3), 1, "day {day}");
            assert!(has(7) <= 1, "day {day}");
        }
    }
}
