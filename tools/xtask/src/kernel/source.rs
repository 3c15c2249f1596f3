// SPDX-License-Identifier: GPL-2.0
//! Kernel source from Debian: downloaded by apt with verified signatures, without adding a suite to
//! the system; unpacked once, with the fixes of `tools/kernel/patches`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use sha2::{Digest, Sha256};

use crate::dirs::Dirs;
use crate::run::{output, run};

/// Suites that may contain a series, the most stable first.
const SUITES: &[&str] = &["trixie-backports", "forky", "sid"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An unpacked, patched source tree.
pub(super) struct Source {
    /// For example `7.3.4`.
    pub(super) version: String,
    pub(super) dir: PathBuf,
    /// A digest of the patches that were applied.
    pub(super) patches: String,
}

/// Returns the newest patch level of a series that is unpacked; downloads it if there is none or
/// for an update.
pub(super) fn ensure(dirs: &Dirs, series: &str, update: bool) -> Result<Source> {
    let unpacked = dirs.cache.join("src");
    let here = newest(&unpacked, series);
    let (version, dir) = match here {
        Some(found) if !update => found,
        _ => fetch(dirs, series, &unpacked)?,
    };
    let patches = patch(&dirs.repo.join("tools/kernel/patches"), &dir)?;
    Ok(Source {
        version,
        dir,
        patches,
    })
}

/// Returns the newest unpacked tree of a series.
fn newest(unpacked: &Path, series: &str) -> Option<(String, PathBuf)> {
    let prefix = format!("linux-{series}.");
    fs::read_dir(unpacked)
        .ok()?
        .flatten()
        .filter_map(|e| {
            let level: u32 = e
                .file_name()
                .to_str()?
                .strip_prefix(&prefix)?
                .parse()
                .ok()?;
            Some((level, e.path()))
        })
        .max_by_key(|(level, _)| *level)
        .map(|(level, path)| (format!("{series}.{level}"), path))
}

fn fetch(dirs: &Dirs, series: &str, unpacked: &Path) -> Result<(String, PathBuf)> {
    let debs = dirs.cache.join("deb");
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(unpacked)?;
    let package = format!("linux-source-{series}");
    let mirror = mirror()?;
    for suite in SUITES {
        let apt = Apt::new(&dirs.cache.join("apt").join(suite), &mirror, suite)?;
        if !apt.has(&package)? {
            eprintln!("{package}: not in {suite}");
            continue;
        }
        eprintln!("{package}: fetching from {suite} (170 MB)");
        let deb = apt.download(&package, &debs)?;
        let (version, dir) = unpack(&deb, series, unpacked)?;
        eprintln!("{package}: Linux {version}");
        return Ok((version, dir));
    }
    bail!(
        "no {package} in {} of {mirror}: use another --series",
        SUITES.join(", ")
    )
}

/// Returns the mirror from which apt on this machine downloads its own release.
fn mirror() -> Result<String> {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = os
        .lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .unwrap_or("stable");
    // Works before the first `apt-get update` as well.
    let uris = output(Command::new("apt-get").args(["update", "--print-uris"]))?;
    mirror_in(&uris, codename)
        .or_else(|| mirror_in(&uris, "stable"))
        .context("apt has no Debian mirror in its sources: add one, then try again")
}

fn mirror_in(uris: &str, codename: &str) -> Option<String> {
    let end = format!("/dists/{codename}/InRelease");
    uris.lines()
        .filter_map(|l| l.strip_prefix('\'')?.split('\'').next())
        .find_map(|uri| uri.strip_suffix(end.as_str()))
        .map(str::to_owned)
}

/// An apt configuration with its own state directory and a single suite.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(dir: &Path, mirror: &str, suite: &str) -> Result<Self> {
        for sub in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        let list = dir.join("sources.list");
        fs::write(
            &list,
            format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"),
        )?;
        let set = |key: &str, value: &Path| format!("-o{key}={}", value.display());
        let options = vec![
            set("Dir::State::Lists", &dir.join("lists")),
            set("Dir::Cache", &dir.join("cache")),
            set("Dir::Etc::SourceList", &list),
            set("Dir::Etc::SourceParts", Path::new("/dev/null")),
            // The user that apt downloads as may not access directories below a home directory.
            "-oAPT::Sandbox::User=".to_owned(),
            "-oAcquire::Languages=none".to_owned(),
        ];
        let apt = Self { options };
        run(apt.command("apt-get").args(["-qq", "update"])).with_context(|| {
            format!("cannot read {suite} from {mirror}; is the network reachable, and {KEYRING} installed?")
        })?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut cmd = Command::new(program);
        cmd.args(&self.options);
        cmd
    }

    fn has(&self, package: &str) -> Result<bool> {
        Ok(
            !output(self.command("apt-cache").args(["madison", package]))?
                .trim()
                .is_empty(),
        )
    }

    /// Downloads a package to `into` and returns its path.
    fn download(&self, package: &str, into: &Path) -> Result<PathBuf> {
        run(self
            .command("apt-get")
            .args(["-q", "download", package])
            .current_dir(into))?;
        let prefix = format!("{package}_");
        fs::read_dir(into)?
            .flatten()
            .map(|e| e.path())
            .filter(|p| {
                p.file_name()
                    .and_then(|n| n.to_str())
                    .is_some_and(|n| n.starts_with(&prefix))
            })
            .max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok())
            .with_context(|| format!("apt downloaded no {package}"))
    }
}

/// Unpacks the tarball in a package; the tree is renamed to its final name once it is complete.
fn unpack(deb: &Path, series: &str, unpacked: &Path) -> Result<(String, PathBuf)> {
    let scratch = unpacked.join(format!(".unpack-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    run(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&scratch))?;
    let tarball = scratch.join(format!("usr/src/linux-source-{series}.tar.xz"));
    run(Command::new("tar")
        .arg("-xf")
        .arg(&tarball)
        .arg("-C")
        .arg(&scratch))?;
    let tree = scratch.join(format!("linux-source-{series}"));
    let version = version_of(&tree)?;
    let dir = unpacked.join(format!("linux-{version}"));
    if !dir.exists() {
        fs::rename(&tree, &dir)?;
    }
    fs::remove_dir_all(&scratch)?;
    Ok((version, dir))
}

fn version_of(tree: &Path) -> Result<String> {
    let text = fs::read_to_string(tree.join("Makefile"))
        .with_context(|| format!("{} is not a kernel tree", tree.display()))?;
    let field = |name: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix('='))
            .map(|v| v.trim().to_owned())
            .with_context(|| format!("no {name} in {}/Makefile", tree.display()))
    };
    Ok(format!(
        "{}.{}.{}",
        field("VERSION")?,
        field("PATCHLEVEL")?,
        field("SUBLEVEL")?
    ))
}

/// Updates the patches of a tree: reverts those applied, applies those of the repository. The
/// modification times of other files are kept, so that a changed patch does not rebuild everything.
fn patch(patches: &Path, tree: &Path) -> Result<String> {
    let applied = tree.join(".smc-patches");
    let wanted = sorted(patches);
    let before = sorted(&applied);
    let digest = digest(&wanted)?;
    if digest == self::digest(&before)? {
        return Ok(digest);
    }
    for old in before.iter().rev() {
        apply(tree, old, true)?;
        fs::remove_file(old)?;
    }
    fs::create_dir_all(&applied)?;
    for new in &wanted {
        apply(tree, new, false)?;
        fs::copy(new, applied.join(new.file_name().unwrap_or_default()))?;
    }
    Ok(digest)
}

fn sorted(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "patch"));
    all.sort();
    all
}

fn digest(patches: &[PathBuf]) -> Result<String> {
    let mut hash = Sha256::new();
    for path in patches {
        hash.update(fs::read(path)?);
    }
    Ok(format!("{:x}", hash.finalize()))
}

fn apply(tree: &Path, patch: &Path, reverse: bool) -> Result<()> {
    let mut cmd = Command::new("patch");
    cmd.args(["-p1", "-f", "-s", "-d"])
        .arg(tree)
        .arg("-i")
        .arg(patch);
    if reverse {
        cmd.arg("-R");
    }
    // A dry run first, so that a patch is never applied partially.
    let mut trial = Command::new("patch");
    trial.args(cmd.get_args()).arg("--dry-run");
    output(&mut trial)
        .and_then(|_| run(&mut cmd))
        .with_context(|| {
            format!(
                "{} does not apply to {}; remove that folder to unpack it anew",
                patch.display(),
                tree.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_of_this_release() {
        let uris = "'http://m/debian-security/dists/bookworm-security/InRelease' a 0\n\
                    'http://m/debian/dists/bookworm-updates/InRelease' b 0\n\
                    'http://m/debian/dists/bookworm/InRelease' c 0\n";
        assert_eq!(
            mirror_in(uris, "bookworm").as_deref(),
            Some("http://m/debian")
        );
        assert_eq!(mirror_in(uris, "trixie"), None);
    }

    #[test]
    fn the_newest_patch_level_is_by_number() {
        let dir = std::env::temp_dir().join(format!("xtask-src-{}", std::process::id()));
        for name in ["linux-7.3.4", "linux-7.3.12", "linux-7.2.30", "linux-7.3.x"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        assert_eq!(newest(&dir, "7.3").map(|f| f.0).as_deref(), Some("7.3.12"));
        assert_eq!(newest(&dir, "7.4"), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
