// SPDX-License-Identifier: GPL-2.0
//! The compilers for kernels and the module, which must be built with the same.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::kernel::Flavour;
use crate::run::{first_line, run};

/// The version suffix of the LLVM programs, as in the kernel's `LLVM=`.
pub(crate) const LLVM: &str = "-19";
const LIBCLANG: &str = "/usr/lib/llvm-19/lib";
/// The series of bindgen that the supported kernels accept.
const BINDGEN: &str = "0.72";

/// This machine's compilers, and their versions.
pub(crate) struct Toolchain {
    /// `None` if no kernel needs them: Debian's own come with theirs.
    compilers: Option<Compilers>,
    /// One line per tool, in a fixed order; part of the stamp of a kernel build.
    pub(crate) versions: String,
}

struct Compilers {
    rustc: PathBuf,
    bindgen: PathBuf,
}

impl Toolchain {
    /// Finds what this kernel and modules for it are built with.
    pub(crate) fn of(dirs: &Dirs, flavour: Flavour) -> Result<Self> {
        match flavour.is_stock() {
            true => Ok(Self {
                compilers: None,
                versions: String::new(),
            }),
            false => Self::find(dirs),
        }
    }

    /// Finds the tools; builds bindgen, since Debian does not have a suitable version.
    pub(crate) fn find(dirs: &Dirs) -> Result<Self> {
        // A rustup compiler, which may come first in PATH, lacks the library source where the
        // kernel expects it. Therefore the distribution's compiler is used by its path.
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
            compilers: Some(Compilers { rustc, bindgen }),
            versions,
        })
    }

    /// Returns a `make` command with these tools, without cargo's environment.
    pub(crate) fn make(&self) -> Command {
        let mut cmd = self.script(Path::new("make"));
        if let Some(compilers) = &self.compilers {
            cmd.arg(format!("LLVM={LLVM}"))
                .arg(format!("RUSTC={}", compilers.rustc.display()));
        }
        cmd
    }

    /// Returns a command that calls `make` itself, with these tools in its PATH.
    pub(crate) fn script(&self, program: &Path) -> Command {
        let mut cmd = Command::new(program);
        let Some(compilers) = &self.compilers else {
            return cmd;
        };
        let here = compilers.bindgen.parent().unwrap_or(Path::new("/usr/bin"));
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
            .env("RUSTC", &compilers.rustc);
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
