// SPDX-License-Identifier: GPL-2.0
//! Kernels for the guests: source, configuration, build. Each is built once per machine and kept in
//! the cache, with a stamp of everything that affects the build. Those of a distribution are taken as they are.

pub(crate) mod arm64;
mod build;
mod config;
mod debian;
mod source;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::dirs::Dirs;
use crate::run;
use crate::toolchain::Toolchain;

/// The kernels that tests ask for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Flavour {
    /// User-Mode Linux: a kernel as a process; for benchmarks and interactive use.
    Um,
    /// The same with KASAN, lockdep, kmemleak and fault injection; for the tests.
    UmDebug,
    /// As um-debug, without `CONFIG_SMC`, as most distributions build it: TCP itself knows nothing of the SMC option.
    UmNoSmc,
    /// User-Mode Linux of an older series, with its C module, as a peer.
    #[value(name = "um-6.12")]
    Um612,
    /// x86-64 for QEMU: real interrupts, BPF.
    #[value(name = "x86_64")]
    X86,
    /// The same with KCSAN, without `CONFIG_SMC`; for `make kcsan`.
    #[value(name = "x86_64-kcsan")]
    X86Kcsan,
    /// The same without a checker, with the C module and with debug information; for `make coverage`.
    #[value(name = "x86_64-coverage")]
    X86Coverage,
    /// x86_64 with more ways between programs of one machine; for `make bench`.
    #[value(name = "x86_64-same-host")]
    X86SameHost,
    /// arm64 for QEMU, with pages of 64 KiB; for `make arm64`.
    #[value(name = "arm64")]
    Arm64,
    /// Debian's own kernel for x86-64, unchanged, in QEMU.
    #[value(name = "debian-7.3")]
    Debian73,
    /// The same of the series before.
    #[value(name = "debian-7.2")]
    Debian72,
}

impl Flavour {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Um => "um",
            Self::UmDebug => "um-debug",
            Self::UmNoSmc => "um-no-smc",
            Self::Um612 => "um-6.12",
            Self::X86 => "x86_64",
            Self::X86Kcsan => "x86_64-kcsan",
            Self::X86Coverage => "x86_64-coverage",
            Self::X86SameHost => "x86_64-same-host",
            Self::Arm64 => "arm64",
            Self::Debian73 => "debian-7.3",
            Self::Debian72 => "debian-7.2",
        }
    }

    /// Returns the series of a kernel of Debian's; `None` for those that are built here.
    fn debian_series(self) -> Option<&'static str> {
        match self {
            Self::Um
            | Self::UmDebug
            | Self::UmNoSmc
            | Self::Um612
            | Self::X86
            | Self::X86Kcsan
            | Self::X86Coverage
            | Self::X86SameHost
            | Self::Arm64 => None,
            Self::Debian73 => Some("7.3"),
            Self::Debian72 => Some("7.2"),
        }
    }

    /// Returns the series of an older kernel, for which our module is not built; `None` for the others.
    fn older_series(self) -> Option<&'static str> {
        match self {
            Self::Um612 => Some("6.12"),
            _ => None,
        }
    }

    /// Whether our module is built for the kernel.
    pub(crate) fn takes_module(self) -> bool {
        self.older_series().is_none()
    }

    /// Whether the kernel is a distribution's.
    pub(crate) fn is_stock(self) -> bool {
        self.debian_series().is_some()
    }

    /// Whether scripts run on the kernel unless another is asked for.
    pub(crate) fn is_daily(self) -> bool {
        !matches!(
            self,
            Self::X86Kcsan | Self::X86Coverage | Self::X86SameHost | Self::Um612 | Self::Arm64
        )
    }

    /// Returns how many times as long as on others scripts may take.
    pub(crate) fn slowness(self) -> u32 {
        match self {
            Self::X86Kcsan | Self::Arm64 => 3,
            _ => 1,
        }
    }

    /// Whether guests can have a clock that counts instructions.
    pub(crate) fn counts_instructions(self) -> bool {
        !self.is_uml() && self != Self::Arm64
    }

    /// Whether the kernel is a process of this machine; else it needs QEMU.
    pub(crate) fn is_uml(self) -> bool {
        matches!(self, Self::Um | Self::UmDebug | Self::UmNoSmc | Self::Um612)
    }

    /// Returns the name of the architecture in the kernel's makefiles.
    fn arch(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            _ if self.is_uml() => "um",
            _ => "x86_64",
        }
    }

    /// Returns the configuration fragments in `tools/kernel`, in the order in which they apply.
    fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Um => &["base.config", "um.config"],
            Self::UmDebug => &["base.config", "um.config", "debug.config", "tests.config"],
            Self::UmNoSmc => &[
                "base.config",
                "um.config",
                "debug.config",
                "tests.config",
                "no-smc.config",
            ],
            Self::Um612 => &["base.config", "um.config", "tests.config", "c-peer.config"],
            Self::X86 => &["base.config", "qemu.config", "x86_64.config"],
            Self::X86SameHost => &[
                "base.config",
                "qemu.config",
                "x86_64.config",
                "same-host.config",
            ],
            Self::X86Kcsan => &[
                "base.config",
                "qemu.config",
                "tests.config",
                "no-smc.config",
                "kcsan.config",
            ],
            Self::X86Coverage => &[
                "base.config",
                "qemu.config",
                "tests.config",
                "coverage.config",
            ],
            Self::Arm64 => &["base.config", "tests.config", "arm64.config"],
            Self::Debian73 | Self::Debian72 => &[],
        }
    }

    /// Returns the flavour whose build differs least, if most of it need not be compiled again.
    fn sibling(self) -> Option<Self> {
        match self {
            Self::UmDebug => Some(Self::UmNoSmc),
            Self::UmNoSmc => Some(Self::UmDebug),
            Self::X86SameHost => Some(Self::X86),
            _ => None,
        }
    }

    /// Returns the path of the image, below the build directory.
    fn image(self) -> &'static str {
        match self {
            Self::Arm64 => "arch/arm64/boot/Image",
            _ if self.is_uml() => "linux",
            _ => "arch/x86/boot/bzImage",
        }
    }

    /// Returns the number of lines that a full build prints, for estimates.
    fn steps(self) -> usize {
        match self {
            Self::Um | Self::Um612 => 1550,
            Self::UmDebug | Self::UmNoSmc => 1770,
            Self::X86 | Self::X86SameHost => 1820,
            Self::X86Kcsan | Self::X86Coverage => 1900,
            Self::Arm64 => 2050,
            Self::Debian73 | Self::Debian72 => 0,
        }
    }
}

/// A finished kernel build.
pub(crate) struct Kernel {
    pub(crate) flavour: Flavour,
    /// The build directory, against which modules are built.
    pub(crate) dir: PathBuf,
    /// The program or image to boot.
    pub(crate) image: PathBuf,
    /// Where the kernel's modules are, each in a folder as that of its source.
    pub(crate) modules: PathBuf,
    /// What differs for a kernel of a distribution.
    pub(crate) stock: Option<Stock>,
    /// The root of guests that cannot run this machine's programs.
    pub(crate) root: Option<PathBuf>,
}

/// A kernel of a distribution.
pub(crate) struct Stock {
    /// What the kernel needs before it can mount the guest's root.
    pub(crate) initrd: PathBuf,
    /// The distribution's root with the compilers of the kernel.
    root: PathBuf,
}

/// In the build directory: a hash of all that affects the build.
const STAMP: &str = ".smc-stamp";

impl Kernel {
    /// Returns the path of the stamp of the build.
    pub(crate) fn stamp(&self) -> PathBuf {
        self.dir.join(STAMP)
    }

    /// Whether the C module was built with the kernel.
    pub(crate) fn has_c_module(&self) -> bool {
        self.stock.is_none() && !matches!(self.flavour, Flavour::UmNoSmc | Flavour::X86Kcsan)
    }

    /// Returns a command that builds something for the kernel, with its compilers.
    pub(crate) fn builder(&self, dirs: &Dirs, tools: &Toolchain, program: &Path) -> Command {
        match &self.stock {
            None => tools.script(program),
            Some(stock) => {
                let mut cmd = debian::in_root(dirs, &stock.root);
                cmd.arg(program);
                cmd
            }
        }
    }
}

/// Options for obtaining a kernel.
pub(crate) struct KernelOptions<'a> {
    /// The series, such as `7.3`; the newest patch level is used.
    pub(crate) series: &'a str,
    /// Parallel jobs; by default one more than processors, since one of them waits for I/O.
    pub(crate) jobs: usize,
    /// Whether to look for a newer patch level even if one is present.
    pub(crate) update: bool,
    /// Whether to accept a finished build without a stamp.
    pub(crate) adopt: bool,
}

impl Default for KernelOptions<'_> {
    fn default() -> Self {
        Self {
            series: "7.3",
            jobs: run::processors() + 1,
            update: false,
            adopt: false,
        }
    }
}

/// Returns whether this kernel was built here before, by whatever version of this program.
pub(crate) fn was_built(dirs: &Dirs, flavour: Flavour, series: &str) -> bool {
    let prefix = format!("{}-{series}.", flavour.name());
    let builds = std::fs::read_dir(dirs.cache.join("kernels"));
    builds.into_iter().flatten().flatten().any(|build| {
        build.file_name().to_string_lossy().starts_with(&prefix)
            && build.path().join(STAMP).exists()
    })
}

/// Returns the kernel; builds it unless it is in the cache.
pub(crate) fn ensure(
    dirs: &Dirs,
    tools: &Toolchain,
    flavour: Flavour,
    options: &KernelOptions<'_>,
) -> Result<Kernel> {
    if let Some(series) = flavour.debian_series() {
        return debian::ensure(dirs, flavour, series, options.update);
    }
    let source = match flavour.older_series() {
        Some(series) => source::older(dirs, series, options.update)?,
        None => source::ensure(dirs, options.series, options.update)?,
    };
    let wanted = config::RequiredOptions::read(dirs, flavour)?;
    let dir_of = |flavour: Flavour| {
        let name = format!("{}-{}", flavour.name(), source.version);
        dirs.cache.join("kernels").join(name)
    };
    let dir = dir_of(flavour);
    let build = build::Build {
        flavour,
        tools,
        source: &source,
        wanted: &wanted,
        dir: &dir,
        sibling: flavour.sibling().map(dir_of),
    };
    build.ensure(options)?;
    Ok(Kernel {
        flavour,
        image: dir.join(flavour.image()),
        modules: dir.clone(),
        dir,
        stock: None,
        root: match flavour {
            Flavour::Arm64 => Some(arm64::root(dirs, options.update)?),
            _ => None,
        },
    })
}
