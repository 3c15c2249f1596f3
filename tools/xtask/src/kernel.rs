// SPDX-License-Identifier: GPL-2.0
//! Kernels for the guests: source, configuration, build. Each is built once a machine and kept in
//! the cache, under a stamp of all that went into it.

mod build;
mod config;
mod source;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::dirs::Dirs;
use crate::run;
use crate::toolchain::Toolchain;

/// The kernels that tests ask for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Flavour {
    /// User-Mode Linux: a kernel as a process; for figures and for daily work.
    Um,
    /// The same with KASAN, lockdep, kmemleak and fault injection; for the tests.
    UmDebug,
    /// x86-64 for QEMU: real interrupts, BPF.
    #[value(name = "x86_64")]
    X86,
}

impl Flavour {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Um => "um",
            Self::UmDebug => "um-debug",
            Self::X86 => "x86_64",
        }
    }

    /// As the kernel's makefiles call the architecture.
    fn arch(self) -> &'static str {
        match self {
            Self::Um | Self::UmDebug => "um",
            Self::X86 => "x86_64",
        }
    }

    /// The configuration fragments in `tools/kernel`, in the order in which they apply.
    fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Um => &["base.config", "um.config"],
            Self::UmDebug => &["base.config", "um.config", "debug.config"],
            Self::X86 => &["base.config", "x86_64.config"],
        }
    }

    /// What to boot, below the build folder.
    fn image(self) -> &'static str {
        match self {
            Self::Um | Self::UmDebug => "linux",
            Self::X86 => "arch/x86/boot/bzImage",
        }
    }

    /// Lines that a full build prints, for the estimate.
    fn steps(self) -> usize {
        match self {
            Self::Um => 1550,
            Self::UmDebug => 1770,
            Self::X86 => 1820,
        }
    }
}

/// A finished kernel build.
pub(crate) struct Kernel {
    pub(crate) flavour: Flavour,
    /// The build folder, which modules are built against and loaded from.
    pub(crate) dir: PathBuf,
    /// The program or image to boot.
    pub(crate) image: PathBuf,
}

/// How a kernel is wanted.
pub(crate) struct Order<'a> {
    /// The series, such as `7.3`; its newest patch level is taken.
    pub(crate) series: &'a str,
    /// Parallel compilers; by default one more than processors, as one of them waits for the disk.
    pub(crate) jobs: usize,
    /// Whether to look for a newer patch level though one is here already.
    pub(crate) update: bool,
    /// Whether to take a finished build without a stamp for what it should be.
    pub(crate) adopt: bool,
}

impl Default for Order<'_> {
    fn default() -> Self {
        Self {
            series: "7.3",
            jobs: run::processors() + 1,
            update: false,
            adopt: false,
        }
    }
}

/// Returns the kernel, built now if the cache does not have it.
pub(crate) fn ensure(
    dirs: &Dirs,
    tools: &Toolchain,
    flavour: Flavour,
    order: &Order<'_>,
) -> Result<Kernel> {
    let source = source::ensure(dirs, order.series, order.update)?;
    let wanted = config::Wanted::read(dirs, flavour)?;
    let dir = dirs
        .cache
        .join("kernels")
        .join(format!("{}-{}", flavour.name(), source.version));
    let build = build::Build {
        flavour,
        tools,
        source: &source,
        wanted: &wanted,
        dir: &dir,
    };
    build.ensure(order)?;
    Ok(Kernel {
        flavour,
        image: dir.join(flavour.image()),
        dir,
    })
}
