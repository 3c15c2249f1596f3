// SPDX-License-Identifier: GPL-2.0

//! The values of the counters at the last reset, in a file of the user.
//!
//! The kernel's counters are never reset; `stats reset` stores them, and later calls print the
//! difference. They are of a network namespace, and begin anew when the module is loaded: in another one, what is
//! stored counts for nothing.

use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use smc_tools::stats::Stats;
use smc_user::Socket;

/// What the file has.
#[derive(Serialize, Deserialize)]
struct Baseline {
    origin: Origin,
    counters: Stats,
}

/// Which counters these are. What cannot be found out is the same as what could not be found out before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// The boot of the system: the other numbers may be the same in the next one.
    boot: Option<String>,
    /// The network namespace: its cookie, which no other one has later, unlike an inode.
    namespace: Option<u64>,
    /// The load of the module: the inode of its folder in sysfs.
    module: Option<u64>,
}

impl Origin {
    fn here() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let module = fs::metadata("/sys/module/smc").ok();
        Self {
            boot: boot.map(|id| id.trim().to_string()),
            namespace: namespace(),
            module: module.map(|folder| folder.ino()),
        }
    }
}

/// Returns the cookie of the network namespace.
fn namespace() -> Option<u64> {
    let socket = Socket::open(libc::AF_UNIX, libc::SOCK_DGRAM, 0).ok()?;
    let mut cookie = [0; 8];
    let option = socket.option(libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie);
    option.ok().map(|_| u64::from_ne_bytes(cookie))
}

/// Returns the path of the file for this user; not that of smc-tools, whose format differs.
fn path() -> PathBuf {
    PathBuf::from(format!("/tmp/.smcstats.rs.u{}", uid()))
}

fn uid() -> u32 {
    // The owner of this process.
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

/// Returns the counters since the last reset; all if there was none in this network namespace since the module was
/// loaded.
pub(super) fn since(now: &Stats) -> Stats {
    let before = load(&path(), &Origin::here());
    before
        .and_then(|before| difference(now, &before))
        .unwrap_or_else(|| now.clone())
}

fn load(path: &Path, here: &Origin) -> Option<Stats> {
    let mut options = fs::OpenOptions::new();
    let file = options
        .read(true)
        // Another user may have made what has this name: no link is followed, and no FIFO waited for.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.uid() != uid() {
        return None;
    }
    let baseline: Baseline = serde_json::from_reader(io::BufReader::new(file)).ok()?;
    (baseline.origin == *here).then_some(baseline.counters)
}

/// Stores the counters.
pub(super) fn keep(now: &Stats) -> io::Result<()> {
    let baseline = Baseline {
        origin: Origin::here(),
        counters: now.clone(),
    };
    store(&path(), &baseline)
}

fn store(path: &Path, what: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = fs::OpenOptions::new();
    // The directory is world-writable: do not overwrite other users' files or follow their symbolic
    // links.
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    serde_json::to_writer(&mut file, what)
        .map_err(io::Error::from)
        .and_then(|()| file.flush())
        .and_then(|()| fs::rename(&new, path))
        .inspect_err(|_| {
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
    use std::collections::BTreeMap;
    use std::env;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

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

    /// Calls `test` with a name in a folder of its own.
    fn in_folder(name: &str, test: impl FnOnce(&Path)) {
        let name = format!("smc-baseline-{name}-{}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        test(&folder.join(".smcstats.u0"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_of_another_place_counts_for_nothing() {
        in_folder("place", |path| {
            let here = Origin::here();
            assert!(here.boot.is_some() && here.namespace.is_some());
            let baseline = Baseline {
                origin: here.clone(),
                counters: stats(7, 0, &[]),
            };
            store(path, &baseline).unwrap();
            let found = load(path, &Origin::here()).unwrap();
            assert_eq!(found.smcr.sent.bytes, 7);
            let module = Some(here.module.unwrap_or(0) + 1);
            let namespace = Some(here.namespace.unwrap() + 1);
            for elsewhere in [
                Origin {
                    module,
                    ..here.clone()
                },
                Origin {
                    namespace,
                    ..here.clone()
                },
                Origin { boot: None, ..here },
            ] {
                assert!(load(path, &elsewhere).is_none(), "{elsewhere:?}");
            }
            // As an earlier release had it.
            store(path, &stats(7, 0, &[])).unwrap();
            assert!(load(path, &Origin::here()).is_none());
        });
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        in_folder("fifo", |path| {
            mkfifo(path, Mode::S_IRWXU).unwrap();
            assert!(load(path, &Origin::here()).is_none());
        });
    }

    #[test]
    fn nothing_is_left_of_what_cannot_be_stored() {
        in_folder("rest", |path| {
            // No text, as the name of a field has to be.
            let impossible = BTreeMap::from([([1, 2], 3)]);
            assert!(store(path, &impossible).is_err());
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        });
    }

    #[test]
    fn a_module_loaded_anew_has_no_reset() {
        assert!(difference(&stats(10, 0, &[]), &stats(100, 0, &[])).is_none());
    }
}
