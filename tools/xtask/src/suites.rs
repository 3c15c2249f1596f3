// SPDX-License-Identifier: GPL-2.0
//! Test suites of other projects that no package of this release installs ready to run: fetched and built when the
//! first script asks for one (`# tests: NAME`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};
use clap::ValueEnum;
use serde_json::{json, Value};

use crate::apt::{self, Apt};
use crate::dirs::Dirs;
use crate::kernel::Kernel;
use crate::packages;
use crate::run::{lock, output, processors, run};
use crate::suite::APPS;

/// The suites, by their names in headers of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Suite {
    Gevent,
    Go,
    Kernel,
    Libevent,
    Libsoup,
    Liburing,
    Libuv,
    Mariadb,
    Node,
    Ruby,
    Rust,
}

impl Suite {
    /// Fetches and builds the suite, unless that was done before. Returns what its script runs: a program or a folder.
    pub(crate) fn prepare(self, dirs: &Dirs, kernel: &Kernel) -> Result<PathBuf> {
        let kept = dirs.cache.join("suites");
        fs::create_dir_all(&kept)?;
        let _lock = lock(&kept.join("lock"), "build of other projects' tests")?;
        match self {
            Self::Gevent => gevent(dirs, &kept),
            Self::Go => go(dirs),
            Self::Kernel => selftests(dirs, kernel),
            Self::Libevent => libevent(dirs, &kept),
            Self::Libsoup => libsoup(&kept),
            Self::Liburing => liburing(dirs, &kept),
            Self::Libuv => libuv(dirs, &kept),
            Self::Mariadb => mariadb(&kept),
            Self::Node => node(dirs, &kept),
            Self::Ruby => ruby(dirs, &kept),
            Self::Rust => rust(dirs),
        }
    }
}

/// The release whose libuv and liburing it is, the same one everywhere: their tests link to nothing of this machine but
/// the C library.
const SOURCE_RELEASE: &str = "trixie";

/// Builds libuv's tests; returns their runner.
fn libuv(dirs: &Dirs, kept: &Path) -> Result<PathBuf> {
    let suite = CmakeSuite {
        name: "libuv",
        package: "libuv1",
        release: SOURCE_RELEASE,
        options: &[],
        target: "uv_run_tests_a",
        program: "uv_run_tests_a",
    };
    suite.build(dirs, &kept.join("libuv"))
}

/// Builds libevent's tests; returns their program.
fn libevent(dirs: &Dirs, kept: &Path) -> Result<PathBuf> {
    let release = apt::codename();
    let suite = CmakeSuite {
        name: "libevent",
        package: "libevent",
        release: &release,
        options: &[
            "-DEVENT__LIBRARY_TYPE=STATIC",
            "-DEVENT__DISABLE_BENCHMARK=ON",
            "-DEVENT__DISABLE_SAMPLES=ON",
            "-DEVENT__DISABLE_MBEDTLS=ON",
        ],
        target: "regress",
        program: "bin/regress",
    };
    suite.build(dirs, &kept.join(format!("libevent-{release}")))
}

/// A suite whose source is Debian's, and which cmake builds.
struct CmakeSuite<'a> {
    name: &'a str,
    package: &'a str,
    /// Debian's release.
    release: &'a str,
    options: &'a [&'a str],
    target: &'a str,
    /// Below the folder of the build.
    program: &'a str,
}

impl CmakeSuite<'_> {
    /// Builds it in a folder of its own, unless that was done before; returns its program.
    fn build(&self, dirs: &Dirs, dir: &Path) -> Result<PathBuf> {
        let build = dir.join("build");
        let program = build.join(self.program);
        if program.exists() {
            return Ok(program);
        }
        clear(dir)?;
        fs::create_dir_all(&build)?;
        println!("{}'s tests: fetching and building", self.name);
        let source = sources(dirs, self.release)?.source(self.package, dir)?;
        output(
            Command::new("cmake")
                .arg("-DCMAKE_BUILD_TYPE=RelWithDebInfo")
                .args(self.options)
                .arg(source)
                .current_dir(&build),
        )?;
        output(
            Command::new("make")
                .arg(format!("-j{}", processors()))
                .arg(self.target)
                .current_dir(&build),
        )?;
        Ok(program)
    }
}

/// The kernel's own selftests that use TCP, by their files below `tools/testing/selftests/net`.
const KERNEL_TESTS: [&str; 16] = [
    "bind_timewait",
    "bind_wildcard",
    "epoll_busy_poll",
    "getsockopt_iter",
    "mptcp/mptcp_connect",
    "mptcp/mptcp_inq",
    "reuseaddr_conflict",
    "reuseport_addr_any",
    "reuseport_bpf",
    "reuseport_bpf_cpu",
    "reuseport_dualstack",
    "sk_connect_zero_addr",
    "so_incoming_cpu",
    "so_netns_cookie",
    "tcp_inq",
    "tcp_port_share",
];

/// Builds selftests of this kernel, with its own headers; returns the folder of the programs.
fn selftests(dirs: &Dirs, kernel: &Kernel) -> Result<PathBuf> {
    let source = fs::canonicalize(kernel.dir.join("source"))?;
    let name = source.file_name().context("a kernel source has a name")?;
    let dir = dirs.out("suites/kernel").join(name);
    let bin = dir.join("bin");
    println!("the kernel's selftests: building");
    output(
        Command::new("make")
            .args(["-s", "ARCH=x86", "headers_install"])
            .arg(format!("O={}", dir.join("build").display()))
            .arg(format!("INSTALL_HDR_PATH={}", dir.display()))
            .current_dir(&source),
    )?;
    clear(&bin)?;
    let tests = source.join("tools/testing/selftests");
    for test in KERNEL_TESTS {
        let file = tests.join("net").join(test).with_extension("c");
        let program = file.file_stem().context("a file has a name")?;
        run(Command::new("gcc")
            .args(["-O2", "-w", "-D_GNU_SOURCE="])
            .arg("-isystem")
            .arg(dir.join("include"))
            .arg("-I")
            .arg(source.join("tools/include"))
            .arg("-I")
            .arg(&tests)
            .arg("-I")
            .arg(tests.join("net"))
            .arg("-o")
            .args([&bin.join(program), &file])
            .args(["-lpthread", "-lcap"]))?;
    }
    Ok(bin)
}

/// Liburing's tests that use stream sockets of IP.
const LIBURING_TESTS: [&str; 25] = [
    "232c93d07b74",
    "accept",
    "accept-link",
    "accept-non-empty",
    "accept-reuse",
    "bind-listen",
    "connect",
    "connect-rep",
    "defer-taskrun",
    "files-exit-hang-poll",
    "files-exit-hang-timeout",
    "linked-defer-close",
    "poll-link",
    "recv-msgall-stream",
    "recv-multishot",
    "recvsend_bundle",
    "recvsend_bundle-inc",
    "ring-leak2",
    "shutdown",
    "socket-getsetsock-cmd",
    "socket-io-cmd",
    "socket-nb",
    "socket-rw",
    "socket-rw-eagain",
    "socket-rw-offset",
];

/// Builds tests of liburing with a header before each; returns the folder of the programs.
fn liburing(dirs: &Dirs, kept: &Path) -> Result<PathBuf> {
    let header = dirs.repo.join(APPS).join("liburing/socket.h");
    let wanted = fs::read(&header).with_context(|| format!("cannot read {}", header.display()))?;
    let dir = kept.join("liburing");
    let (bin, stamp) = (dir.join("bin"), dir.join("socket.h"));
    if fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(bin);
    }
    println!("liburing's tests: fetching and building");
    clear(&dir)?;
    let source = sources(dirs, SOURCE_RELEASE)?.source("liburing", &dir)?;
    output(
        Command::new(source.join("configure"))
            .arg("--cc=gcc")
            .current_dir(&source),
    )?;
    let make = |folder: &str, args: &[String]| {
        output(
            Command::new("make")
                .arg(format!("-j{}", processors()))
                .args(args)
                .current_dir(source.join(folder)),
        )
    };
    make("src", &[])?;
    let programs: Vec<String> = LIBURING_TESTS.iter().map(|t| format!("{t}.t")).collect();
    let header = format!("CPPFLAGS=-include {}", header.display());
    make("test", &[&programs[..], &[header]].concat())?;
    clear(&bin)?;
    for program in programs {
        fs::copy(source.join("test").join(&program), bin.join(&program))?;
    }
    fs::write(&stamp, wanted)?;
    Ok(bin)
}

/// Unpacks libsoup's tests, without the web server and PHP that some of them want and their package depends on; returns
/// their folder.
fn libsoup(kept: &Path) -> Result<PathBuf> {
    let dir = unpacked(kept, "libsoup", &["libsoup-3.0-tests"])?;
    Ok(dir.join("usr/libexec/installed-tests/libsoup-3.0"))
}

/// Unpacks MariaDB and its tests: installed, it would be a service of this machine. The clients connect by TCP in place
/// of a socket of the file system. Returns the folder that is its `/usr`.
fn mariadb(kept: &Path) -> Result<PathBuf> {
    const PACKAGES: &[&str] = &[
        "mariadb-test",
        "mariadb-test-data",
        "mariadb-server",
        "mariadb-server-core",
        "mariadb-client",
        "mariadb-client-core",
        "libmariadb3",
        "libpcre2-posix3",
        "liburing2",
    ];
    const BY_TCP: &str = "\n[client]\nprotocol=tcp\n";
    // It has another name since Debian 13.
    let aio = match packages::candidate("libaio1t64") {
        Some(_) => "libaio1t64",
        None => "libaio1",
    };
    let dir = unpacked(kept, "mariadb", &[PACKAGES, &[aio]].concat())?.join("usr");
    let options = dir.join("share/mysql/mysql-test/include/default_client.cnf");
    let text = fs::read_to_string(&options).context("MariaDB's tests have no such file")?;
    if !text.ends_with(BY_TCP) {
        fs::write(&options, text + BY_TCP)?;
    }
    Ok(dir)
}

/// Unpacks packages of this release, the first of which gives the version; returns the folder that is their root.
fn unpacked(kept: &Path, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let first = packages[0];
    let [major, minor] =
        packages::candidate(first).with_context(|| format!("apt knows no {first}"))?;
    let dir = kept.join(format!("{name}-{major}.{minor}"));
    if dir.exists() {
        return Ok(dir);
    }
    let scratch = dir.with_extension("new");
    clear(&scratch)?;
    run(Command::new("apt-get")
        .args(["-q", "-oAPT::Sandbox::User=", "download"])
        .args(packages)
        .current_dir(&scratch))?;
    let files: Vec<PathBuf> = fs::read_dir(&scratch)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "deb"))
        .collect();
    ensure!(
        files.len() == packages.len(),
        "apt downloaded not all of {}",
        packages.join(", ")
    );
    for deb in files {
        run(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&scratch))?;
    }
    fs::rename(&scratch, &dir)?;
    Ok(dir)
}

/// Builds the tests in packages of crates, as those of a crate of ours that depends on them, and those of the standard
/// library; returns the folder with `bin` and `vendor`.
fn rust(dirs: &Dirs) -> Result<PathBuf> {
    println!("Rust's tests: fetching and building");
    let (from, to) = (dirs.repo.join(APPS).join("rust"), dirs.out("suites/rust"));
    fs::create_dir_all(&to)?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(from.join(name), to.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    fs::write(to.join("lib.rs"), "")?;
    run(Command::new("cargo")
        .args(["vendor", "--quiet", "--locked", "vendor"])
        .stdout(std::process::Stdio::null())
        .current_dir(&to))?;
    let built = output(
        Command::new("cargo")
            .args([
                "test",
                "--no-run",
                "--locked",
                "--quiet",
                "--message-format",
                "json",
            ])
            .current_dir(&to),
    )?;
    let bin = to.join("bin");
    clear(&bin)?;
    for line in built.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let (Some(program), Some(name), Some("test")) = (
            message["executable"].as_str(),
            message["target"]["name"].as_str(),
            message["target"]["kind"][0].as_str(),
        ) {
            fs::copy(program, bin.join(name))?;
        }
    }
    std_tests(&to, &bin.join("std-net_tcp"))?;
    Ok(to)
}

/// Builds the standard library's tests of TCP outside of it, with the compiler that its source belongs to.
fn std_tests(dir: &Path, program: &Path) -> Result<()> {
    let library = library()?;
    let read = |path: &str| fs::read_to_string(library.join(path)).unwrap_or_default();
    let mut features: Vec<String> = [
        "std/src/net/tcp.rs",
        "std/src/io/mod.rs",
        "std/src/io/error.rs",
        "core/src/io/borrowed_buf.rs",
        "core/src/io/error.rs",
    ]
    .into_iter()
    .flat_map(|path| unstable(&read(path)))
    .collect();
    features.sort();
    features.dedup();
    let tests = read("std/src/net/tcp/tests.rs")
        .replace("crate::net::test::", "crate::helpers::")
        .replace("use crate::", "use std::")
        .replace("use std::helpers", "use crate::helpers");
    // Older ones have it in the module itself.
    let helpers = ["std/src/net/test.rs", "std/src/net/tcp/test.rs"]
        .map(read)
        .concat();
    fs::write(dir.join("helpers.rs"), helpers.replace("crate::", "std::"))?;
    let source = dir.join("std_net_tcp.rs");
    let head = format!(
        "#![feature({})]\n#![allow(unused)]\nmod helpers;\n",
        features.join(", ")
    );
    fs::write(&source, head + &tests)?;
    run(Command::new("/usr/bin/rustc")
        .args(["--test", "--edition", "2024", "--cap-lints", "allow", "-o"])
        .args([program, &source])
        // It is the one that the library is for.
        .env("RUSTC_BOOTSTRAP", "1"))
}

/// Returns the source of the library that Debian's compiler has.
fn library() -> Result<PathBuf> {
    let version = output(Command::new("/usr/bin/rustc").arg("--version"))?;
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let dir = PathBuf::from(format!("/usr/src/rustc-{number}/library"));
    match dir.join("std/src/net/tcp/tests.rs").is_file() {
        true => Ok(dir),
        false => anyhow::bail!("no tests of the standard library in {}", dir.display()),
    }
}

/// Returns the names of the unstable features that this part of the library has.
fn unstable(source: &str) -> Vec<String> {
    source
        .split("unstable(")
        .skip(1)
        .filter_map(|rest| {
            rest.split(')')
                .next()?
                .split("feature = \"")
                .nth(1)?
                .split('"')
                .next()
        })
        .map(str::to_owned)
        .collect()
}

/// Installs gevent, which has its tests, for the distribution's Python, at pinned versions; returns its folder.
fn gevent(dirs: &Dirs, kept: &Path) -> Result<PathBuf> {
    let pins = dirs.repo.join(APPS).join("gevent/requirements.txt");
    let wanted = fs::read(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let python = || Command::new("/usr/bin/python3");
    let program = "import sys; print(*sys.version_info[:2], sep='.', end='')";
    let version = output(python().args(["-c", program]))?;
    let dir = kept.join(format!("gevent-{version}"));
    // Written last: what it says is there.
    let stamp = dir.join("requirements.txt");
    if fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(dir);
    }
    println!("gevent's tests: fetching");
    clear(&dir)?;
    run(python()
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--root-user-action=ignore", "--only-binary=:all:"])
        .args(["--require-hashes", "--requirement"])
        .arg(&pins)
        .arg("--target")
        .arg(&dir))?;
    fs::write(&stamp, wanted)?;
    Ok(dir)
}

/// Go's packages whose tests use TCP.
const GO_PACKAGES: [&str; 9] = [
    "crypto/tls",
    "net",
    "net/http",
    "net/http/cgi",
    "net/http/httptest",
    "net/http/httputil",
    "net/rpc",
    "net/rpc/jsonrpc",
    "net/smtp",
];

/// Builds the tests of the distribution's Go, with one file of package `net` exchanged; returns the folder with `bin`
/// and `src`.
fn go(dirs: &Dirs) -> Result<PathBuf> {
    const FILE: &str = "sock_cloexec.go";
    println!("Go's tests: building");
    let (from, to) = (dirs.repo.join(APPS).join("go"), dirs.out("suites/go"));
    let source = output(Command::new("go").args(["env", "GOROOT"]))?;
    let source = PathBuf::from(source.trim()).join("src");
    let bin = to.join("bin");
    clear(&bin)?;
    let overlay = to.join("overlay.json");
    let replaced =
        json!({ "Replace": { path(&source.join("net").join(FILE)): path(&from.join(FILE)) } });
    fs::write(&overlay, replaced.to_string())?;
    for package in GO_PACKAGES {
        run(Command::new("go")
            .args(["test", "-c", "-overlay"])
            .arg(&overlay)
            .arg("-o")
            .arg(bin.join(package.replace('/', "_")))
            .arg(package)
            .env("CGO_ENABLED", "0")
            .env("GOCACHE", to.join("cache")))?;
    }
    let link = to.join("src");
    if !link.is_symlink() {
        symlink(&source, link)?;
    }
    Ok(to)
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Unpacks the source package of the distribution's Ruby; returns its folder.
fn ruby(dirs: &Dirs, kept: &Path) -> Result<PathBuf> {
    let version = output(Command::new("ruby").args(["-e", "print RUBY_VERSION[/\\d+\\.\\d+/]"]))?;
    let dir = kept.join(format!("ruby{version}"));
    if !dir.is_dir() {
        println!("Ruby's tests: fetching");
        let scratch = kept.join("ruby.new");
        clear(&scratch)?;
        let apt = sources(dirs, &apt::codename())?;
        fs::rename(apt.source(&format!("ruby{version}"), &scratch)?, &dir)?;
    }
    Ok(dir)
}

/// Unpacks the distribution's Node.js, as what is installed may be another vendor's, with what it depends on and this
/// machine lacks, and the tests of its source package. Returns the folder that is its root, with `test`.
fn node(dirs: &Dirs, kept: &Path) -> Result<PathBuf> {
    let release = apt::codename();
    let dir = kept.join(format!("node-{release}"));
    if dir.is_dir() {
        return Ok(dir);
    }
    println!("Node.js' tests: fetching");
    let scratch = kept.join("node.new");
    let packages = scratch.join("packages");
    clear(&scratch)?;
    let lists = dirs.cache.join("apt").join(&release);
    let apt = Apt::new(&lists, &apt::mirror()?, &[&release])?;
    let installed = packages::installed()?;
    for deb in apt.download_with_dependencies(&["nodejs"], &packages)? {
        let file = deb.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let name = file.split('_').next().unwrap_or_default();
        let is_own = name.starts_with("node") || name.starts_with("libnode");
        if is_own || !installed.contains(name) {
            run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&scratch))?;
        }
    }
    let source = sources(dirs, &release)?.source("nodejs", &packages)?;
    fs::rename(source.join("test"), scratch.join("test"))?;
    fs::remove_dir_all(&packages)?;
    fs::rename(&scratch, &dir)?;
    Ok(dir)
}

/// The source packages of a release.
fn sources(dirs: &Dirs, release: &str) -> Result<Apt> {
    let lists = dirs.cache.join("apt").join(format!("{release}-source"));
    Apt::of_sources(&lists, &apt::mirror()?, &[release])
}

/// Makes an empty directory.
fn clear(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        fs::remove_dir_all(dir)?;
    }
    Ok(fs::create_dir_all(dir)?)
}

#[cfg(test)]
mod tests {
    use super::unstable;

    #[test]
    fn features_are_found_by_their_attributes() {
        let source =
            "#[unstable(feature = \"tcp_linger\", issue = \"1\")]\n#[stable(feature = \"net\")]\n\
                      #[unstable(\n    feature = \"read_buf\",\n)]";
        assert_eq!(unstable(source), ["tcp_linger", "read_buf"]);
    }
}
