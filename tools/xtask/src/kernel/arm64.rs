// SPDX-License-Identifier: GPL-2.0
//! The user space of arm64 guests: programs of this machine's release, unpacked below the cache, and ours, for which
//! the same release has the libraries. Nothing of it is installed, and nothing of it runs on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::dirs::Dirs;
use crate::run::{lock, output, run};
use crate::toolchain::LLVM;

/// Debian's name of the architecture, and Rust's of programs for it.
const DEBIAN: &str = "arm64";
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// What guest scripts call, and what our programs are linked with.
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "bsdextrautils",
    "coreutils",
    "dash",
    "diffutils",
    "ethtool",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "ibverbs-providers",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libc-bin",
    "libc6-dev",
    "libelf-dev",
    "libgcc-12-dev",
    "mawk",
    "mount",
    "nftables",
    "perl-base",
    "procps",
    "python3",
    "rdma-core",
    "sed",
    "util-linux",
    "zlib1g-dev",
];

/// The guest's first program, with the checkout, the cache and a program as arguments: the files of this machine are
/// below `/host`, and those two also where they are on this machine.
const INIT: &str = "#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose files /host
for dir in \"$1\" \"$2\"; do mount --bind \"/host$dir\" \"$dir\"; done
shift 2
exec \"$@\"
";

/// Folders that are made when packages are installed, and where something is mounted.
const FOLDERS: &[&str] = &[
    "dev", "host", "mnt", "proc", "root", "run", "sys", "tmp", "var/tmp",
];

/// Where [`INIT`] is in the root.
pub(crate) const INIT_PATH: &str = "/smc-init";

/// Returns the root of guests; makes it if it is not in the cache, or for an update.
pub(super) fn root(dirs: &Dirs, update: bool) -> Result<PathBuf> {
    let cache = dirs.cache.join("arm64");
    fs::create_dir_all(&cache)?;
    let _lock = lock(&cache.join("lock"), "programs for arm64")?;
    let root = cache.join("root");
    let std = rust_std()?;
    let made_of = format!(
        "{} {std} {} {}\n{INIT}",
        apt::codename(),
        PACKAGES.join(" "),
        FOLDERS.join(" ")
    );
    let stamp = root.join(".made-of");
    if update || fs::read_to_string(&stamp).ok().as_deref() != Some(&made_of) {
        eprintln!("programs for arm64: fetching them (200 MB, once)");
        let apt = Apt::of_architecture(&cache.join("apt"), DEBIAN)?;
        let packages: Vec<&str> = PACKAGES.iter().copied().chain([std.as_str()]).collect();
        apt.unpack(&packages, &root)?;
        std::os::unix::fs::symlink("mawk", root.join("usr/bin/awk"))?;
        for dir in FOLDERS {
            fs::create_dir_all(root.join(dir))?;
        }
        let init = root.join(INIT_PATH.trim_start_matches('/'));
        fs::write(&init, INIT)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        fs::write(&stamp, made_of)?;
    }
    for dir in [&dirs.repo, &dirs.cache] {
        fs::create_dir_all(root.join(dir.strip_prefix("/").unwrap_or(dir)))?;
    }
    Ok(root)
}

/// Returns the package with Rust's library for the architecture, in the version of this machine's own compiler, which
/// has no other.
fn rust_std() -> Result<String> {
    let owner = output(Command::new("dpkg-query").args(["-S", "/usr/bin/rustc"]))?;
    let package = owner
        .split(':')
        .next()
        .context("dpkg-query names no package")?;
    let suffix = package.strip_prefix("rustc").unwrap_or_default();
    let version = output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))?;
    Ok(format!("libstd-rust{suffix}-dev={version}"))
}

/// Returns the folder of our programs for the architecture, below the checkout.
pub(crate) fn programs(dirs: &Dirs) -> PathBuf {
    dirs.repo.join("target").join(TARGET).join("release")
}

/// Builds our programs.
pub(crate) fn build_programs(dirs: &Dirs, root: &Path) -> Result<()> {
    let (root, clang) = (root.display(), format!("clang{LLVM}"));
    let flags = format!(
        "-L {root}/usr/lib/rustlib/{TARGET}/lib -Clink-arg=--target=aarch64-linux-gnu -Clink-arg=--sysroot={root} \
         -Clink-arg=-fuse-ld=lld{LLVM}"
    );
    let target = TARGET.replace('-', "_");
    let mut cmd = Command::new("cargo");
    cmd.args(["build", "--release", "--quiet", "--target", TARGET])
        .args(["-p", "smctest", "-p", "smc-tools"])
        .current_dir(&dirs.repo)
        .env("RUSTC", "/usr/bin/rustc")
        .env(
            format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()),
            &clang,
        )
        .env(
            format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase()),
            flags,
        )
        .env(format!("CC_{target}"), &clang)
        .env(format!("AR_{target}"), format!("llvm-ar{LLVM}"))
        .env(
            format!("CFLAGS_{target}"),
            format!("--target=aarch64-linux-gnu --sysroot={root}"),
        );
    run(&mut cmd).context("the user tools do not build for arm64")
}
