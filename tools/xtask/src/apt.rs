// SPDX-License-Identifier: GPL-2.0
//! Packages of any Debian suite: downloaded by apt with verified signatures, without adding the suite to the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{output, run};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the mirror from which apt on this machine downloads its own release.
pub(crate) fn mirror() -> Result<String> {
    // Works before the first `apt-get update` as well.
    let uris = output(Command::new("apt-get").args(["update", "--print-uris"]))?;
    mirror_in(&uris, &codename())
        .or_else(|| mirror_in(&uris, "stable"))
        .context("apt has no Debian mirror in its sources: add one, then try again")
}

/// Returns the name of this machine's release.
pub(crate) fn codename() -> String {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    os.lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .unwrap_or("stable")
        .to_owned()
}

fn mirror_in(uris: &str, codename: &str) -> Option<String> {
    let end = format!("/dists/{codename}/InRelease");
    uris.lines()
        .filter_map(|l| l.strip_prefix('\'')?.split('\'').next())
        .find_map(|uri| uri.strip_suffix(end.as_str()))
        .map(str::to_owned)
}

/// Returns the options of an apt that keeps what it knows in `dir`, and takes nothing for installed.
fn own_state(dir: &Path) -> Result<Vec<String>> {
    for sub in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(dir.join(sub))?;
    }
    let status = dir.join("status");
    fs::write(&status, "")?;
    Ok(vec![
        set("Dir::State::Lists", &dir.join("lists")),
        set("Dir::State::Status", &status),
        set("Dir::Cache", &dir.join("cache")),
        // The user that apt downloads as may not access directories below a home directory.
        "-oAPT::Sandbox::User=".to_owned(),
        "-oAcquire::Languages=none".to_owned(),
    ])
}

fn set(key: &str, value: &Path) -> String {
    format!("-o{key}={}", value.display())
}

/// Unpacks a package.
pub(crate) fn extract(deb: &Path, into: &Path) -> Result<()> {
    output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(into)).map(drop)
}

/// An apt configuration with its own state directory and suites. For it nothing is installed.
pub(crate) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Reads the lists of these suites; what is known of them is kept in `dir`.
    pub(crate) fn new(dir: &Path, mirror: &str, suites: &[&str]) -> Result<Self> {
        Self::with_kind(dir, mirror, "deb", suites)
    }

    /// Reads the lists of this machine's own sources for another architecture.
    pub(crate) fn of_architecture(dir: &Path, architecture: &str) -> Result<Self> {
        let mut options = own_state(dir)?;
        options.push(format!("-oAPT::Architecture={architecture}"));
        options.push(format!("-oAPT::Architectures={architecture}"));
        let apt = Self { options };
        run(apt.command("apt-get").args(["-qq", "update"]))
            .with_context(|| format!("cannot read the lists for {architecture}"))?;
        Ok(apt)
    }

    /// The same for source packages.
    pub(crate) fn of_sources(dir: &Path, mirror: &str, suites: &[&str]) -> Result<Self> {
        Self::with_kind(dir, mirror, "deb-src", suites)
    }

    fn with_kind(dir: &Path, mirror: &str, kind: &str, suites: &[&str]) -> Result<Self> {
        let mut options = own_state(dir)?;
        let list = dir.join("sources.list");
        let sources = suites
            .iter()
            .map(|suite| format!("{kind} [signed-by={KEYRING}] {mirror} {suite} main\n"));
        fs::write(&list, sources.collect::<String>())?;
        options.extend([
            set("Dir::Etc::SourceList", &list),
            set("Dir::Etc::SourceParts", Path::new("/dev/null")),
            set("Dir::Etc::Preferences", Path::new("/dev/null")),
            set("Dir::Etc::PreferencesParts", Path::new("/dev/null")),
        ]);
        let apt = Self { options };
        run(apt.command("apt-get").args(["-qq", "update"])).with_context(|| {
            format!(
                "cannot read {} from {mirror}; is the network reachable, and {KEYRING} installed?",
                suites.join(", ")
            )
        })?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut cmd = Command::new(program);
        cmd.args(&self.options);
        cmd
    }

    pub(crate) fn has(&self, package: &str) -> Result<bool> {
        Ok(
            !output(self.command("apt-cache").args(["madison", package]))?
                .trim()
                .is_empty(),
        )
    }

    /// Returns the names of the packages that begin like this.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let names = output(self.command("apt-cache").args(["pkgnames", prefix]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Downloads these packages, and all that they depend on, to the empty directory `into`; returns their paths.
    pub(crate) fn download_with_dependencies(
        &self,
        packages: &[&str],
        into: &Path,
    ) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(into.join("partial"))?;
        let mut cmd = self.command("apt-get");
        cmd.arg(format!("-oDir::Cache::Archives={}", into.display()))
            .args(["-oDebug::NoLocking=1", "-qq", "-y", "--download-only"])
            .args(["--no-install-recommends", "install"])
            .args(packages);
        output(&mut cmd)?;
        let files = fs::read_dir(into)?.flatten().map(|e| e.path());
        Ok(files
            .filter(|p| p.extension().is_some_and(|e| e == "deb"))
            .collect())
    }

    /// Unpacks these packages, and all that they depend on, to `root`, which is emptied.
    pub(crate) fn unpack(&self, packages: &[&str], root: &Path) -> Result<()> {
        let archives = root.with_extension("archives");
        for dir in [root, &archives] {
            if dir.exists() {
                fs::remove_dir_all(dir)?;
            }
        }
        fs::create_dir_all(root)?;
        let mut debs = self.download_with_dependencies(packages, &archives)?;
        // What others lay files into comes first: this package has the links of /bin and /lib to /usr.
        let is_first = |deb: &PathBuf| {
            let name = deb.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("base-files_")
        };
        debs.sort_by_key(|deb| !is_first(deb));
        for deb in &debs {
            extract(deb, root)?;
        }
        fs::remove_dir_all(&archives)?;
        Ok(())
    }

    /// Downloads a source package to the directory `into` and unpacks it there; returns the directory that it makes.
    pub(crate) fn source(&self, package: &str, into: &Path) -> Result<PathBuf> {
        output(
            self.command("apt-get")
                .args(["-qq", "source", package])
                .current_dir(into),
        )?;
        fs::read_dir(into)?
            .flatten()
            .map(|e| e.path())
            .find(|p| p.join("debian/control").is_file())
            .with_context(|| format!("apt unpacked no {package}"))
    }

    /// Downloads a package to `into` and returns its path.
    pub(crate) fn download(&self, package: &str, into: &Path) -> Result<PathBuf> {
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
}
