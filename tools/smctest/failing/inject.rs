// SPDX-License-Identifier: GPL-2.0

//! Fault injection into allocations (`Documentation/fault-injection`).

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;

use super::Arguments;

/// Fault injection into the allocations of objects or of pages.
pub(super) struct Injector {
    folder: &'static str,
    percent: u32,
    has_workers: bool,
}

const SLAB: &str = "/sys/kernel/debug/failslab";
const PAGES: &str = "/sys/kernel/debug/fail_page_alloc";
/// More than will fail; the kernel counts down.
const MANY: &str = "1000000000";
const MAKE_IT_FAIL: &str = "/proc/thread-self/make-it-fail";

impl Injector {
    pub(super) fn open(arguments: &Arguments) -> Result<Self> {
        let has_caches = arguments.everywhere || arguments.in_turn;
        let (folder, own) = match arguments.pages {
            true => (
                PAGES,
                [("min-order", "0"), ("ignore-gfp-highmem", "0")].as_slice(),
            ),
            false if has_caches => (SLAB, [("cache-filter", "1")].as_slice()),
            false => (SLAB, [("cache-filter", "0")].as_slice()),
        };
        let common = [
            ("probability", "0"),
            ("interval", "1"),
            ("times", MANY),
            ("space", "0"),
            ("verbose", "0"),
            ("ignore-gfp-wait", "0"),
            ("task-filter", if arguments.everywhere { "0" } else { "1" }),
        ];
        let injector = Self {
            folder,
            percent: arguments.percent,
            has_workers: arguments.workers,
        };
        for (name, value) in common.iter().chain(own) {
            injector.set(name, value)?;
        }
        if arguments.everywhere {
            choose_caches()?;
        }
        Ok(injector)
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let file = format!("{}/{name}", self.folder);
        fs::write(&file, value).with_context(|| format!("writing {file}"))
    }

    /// Runs `work` with fault injection.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _workers = self.has_workers.then(Workers::choose).transpose()?;
        // Opened and formatted before, since allocations of this task fail later.
        let open = |file: &str| File::options().write(true).open(file);
        let mut task = open(MAKE_IT_FAIL).context("make-it-fail")?;
        let mut probability = open(&format!("{}/probability", self.folder))?;
        let percent = self.percent.to_string();
        task.write_all(b"1").context("make-it-fail")?;
        probability.write_all(percent.as_bytes())?;
        let value = work();
        while probability.write_all(b"0").is_err() {}
        while task.write_all(b"0").is_err() {}
        Ok(value)
    }

    /// Returns how many allocations were made to fail since [`Self::open`].
    pub(super) fn count(&self) -> Result<u64> {
        Ok(MANY.parse::<u64>()? - self.left()?)
    }

    /// Returns how many may still be made to fail.
    fn left(&self) -> Result<u64> {
        let left = fs::read_to_string(format!("{}/times", self.folder))?;
        Ok(left.trim().parse()?)
    }

    /// Runs `work`; the `number`-th allocation (from 1) that a worker makes there fails.
    /// Also returns whether there were that many.
    pub(super) fn once<T>(
        &self,
        source: &Source,
        number: u64,
        work: impl FnOnce() -> T,
    ) -> Result<(T, bool)> {
        // The allocation fails when the remaining space is not larger than an object.
        self.set("space", &(number * source.size).to_string())?;
        self.set("times", "1")?;
        source.choose(true)?;
        self.set("probability", "100")?;
        let value = work();
        self.set("probability", "0")?;
        source.choose(false)?;
        Ok((value, self.left()? == 0))
    }
}

/// While this value exists, allocations of the kernel's workers may fail, also of workers created
/// later.
pub(super) struct Workers;

impl Workers {
    pub(super) fn choose() -> Result<Self> {
        Self::mark("1")?;
        Ok(Self)
    }

    fn mark(value: &str) -> Result<()> {
        for entry in fs::read_dir("/proc")?.flatten() {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            // All workers are created by kthreadd, and inherit the flag.
            if comm.starts_with("kworker/") || comm.trim() == "kthreadd" {
                // The thread may have exited meanwhile.
                let _ = fs::write(entry.path().join("make-it-fail"), value);
            }
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _ = Self::mark("0");
    }
}

/// Where allocations come from that are to fail one after the other.
pub(super) struct Source {
    /// The folder of a slab cache; `None` for pages.
    cache: Option<PathBuf>,
    /// How much an allocation counts, at least: bytes of an object, or a page.
    size: u64,
}

impl Source {
    pub(super) const PAGES: Self = Self {
        cache: None,
        size: 1,
    };

    /// Returns the general-purpose caches of small objects.
    pub(super) fn small() -> Result<Vec<Self>> {
        /// Maximum size of a small object, bytes.
        const SMALL: u64 = 256;
        let mut caches = Vec::new();
        for entry in fs::read_dir("/sys/kernel/slab")?.flatten() {
            let name = entry.file_name();
            let size = name.to_str().and_then(|name| name.strip_prefix("kmalloc-"));
            if size.is_some_and(|size| size.parse::<u64>().is_ok()) {
                let path = entry.path();
                let size = fs::read_to_string(path.join("object_size"))?;
                caches.push(Self {
                    cache: Some(path),
                    size: size.trim().parse()?,
                });
            }
        }
        caches.retain(|cache| cache.size <= SMALL);
        caches.sort_by_key(|cache| cache.size);
        Ok(caches)
    }

    pub(super) fn name(&self) -> String {
        let name = self.cache.as_deref().and_then(Path::file_name);
        name.map_or("pages".into(), OsStr::to_string_lossy)
            .into_owned()
    }

    /// Enables or disables faults for this cache; pages always have them.
    fn choose(&self, may_fail: bool) -> Result<()> {
        let Some(cache) = &self.cache else {
            return Ok(());
        };
        let file = cache.join("failslab");
        let value = if may_fail { "1" } else { "0" };
        fs::write(&file, value).with_context(|| format!("writing {}", file.display()))
    }
}

/// Enables faults for the caches that `--everywhere` covers.
fn choose_caches() -> Result<()> {
    let is_chosen = |name: &str| {
        let small = name
            .strip_prefix("kmalloc-")
            .is_some_and(|rest| !rest.contains("rcl"));
        small || matches!(name, "SMC" | "SMC6" | "TCP" | "TCPv6" | "sock_inode_cache")
    };
    for entry in fs::read_dir("/sys/kernel/slab")?.flatten() {
        if entry.file_name().to_str().is_some_and(is_chosen) {
            // Merged caches share one file; writing to the aliases fails.
            let _ = fs::write(entry.path().join("failslab"), "1");
        }
    }
    Ok(())
}
