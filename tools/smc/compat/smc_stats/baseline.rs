// SPDX-License-Identifier: GPL-2.0

//! The values of the counters at the last reset, in a file of the user.
//!
//! The kernel's counters are never reset; `stats reset` stores them, and later calls print the
//! difference.

use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde_json::Value;
use smc_tools::stats::Stats;

/// Returns the path of the file for this user; not that of smc-tools, whose format differs.
fn path() -> PathBuf {
    PathBuf::from(format!("/tmp/.smcstats.rs.u{}", uid()))
}

fn uid() -> u32 {
    // The owner of this process.
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

/// Returns the counters since the last reset; all if there was none since the module was loaded.
pub(super) fn since(now: &Stats) -> Stats {
    let before = load();
    before
        .and_then(|before| difference(now, &before))
        .unwrap_or_else(|| now.clone())
}

fn load() -> Option<Stats> {
    let mut options = fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path())
        .ok()?;
    let meta = file.metadata().ok()?;
    let is_ours = meta.is_file() && meta.uid() == uid();
    is_ours.then(|| serde_json::from_reader(io::BufReader::new(file)).ok())?
}

/// Stores the counters.
pub(super) fn keep(now: &Stats) -> io::Result<()> {
    let new = path().with_extension(format!("{}.new", std::process::id()));
    let mut options = fs::OpenOptions::new();
    // The directory is world-writable: do not overwrite other users' files or follow their symbolic
    // links.
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    serde_json::to_writer(&mut file, now)?;
    file.flush()?;
    fs::rename(&new, path()).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Returns the difference; `None` if a counter decreased, since the module was reloaded.
fn difference(now: &Stats, before: &Stats) -> Option<Stats> {
    let value = |stats: &Stats| serde_json::to_value(stats).ok();
    let mut all = minus(&value(now)?, &value(before)?)?;
    // A list by reason, to which entries may be added anywhere.
    let reasons = now.fallbacks.reasons.iter().filter_map(|reason| {
        let mut reason = reason.clone();
        let earlier = before.fallbacks.reasons.iter();
        let mut same = earlier.filter(|b| b.code == reason.code && b.end == reason.end);
        reason.count = reason
            .count
            .saturating_sub(same.next().map_or(0, |b| b.count));
        (reason.count > 0).then_some(reason)
    });
    let reasons = serde_json::to_value(reasons.collect::<Vec<_>>()).ok()?;
    *all.get_mut("fallbacks")?.get_mut("reasons")? = reasons;
    serde_json::from_value(all).ok()
}

fn minus(now: &Value, before: &Value) -> Option<Value> {
    match (now, before) {
        (Value::Number(now), Value::Number(before)) => {
            Some(now.as_u64()?.checked_sub(before.as_u64()?)?.into())
        }
        (Value::Object(now), Value::Object(before)) => {
            let fields = now.iter().map(|(name, now)| {
                let value = match (name.as_str(), before.get(name)) {
                    // Current amounts rather than counters of events.
                    ("buffer_bytes" | "reasons", _) | (_, None) => Some(now.clone()),
                    (_, Some(before)) => minus(now, before),
                };
                value.map(|value| (name.clone(), value))
            });
            fields.collect::<Option<_>>().map(Value::Object)
        }
        (Value::Array(now), Value::Array(before)) if now.len() == before.len() => {
            let parts = now
                .iter()
                .zip(before)
                .map(|(now, before)| minus(now, before));
            parts.collect::<Option<_>>().map(Value::Array)
        }
        _ => Some(now.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_tools::stats::Fallback;

    fn stats(bytes: u64, usage: u64, counts: &[(u32, u64)]) -> Stats {
        let mut stats = Stats::default();
        stats.smcr.sent.bytes = bytes;
        stats.smcr.sent.buffer_bytes = usage;
        stats.smcr.sent.call_sizes[3] = bytes;
        stats.fallbacks.reasons = counts
            .iter()
            .map(|(code, count)| Fallback {
                end: "client".to_string(),
                code: *code,
                reason: String::new(),
                count: *count,
            })
            .collect();
        stats
    }

    #[test]
    fn counters_count_from_the_reset_and_levels_do_not() {
        let before = stats(100, 50, &[(7, 2)]);
        let now = stats(130, 40, &[(5, 1), (7, 2)]);
        let shown = difference(&now, &before).unwrap();
        assert_eq!(
            (shown.smcr.sent.bytes, shown.smcr.sent.call_sizes[3]),
            (30, 30)
        );
        assert_eq!(shown.smcr.sent.buffer_bytes, 40);
        let reasons: Vec<_> = shown
            .fallbacks
            .reasons
            .iter()
            .map(|r| (r.code, r.count))
            .collect();
        assert_eq!(reasons, [(5, 1)]);
    }

    #[test]
    fn a_module_loaded_anew_has_no_reset() {
        assert!(difference(&stats(10, 0, &[]), &stats(100, 0, &[])).is_none());
    }
}
