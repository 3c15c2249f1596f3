// SPDX-License-Identifier: GPL-2.0
//! Directories: the checkout, its `out/`, and the cache that checkouts share.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directories that every command uses.
pub(crate) struct Dirs {
    /// The top of the checkout.
    pub(crate) repo: PathBuf,
    /// What takes long to build and is the same for all checkouts: kernels, their source, bindgen.
    pub(crate) cache: PathBuf,
}

impl Dirs {
    /// Finds the checkout from the current directory, and the cache from the environment.
    pub(crate) fn find() -> Result<Self> {
        let here = env::current_dir().context("cannot tell the current folder")?;
        let repo = here
            .ancestors()
            .find(|d| d.join("tools/xtask/Cargo.toml").is_file())
            .context("not inside a checkout: no tools/xtask above the current folder")?
            .to_path_buf();
        Ok(Self {
            repo,
            cache: cache()?,
        })
    }

    /// Returns a path below the output directory of this checkout.
    pub(crate) fn out(&self, below: &str) -> PathBuf {
        self.repo.join("out").join(below)
    }

    /// Returns the directory for the serial logs of guests.
    pub(crate) fn logs(&self) -> PathBuf {
        self.out("logs")
    }

    /// Returns a path relative to the top of the checkout.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.repo).unwrap_or(path)
    }
}

fn cache() -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("SMC_CACHE") {
        return Ok(dir);
    }
    if let Some(dir) = set("XDG_CACHE_HOME") {
        return Ok(dir.join("smc-rs"));
    }
    let home =
        set("HOME").context("neither SMC_CACHE nor HOME is set: where should kernels be kept?")?;
    Ok(home.join(".cache/smc-rs"))
}
