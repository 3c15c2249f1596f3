// SPDX-License-Identifier: GPL-2.0
//! The Debian packages that builds and guests need: finds and installs those that are missing.

use std::collections::HashSet;
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::run::{output, run};

/// Packages to build a kernel, the module and the tools.
const BUILD: &[&str] = &[
    "bc",
    "bison",
    "clang-19",
    "cpio",
    "curl",
    "flex",
    "gcc",
    "kmod",
    "libc6-dev",
    "libclang-19-dev",
    "libdw-dev",
    "libelf-dev",
    "libssl-dev",
    "lld-19",
    "llvm-19",
    "make",
    "pahole",
    "patch",
    "pkgconf",
    "python3",
    "xz-utils",
];

/// Packages for the guests, also for those of `make apps` that the test run has.
const GUEST: &[&str] = &[
    "dkms",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "libglib2.0-tests",
    "nftables",
    "perftest",
    "procps",
    "qemu-system-x86",
    "qperf",
    "rdma-core",
    "redis-server",
    "redis-tools",
    "rsync",
    "sockperf",
    "tshark",
    "util-linux",
];

/// Packages for the demo on Debian's own kernel, for which nothing of this machine compiles.
const DEMO: &[&str] = &[
    "cpio",
    "gcc",
    "ibverbs-providers",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libc6-dev",
    "libelf-dev",
    "make",
    "pkgconf",
    "procps",
    "qemu-system-x86",
    "qperf",
    "rdma-core",
    "redis-server",
    "redis-tools",
    "util-linux",
    "xz-utils",
];

/// What else `make apps` runs over SMC, and load generators.
const APPS: &[&str] = &[
    "bpftool",
    "cmake",
    "curl",
    "dpkg-dev",
    "glib-networking",
    "golang-go",
    "golang-src",
    "haproxy",
    "libcap-dev",
    "libmemcached-tools",
    "libsoup-3.0-0",
    "memcached",
    "nghttp2-client",
    "nginx-light",
    "postgresql",
    "python3-cffi-backend",
    "python3-openssl",
    "python3-pip",
    "python3-service-identity",
    "python3-tornado",
    "python3-twisted",
    "ruby",
    "wrk",
];

/// Pairs of a compiler and its library source, best first. Debian 12 has a newer one for browsers.
const RUST: &[[&str; 2]] = &[["rustc-web", "rust-web-src"], ["rustc", "rust-src"]];

/// The oldest compiler that the supported kernels accept.
const RUST_MIN: [u32; 2] = [1, 85];

/// The kind of command, which determines the packages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageSet {
    /// Runs the demo on a distribution's kernel.
    Demo,
    /// Builds kernels and modules.
    Build,
    /// Also runs guests.
    Guests,
    /// As [`PackageSet::Guests`], also of arm64.
    Arm64,
    /// As [`PackageSet::Guests`], with unmodified programs in the guests.
    Apps,
}

/// Installs missing packages; does nothing if there are none.
pub(crate) fn ensure(set: PackageSet) -> Result<()> {
    let have = installed()?;
    let mut wanted: Vec<&str> = match set {
        PackageSet::Demo => DEMO.to_vec(),
        PackageSet::Build => BUILD.to_vec(),
        PackageSet::Guests | PackageSet::Apps => [BUILD, GUEST].concat(),
        PackageSet::Arm64 => [BUILD, GUEST, &["qemu-system-arm"]].concat(),
    };
    let python_tests = (set == PackageSet::Apps).then(python_tests);
    if let Some(python_tests) = &python_tests {
        wanted.extend(APPS);
        wanted.push(python_tests);
    }
    let mut missing: Vec<&str> = wanted.into_iter().filter(|p| !have.contains(*p)).collect();
    // The kernels' compiler; cargo has its own.
    let rust_there = set == PackageSet::Demo
        || RUST
            .iter()
            .any(|pair| pair.iter().all(|p| have.contains(*p)));
    if missing.is_empty() && rust_there {
        return Ok(());
    }
    eprintln!("missing packages: {}", missing.join(" "));
    apt(&["update", "-q"])?;
    if !rust_there {
        missing.extend(rust_pair()?);
    }
    let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
    args.extend(&missing);
    apt(&args)
}

/// Returns the names of the packages that are installed.
pub(crate) fn installed() -> Result<HashSet<String>> {
    let list =
        output(Command::new("dpkg-query").args(["-W", "-f", "${Package} ${db:Status-Abbrev}\n"]))
            .context("this works on Debian 12 and 13 (and relatives with dpkg and apt)")?;
    Ok(list
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter(|(_, status)| status.starts_with("ii"))
        .map(|(name, _)| name.to_owned())
        .collect())
}

/// Returns the first pair of compiler and library source in apt that is new enough.
fn rust_pair() -> Result<[&'static str; 2]> {
    for pair in RUST {
        if candidate(pair[0]).is_some_and(|v| v >= RUST_MIN) {
            return Ok(*pair);
        }
    }
    let names: Vec<&str> = RUST.iter().map(|p| p[0]).collect();
    bail!(
        "no rustc {}.{} or later among {}: enable this release's security suite in apt's sources, then try again",
        RUST_MIN[0], RUST_MIN[1], names.join(", ")
    )
}

/// Returns the package with CPython's own tests, for the Python version of this release.
fn python_tests() -> String {
    let [major, minor] = candidate("python3").unwrap_or([3, 11]);
    format!("libpython{major}.{minor}-testsuite")
}

/// Returns major and minor version of the package that apt would install.
pub(crate) fn candidate(package: &str) -> Option<[u32; 2]> {
    let policy = output(
        Command::new("apt-cache")
            .env("LC_ALL", "C")
            .args(["policy", package]),
    )
    .ok()?;
    let version = policy
        .lines()
        .find_map(|l| l.trim().strip_prefix("Candidate: "))?;
    let epoch = version.find(':').map_or(0, |colon| colon + 1);
    let mut parts = version[epoch..]
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|p| p.parse().ok());
    Some([parts.next()?, parts.next()?])
}

/// Runs apt-get as root, with sudo if necessary.
fn apt(args: &[&str]) -> Result<()> {
    let root = nix::unistd::geteuid().is_root();
    let mut cmd = Command::new(if root { "apt-get" } else { "sudo" });
    if !root {
        cmd.arg("apt-get");
    }
    cmd.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    eprintln!("+ {}", crate::run::show(&cmd));
    run(&mut cmd).with_context(|| {
        if root {
            "apt could not install what is needed; see its message above".to_owned()
        } else {
            format!(
                "run this as root, then try again: apt-get {}",
                args.join(" ")
            )
        }
    })
}
