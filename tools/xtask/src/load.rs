// SPDX-License-Identifier: GPL-2.0
//! Whether this machine has room for another guest.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the processors are watched before each further guest.
const WATCHED: Duration = Duration::from_secs(3);
/// The share of time, in percent of all processors', that has to be left.
const IDLE: u64 = 35;
/// The memory that has to be left: for a guest, and as much again.
const MEMORY_KIB: u64 = 4 << 20;

/// Lets one guest after the other start where there is room.
#[derive(Default)]
pub(crate) struct Gate(Mutex<()>);

impl Gate {
    /// Waits for room; returns `false` without if `is_over` says that none is needed any more.
    pub(crate) fn wait(&self, is_over: impl Fn() -> bool) -> bool {
        // Nothing is behind the lock: it lets one caller look at a time, so that each sees what the last one started.
        let _looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over() {
            let Some(before) = Ticks::read() else {
                return false;
            };
            thread::sleep(WATCHED);
            let Some(after) = Ticks::read() else {
                return false;
            };
            if after.idle_percent(&before) >= IDLE && available_kib() >= Some(MEMORY_KIB) {
                return true;
            }
        }
        false
    }
}

/// Time of all processors, in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `/proc/stat`: see proc_stat(5).
    fn parse(text: &str) -> Option<Self> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = fields
            .split_ascii_whitespace()
            .map(|f| f.parse().ok())
            .collect::<Option<_>>()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guest times are part of user's.
        let first = fields.get(..8)?;
        Some(Self {
            idle: first[3] + first[4],
            all: first.iter().sum(),
        })
    }

    fn idle_percent(&self, before: &Self) -> u64 {
        let idle = self.idle.saturating_sub(before.idle);
        let all = self.all.saturating_sub(before.all);
        (100 * idle).checked_div(all).unwrap_or(0)
    }
}

/// Returns the memory that programs can have without swapping.
fn available_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_counts_as_idle() {
        let before = Ticks::parse("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 2 3\n");
        assert_eq!(before, Some(Ticks { idle: 80, all: 100 }));
        let after = Ticks {
            idle: 140,
            all: 300,
        };
        assert_eq!(after.idle_percent(&before.unwrap()), 30);
        assert_eq!(after.idle_percent(&after), 0);
        assert_eq!(Ticks::parse("cpu 1 2"), None);
    }

    #[test]
    fn nobody_waits_when_all_is_over() {
        assert!(!Gate::default().wait(|| true));
    }
}
