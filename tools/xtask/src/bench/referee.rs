// SPDX-License-Identifier: GPL-2.0
//! `make bench ARGS=--referee`: one guest for each system, in which each instruction takes a nanosecond and is
//! counted by a plugin of QEMU. Prints figures and counts, and writes them to the key `referee` of
//! `out/bench.json` and the profiles to `out/bench.profiles`. See `Documentation/performance.md`.

pub(crate) mod counts;
mod profile;
mod program;
mod report;

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, ensure, Context, Result};
use clap::ValueEnum;

use super::{BenchArgs, System};
use crate::dirs::Dirs;
use crate::guests::ScriptRun;
use crate::kernel::Kernel;
use crate::run;
use crate::toolchain::LLVM;
use profile::{Profile, Symbols};
pub(super) use program::Program;
use report::{Run, Runs};

/// The script that runs the programs on one system.
const SCRIPT: &str = "tools/bench/referee.sh";
/// The systems that it knows, and those within one kernel.
const SYSTEMS: &[System] = &[System::Ours, System::CModule, System::Tcp];
const SAME_HOST: &[System] = &[
    System::Ours,
    System::CModule,
    System::Tcp,
    System::TcpLo,
    System::Sockmap,
    System::Unix,
    System::Bound,
];

/// Runs the programs on all systems, prints the table, writes the report. `ko` is our module, `rxe` a variant of soft
/// RoCE to use in place of the kernel's.
pub(crate) fn run(
    dirs: &Dirs,
    kernel: &Kernel,
    ko: PathBuf,
    rxe: Option<String>,
    args: &BenchArgs,
) -> Result<bool> {
    let known = match args.same_host {
        true => SAME_HOST,
        false => SYSTEMS,
    };
    let systems = match args.systems.as_slice() {
        [] => known,
        some => some,
    };
    if let Some(system) = systems.iter().find(|s| !known.contains(s)) {
        bail!("the referee does not know {}", system.key());
    }
    let programs = match args.programs.as_slice() {
        [] if args.same_host => Program::SAME_HOST,
        [] => Program::BETWEEN_KERNELS,
        some => some,
    };
    ensure!(args.window > 0.0, "--window 0 counts nothing");
    let mut script_run = ScriptRun {
        env: rxe
            .iter()
            .map(|ko| ("RXE_KO".to_owned(), ko.clone()))
            .collect(),
        ..super::script_run(dirs, SCRIPT, kernel, ko)?
    };
    if args.same_host {
        let mut set = |name: &str, value: String| script_run.env.push((name.to_owned(), value));
        set("SAME_HOST", "1".to_owned());
        set("PEER", peer(dirs)?);
        set("SOCKMAP", sockmap(dirs)?);
    }
    let (key, profiles) = match rxe {
        None if args.same_host => (super::report::SAME_HOST, "bench.profiles_same_host"),
        None => (super::report::REFEREE, "bench.profiles"),
        Some(_) => (super::report::NO_CHECKSUMS, "bench.profiles_no_checksums"),
    };
    let mut runs = Runs::new();
    for &system in systems {
        println!("counting: {}", system.key());
        script_run.args = vec![system.key().to_owned(), args.window.to_string()];
        let keys = programs.iter().map(|program| program.key().to_owned());
        script_run.args.extend(keys);
        let counted = super::run_guest(dirs, &mut script_run, system.key(), system.module())
            .and_then(|()| read(&script_run.share_dir(dirs), system, &mut runs));
        if counted.is_err() {
            // What took minutes is not lost.
            print!("{}", report::table(&runs, programs, systems));
        }
        counted?;
    }
    print!("{}", report::table(&runs, programs, systems));
    write_profiles(&dirs.out(profiles), &runs)?;
    println!("profiles are in out/{profiles}");
    super::write_report(dirs, |before| {
        super::report::json_of_member(before, key, report::json(&runs, systems))
    })?;
    Ok(true)
}

/// Builds the program that exchanges messages over whatever carries them, in `out/bench`; returns its path.
fn peer(dirs: &Dirs) -> Result<String> {
    let program = dirs.out("bench").join("peer");
    let source = dirs.repo.join("tools/bench/peer.c");
    run::gcc(&source, &program, &["-std=gnu11", "-pthread"])?;
    Ok(program.display().to_string())
}

/// Builds the BPF programs that lead data from socket to socket, in `out/bench`; returns the path of their object.
fn sockmap(dirs: &Dirs) -> Result<String> {
    let object = dirs.out("bench").join("sockmap.o");
    let source = dirs.repo.join("tools/bench/sockmap.c");
    // Debian's place for the architecture's headers of the kernel.
    let asm = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    let options = ["-target", "bpf", "-g", "-c", &asm];
    run::compile(&format!("clang{LLVM}"), &source, &object, &options)?;
    Ok(object.display().to_string())
}

/// Reads what the guest and the plugin left.
fn read(share: &Path, system: System, runs: &mut Runs) -> Result<()> {
    let text = |name: &str| {
        let path = share.join(name);
        fs::read_to_string(&path).with_context(|| format!("the guest left no {name}"))
    };
    let symbols = Symbols::parse(&text("kallsyms")?)?;
    for (i, line) in text("windows")?.lines().enumerate() {
        let wrong = || format!("not a window: `{line}`");
        let words: Vec<&str> = line.split(' ').collect();
        let (name, ns, said) = match words[..] {
            [name, ns] => (name, ns, "0"),
            [name, ns, said] => (name, ns, said),
            _ => bail!(wrong()),
        };
        let program = Program::from_str(name, false).map_err(anyhow::Error::msg)?;
        // The plugin writes at the beginning of each window, too.
        let counts = text(&format!("counts.{}", 2 * i + 1))?;
        let run = Run {
            profile: Profile::parse(&symbols, &counts)?,
            ns: ns.parse().with_context(wrong)?,
            said: said.parse().with_context(wrong)?,
        };
        ensure!(
            run.units(program) > 0.0,
            "{}: {name} did nothing",
            system.key()
        );
        runs.insert((program, system), run);
    }
    Ok(())
}

/// Writes a file for each program and system.
fn write_profiles(dir: &Path, runs: &Runs) -> Result<()> {
    fs::create_dir_all(dir)?;
    for ((program, system), run) in runs {
        let name = format!("{}.{}.txt", program.key(), system.key());
        let text = demangle(&report::functions(run, *program))?;
        fs::write(dir.join(name), text)?;
    }
    Ok(())
}

/// Replaces the names of Rust functions by those of the source.
fn demangle(text: &str) -> Result<String> {
    let mut child = Command::new(format!("llvm-cxxfilt{LLVM}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run llvm-cxxfilt")?;
    // A profile is smaller than a pipe.
    let mut input = child.stdin.take().context("llvm-cxxfilt has no input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "llvm-cxxfilt: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
