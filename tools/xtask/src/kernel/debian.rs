// SPDX-License-Identifier: GPL-2.0
//! Debian's own kernels, unchanged, and a root with Debian's compilers in which modules for them are built, as on the
//! machine of a user. Nothing of it is installed: packages are unpacked below the cache, and no privileges are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Flavour, Kernel, Stock, STAMP};
use crate::apt::{self, extract, Apt};
use crate::dirs::Dirs;
use crate::run::{lock, output, run};

/// The release whose compilers built the kernels, and its suite with the kernels.
const SUITES: &[&str] = &["trixie", "trixie-backports"];

/// What a user installs to build a Rust module, and what there is on any machine. Not from the list of those for
/// kernels that are built here: these are another release's.
const TOOLS: &[&str] = &[
    "base-files",
    "bash",
    "bc",
    "bindgen",
    "bison",
    "busybox-static",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "flex",
    "gcc-14-for-host",
    "grep",
    "gzip",
    "kmod",
    "libc6-dev",
    "libclang-19-dev",
    "libelf-dev",
    "libssl-dev",
    "make",
    "mawk",
    "pahole",
    "perl-base",
    "python3-minimal",
    "rust-src",
    "rustc",
    "sed",
    "tar",
    "util-linux",
    "xz-utils",
];

/// Folders of modules that tests need, as far as a series has them, below `lib/modules/RELEASE/kernel`.
const MODULES: &[&str] = &[
    "arch",
    "crypto",
    "drivers/char/hw_random",
    "drivers/dibs",
    "drivers/infiniband/core",
    "drivers/infiniband/sw",
    "drivers/net/bonding",
    "drivers/net/vxlan",
    "fs/9p",
    "fs/configfs",
    "fs/netfs",
    "lib",
    "net",
];

/// The same for single files in `drivers/net`.
const NET_MODULES: &[&str] = &[
    "dummy",
    "macsec",
    "macvlan",
    "net_failover",
    "tun",
    "veth",
    "virtio_net",
    "vrf",
];

/// Returns the kernel, ready to boot and to build modules for; fetches it if it is not in the cache, or for an update.
pub(super) fn ensure(dirs: &Dirs, flavour: Flavour, series: &str, update: bool) -> Result<Kernel> {
    let cache = dirs.cache.join("debian");
    let here = cache.join(series);
    fs::create_dir_all(&here)?;
    let _lock = lock(&cache.join("lock"), "fetch of Debian's kernels")?;
    let root = cache.join("root");
    let release = here.join("release");
    let tools = format!("{} {}", SUITES.join(" "), TOOLS.join(" "));
    let kernel = format!("{tools} {} {}", MODULES.join(" "), NET_MODULES.join(" "));
    let is_made_of = |dir: &Path, parts: &str| {
        fs::read_to_string(dir.join(".made-of")).is_ok_and(|made_of| made_of == parts)
    };
    let (has_root, has_kernel) = (is_made_of(&root, &tools), is_made_of(&here, &kernel));
    if !has_root || !has_kernel || update {
        let start = Instant::now();
        eprintln!("Debian's own kernel {series}: fetching it with its source and compilers (500 MB, once)");
        let apt = Apt::new(&dirs.cache.join("apt/stock"), &apt::mirror()?, SUITES)?;
        if !has_root {
            unpack_tools(&apt, &root)?;
            fs::write(root.join(".made-of"), &tools)?;
        }
        // An update that is interrupted begins again.
        if has_kernel {
            fs::remove_file(here.join(".made-of"))?;
        }
        fetch(dirs, &apt, series, &here, &root)?;
        fs::write(here.join(".made-of"), &kernel)?;
        eprintln!(
            "Debian's own kernel {series}: there after {} s",
            start.elapsed().as_secs()
        );
    }
    let release = fs::read_to_string(&release).context("the kernel's release is not known")?;
    Ok(Kernel {
        flavour,
        dir: metadata(dirs, &root, series, &release)?,
        image: here.join("vmlinuz"),
        modules: here
            .join("modules/lib/modules")
            .join(&release)
            .join("kernel"),
        stock: Some(Stock {
            initrd: here.join("initrd"),
            root,
        }),
        root: None,
    })
}

/// Unpacks the compilers, and all that they need, as a root to run them in.
fn unpack_tools(apt: &Apt, root: &Path) -> Result<()> {
    apt.unpack(TOOLS, root)?;
    // Alternatives are made when a package is installed.
    std::os::unix::fs::symlink("mawk", root.join("usr/bin/awk"))?;
    Ok(())
}

/// Fetches the newest kernel of a series.
fn fetch(dirs: &Dirs, apt: &Apt, series: &str, here: &Path, root: &Path) -> Result<()> {
    let names = apt.names(&format!("linux-headers-{series}."))?;
    let release = newest(series, &names)
        .with_context(|| format!("no kernel {series} in {}", SUITES.join(", ")))?;
    let base = release.trim_end_matches("-amd64");
    let archives = here.join("archives");
    fs::create_dir_all(&archives)?;
    let package = |name: &str| apt.download(name, &archives);
    for name in [
        format!("linux-headers-{release}"),
        format!("linux-headers-{base}-common"),
        format!("linux-kbuild-{base}"),
    ] {
        extract(&package(&name)?, root)?;
    }
    // The same package that other kernels are built from.
    let debs = dirs.cache.join("deb");
    fs::create_dir_all(&debs)?;
    extract(
        &apt.download(&format!("linux-source-{series}"), &debs)?,
        root,
    )?;

    extract(&package(&format!("linux-binary-{release}"))?, &archives)?;
    fs::rename(
        archives.join(format!("usr/lib/modules/{release}/vmlinuz")),
        here.join("vmlinuz"),
    )?;
    let modules = here.join("modules");
    if modules.exists() {
        fs::remove_dir_all(&modules)?;
    }
    unpack_modules(
        &package(&format!("linux-modules-{release}"))?,
        &modules,
        &release,
    )?;
    run(Command::new(dirs.repo.join("tools/kernel/stock-initrd"))
        .arg(&modules)
        .arg(&release)
        .arg(root.join("usr/bin/busybox"))
        .arg(here.join("initrd")))?;
    fs::remove_dir_all(&archives)?;
    fs::write(here.join("release"), &release)?;
    Ok(())
}

/// Returns the newest of the headers' releases: `7.3.4+deb13-amd64`, without the flavours for clouds or real time.
fn newest(series: &str, names: &[String]) -> Option<String> {
    let level = |release: &str| -> Option<u32> {
        let (level, build) = release
            .strip_prefix(series)?
            .strip_prefix('.')?
            .split_once('+')?;
        let build = build.strip_suffix("-amd64")?;
        (!build.contains('-')).then_some(())?;
        level.parse().ok()
    };
    names
        .iter()
        .filter_map(|name| name.strip_prefix("linux-headers-"))
        .filter_map(|release| Some((level(release)?, release)))
        .max()
        .map(|(_, release)| release.to_owned())
}

/// Unpacks the modules that tests need, decompressed, as guests are slow at that.
fn unpack_modules(deb: &Path, modules: &Path, release: &str) -> Result<()> {
    let tree = format!("./usr/lib/modules/{release}");
    let mut tar = Command::new("tar");
    tar.arg("-x")
        .arg("-C")
        .arg(modules)
        .arg("--strip-components=2");
    tar.args(
        MODULES
            .iter()
            .map(|folder| format!("{tree}/kernel/{folder}")),
    );
    tar.args(
        NET_MODULES
            .iter()
            .map(|name| format!("{tree}/kernel/drivers/net/{name}.ko.xz")),
    );
    tar.args(
        [
            "modules.builtin",
            "modules.builtin.modinfo",
            "modules.order",
        ]
        .map(|name| format!("{tree}/{name}")),
    );
    fs::create_dir_all(modules)?;
    let mut contents = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    // It says what this series does not have; without a module that tests need, they fail.
    let _ = tar
        .stdin(contents.stdout.take().context("no output of dpkg-deb")?)
        .stderr(Stdio::null())
        .status()
        .context("cannot run tar")?;
    contents.wait()?;
    let here = modules.join("lib/modules").join(release);
    output(
        Command::new("find")
            .arg(&here)
            .args(["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"]),
    )?;
    output(Command::new("depmod").arg("-b").arg(modules).arg(release))?;
    Ok(())
}

/// Makes the metadata of the kernel's Rust crates, or finds them; returns the directory to build modules against.
fn metadata(dirs: &Dirs, root: &Path, series: &str, release: &str) -> Result<PathBuf> {
    let mut cmd = in_root(dirs, root);
    cmd.arg(format!(
        "LINUX_SOURCE=/usr/src/linux-source-{series}.tar.xz"
    ))
    .arg(dirs.repo.join("tools/kernel/rust-kit"))
    .arg(format!("/usr/src/linux-headers-{release}"))
    .arg(&dirs.cache)
    .stderr(Stdio::inherit());
    let out = cmd
        .stdin(Stdio::null())
        .output()
        .context("cannot run in-root")?;
    anyhow::ensure!(
        out.status.success(),
        "no Rust metadata for Debian's kernel {release}"
    );
    let dir = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
    // Modules are built anew for other metadata.
    let made_of = dir.with_file_name("made-of");
    fs::copy(&made_of, dir.join(STAMP)).with_context(|| format!("no {}", made_of.display()))?;
    Ok(dir)
}

/// Returns a command to which a program and its arguments are to be added: it runs in that root, and sees the checkout
/// and the cache.
pub(crate) fn in_root(dirs: &Dirs, root: &Path) -> Command {
    let mut cmd = Command::new(dirs.repo.join("tools/kernel/in-root"));
    cmd.arg(root).arg(&dirs.repo).arg(&dirs.cache).arg("--");
    cmd
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_release_is_by_number() {
        let names = [
            "linux-headers-7.2.9+deb13-amd64",
            "linux-headers-7.2.12+deb13-amd64",
            "linux-headers-7.2.13+deb13-cloud-amd64",
            "linux-headers-7.2.13+deb13-common",
            "linux-headers-7.3.4+deb13-amd64",
        ]
        .map(str::to_owned);
        assert_eq!(newest("7.2", &names).as_deref(), Some("7.2.12+deb13-amd64"));
        assert_eq!(newest("7.3", &names).as_deref(), Some("7.3.4+deb13-amd64"));
        assert_eq!(newest("7.4", &names), None);
    }
}
