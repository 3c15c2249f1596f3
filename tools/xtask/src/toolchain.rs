// SPDX-License-Identifier: GPL-2.0
//! The compilers a kernel and the module are built with. Both must be built with the same.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::run::{first_line, run};

/// The suffix of the LLVM programs, as the kernel's `LLVM=` takes it.
pub(crate) const LLVM: &str = "-19";
const LIBCLANG: &str = "/usr/lib/llvm-19/lib";
/// The series of bindgen that the supported kernels accept.
const BINDGEN: &str = "0.72";

/// Found compilers, and their versions in words.
pub(crate) struct Toolchain {
    rustc: PathBuf,
    bindgen: PathBuf,
    /// One line a tool, in a fixed order; part of what names a kernel build.
    pub(crate) versions: String,
}

impl Toolchain {
    /// Finds the tools; builds bindgen, which Debian does not have in a fitting version.
    pub(crate) fn find(dirs: &Dirs) -> Result<Self> {
        // A rustup compiler lacks the library source in the place where the kernel looks, and may
        // come first on PATH; so the distribution's is named by path.
        let rustc =
            env::var_os("SMC_RUSTC").map_or_else(|| PathBuf::from("/usr/bin/rustc"), PathBuf::from);
        let bindgen = bindgen(dirs)?;
        let clang = PathBuf::from(format!("clang{LLVM}"));
        let mut versions = String::new();
        for (tool, arg) in [(&rustc, "-V"), (&bindgen, "-V"), (&clang, "--version")] {
            let line = first_line(tool, arg).with_context(|| {
                format!(
                    "{} does not run; `cargo xtask setup` installs it",
                    tool.display()
                )
            })?;
            versions.push_str(&line);
            versions.push('\n');
        }
        Ok(Self {
            rustc,
            bindgen,
            versions,
        })
    }

    /// A `make` with these tools, which knows nothing of cargo's environment.
    pub(crate) fn make(&self) -> Command {
        let mut cmd = self.script(Path::new("make"));
        cmd.arg(format!("LLVM={LLVM}"))
            .arg(format!("RUSTC={}", self.rustc.display()));
        cmd
    }

    /// A program that calls `make` itself, with these tools on its path.
    pub(crate) fn script(&self, program: &Path) -> Command {
        let mut cmd = Command::new(program);
        let here = self.bindgen.parent().unwrap_or(Path::new("/usr/bin"));
        let path = env::var_os("PATH").unwrap_or_default();
        let all = [here.to_path_buf(), PathBuf::from("/usr/bin")]
            .into_iter()
            .chain(env::split_paths(&path));
        if let Ok(path) = env::join_paths(all) {
            cmd.env("PATH", path);
        }
        cmd.env("LIBCLANG_PATH", LIBCLANG)
            .env_remove("MAKEFLAGS")
            .env_remove("MFLAGS")
            .env_remove("MAKELEVEL")
            .env("RUSTC", &self.rustc);
        cmd
    }
}

fn bindgen(dirs: &Dirs) -> Result<PathBuf> {
    let root = dirs.cache.join("tools");
    let bindgen = root.join("bin/bindgen");
    let is_ours =
        |p: &Path| first_line(p, "-V").is_some_and(|v| v.contains(&format!(" {BINDGEN}.")));
    if is_ours(&bindgen) {
        return Ok(bindgen);
    }
    eprintln!("building bindgen {BINDGEN} (about two minutes, once)");
    run(Command::new("cargo")
        .args([
            "install",
            "--quiet",
            "--locked",
            "--force",
            "bindgen-cli",
            "--version",
            &format!("^{BINDGEN}"),
            "--root",
        ])
        .arg(&root))
    .context("bindgen comes from crates.io: is the package registry reachable?")?;
    Ok(bindgen)
}
