// SPDX-License-Identifier: GPL-2.0
//! How long each guest script took when it last ran on this machine, and of how many processors. The order of the next
//! run follows from it, and how many run at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::packing::{Load, UNKNOWN_LOAD};
use crate::run::lock;

/// What a script took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Took {
    pub(crate) time: Duration,
    /// Of all processors together.
    pub(crate) cpu: Duration,
}

impl Took {
    /// Returns how many processors were busy on average.
    fn load(self) -> f64 {
        self.cpu.as_secs_f64() / self.time.as_secs_f64().max(1.0)
    }
}

/// Times by name of the script, kept in `durations` in the cache, which all checkouts share: a line each, the name,
/// seconds that passed, seconds of processors.
pub(crate) struct Durations {
    path: PathBuf,
    before: BTreeMap<String, Took>,
    /// Those of this run.
    now: Mutex<BTreeMap<String, Took>>,
}

impl Durations {
    /// Reads what earlier runs recorded; a file that is missing or damaged only makes the order worse.
    pub(crate) fn read(dirs: &Dirs) -> Self {
        let path = dirs.cache.join("durations");
        Self {
            before: parse(&fs::read_to_string(&path).unwrap_or_default()),
            path,
            now: Mutex::default(),
        }
    }

    /// Returns how long the script will take: as the last time, or half of its timeout if it never ran.
    pub(crate) fn time(&self, name: &str, timeout: Duration) -> Duration {
        self.before.get(name).map_or(timeout / 2, |took| took.time)
    }

    /// Returns how many processors the script will keep busy: as the last time.
    pub(crate) fn load(&self, name: &str) -> Load {
        self.before
            .get(name)
            .map_or(UNKNOWN_LOAD, |took| Load::Part(took.load()))
    }

    /// Returns how long processors will be busy with the script: as the last time, or a good part of its timeout.
    pub(crate) fn cpu(&self, name: &str, timeout: Duration) -> Duration {
        self.before.get(name).map_or(timeout / 5, |took| took.cpu)
    }

    pub(crate) fn record(&self, name: &str, took: Took) {
        self.now().insert(name.to_owned(), took);
    }

    /// Adds what was recorded to what other checkouts have written in the meantime.
    pub(crate) fn write(&self) -> Result<()> {
        let _lock = lock(&self.path.with_extension("lock"), "record of durations")?;
        let mut all = parse(&fs::read_to_string(&self.path).unwrap_or_default());
        all.extend(self.now().iter().map(|(name, took)| (name.clone(), *took)));
        fs::write(&self.path, show(&all))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<String, Took>> {
        // The map is consistent after each statement that changes it.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn show(all: &BTreeMap<String, Took>) -> String {
    let line = |(name, took): (&String, &Took)| {
        let (time, cpu) = (took.time.as_secs_f64(), took.cpu.as_secs_f64());
        format!("{name} {time:.1} {cpu:.1}\n")
    };
    all.iter().map(line).collect()
}

fn parse(text: &str) -> BTreeMap<String, Took> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let mut seconds = || Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok();
        let (time, cpu) = (seconds()?, seconds()?);
        Some((name, Took { time, cpu }))
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_damaged_line_is_passed_over() {
        let took = Took {
            time: Duration::from_millis(250_500),
            cpu: Duration::from_secs(25),
        };
        let all = BTreeMap::from([("stress-um-debug".to_owned(), took)]);
        let text = format!(
            "llc-um-debug soon 1\nllc-um-debug 3\n{}x 1 -1\n",
            show(&all)
        );
        assert_eq!(parse(&text), all);
        assert!((took.load() - 0.1).abs() < 0.001);
    }
}
