// SPDX-License-Identifier: GPL-2.0
//! `make coverage`: which source lines of the module a script reaches, in a guest of QEMU whose blocks of code are
//! counted by a plugin. Lines are those of the module's debug information: what the compiler left no instruction for
//! does not count, and a line that several functions have inlined is reached if one of them ran it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};

use crate::dirs::Dirs;
use crate::guests::{Booted, GuestSpec, ScriptRun};
use crate::kernel::Kernel;
use crate::run::output;
use crate::toolchain::LLVM;

/// The emulated processor, whose clock is the number of its instructions, may take so many times as long.
const TIMEOUT_FACTOR: u32 = 10;

/// Source files that count, below the repository.
const SOURCES: &str = "net/smc/";
/// Of these, the files of the protocol core.
const CORE: &str = "net/smc/proto/";

/// A line of a source file, by its path below the repository.
type Line = (String, u32);

/// Runs each script and prints a table of what all of them reached; the lines that none reached are in
/// `out/coverage.txt`.
pub(crate) fn run(dirs: &Dirs, kernel: &Kernel, ko: &Path, scripts: &[PathBuf]) -> Result<bool> {
    let lines = Lines::read(&dirs.repo, ko)?;
    let mut reached = BTreeSet::new();
    let mut all_passed = true;
    for script in scripts {
        println!("running {}", script.display());
        let counts = counted(dirs, kernel, ko, script, &mut all_passed)?;
        for (start, text) in &counts {
            lines.reach(*start, text, &mut reached)?;
        }
    }
    print!("{}", lines.table(&reached));
    let path = dirs.out("coverage.txt");
    fs::write(&path, lines.unreached(&reached))?;
    println!("lines that were not reached are in {}", path.display());
    Ok(all_passed)
}

/// Runs a script; returns where the module was each time that it was loaded, and what the plugin wrote when it was
/// gone.
fn counted(
    dirs: &Dirs,
    kernel: &Kernel,
    ko: &Path,
    script: &Path,
    all_passed: &mut bool,
) -> Result<Vec<(u64, String)>> {
    let mut spec = GuestSpec::read(script)?.context("it has no header")?;
    (spec.flavour, spec.peer_flavour) = (kernel.flavour, kernel.flavour);
    // What a guest with one processor executes can be counted.
    (spec.cpus, spec.counts_instructions) = (1, true);
    spec.timeout *= TIMEOUT_FACTOR;
    ensure!(
        spec.kernels().len() == 1 && spec.extras.is_empty(),
        "{} needs more than a guest",
        script.display()
    );
    let booted = Booted {
        kernel,
        module: Some(ko.to_owned()),
    };
    let mut script_run = ScriptRun::new(script.to_owned(), spec, vec![booted])?;
    script_run.env.push(("COVERAGE".to_owned(), "1".to_owned()));
    let outcomes = script_run.run(dirs)?;
    for outcome in &outcomes {
        let mut wrong = outcome.report.failed.clone();
        wrong.extend(outcome.complaints());
        wrong.extend(outcome.gap());
        println!("{} passed, {} failed", outcome.report.passed, wrong.len());
        wrong.iter().for_each(|what| println!("    {what}"));
        *all_passed &= wrong.is_empty();
    }
    let share = script_run.share_dir(dirs);
    let mut all = Vec::new();
    for load in 0.. {
        let Ok(start) = fs::read_to_string(share.join(format!("text.{load}"))) else {
            break;
        };
        let counts = share.join(format!("counts.{load}"));
        let counts = fs::read_to_string(&counts).with_context(|| {
            format!(
                "the script did not unload the module: no {}",
                counts.display()
            )
        })?;
        all.push((hex(start.trim().trim_start_matches("0x"))?, counts));
    }
    ensure!(!all.is_empty(), "the script did not load the module");
    Ok(all)
}

/// The source lines of a module's instructions.
struct Lines {
    /// By the instruction's offset in the module's text.
    by_offset: BTreeMap<u64, Line>,
    all: BTreeSet<Line>,
}

impl Lines {
    fn read(repo: &Path, ko: &Path) -> Result<Self> {
        let mut cmd = Command::new(format!("llvm-objdump{LLVM}"));
        cmd.args(["-d", "-l", "--no-show-raw-insn", "-j", ".text"])
            .arg(ko);
        let lines = Self::parse(&output(&mut cmd)?, &format!("; {}/", repo.display()))?;
        if lines.all.is_empty() {
            bail!("{} has no debug information", ko.display());
        }
        Ok(lines)
    }

    /// Parses what llvm-objdump prints; `prefix` is what stands before the path of a source file of ours.
    fn parse(text: &str, prefix: &str) -> Result<Self> {
        let (mut by_offset, mut all) = (BTreeMap::new(), BTreeSet::new());
        let mut line = None;
        for printed in text.lines() {
            if let Some(path) = printed.strip_prefix(prefix) {
                line = ours(path);
            } else if printed.starts_with("; /") {
                line = None;
            } else if let (Some(line), Some((offset, _))) =
                (&line, printed.trim_start().split_once(":  "))
            {
                by_offset.insert(hex(offset)?, line.clone());
                all.insert(line.clone());
            }
        }
        Ok(Self { by_offset, all })
    }

    /// Adds the lines of the blocks that the plugin counted, for a module whose text is at `start`.
    fn reach(&self, start: u64, counts: &str, reached: &mut BTreeSet<Line>) -> Result<()> {
        for line in counts.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [first, _, _, last] = words[..] else {
                bail!("not a count: `{line}`");
            };
            let (first, last) = (hex(first)?, hex(last)?);
            let Some(first) = first.checked_sub(start) else {
                continue;
            };
            let ran = self.by_offset.range(first..=first.max(last - start));
            reached.extend(ran.map(|(_, line)| line.clone()));
        }
        Ok(())
    }

    /// Returns how many of these lines a file, or all files that begin so, has.
    fn count<'a>(lines: impl IntoIterator<Item = &'a Line>, which: impl Fn(&str) -> bool) -> usize {
        lines.into_iter().filter(|line| which(&line.0)).count()
    }

    fn table(&self, reached: &BTreeSet<Line>) -> String {
        let row = |name: &str, which: &dyn Fn(&str) -> bool| {
            let (some, all) = (Self::count(reached, which), Self::count(&self.all, which));
            // CAST: below 2^53.
            let share = 100.0 * some as f64 / all.max(1) as f64;
            format!("{name:<50} {some:>6} {all:>6} {share:>5.0} %\n")
        };
        let mut text = format!("{:<50} {:>6} {:>6}\n", "file", "lines", "of");
        let files: BTreeSet<&String> = self.all.iter().map(|line| &line.0).collect();
        for file in files {
            text += &row(file, &|name| name == file);
        }
        text += &row(CORE, &|name| name.starts_with(CORE));
        text += &row("net/smc/ without it", &|name| !name.starts_with(CORE));
        text
    }

    /// Returns the lines that were not reached, one a line, as `PATH:NUMBER`.
    fn unreached(&self, reached: &BTreeSet<Line>) -> String {
        let rest = self.all.difference(reached);
        rest.map(|(file, number)| format!("{file}:{number}\n"))
            .collect()
    }
}

/// Parses `PATH:NUMBER`; `None` for files that do not count, and for instructions of no line.
fn ours(text: &str) -> Option<Line> {
    let (path, number) = text.rsplit_once(':')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    path.starts_with(SOURCES).then(|| (path.to_owned(), number))
}

fn hex(text: &str) -> Result<u64> {
    u64::from_str_radix(text, 16).with_context(|| format!("not an address: `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "0000000000000010 <f>:\n; f():\n; /r/net/smc/a.rs:7\n      10:      \tpushq\t%rbp\n\
                           ; /usr/lib/core.rs:3\n      11:      \tnop\n; /r/net/smc/a.rs:8\n      12:      \tretq\n\
                           ; /r/net/smc/proto/b.rs:1\n      20:      \tretq\n; /r/net/smc/a.rs:0\n      21:      \tnop\n";

    #[test]
    fn lines_of_blocks_that_ran_are_reached() {
        let lines = Lines::parse(PRINTED, "; /r/").unwrap();
        assert_eq!(lines.all.len(), 3);
        let mut reached = BTreeSet::new();
        lines
            .reach(
                0x1000,
                "1010 2 5 1011\n0 9 9 0\n5000 1 1 5000\n",
                &mut reached,
            )
            .unwrap();
        assert_eq!(
            lines.unreached(&reached),
            "net/smc/a.rs:8\nnet/smc/proto/b.rs:1\n"
        );
        lines
            .reach(0x1000, "1011 2 5 1012\n", &mut reached)
            .unwrap();
        assert_eq!(lines.unreached(&reached), "net/smc/proto/b.rs:1\n");
        assert!(lines.table(&reached).contains("net/smc/a.rs"));
        assert!(lines.reach(0, "1 2 3", &mut reached).is_err());
    }
}
