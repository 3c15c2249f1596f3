// SPDX-License-Identifier: GPL-2.0
//! How long each guest script took in its last runs on this machine, and of how many processors. The order of the next
//! run follows from it, and how many run at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::packing::Load;
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

/// How many runs of a script are remembered.
const RUNS: usize = 3;

/// The last runs of a script, the latest first; at least one. A run beside which the machine had other work takes
/// longer and seems to need less of the processors: what counts is the one that had least to wait for.
type Runs = Vec<Took>;

/// Times by name of the script, kept in `durations` in the cache, which all checkouts share: a line each, the name, and
/// for each run seconds that passed and seconds of processors.
pub(crate) struct Durations {
    path: PathBuf,
    before: BTreeMap<String, Runs>,
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

    /// Returns how long the script will take, beside little: half of its timeout if it never ran.
    pub(crate) fn time(&self, name: &str, timeout: Duration) -> Duration {
        let times = self.runs(name).map(|took| took.time);
        times.min().unwrap_or(timeout / 2)
    }

    /// Returns how many processors the script will keep busy if it has to wait for none; `unknown` if it never ran.
    pub(crate) fn load(&self, name: &str, unknown: Load) -> Load {
        let loads = self.runs(name).map(Took::load);
        loads.reduce(f64::max).map_or(unknown, Load::Part)
    }

    /// Returns how long processors will be busy with the script: as the last time, or a good part of its timeout.
    pub(crate) fn cpu(&self, name: &str, timeout: Duration) -> Duration {
        self.runs(name).next().map_or(timeout / 5, |took| took.cpu)
    }

    fn runs(&self, name: &str) -> impl Iterator<Item = Took> + '_ {
        self.before.get(name).into_iter().flatten().copied()
    }

    pub(crate) fn record(&self, name: &str, took: Took) {
        self.now().insert(name.to_owned(), took);
    }

    /// Adds what was recorded to what other checkouts have written in the meantime.
    pub(crate) fn write(&self) -> Result<()> {
        let _lock = lock(&self.path.with_extension("lock"), "record of durations")?;
        let mut all = parse(&fs::read_to_string(&self.path).unwrap_or_default());
        for (name, took) in self.now().iter() {
            let runs = all.entry(name.clone()).or_default();
            runs.insert(0, *took);
            runs.truncate(RUNS);
        }
        fs::write(&self.path, show(&all))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<String, Took>> {
        // The map is consistent after each statement that changes it.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn show(all: &BTreeMap<String, Runs>) -> String {
    let mut text = String::new();
    for (name, runs) in all {
        text.push_str(name);
        for took in runs {
            let (time, cpu) = (took.time.as_secs_f64(), took.cpu.as_secs_f64());
            text.push_str(&format!(" {time:.1} {cpu:.1}"));
        }
        text.push('\n');
    }
    text
}

fn parse(text: &str) -> BTreeMap<String, Runs> {
    let seconds = |word: &str| Duration::try_from_secs_f64(word.parse().ok()?).ok();
    let run = |words: &[&str]| match words {
        [time, cpu] => Some(Took {
            time: seconds(time)?,
            cpu: seconds(cpu)?,
        }),
        _ => None,
    };
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, numbers) = words.split_first()?;
        let runs = numbers.chunks(2).map(run).collect::<Option<Runs>>()?;
        (!runs.is_empty()).then(|| ((*name).to_owned(), runs))
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::UNKNOWN_LOAD;

    fn took(time: f64, cpu: f64) -> Took {
        Took {
            time: Duration::from_secs_f64(time),
            cpu: Duration::from_secs_f64(cpu),
        }
    }

    fn durations(text: &str) -> Durations {
        Durations {
            path: PathBuf::new(),
            before: parse(text),
            now: Mutex::default(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_a_damaged_line_is_passed_over() {
        let all = BTreeMap::from([
            ("stress-um-debug".to_owned(), vec![took(250.5, 25.0)]),
            (
                "why-um-debug".to_owned(),
                vec![took(20.0, 5.0), took(9.0, 4.5)],
            ),
        ]);
        let text = format!(
            "llc-um-debug soon 1\nllc-um-debug 3\nllc-um-debug\n{}x 1 -1\n",
            show(&all)
        );
        assert_eq!(parse(&text), all);
    }

    #[test]
    fn the_run_that_was_disturbed_least_counts() {
        let durations = durations("why 40.0 5.0 10.0 4.0 20.0 6.0\n");
        let timeout = Duration::from_secs(100);
        assert_eq!(durations.time("why", timeout), Duration::from_secs(10));
        assert_eq!(durations.cpu("why", timeout), Duration::from_secs(5));
        assert_eq!(durations.load("why", UNKNOWN_LOAD), Load::Part(0.4));
        assert_eq!(durations.load("new", UNKNOWN_LOAD), UNKNOWN_LOAD);
        assert_eq!(durations.time("new", timeout), timeout / 2);
    }
}
