// SPDX-License-Identifier: GPL-2.0
//! How long each guest script took when it last ran, from which the order of the next run follows.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dirs::Dirs;

/// Durations by name of the script, kept in `out/durations`: a line each, the name and whole seconds.
pub(crate) struct Durations {
    path: PathBuf,
    scripts: Mutex<BTreeMap<String, Duration>>,
}

impl Durations {
    /// Reads what earlier runs recorded; a file that is missing or damaged only makes the order worse.
    pub(crate) fn read(dirs: &Dirs) -> Self {
        let path = dirs.out("durations");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let scripts = text.lines().filter_map(parse).collect();
        Self {
            path,
            scripts: Mutex::new(scripts),
        }
    }

    /// Returns how long the script will take: as the last time, or half of its timeout if it never ran.
    pub(crate) fn of(&self, name: &str, timeout: Duration) -> Duration {
        self.scripts().get(name).copied().unwrap_or(timeout / 2)
    }

    pub(crate) fn record(&self, name: &str, took: Duration) {
        self.scripts().insert(name.to_owned(), took);
    }

    pub(crate) fn write(&self) -> Result<()> {
        let lines: String = self
            .scripts()
            .iter()
            .map(|(name, took)| format!("{name} {}\n", took.as_secs()))
            .collect();
        fs::write(&self.path, lines)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn scripts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Duration>> {
        // The map is consistent after each statement that changes it.
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(line: &str) -> Option<(String, Duration)> {
    let (name, seconds) = line.split_once(' ')?;
    Some((name.to_owned(), Duration::from_secs(seconds.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_line_is_passed_over() {
        assert_eq!(
            parse("stress.sh 250"),
            Some(("stress.sh".to_owned(), Duration::from_secs(250)))
        );
        assert_eq!(parse("stress.sh"), None);
        assert_eq!(parse("stress.sh soon"), None);
    }
}
