// SPDX-License-Identifier: GPL-2.0
//! A kernel build: identified by its stamp, protected by a lock, resumed after an interruption.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use sha2::{Digest, Sha256};

use super::config::RequiredOptions;
use super::source::Source;
use super::{Flavour, KernelOptions};
use crate::run::{lock, run, show};
use crate::toolchain::Toolchain;

/// All inputs of a build.
pub(super) struct Build<'a> {
    pub(super) flavour: Flavour,
    pub(super) tools: &'a Toolchain,
    pub(super) source: &'a Source,
    pub(super) wanted: &'a RequiredOptions,
    pub(super) dir: &'a Path,
    /// The build directory of the flavour that differs least.
    pub(super) sibling: Option<PathBuf>,
}

impl Build<'_> {
    /// Builds the kernel unless the directory has a finished build with the same stamp.
    pub(super) fn ensure(&self, options: &KernelOptions<'_>) -> Result<()> {
        let stamp = self.stamp();
        if self.is_done(&stamp) {
            return Ok(());
        }
        fs::create_dir_all(self.dir)?;
        let _lock = lock(
            &beside(self.dir, "lock"),
            &format!("build of {}", self.dir.display()),
        )?;
        if self.is_done(&stamp) {
            return Ok(());
        }
        if options.adopt {
            self.check_config()?;
            self.check_image()?;
        } else {
            let _ = fs::remove_file(self.stamp_path());
            self.begin_as_sibling()?;
            self.configure()?;
            self.make(options.jobs)?;
        }
        fs::write(self.stamp_path(), stamp)?;
        Ok(())
    }

    /// Copies a finished build of the sibling into an empty build directory: make then compiles only what depends on
    /// the options that differ.
    fn begin_as_sibling(&self) -> Result<()> {
        let sibling = match &self.sibling {
            Some(sibling) if !self.dir.join(".config").exists() => sibling,
            _ => return Ok(()),
        };
        let is_built = || sibling.join(super::STAMP).exists();
        // Whose lock is waited for has a configuration, and does not wait for ours.
        if !is_built() {
            return Ok(());
        }
        let _lock = lock(
            &beside(sibling, "lock"),
            &format!("build of {}", sibling.display()),
        )?;
        if !is_built() {
            return Ok(());
        }
        // Under another name first, so that an interrupted copy is not taken for a build.
        let copy = beside(self.dir, "copy");
        let _ = fs::remove_dir_all(&copy);
        run(Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .arg(sibling)
            .arg(&copy))?;
        fs::remove_file(copy.join(super::STAMP))?;
        fs::remove_dir_all(self.dir)?;
        fs::rename(&copy, self.dir)?;
        Ok(())
    }

    /// Returns a hash of all inputs.
    fn stamp(&self) -> String {
        let mut hash = Sha256::new();
        for part in [
            &self.source.version,
            &self.source.patches,
            &self.tools.versions,
            &self.wanted.text(),
        ] {
            hash.update(part.as_bytes());
            hash.update(b"\0");
        }
        format!("{:x}\n", hash.finalize())
    }

    fn stamp_path(&self) -> PathBuf {
        self.dir.join(super::STAMP)
    }

    fn is_done(&self, stamp: &str) -> bool {
        fs::read_to_string(self.stamp_path()).is_ok_and(|s| s == stamp)
            && self.check_image().is_ok()
    }

    fn check_image(&self) -> Result<()> {
        for file in [self.flavour.image(), "Module.symvers", "modules.order"] {
            let path = self.dir.join(file);
            if !path.is_file() {
                bail!(
                    "{} is missing: the kernel build is not finished",
                    path.display()
                );
            }
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut cmd = self.tools.make();
        cmd.arg("-C").arg(&self.source.dir);
        cmd.arg(format!("O={}", self.dir.display()))
            .arg(format!("ARCH={}", self.flavour.arch()));
        cmd
    }

    fn configure(&self) -> Result<()> {
        let fragment = self.dir.join("smc.config");
        fs::write(&fragment, self.wanted.text())?;
        let mut cmd = self.command();
        cmd.arg(format!("KCONFIG_ALLCONFIG={}", fragment.display()))
            .arg("allnoconfig");
        let out = cmd
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run `{}`", show(&cmd)))?;
        if !out.status.success() {
            bail!(
                "`{}` failed:\n{}",
                show(&cmd),
                String::from_utf8_lossy(&out.stderr)
            );
        }
        self.check_config()
    }

    fn check_config(&self) -> Result<()> {
        let unmet = self.wanted.unmet(&self.dir.join(".config"))?;
        if !unmet.is_empty() {
            bail!(
                "Linux {} for {} does not give the configuration asked for in tools/kernel:\n  {}",
                self.source.version,
                self.flavour.name(),
                unmet.join("\n  ")
            );
        }
        Ok(())
    }

    fn make(&self, jobs: usize) -> Result<()> {
        let log = beside(self.dir, "log");
        let what = format!("Linux {} for {}", self.source.version, self.flavour.name());
        eprintln!(
            "{what}: building in {}, log in {}",
            self.dir.display(),
            log.display()
        );
        let mut cmd = self.command();
        cmd.arg(format!("-j{jobs}")).arg("all");
        let out = File::create(&log)?;
        cmd.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(out.try_clone()?);
        let start = Instant::now();
        let mut child = cmd
            .spawn()
            .with_context(|| format!("cannot run `{}`", show(&cmd)))?;
        follow(&mut child, out, &what, self.flavour.steps())?;
        let status = child.wait()?;
        if !status.success() {
            bail!("{what}: the build failed:\n{}", errors(&log));
        }
        eprintln!("{what}: built in {}", minutes(start.elapsed()));
        self.check_image()
    }
}

/// Copies the output of the build to the log and prints the progress.
fn follow(child: &mut Child, mut log: File, what: &str, steps: usize) -> Result<()> {
    let stdout = child.stdout.take().context("make has no output")?;
    let live = std::io::stderr().is_terminal();
    let every = Duration::from_secs(if live { 1 } else { 60 });
    let start = Instant::now();
    let (mut done, mut told) = (0_usize, start);
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        log.write_all(&line)?;
        log.write_all(b"\n")?;
        done += usize::from(is_step(&line));
        if told.elapsed() >= every {
            told = Instant::now();
            say(live, &progress(what, done, steps, start.elapsed()));
        }
    }
    if live {
        eprintln!();
    }
    Ok(())
}

/// Returns whether this is one of Kbuild's `  CC      file.o` lines.
fn is_step(line: &[u8]) -> bool {
    line.strip_prefix(b"  ")
        .and_then(|l| l.first())
        .is_some_and(u8::is_ascii_uppercase)
}

fn say(live: bool, text: &str) {
    if live {
        eprint!("\r{text}\x1b[K");
    } else {
        eprintln!("{text}");
    }
}

fn progress(what: &str, done: usize, steps: usize, took: Duration) -> String {
    let mut text = format!("{what}: {done} of about {steps} steps, {}", minutes(took));
    // The first few files do not suffice for an estimate.
    if done > 100 && done < steps {
        let left = took.mul_f64((steps - done) as f64 / done as f64);
        text.push_str(&format!(", at most {} left", minutes(left)));
    }
    text
}

/// Returns the path of a file next to a build directory.
fn beside(dir: &Path, ending: &str) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn minutes(time: Duration) -> String {
    let s = time.as_secs();
    format!("{}:{:02} min", s / 60, s % 60)
}

/// Returns the error messages in a log, or else its end.
fn errors(log: &Path) -> String {
    let text = fs::read(log)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default();
    let wrong = |l: &&str| l.contains("error") || l.contains("Error ") || l.contains("***");
    let mut lines: Vec<&str> = text.lines().filter(wrong).take(20).collect();
    if lines.is_empty() {
        let all: Vec<&str> = text.lines().collect();
        lines = all.iter().rev().take(20).rev().copied().collect();
    }
    lines.push("(all of it is in the log)");
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_from_other_output() {
        assert!(is_step(b"  CC      kernel/fork.o"));
        assert!(!is_step(b"make[1]: Entering directory"));
        assert!(!is_step(b"  12 warnings generated."));
        assert!(!is_step(b"  "));
    }

    #[test]
    fn the_estimate_follows_the_pace() {
        let text = progress("k", 400, 1600, Duration::from_secs(120));
        assert!(text.ends_with("at most 6:00 min left"), "{text}");
        assert!(!progress("k", 1700, 1600, Duration::from_secs(1)).contains("left"));
    }
}
