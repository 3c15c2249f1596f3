// SPDX-License-Identifier: GPL-2.0
//! Tests that programs with undefined behaviour do not compile against `kernel_ext`: its safe
//! functions must be sound for every caller.
//!
//! Each file in [`FOLDER`] is compiled like the module's own crate. A comment `//~ E0308` at the
//! end of a line expects an error of that number there; exactly these errors must occur. A file
//! without such comments must compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};
use regex::Regex;

use crate::dirs::Dirs;
use crate::kernel::Kernel;
use crate::suite::Tally;

const FOLDER: &str = "tests/kernel_ext";
/// The command with which Kbuild compiled the crate that uses `kernel_ext`, below the build
/// directory.
const COMMAND: &str = "net/smc/.lib.o.cmd";

/// An error: its line and its number.
type Expected = (usize, String);

/// Compiles all files for a kernel for which the module was built.
pub(crate) fn test(dirs: &Dirs, kernel: &Kernel) -> Result<Tally> {
    let out = dirs.out(kernel.flavour.name());
    let path = out.join(COMMAND);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rustc = command(&text).with_context(|| format!("no command in {}", path.display()))?;
    let mut tally = Tally::default();
    for file in programs(&dirs.repo.join(FOLDER))? {
        match check(&out, &rustc, &file)? {
            None => tally.passed += 1,
            Some(why) => tally
                .failed
                .push(format!("{}: {why}", dirs.short(&file).display())),
        }
    }
    let verdict = if tally.failed.is_empty() {
        "ok"
    } else {
        "FAILED"
    };
    println!(
        "{verdict:<6} programs that must not build: {} passed, {} failed",
        tally.passed,
        tally.failed.len()
    );
    for line in &tally.failed {
        println!("    {line}");
    }
    Ok(tally)
}

fn programs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "rs"));
    files.sort();
    ensure!(!files.is_empty(), "{} has no programs", folder.display());
    Ok(files)
}

/// Returns Kbuild's command without the source and output files.
fn command(text: &str) -> Option<String> {
    let (_, command) = text.lines().next()?.split_once(" := ")?;
    // On some architectures an objtool command follows.
    let (command, _) = command.split_once(';').unwrap_or((command, ""));
    let mut words = command.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--out-dir" => drop(words.next()),
            _ if word.starts_with("--emit=") => {}
            // The source file is last.
            _ if words.peek().is_none() => {}
            _ => kept.push(word),
        }
    }
    (kept.len() > 1).then(|| kept.join(" "))
}

/// Compiles `file`; returns a message if the errors differ from the expected ones.
fn check(out: &Path, rustc: &str, file: &Path) -> Result<Option<String>> {
    let source =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let wanted = expected(&source)?;
    let script =
        format!("{rustc} --crate-name program --emit=metadata=\"$1\" --error-format=short \"$0\"");
    let run = Command::new("sh")
        .args(["-c", &script])
        .arg(file)
        .arg(out.join("program.rmeta"))
        // The kernel uses unstable features.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(out)
        .output()
        .context("cannot run sh")?;
    let said = String::from_utf8_lossy(&run.stderr);
    let found = errors(&said)?;
    Ok(
        match found == wanted && run.status.success() == wanted.is_empty() {
            true => None,
            false => Some(format!("expected {wanted:?}, found {found:?}\n{said}")),
        },
    )
}

/// Returns the errors that the comments of a program expect, sorted.
fn expected(source: &str) -> Result<Vec<Expected>> {
    let number = Regex::new(r"E\d{4}")?;
    let mut all = Vec::new();
    for (line, text) in (1..).zip(source.lines()) {
        let Some((_, comment)) = text.split_once("//~") else {
            continue;
        };
        all.extend(
            number
                .find_iter(comment)
                .map(|e| (line, e.as_str().to_owned())),
        );
    }
    all.sort();
    Ok(all)
}

/// Parses the compiler's messages in short form; returns the errors, sorted.
fn errors(said: &str) -> Result<Vec<Expected>> {
    let form = Regex::new(r"(?m)^[^:\n]+:(\d+):\d+: error\[(E\d{4})\]")?;
    let mut all = Vec::new();
    for found in form.captures_iter(said) {
        all.push((found[1].parse()?, found[2].to_owned()));
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_without_source_and_outputs() {
        let text =
            "savedcmd_net/smc/lib.o := A=b rustc -Cx --emit=metadata=./l.rmeta --out-dir net/smc/ \
                    --emit=obj=net/smc/lib.o /src/lib.rs ; objtool net/smc/lib.o\n\nsource_x := y";
        assert_eq!(command(text).as_deref(), Some("A=b rustc -Cx"));
        assert_eq!(command("x"), None);
    }

    #[test]
    fn errors_are_compared_by_line_and_number() {
        let source = "a //~ E0001 E0002\nb\nc //~ E0003\n";
        let said = "x.rs:3:1: error[E0003]: c\nx.rs:1:5: error[E0002]: b\nx.rs:1:1: error[E0001]: a\nx.rs:2:1: warning: w\n";
        assert_eq!(expected(source).unwrap(), errors(said).unwrap());
        assert_ne!(
            expected(source).unwrap(),
            errors("x.rs:3:1: error[E0003]: c").unwrap()
        );
    }
}
