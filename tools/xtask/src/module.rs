// SPDX-License-Identifier: GPL-2.0
//! `smc.ko` for one of the guests' kernels.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::kernel::Kernel;
use crate::run::{output, run};
use crate::toolchain::Toolchain;

/// Where a build's output goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// To the terminal, as it comes.
    All,
    /// Into the error, if there is one.
    Errors,
}

/// Builds the module; the Makefile knows how, also for a user's own kernel.
pub(crate) fn build(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    noise: Noise,
) -> Result<PathBuf> {
    let out = dirs.out(kernel.flavour.name());
    let mut cmd = tools.make();
    cmd.arg("-C")
        .arg(&dirs.repo)
        .arg("--no-print-directory")
        .arg("module");
    cmd.arg(format!("KDIR={}", kernel.dir.display()))
        .arg(format!("MO={}", out.display()));
    let built = match noise {
        Noise::All => run(&mut cmd),
        Noise::Errors => output(&mut cmd).map(drop),
    };
    built.with_context(|| format!("smc.ko for {} does not build", kernel.flavour.name()))?;
    let ko = out.join("smc.ko");
    ko.is_file()
        .then_some(())
        .with_context(|| format!("the build left no {}", ko.display()))?;
    Ok(ko)
}
