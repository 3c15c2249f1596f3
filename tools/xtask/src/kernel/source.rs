// SPDX-License-Identifier: GPL-2.0
//! Kernel source from Debian: downloaded by apt with verified signatures, without adding a suite to
//! the system; unpacked once, with the fixes of `tools/kernel/patches`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{bail, Context, Result};
use sha2::{Digest, Sha256};

use crate::apt::{self, Apt};
use crate::dirs::Dirs;
use crate::run::{output, run};

/// Suites that may contain a series, the most stable first.
const SUITES: &[&str] = &["trixie-backports", "forky", "sid"];

/// The same for an older one.
const OLDER_SUITES: &[&str] = &["trixie"];

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
    let (version, dir) = unpacked(dirs, series, SUITES, update)?;
    let patches = patch(&dirs.repo.join("tools/kernel/patches"), &dir)?;
    Ok(Source {
        version,
        dir,
        patches,
    })
}

/// The same for an older series, without the fixes, which are for the present one.
pub(super) fn older(dirs: &Dirs, series: &str, update: bool) -> Result<Source> {
    let (version, dir) = unpacked(dirs, series, OLDER_SUITES, update)?;
    Ok(Source {
        version,
        dir,
        patches: String::new(),
    })
}

fn unpacked(dirs: &Dirs, series: &str, suites: &[&str], update: bool) -> Result<(String, PathBuf)> {
    let unpacked = dirs.cache.join("src");
    match newest(&unpacked, series) {
        Some(found) if !update => Ok(found),
        _ => fetch(dirs, series, suites, &unpacked),
    }
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

fn fetch(dirs: &Dirs, series: &str, suites: &[&str], unpacked: &Path) -> Result<(String, PathBuf)> {
    let debs = dirs.cache.join("deb");
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(unpacked)?;
    let package = format!("linux-source-{series}");
    let mirror = apt::mirror()?;
    for suite in suites {
        let apt = Apt::new(&dirs.cache.join("apt").join(suite), &mirror, &[suite])?;
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
        suites.join(", ")
    )
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

/// Updates the patches of a tree: reverts those applied, applies those of the repository. Files
/// whose content is the same afterwards keep their modification times, so that a changed patch does
/// not rebuild everything.
fn patch(patches: &Path, tree: &Path) -> Result<String> {
    let applied = tree.join(".smc-patches");
    let wanted = sorted(patches);
    let before = sorted(&applied);
    let digest = digest(&wanted)?;
    if digest == self::digest(&before)? {
        return Ok(digest);
    }
    let files = Touched::by(&before, tree)?;
    for old in before.iter().rev() {
        apply(tree, old, true)?;
        fs::remove_file(old)?;
    }
    fs::create_dir_all(&applied)?;
    for new in &wanted {
        apply(tree, new, false)?;
        fs::copy(new, applied.join(new.file_name().unwrap_or_default()))?;
    }
    files.restore_times()?;
    Ok(digest)
}

/// Files that applied patches have changed, with their content and modification times.
struct Touched(Vec<(PathBuf, Vec<u8>, SystemTime)>);

impl Touched {
    /// Reads the files of a tree that these patches change.
    fn by(patches: &[PathBuf], tree: &Path) -> Result<Self> {
        let mut names = BTreeSet::new();
        for patch in patches {
            let text = fs::read_to_string(patch)?;
            let files = text.lines().filter_map(|l| l.strip_prefix("+++ b/"));
            names.extend(files.map(|f| f.split('\t').next().unwrap_or(f).to_owned()));
        }
        let read = |name: &String| -> Result<_> {
            let path = tree.join(name);
            let time = fs::metadata(&path)?.modified()?;
            Ok((path.clone(), fs::read(path)?, time))
        };
        Ok(Self(names.iter().map(read).collect::<Result<_>>()?))
    }

    /// Gives files whose content is as before their modification times of then.
    fn restore_times(&self) -> Result<()> {
        for (path, content, time) in &self.0 {
            if fs::read(path)? == *content {
                File::options()
                    .write(true)
                    .open(path)?
                    .set_modified(*time)?;
            }
        }
        Ok(())
    }
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
    use std::time::Duration;

    use super::*;

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

    #[test]
    fn a_new_patch_touches_its_own_file_only() {
        let dir = std::env::temp_dir().join(format!("xtask-patch-{}", std::process::id()));
        let (patches, tree) = (dir.join("patches"), dir.join("tree"));
        fs::create_dir_all(&patches).unwrap();
        fs::create_dir_all(&tree).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let time = |name: &str| fs::metadata(tree.join(name)).unwrap().modified().unwrap();
        let age = |name: &str| {
            File::options()
                .write(true)
                .open(tree.join(name))
                .unwrap()
                .set_modified(old)
                .unwrap()
        };
        for name in ["a.c", "b.c"] {
            fs::write(tree.join(name), "before\n").unwrap();
            let patch = format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-before\n+after\n");
            fs::write(patches.join(format!("{name}.patch")), patch).unwrap();
            age(name);
        }
        fs::rename(patches.join("a.c.patch"), dir.join("later")).unwrap();
        patch(&patches, &tree).unwrap();
        assert_ne!(time("b.c"), old);
        age("b.c");
        fs::rename(dir.join("later"), patches.join("a.c.patch")).unwrap();
        patch(&patches, &tree).unwrap();
        assert_ne!(time("a.c"), old);
        assert_eq!(time("b.c"), old);
        assert_eq!(fs::read_to_string(tree.join("b.c")).unwrap(), "after\n");
        fs::remove_dir_all(&dir).unwrap();
    }
}
