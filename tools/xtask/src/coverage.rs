// SPDX-License-Identifier: GPL-2.0
//! `make coverage`: which source lines of the module a script reaches, in a guest of QEMU whose blocks of code are
//! counted by a plugin. Lines are those of the module's debug information, with those where a function was inlined:
//! what the compiler left no instruction for does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};

use crate::bench::referee::counts::{hex, Block};
use crate::dirs::Dirs;
use crate::guests::{Booted, GuestSpec, ScriptRun};
use crate::kernel::Kernel;
use crate::run::output;

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
    /// By the instruction's offset in the module's text: its line, and those where what it is part of was inlined.
    by_offset: BTreeMap<u64, Vec<Line>>,
    all: BTreeSet<Line>,
}

impl Lines {
    fn read(repo: &Path, ko: &Path) -> Result<Self> {
        // That of LLVM 19 finds no lines for most of a module that has units of C and of several crates.
        let mut cmd = Command::new("objdump");
        cmd.args(["-d", "-l", "--inlines", "--no-show-raw-insn", "-j", ".text"])
            .arg(ko);
        let lines = Self::parse(&output(&mut cmd)?, &format!("{}/", repo.display()))?;
        if lines.all.is_empty() {
            bail!("{} has no debug information", ko.display());
        }
        Ok(lines)
    }

    /// Parses what objdump prints; `prefix` is what stands before the path of a source file of ours. It prints the line
    /// of an instruction where that is another than before, and at each instruction where it was inlined.
    fn parse(text: &str, prefix: &str) -> Result<Self> {
        let (mut by_offset, mut all) = (BTreeMap::new(), BTreeSet::new());
        let (mut line, mut inlined) = (None, Vec::new());
        for printed in text.lines() {
            if let Some(place) = printed.strip_prefix("inlined by ") {
                inlined.extend(ours(place, prefix));
            } else if printed.starts_with('/') {
                line = ours(printed, prefix);
            } else if let Some((offset, _)) = printed.trim_start().split_once(":\t") {
                let mut lines = std::mem::take(&mut inlined);
                lines.extend(line.clone());
                all.extend(lines.iter().cloned());
                by_offset.insert(hex(offset)?, lines);
            }
        }
        Ok(Self { by_offset, all })
    }

    /// Adds the lines of the blocks that the plugin counted, for a module whose text is at `start`.
    fn reach(&self, start: u64, counts: &str, reached: &mut BTreeSet<Line>) -> Result<()> {
        for line in counts.lines() {
            let Block { first, last, .. } = Block::parse(line)?;
            let Some(first) = first.checked_sub(start) else {
                continue;
            };
            let ran = self.by_offset.range(first..=first.max(last - start));
            reached.extend(ran.flat_map(|(_, lines)| lines.iter().cloned()));
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

/// Parses `PATH:NUMBER` and what may follow; `None` for files that do not count, and for instructions of no line.
fn ours(text: &str, prefix: &str) -> Option<Line> {
    let (path, number) = text.split(' ').next()?.rsplit_once(':')?;
    let path = path.strip_prefix(prefix)?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    let is_ours = path.starts_with(SOURCES) && path.ends_with(".rs");
    is_ours.then(|| (path.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str =
        "0000000000000010 <f>:\nf():\n/r/net/smc/a.rs:7\n      10:\tpush   %rbp\n\
        /usr/lib/core.rs:3\ninlined by /r/net/smc/a.rs:9 (f)\n      11:\tnop\n\
        /r/net/smc/a.rs:8 (discriminator 2)\n      12:\tret\n\
        /r/net/smc/proto/b.rs:1\n      20:\tret\n/r/net/smc/a.rs:0\n      21:\tnop\n";

    #[test]
    fn lines_of_blocks_that_ran_are_reached() {
        let lines = Lines::parse(PRINTED, "/r/").unwrap();
        assert_eq!(lines.all.len(), 4);
        let mut reached = BTreeSet::new();
        let counts = "1010 2 5 1011\n0 9 9 0\n5000 1 1 5000\n";
        lines.reach(0x1000, counts, &mut reached).unwrap();
        let rest = lines.unreached(&reached);
        assert_eq!(rest, "net/smc/a.rs:8\nnet/smc/proto/b.rs:1\n");
        lines
            .reach(0x1000, "1012 1 5 1012\n", &mut reached)
            .unwrap();
        assert_eq!(lines.unreached(&reached), "net/smc/proto/b.rs:1\n");
        assert!(lines.table(&reached).contains("net/smc/a.rs"));
        assert!(lines.reach(0, "1 2 3", &mut reached).is_err());
    }
}
