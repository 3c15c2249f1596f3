// SPDX-License-Identifier: GPL-2.0
//! Builds `smc.ko` for one of the guests' kernels, and patched modules of the kernel for tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::guests::{Extra, Topology};
use crate::kernel::Kernel;
use crate::run::{lock, output, run};
use crate::toolchain::Toolchain;

/// Destination of a build's output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// The terminal.
    All,
    /// The error message, if the build fails.
    Errors,
}

/// Builds the module with the Makefile, which also supports a user's own kernel.
pub(crate) fn build(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    verbosity: Verbosity,
) -> Result<PathBuf> {
    let out = out_for(dirs, kernel)?;
    let mut cmd = match kernel.stock {
        None => tools.make(),
        Some(_) => kernel.builder(dirs, tools, Path::new("make")),
    };
    cmd.arg("-C")
        .arg(&dirs.repo)
        .arg("--no-print-directory")
        .arg("module");
    cmd.arg(format!("KDIR={}", kernel.dir.display()))
        .arg(format!("MO={}", out.display()));
    let built = match verbosity {
        Verbosity::All => run(&mut cmd),
        Verbosity::Errors => output(&mut cmd).map(drop),
    };
    built.with_context(|| format!("smc.ko for {} does not build", kernel.flavour.name()))?;
    let ko = out.join("smc.ko");
    ko.is_file()
        .then_some(())
        .with_context(|| format!("the build left no {}", ko.display()))?;
    Ok(ko)
}

/// Returns the directory of what is built for a kernel, which is emptied if that was for another build of it: make
/// compares times only, so it would keep objects that are newer than a kernel which came from elsewhere.
fn out_for(dirs: &Dirs, kernel: &Kernel) -> Result<PathBuf> {
    let out = dirs.out(kernel.flavour.name());
    let built_for = out.join(".kernel");
    let stamp = fs::read_to_string(kernel.stamp())
        .with_context(|| format!("{} has no stamp", kernel.dir.display()))?;
    let id = format!("{}\n{stamp}", kernel.dir.display());
    if fs::read_to_string(&built_for).ok().as_deref() != Some(id.as_str()) {
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
        }
        fs::create_dir_all(&out)?;
        fs::write(&built_for, id)?;
    }
    Ok(out)
}

/// A module of the kernel that is patched for tests.
struct Variant {
    /// The name of the patch, and of the build directory.
    name: &'static str,
    /// Its directory in the kernel source.
    folder: &'static str,
    ko: &'static str,
    /// The environment variable that contains its path for scripts.
    env: &'static str,
}

const OLD_PEER: Variant = Variant {
    name: "old-peer",
    folder: "net/smc",
    ko: "smc.ko",
    env: "OLD_C_SMC_KO",
};

const SOFT_ROCE: Variant = Variant {
    name: "soft-roce",
    folder: "drivers/infiniband/sw/rxe",
    ko: "rdma_rxe.ko",
    env: "FINITE_RXE_KO",
};

const ROCE_V1: Variant = Variant {
    name: "soft-roce-v1",
    folder: "drivers/infiniband/sw/rxe",
    ko: "rdma_rxe.ko",
    env: "ROCE_V1_RXE_KO",
};

const ROCE_LIMITS: Variant = Variant {
    name: "soft-roce-limits",
    folder: "drivers/infiniband/sw/rxe",
    ko: "rdma_rxe.ko",
    env: "ROCE_LIMITS_RXE_KO",
};

const ROCE_TWO_PORTS: Variant = Variant {
    name: "soft-roce-two-ports",
    folder: "drivers/infiniband/sw/rxe",
    ko: "rdma_rxe.ko",
    env: "ROCE_TWO_PORTS_RXE_KO",
};

const NO_CHECKSUMS: Variant = Variant {
    name: "soft-roce-no-checksums",
    folder: "drivers/infiniband/sw/rxe",
    ko: "rdma_rxe.ko",
    env: "RXE_KO",
};

/// Builds soft RoCE without checksums of packets; returns its path.
pub(crate) fn rxe_without_checksums(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
) -> Result<String> {
    build_variant(dirs, tools, kernel, &NO_CHECKSUMS)
}

/// Returns the environment for a script with these guests: pairs with the C module need further
/// modules, which are built here and kept with the kernel.
pub(crate) fn peers(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    topology: Topology,
) -> Result<Vec<(String, String)>> {
    if !topology.has_c_module() {
        return Ok(Vec::new());
    }
    let variants = [OLD_PEER, SOFT_ROCE];
    let built = variants.map(|variant| {
        let ko = build_variant(dirs, tools, kernel, &variant)?;
        Ok((variant.env.to_owned(), ko))
    });
    built.into_iter().collect()
}

/// Makes what scripts need beside our module, which must have been built before. Returns the environment for them.
pub(crate) fn extra(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    extra: Extra,
) -> Result<Vec<(String, String)>> {
    match extra {
        Extra::Bounced => wrapped(
            dirs,
            tools,
            kernel,
            "dma_bounce",
            ["DMA_BOUNCE_KO", "BOUNCED_SMC_KO"],
        ),
        Extra::Verbs => wrapped(
            dirs,
            tools,
            kernel,
            "verb_faults",
            ["VERB_FAULTS_KO", "FAULTY_SMC_KO"],
        ),
        Extra::RaceDelays => wrapped(
            dirs,
            tools,
            kernel,
            "race_delays",
            ["RACE_DELAYS_KO", "DELAYED_SMC_KO"],
        ),
        Extra::Installed => installed(dirs, tools, kernel),
        Extra::RoceV1 => soft_roce(dirs, tools, kernel, &ROCE_V1),
        Extra::RoceLimits => soft_roce(dirs, tools, kernel, &ROCE_LIMITS),
        Extra::RoceTwoPorts => soft_roce(dirs, tools, kernel, &ROCE_TWO_PORTS),
        Extra::Tests(suite) => Ok(path_in("SUITE", &suite.prepare(dirs, kernel)?)),
    }
}

/// Builds a variant of soft RoCE.
fn soft_roce(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    variant: &Variant,
) -> Result<Vec<(String, String)>> {
    let ko = build_variant(dirs, tools, kernel, variant)?;
    Ok(vec![(variant.env.to_owned(), ko)])
}

/// Installs the module below folders of their own.
fn installed(dirs: &Dirs, tools: &Toolchain, kernel: &Kernel) -> Result<Vec<(String, String)>> {
    let mo = out_for(dirs, kernel)?;
    let out = mo.join("installed");
    let mut cmd = tools.script(&dirs.repo.join("tools/kernel/scratch-install"));
    cmd.arg(&kernel.dir).arg(&mo).arg(&out);
    output(&mut cmd).context("the module cannot be installed")?;
    Ok(path_in("INSTALLED", &out))
}

/// Returns an environment of one variable.
fn path_in(variable: &str, path: &Path) -> Vec<(String, String)> {
    vec![(variable.to_owned(), path.to_string_lossy().into_owned())]
}

/// Builds a module that wraps functions of the kernel, and ours linked to it: see `tools/kernel/wrapped`. `env` names
/// the variables for the two.
fn wrapped(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    name: &str,
    env: [&str; 2],
) -> Result<Vec<(String, String)>> {
    let mo = out_for(dirs, kernel)?;
    let out = mo.join(name);
    let mut cmd = tools.script(&dirs.repo.join("tools/kernel/wrapped/build"));
    cmd.arg(name).arg(&kernel.dir).arg(&mo).arg(&out);
    output(&mut cmd).with_context(|| format!("the module with {name} does not build"))?;
    let built = [format!("{name}.ko"), "smc.ko".to_owned()];
    let at = |name: &String| out.join(name).to_string_lossy().into_owned();
    let paths = built.iter().map(at);
    Ok(env.into_iter().map(str::to_owned).zip(paths).collect())
}

/// Builds the module with planted faults; returns its path.
pub(crate) fn planted(dirs: &Dirs, tools: &Toolchain, kernel: &Kernel) -> Result<String> {
    let out = out_for(dirs, kernel)?.join("planted");
    let source = dirs.repo.join("tools/xtask/guest/planted");
    let mut cmd = kernel.builder(dirs, tools, Path::new("env"));
    cmd.arg(format!("MODULE_DIR={}", source.display()))
        .arg(dirs.repo.join("tools/kernel/kbuild"))
        .arg(&kernel.dir)
        .arg(&out)
        .arg("modules");
    output(&mut cmd).context("the module with planted faults does not build")?;
    Ok(out.join("planted.ko").to_string_lossy().into_owned())
}

fn build_variant(
    dirs: &Dirs,
    tools: &Toolchain,
    kernel: &Kernel,
    variant: &Variant,
) -> Result<String> {
    let dir = kernel.dir.join(variant.name);
    let file = format!("{}.lock", variant.name);
    let _lock = lock(&kernel.dir.join(file), "build of a module for tests")?;
    let mut cmd = tools.script(&dirs.repo.join("tools/kernel/variant"));
    cmd.arg(variant.name).arg(&kernel.dir);
    cmd.arg(variant.folder).arg(&dir);
    output(&mut cmd).with_context(|| format!("{} does not build", variant.name))?;
    Ok(dir.join(variant.ko).to_string_lossy().into_owned())
}

#[cfg(test)]
mod kit_tests;
#[cfg(test)]
mod symbol_tests;

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Creates a kernel build directory with this configuration; returns the result of the check.
    fn check(name: &str, config: &[&str], built: bool) -> (bool, String) {
        let dir = std::env::temp_dir().join(format!("xtask-kdir-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        check_in(&dir, config, built)
    }

    /// The same in a directory that exists, which is removed.
    fn check_in(dir: &Path, config: &[&str], built: bool) -> (bool, String) {
        fs::write(dir.join(".config"), config.join("\n") + "\n").unwrap();
        if built {
            fs::write(dir.join("Module.symvers"), "").unwrap();
        }
        let said = run(dir);
        fs::remove_dir_all(dir).unwrap();
        said
    }

    fn run(kdir: &Path) -> (bool, String) {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../kernel/check-kdir");
        let out = Command::new(script)
            .arg(kdir)
            .env("RUSTC", "rustc")
            .output()
            .unwrap();
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    }

    #[test]
    fn a_kernel_that_does_not_fit_is_refused_with_the_reason() {
        let fits = [
            "CONFIG_MODULES=y",
            "CONFIG_RUST=y",
            "CONFIG_SMC=m",
            "CONFIG_INFINIBAND=m",
        ];
        for (name, config, built, reason) in [
            (
                "rust",
                &["CONFIG_MODULES=y", "CONFIG_SMC=m"][..],
                true,
                "CONFIG_RUST=y",
            ),
            (
                "modules",
                &["CONFIG_RUST=y", "CONFIG_SMC=m"],
                true,
                "CONFIG_MODULES",
            ),
            (
                "no-smc",
                &["CONFIG_MODULES=y", "CONFIG_RUST=y"],
                true,
                "nor netfilter",
            ),
            (
                "no-rdma",
                &["CONFIG_MODULES=y", "CONFIG_RUST=y", "CONFIG_NETFILTER=y"],
                true,
                "CONFIG_INFINIBAND",
            ),
            (
                "built-in",
                &["CONFIG_MODULES=y", "CONFIG_RUST=y", "CONFIG_SMC=y"],
                true,
                "built in",
            ),
            ("unbuilt", &fits, false, "Module.symvers"),
            ("rustc", &fits, true, "the very same compiler"),
        ] {
            let (fine, said) = check(name, config, built);
            assert!(!fine && said.contains(reason), "{name}: {said}");
        }
        let (fine, said) = run(Path::new("/nonexistent"));
        assert!(!fine && said.contains("no kernel build folder"), "{said}");
    }

    /// Runs `rust-kit` for headers with these files; returns what it prints, and what it says.
    fn kit(name: &str, files: &[(&str, &str)]) -> (String, String) {
        let dir = std::env::temp_dir().join(format!("xtask-kit-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let out = Command::new(tree.join("tools/kernel/rust-kit"))
            .args([&dir, &dir.join("cache")])
            .env_remove("LINUX_SOURCE")
            .output()
            .unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let printed = text(out.stdout).replace(dir.to_str().unwrap(), "KDIR");
        assert_eq!(out.status.success(), !printed.is_empty());
        (printed, text(out.stderr))
    }

    #[test]
    fn headers_with_rust_metadata_are_used_as_they_are() {
        let (printed, said) = kit("with", &[("rust/libkernel.rmeta", "")]);
        assert_eq!((printed.as_str(), said.as_str()), ("KDIR\n", ""));
    }

    #[test]
    fn headers_without_rust_metadata_need_their_source() {
        let release = ("include/config/kernel.release", "7.3.4-none\n");
        let (printed, said) = kit("without", &[(".config", "CONFIG_RUST=y\n"), release]);
        assert!(
            printed.is_empty() && said.contains("LINUX_SOURCE="),
            "{said}"
        );
        let (printed, said) = kit("unknown", &[(".config", "CONFIG_RUST=y\n")]);
        assert!(
            printed.is_empty() && said.contains("which kernel they are of"),
            "{said}"
        );
    }

    /// Returns the `cfg`s that `Kbuild` derives from a kernel source with these lines in the files that it looks into.
    fn probed(name: &str, files: &[(&str, &str)]) -> String {
        let dir = std::env::temp_dir().join(format!("xtask-probe-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = dir.join("rust/kernel").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kbuild = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rust/kernel/Kbuild");
        let rules = format!(
            ".PHONY: cfgs\ncfgs:\n\t@echo $(sort $(smc-kernel-has))\n\ninclude {}\n",
            kbuild.display()
        );
        fs::write(dir.join("Makefile"), rules).unwrap();
        let out = Command::new("make")
            .args(["--silent", "--no-print-directory", "-C"])
            .arg(&dir)
            .args(["srctree=.", "obj=none"])
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// Lines of Linux 7.2 and 7.3. That the answers are right for the whole of them is shown by each build: it fails
    /// with a wrong one.
    #[test]
    fn what_a_series_lacks_is_found_in_its_source() {
        let old = probed(
            "old",
            &[
                (
                    "error.rs",
                    "    declare_err!(ETIMEDOUT, \"Connection timed out.\");\n",
                ),
                ("sync/barrier.rs", "pub fn smp_mb() {\npub fn smp_rmb() {\n"),
                ("sync/rcu.rs", "pub fn read_lock() -> Guard {\n"),
            ],
        );
        assert_eq!(old, "");
        let new = probed(
            "new",
            &[
                (
                    "error.rs",
                    "    declare_err!(ENOTCONN, \"Transport endpoint is not connected.\");\n",
                ),
                ("sync/barrier.rs", "    pub struct Read;\n"),
                ("sync/rcu.rs", "pub fn synchronize_rcu() {\n"),
            ],
        );
        for name in ["socket_errnos", "synchronize_rcu", "typed_barriers"] {
            let cfg = format!("kernel_has=\"{name}\"");
            assert!(new.contains(&cfg), "{new} lacks {cfg}");
        }
        // A fix that a stable kernel took over.
        let mixed = probed("mixed", &[("sync/rcu.rs", "pub fn synchronize_rcu() {\n")]);
        assert_eq!(mixed, "--cfg kernel_has=\"synchronize_rcu\"");
    }

    #[test]
    fn a_series_that_is_too_old_is_refused() {
        let rules = |crates: &str| format!("rust_common_cmd = $(RUSTC) \\\n\t{crates} \\\n");
        let old = rules("--extern pin_init --extern kernel");
        let new = rules("--extern zerocopy --extern zerocopy_derive");
        // In the build folder, or in that of the source.
        for place in ["scripts", "source/scripts"] {
            for (rules, is_old) in [(&old, true), (&new, false)] {
                let dir = std::env::temp_dir().join(format!("xtask-old-{}", std::process::id()));
                fs::create_dir_all(dir.join(place)).unwrap();
                fs::write(dir.join(place).join("Makefile.build"), rules).unwrap();
                let (fine, said) = check_in(&dir, &["CONFIG_MODULES=y", "CONFIG_RUST=y"], true);
                assert!(!fine);
                assert_eq!(said.contains("too old"), is_old, "{place}: {said}");
                assert_eq!(said.contains("Linux 7.2 or a later one"), is_old, "{said}");
            }
        }
    }

    /// Creates a machine without anything but the programs that the scripts themselves need, and compilers that say
    /// what the configuration of Debian's kernel says. Returns the directory of its programs.
    fn bare_machine(dir: &Path, c_text: &str, rust_text: &str) -> PathBuf {
        use std::os::unix::fs::symlink;

        let bin = dir.join("bin");
        fs::create_dir_all(&bin).unwrap();
        for name in [
            "sh",
            "cat",
            "cut",
            "dirname",
            "env",
            "grep",
            "head",
            "ls",
            "readlink",
            "sed",
            "sha256sum",
        ] {
            symlink(Path::new("/usr/bin").join(name), bin.join(name)).unwrap();
        }
        // The package that a file is of, then its version; none has the source.
        let dpkg_query =
            "case $1 in -S) [ \"${2%.config}\" != \"$2\" ] && echo \"linux-headers-7.3.4: $2\";; \
                          -W) echo linux-headers-7.3.4 7.3.4-1;; esac";
        // It has the headers of the C library only.
        let gcc = format!("[ \"$1\" = -E ] && exec grep -q stdio.h\necho '{c_text}'");
        let rustc = format!(
            "case $1 in --print) echo {0};; *) echo '{rust_text}';; esac",
            dir.display()
        );
        for (name, text) in [
            ("dpkg-query", dpkg_query),
            ("apt-get", "false"),
            ("gcc-14", &gcc),
            ("rustc", &rustc),
        ] {
            script(&bin.join(name), text);
        }
        bin
    }

    pub(crate) fn script(path: &Path, text: &str) {
        use std::os::unix::fs::PermissionsExt;

        fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn all_that_is_missing_for_rust_metadata_is_named_at_once() {
        let dir = std::env::temp_dir().join(format!("xtask-bare-{}", std::process::id()));
        let bin = bare_machine(&dir, "gcc-14 (Debian) 14.2.0", "rustc 9.9.9 (none)");
        let config = "CONFIG_MODULES=y\nCONFIG_RUST=y\nCONFIG_NETFILTER=y\nCONFIG_INFINIBAND=m\n\
                      CONFIG_CC_VERSION_TEXT=\"x86_64-linux-gnu-gcc-14 (Debian) 14.2.0\"\n\
                      CONFIG_GCC_VERSION=140200\nCONFIG_RUSTC_VERSION_TEXT=\"rustc 9.9.9 (none)\"\n";
        let kdir = dir.join("kdir");
        fs::create_dir_all(kdir.join("include/config")).unwrap();
        fs::write(kdir.join(".config"), config).unwrap();
        fs::write(kdir.join("Module.symvers"), "").unwrap();
        fs::write(kdir.join("include/config/kernel.release"), "7.3.4-amd64\n").unwrap();
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel");
        let said = |script: &str, option: Option<&str>| {
            let out = Command::new(tools.join(script))
                .args(option)
                .args([&kdir, &dir.join("cache")])
                .env_clear()
                .env("PATH", &bin)
                .output()
                .unwrap();
            assert!(!out.status.success() && out.stdout.is_empty(), "{script}");
            String::from_utf8(out.stderr).unwrap()
        };

        let rest = "bindgen flex bison bc pahole python3 make xz-utils libelf-dev libssl-dev";
        let install =
            format!("\nas root:\n  apt install linux-source-7.3=7.3.4-1 rust-src {rest}\n");
        let making = said("rust-kit", None);
        assert!(making.ends_with(&install), "{making}");
        assert!(making.contains("  the header openssl/evp.h\n"), "{making}");
        assert_eq!(said("rust-kit", Some("--check")), making);
        // Without a compiler, too, which is looked for before. The newest one of apt is not the kernel's.
        fs::remove_file(bin.join("rustc")).unwrap();
        let versions = "[ $1 = madison ] || exit; \
                        for v in 9.9.90+x 9.9.9+deb1 9.8.9; do echo \" rustc | $v | http://mirror\"; done";
        script(&bin.join("apt-cache"), versions);
        let exact = "rustc=9.9.9+deb1 libstd-rust-dev=9.9.9+deb1 rust-src=9.9.9+deb1";
        let all = install.replace("rust-src", exact);
        let checked = said("check-kdir", None);
        assert!(checked.ends_with(&all), "{checked}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_kernel_that_fits_is_taken() {
        let version = Command::new("rustc").arg("-V").output().unwrap().stdout;
        let version = String::from_utf8(version).unwrap();
        let text = format!("CONFIG_RUSTC_VERSION_TEXT=\"{}\"", version.trim());
        for way in ["CONFIG_SMC=m", "CONFIG_NETFILTER=y"] {
            let config = [
                "CONFIG_MODULES=y",
                "CONFIG_RUST=y",
                "CONFIG_INFINIBAND=m",
                way,
                &text,
            ];
            let (fine, said) = check("fits", &config, true);
            assert!(fine, "{said}");
        }
    }
}
