// SPDX-License-Identifier: GPL-2.0
//! `make bench`: measures several systems, each round in a new guest, alternating between systems;
//! prints medians and ratios, and writes `out/bench.json`. For the meaning of the values see
//! `Documentation/performance.md`.

mod figures;
pub(crate) mod option_cost;
pub(crate) mod referee;
mod report;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use clap::ValueEnum;

use crate::dirs::Dirs;
use crate::guests::{Booted, GuestSpec, ScriptRun};
use crate::kernel::Kernel;
use figures::Figures;
use referee::Program;

/// The script that measures one system once.
const SCRIPT: &str = "tools/bench/bench.sh";

/// The systems under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum System {
    /// This module.
    Ours,
    /// This module over soft iWARP instead of soft RoCE.
    OursIwarp,
    /// The C module of the same kernel.
    CModule,
    /// TCP over the same wire.
    Tcp,
    /// TCP over the loopback device.
    TcpLo,
    /// TCP between the namespaces, with BPF programs that lead its data from socket to socket.
    Sockmap,
    /// UNIX stream sockets.
    Unix,
    /// Rings in memory that two processes share, without the kernel but for sleeping: the bound.
    Bound,
    /// RDMA over the same wire, without sockets.
    Verbs,
}

impl System {
    /// Returns its key in the report, which is also the argument of the script.
    fn key(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursIwarp => "ours_iwarp",
            Self::CModule => "c_module",
            Self::Tcp => "tcp",
            Self::TcpLo => "tcp_lo",
            Self::Sockmap => "sockmap",
            Self::Unix => "unix",
            Self::Bound => "bound",
            Self::Verbs => "verbs",
        }
    }

    /// Returns the module that the guest loads, if any.
    fn module(self) -> &'static str {
        match self {
            Self::CModule => "c",
            _ => "ours",
        }
    }
}

/// The systems that are measured by the clock.
const SYSTEMS: &[System] = &[
    System::Ours,
    System::OursIwarp,
    System::CModule,
    System::Tcp,
    System::Verbs,
];

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// How often each system is measured; the medians count.
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    /// Measure where a nanosecond is an instruction: figures that repeat on any machine, and what is
    /// done for each message.
    #[arg(long, group = "counting")]
    pub(crate) referee: bool,
    /// Measure in the same way what the SMC option costs TCP connections that are not ours, on a kernel whose TCP
    /// has no hooks for it.
    #[arg(long, group = "counting", conflicts_with = "systems")]
    pub(crate) option_cost: bool,
    /// The referee: only these programs.
    #[arg(long, value_enum, value_delimiter = ',', requires = "referee")]
    programs: Vec<Program>,
    /// The referee: with soft RoCE that makes no checksums of its packets, as hardware makes them without the
    /// processor.
    #[arg(long, requires = "referee")]
    pub(crate) no_checksums: bool,
    /// The referee: within one kernel, by shared memory, beside what else programs of one machine can use.
    #[arg(long, requires = "referee", conflicts_with = "no_checksums")]
    pub(crate) same_host: bool,
    /// The referee, and the option's cost: how long each program is counted, in seconds of the guest.
    #[arg(long, default_value_t = 0.5, requires = "counting")]
    window: f64,
    /// Only these systems.
    #[arg(value_enum)]
    systems: Vec<System>,
}

/// Returns a run of a script, a path in this repository, in a guest with this kernel. `ko` is our module.
fn script_run<'a>(
    dirs: &Dirs,
    script: &str,
    kernel: &'a Kernel,
    ko: PathBuf,
) -> Result<ScriptRun<'a>> {
    let path = dirs.repo.join(script);
    let spec = GuestSpec::read(&path)?.with_context(|| format!("{script} has no header"))?;
    let booted = Booted {
        kernel,
        module: Some(ko),
    };
    ScriptRun::new(path, spec, vec![booted])
}

/// Measures all systems, prints the table, writes the report. `ko` is our module.
pub(crate) fn run(dirs: &Dirs, kernel: &Kernel, ko: PathBuf, args: &BenchArgs) -> Result<bool> {
    let mut script_run = script_run(dirs, SCRIPT, kernel, ko)?;
    let systems = match args.systems.as_slice() {
        [] => SYSTEMS,
        some => some,
    };
    if let Some(system) = systems.iter().find(|s| !SYSTEMS.contains(s)) {
        bail!("only the referee measures {}", system.key());
    }
    if args.rounds == 0 {
        bail!("--rounds 0 measures nothing");
    }
    let mut all = Figures::default();
    let mut progress = Progress::new(args.rounds as usize * systems.len());
    for round in 0..args.rounds {
        for &system in systems {
            progress.begin(round, system);
            measure(dirs, &mut script_run, system, &mut all)?;
            progress.end();
        }
    }
    print!("{}", report::table(&all, systems));
    write_report(dirs, |before| report::json(before, &all))?;
    Ok(true)
}

/// Writes `out/bench.json`: what `make` makes of the last one.
fn write_report(dirs: &Dirs, make: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let path = dirs.out("bench.json");
    let half = dirs.out("bench.json.new");
    let before = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&half, make(&before)?)?;
    fs::rename(&half, &path)?;
    println!("written to {}", dirs.short(&path).display());
    Ok(())
}

/// Runs one guest and adds its results.
fn measure(
    dirs: &Dirs,
    script_run: &mut ScriptRun<'_>,
    system: System,
    all: &mut Figures,
) -> Result<()> {
    script_run.args = vec![system.key().to_owned()];
    run_guest(dirs, script_run, system.key(), system.module())?;
    let path = script_run.share_dir(dirs).join("figures");
    let text = fs::read_to_string(&path).context("the guest left no figures")?;
    all.add(system, &text)
}

/// Runs the script with that module. `what` is measured.
fn run_guest(dirs: &Dirs, script_run: &mut ScriptRun<'_>, what: &str, module: &str) -> Result<()> {
    script_run.env.retain(|(name, _)| name != "MODULE");
    script_run
        .env
        .push(("MODULE".to_owned(), module.to_owned()));
    let outcome = script_run.run(dirs)?.pop().context("no outcome")?;
    let complaints = outcome.complaints();
    if !complaints.is_empty() {
        bail!(
            "{what}: {}\nlog: {}",
            complaints.join("\n    "),
            dirs.short(&outcome.log).display()
        );
    }
    Ok(())
}

/// Prints the progress and the estimated remaining time.
struct Progress {
    start: Instant,
    runs: usize,
    done: usize,
}

impl Progress {
    fn new(runs: usize) -> Self {
        Self {
            start: Instant::now(),
            runs,
            done: 0,
        }
    }

    fn begin(&self, round: u32, system: System) {
        let left = match u32::try_from(self.done) {
            Ok(done @ 1..) => {
                let each = self.start.elapsed() / done;
                let left = u32::try_from(self.runs - self.done).unwrap_or(u32::MAX);
                format!(", about {} left", minutes(each * left))
            }
            _ => String::new(),
        };
        println!("round {}: {}{left}", round + 1, system.key());
    }

    fn end(&mut self) {
        self.done += 1;
    }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
}
