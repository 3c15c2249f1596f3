// SPDX-License-Identifier: GPL-2.0
//! Which guest scripts run on which day: those that would make a daily run too long take turns.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Deals the scripts out to the days, evenly.
pub(crate) struct Turns {
    day: u64,
    /// How many scripts were dealt so far, by how many days lie between two turns.
    dealt: BTreeMap<u64, u64>,
}

impl Turns {
    pub(crate) fn new(day: u64) -> Self {
        Self {
            day,
            dealt: BTreeMap::new(),
        }
    }

    /// Returns whether it is the next script's turn, which has one in so many days. The scripts are to be asked about
    /// in the same order on each day.
    pub(crate) fn is_due(&mut self, every: u64) -> bool {
        let dealt = self.dealt.entry(every).or_default();
        let number = *dealt;
        *dealt += 1;
        self.day.wrapping_add(number) % every == 0
    }
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
    fn each_has_its_turn_and_no_day_has_more_than_its_share() {
        let every = [1, 3, 3, 2, 3, 3, 1, 3, 2];
        let mut runs = [0; 9];
        for day in 20_000..20_006 {
            let mut turns = Turns::new(day);
            let due: Vec<bool> = every.iter().map(|&days| turns.is_due(days)).collect();
            let of_three = due
                .iter()
                .zip(every)
                .filter(|(due, every)| **due && *every == 3);
            assert!((1..=2).contains(&of_three.count()));
            for (runs, due) in runs.iter_mut().zip(due) {
                *runs += u64::from(due);
            }
        }
        assert_eq!(runs, every.map(|days| 6 / days));
    }
}
