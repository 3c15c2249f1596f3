// SPDX-License-Identifier: GPL-2.0
//! The whole test run: host tests, the runner's own test, all guest scripts, and a summary line.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::dirs::Dirs;
use crate::durations::Durations;
use crate::guests::GuestSpec;
use crate::kernel::{self, Flavour, KernelOptions};
use crate::packing::{Budget, Load, Queue, UNKNOWN_LOAD};
use crate::run;
use crate::stage::{file_name, Job, Stage};
use crate::table::Tables;
use crate::toolchain::Toolchain;
use crate::turns::{self, Turn};
use crate::{fuzz, groups, host, lint};

/// Results so far.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    /// Descriptions of the failures.
    pub(crate) failed: Vec<String>,
    /// Tables with the output of scripts.
    pub(crate) tables: Tables,
    /// The number of data races in other code than ours, by the headings of KCSAN's reports.
    pub(crate) races_elsewhere: BTreeMap<String, usize>,
}

impl Tally {
    /// A single failure.
    pub(crate) fn failure(what: String) -> Self {
        Self {
            failed: vec![what],
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.failed.extend(other.failed);
        self.tables.add(other.tables);
        for (heading, count) in other.races_elsewhere {
            *self.races_elsewhere.entry(heading).or_default() += count;
        }
    }

    /// Prints the tables, the failures and the summary line; returns true if nothing failed.
    pub(crate) fn close(&self) -> bool {
        print!("{}", self.tables.show());
        print!("{}", show_races(&self.races_elsewhere));
        for what in &self.failed {
            println!("FAILED {what}");
        }
        let skipped = if self.skipped > 0 {
            format!(", {} skipped", self.skipped)
        } else {
            String::new()
        };
        println!(
            "{} passed, {} failed{skipped}",
            self.passed,
            self.failed.len()
        );
        self.failed.is_empty() && self.passed > 0
    }
}

/// How many of the races in other code are printed.
const RACES: usize = 20;

/// Returns a list of the races in other code than ours, the most frequent first, which says how many it leaves out.
fn show_races(races: &BTreeMap<String, usize>) -> String {
    let total: usize = races.values().sum();
    if total == 0 {
        return String::new();
    }
    let mut text = format!(
        "{total} reports of {} races without our module, which do not count:\n",
        races.len()
    );
    let mut sorted: Vec<_> = races.iter().collect();
    sorted.sort_by_key(|(heading, count)| (std::cmp::Reverse(**count), *heading));
    for (heading, count) in sorted.iter().take(RACES) {
        text.push_str(&format!("{count:>6}  {heading}\n"));
    }
    if sorted.len() > RACES {
        text.push_str(&format!("        and {} more\n", sorted.len() - RACES));
    }
    text
}

/// The guest scripts of `make test`, and those of `make apps`.
pub(crate) const TESTS: &str = "tools/testing/selftests/net/smc";
pub(crate) const APPS: &str = "tools/testing/selftests/net/smc/apps";

/// Selects the tests to run.
pub(crate) struct Choice {
    /// The directory of the guest scripts.
    pub(crate) folder: &'static str,
    pub(crate) host: bool,
    pub(crate) guests: bool,
    /// Only scripts whose names contain one of these; all if empty.
    pub(crate) names: Vec<String>,
    /// Only scripts for these kernels; all if empty.
    pub(crate) flavours: Vec<Flavour>,
    /// Whether scripts run longer than in the daily run.
    pub(crate) soak: bool,
    /// Whether the first failure ends the run; the shortest scripts come first then.
    pub(crate) fail_fast: bool,
    /// Of the scripts that take turns only those whose turn it is on this day, which [`turns::today`] counts; all if
    /// none.
    pub(crate) day: Option<u64>,
}

impl Choice {
    /// Returns whether all guest scripts of the directory are to run.
    fn is_whole(&self) -> bool {
        self.folder == TESTS && self.names.is_empty() && self.flavours.is_empty()
    }
}

/// Factor for the timeouts of scripts in a soak run.
const SOAK_FACTOR: u32 = 10;

/// Runs the selected tests; returns true if all passed.
pub(crate) fn run(dirs: &Dirs, choice: &Choice, options: &KernelOptions<'_>) -> Result<bool> {
    let mut tally = Tally::default();
    let scripts = if choice.guests {
        scripts(dirs, choice)?
    } else {
        Vec::new()
    };
    let durations = Durations::read(dirs);
    announce(choice, &scripts, &durations);
    if !choice.guests {
        tally.add(on_host(dirs)?);
        tally.add(fuzz::as_test(dirs)?);
    } else if let Err(e) = guests(dirs, &scripts, &durations, choice, options, &mut tally) {
        // An error that stops the guests counts as a failure; the summary is printed all the same.
        tally.failed.push(format!("guests: {e:#}"));
    }
    Ok(tally.close())
}

/// The tests that need no guest, but for fuzzing.
fn on_host(dirs: &Dirs) -> Result<Tally> {
    let mut tally = host::test(dirs)?;
    tally.add(lint::as_test(dirs)?);
    Ok(tally)
}

/// Builds what the scripts need, then runs these, and the tests of the host beside them.
fn guests(
    dirs: &Dirs,
    scripts: &[(PathBuf, GuestSpec)],
    durations: &Durations,
    choice: &Choice,
    options: &KernelOptions<'_>,
    tally: &mut Tally,
) -> Result<()> {
    let tools = Toolchain::find(dirs)?;
    let mut stage = Stage::new(dirs, &tools, choice.soak, durations);
    let flavours = flavours(scripts);
    let kernels = flavours
        .iter()
        .map(|flavour| kernel::ensure(dirs, &tools, *flavour, options))
        .collect::<Result<Vec<_>>>();
    for kernel in kernels? {
        stage.add_kernel(kernel);
    }
    stage.build_modules();
    let jobs = prepare(&mut stage, scripts, &flavours, choice, tally)?;
    let end = at_once(jobs, choice.fail_fast, tally);
    durations.write()?;
    end
}

/// Returns all jobs, in their order, with the processors that each takes. Those that build what some scripts need come
/// before the scripts, and go on beside the first. What fails to build is a failure of its scripts.
fn prepare<'a>(
    stage: &mut Stage<'a>,
    scripts: &'a [(PathBuf, GuestSpec)],
    flavours: &[Flavour],
    choice: &Choice,
    tally: &mut Tally,
) -> Result<Vec<(Load, Job<'a>)>> {
    let dirs = stage.dirs;
    let mut jobs: Vec<(Load, Job<'a>)> = Vec::new();
    if choice.host {
        jobs.push((Load::Rest, Box::new(move || on_host(dirs))));
    }
    // Before the scripts, which rely on what these test.
    for flavour in flavours {
        jobs.extend(stage.self_test(*flavour)?.map(|job| (UNKNOWN_LOAD, job)));
    }
    host::build_tools(dirs)?;
    for kernel in stage.kernels() {
        host::build_tools_for(dirs, kernel)?;
    }
    if choice.is_whole() {
        jobs.extend(stage.compile()?.map(|job| (Load::Rest, job)));
    }
    if choice.host {
        jobs.push((Load::Rest, Box::new(move || fuzz::as_test(dirs))));
    }
    let mut ready = Vec::new();
    for (script, spec) in scripts {
        if let Some(job) = stage.script(script, spec, tally)? {
            let name = spec.run_name(script);
            let time = stage.durations.time(&name, spec.timeout);
            let load = match spec.is_alone {
                true => Load::Alone,
                false => stage.durations.load(&name, spec.topology.unknown_load()),
            };
            ready.push((time, (load, job)));
        }
    }
    let supplies = stage.supplies().into_iter();
    jobs.extend(supplies.map(|job| (Load::Part(1.0), job)));
    ready.sort_by_key(|(time, _)| *time);
    if !choice.fail_fast {
        // The longest first, so that it does not run alone at the end, and before it those beside which no other of
        // their kind fits, which would take turns then.
        ready.reverse();
        ready.sort_by_key(|(_, (load, _))| !load.is_heavy());
    }
    jobs.extend(ready.into_iter().map(|(_, job)| job));
    if !choice.fail_fast {
        // Those that run alone come before all others: nothing has to end for them then, and the host's tests go on.
        jobs.sort_by_key(|(load, _)| *load != Load::Alone);
    }
    Ok(jobs)
}

/// Returns the kernels that the scripts run on, each once.
fn flavours(scripts: &[(PathBuf, GuestSpec)]) -> Vec<Flavour> {
    let mut all = Vec::new();
    for flavour in scripts.iter().flat_map(|(_, spec)| spec.kernels()) {
        if !all.contains(&flavour) {
            all.push(flavour);
        }
    }
    all
}

fn budget() -> Budget {
    Budget::new(run::processors())
}

/// Runs these, each with the processors that it takes, several at a time: in their order as far as the [`budget`] lets
/// them. After an error no further ones are started; after a failure, with `fail_fast`, those that run are stopped,
/// too, and do not count.
fn at_once(all: Vec<(Load, Job<'_>)>, fail_fast: bool, tally: &mut Tally) -> Result<()> {
    let queue = Queue::new(budget(), all);
    let (send, results) = channel();
    let mut end = Ok(());
    thread::scope(|scope| {
        for _ in 0..budget().most() {
            let send = send.clone();
            scope.spawn(|| {
                let send = send;
                while let Some((job, _running)) = queue.next() {
                    if send.send(job()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for result in results {
            match result {
                Ok(_) | Err(_) if fail_fast && !tally.failed.is_empty() => {}
                Ok(result) => {
                    tally.add(result);
                    if fail_fast && !tally.failed.is_empty() {
                        queue.clear();
                        groups::stop_all();
                    }
                }
                Err(e) => {
                    queue.clear();
                    end = Err(e);
                }
            }
        }
    });
    end
}

fn announce(choice: &Choice, scripts: &[(PathBuf, GuestSpec)], durations: &Durations) {
    if choice.host {
        println!("host tests with cargo (about 2 min to build, once)");
    }
    if choice.guests {
        let time = |(script, spec): &(PathBuf, GuestSpec)| {
            durations.cpu(&spec.run_name(script), spec.timeout)
        };
        let all: Duration = scripts.iter().map(time).sum();
        let minutes = all.div_f64(budget().load()).as_secs().div_ceil(60);
        println!(
            "{} guest scripts in virtual machines, up to {} at a time, no privileges needed (about {minutes} min; a \
             kernel that the cache lacks takes 15 to 25 min more, once)",
            scripts.len(),
            budget().most().min(scripts.len()),
        );
    }
}

/// Returns the scripts of a folder that have a header, sorted by name.
fn with_headers(dirs: &Dirs, folder: &str) -> Result<Vec<(PathBuf, GuestSpec)>> {
    let dir = dirs.repo.join(folder);
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "sh"));
    paths.sort();
    let specs = paths
        .into_iter()
        .map(|path| Ok(GuestSpec::read(&path)?.map(|spec| (path, spec))));
    specs.filter_map(Result::transpose).collect()
}

/// Returns the selected test scripts, sorted by name.
fn scripts(dirs: &Dirs, choice: &Choice) -> Result<Vec<(PathBuf, GuestSpec)>> {
    let mut found = with_headers(dirs, choice.folder)?;
    if choice.is_whole() && !choice.soak {
        // Programs of others that need no further packages take turns with the tests.
        let apps = with_headers(dirs, APPS)?.into_iter();
        found.extend(apps.filter(|(_, spec)| spec.every > 1));
    }
    let mut chosen = Vec::new();
    for (path, spec) in found {
        let name = file_name(&path);
        if !choice.names.is_empty() && !choice.names.iter().any(|n| name.contains(n.as_str())) {
            continue;
        }
        for mut spec in spec.for_each_kernel() {
            let is_chosen = |flavour: &Flavour| match choice.flavours.is_empty() {
                true => flavour.is_daily(),
                false => choice.flavours.contains(flavour),
            };
            if !spec.kernels().iter().any(is_chosen) {
                continue;
            }
            if choice.soak {
                spec.timeout *= SOAK_FACTOR;
            }
            chosen.push((path.clone(), spec));
        }
    }
    let is_chosen = |name: &&String| {
        let mut paths = chosen.iter().map(|(path, _)| file_name(path));
        paths.any(|path| path.contains(name.as_str()))
    };
    if let Some(name) = choice.names.iter().find(|name| !is_chosen(name)) {
        bail!("no guest script for these kernels whose name contains {name}");
    }
    if let Some(day) = choice.day {
        let all = chosen.len();
        let turn = |(_, spec): &(PathBuf, GuestSpec)| Turn {
            every: spec.every,
            weight: spec.timeout.as_secs(),
        };
        let scripts: Vec<Turn> = chosen.iter().map(turn).collect();
        let mut due = turns::due(day, &scripts).into_iter();
        chosen.retain(|_| due.next() == Some(true));
        println!(
            "{} of {all} runs of guest scripts: some take turns, and this is day {day} (--day {day}, or --all for all)",
            chosen.len()
        );
    }
    Ok(chosen)
}
