// SPDX-License-Identifier: GPL-2.0
//! The whole test run: host tests, the runner's own test, all guest scripts, and a summary line.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::dirs::Dirs;
use crate::durations::Durations;
use crate::guests::{Booted, Extra, GuestSpec, ScriptRun, Topology};
use crate::kernel::{self, Flavour, Kernel, KernelOptions};
use crate::module::{self, Verbosity};
use crate::run;
use crate::table::Tables;
use crate::toolchain::Toolchain;
use crate::vm::Outcome;
use crate::{compile, host, lint, self_test, vm};

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
    announce(choice, &scripts);
    if choice.host {
        tally.add(host::test(dirs)?);
        tally.add(lint::as_test(dirs)?);
    }
    let is_over = choice.fail_fast && !tally.failed.is_empty();
    if choice.guests && !is_over {
        // An error that stops the guests counts as a failure; the summary is printed all the same.
        if let Err(e) = guests(dirs, &scripts, choice, options, &mut tally) {
            tally.failed.push(format!("guests: {e:#}"));
        }
    }
    Ok(tally.close())
}

fn guests(
    dirs: &Dirs,
    scripts: &[(PathBuf, GuestSpec)],
    choice: &Choice,
    options: &KernelOptions<'_>,
    tally: &mut Tally,
) -> Result<()> {
    let tools = Toolchain::find(dirs)?;
    let mut stage = Stage {
        dirs,
        tools: &tools,
        options,
        soak: choice.soak,
        durations: Durations::read(dirs),
        sets: HashMap::new(),
    };
    for flavour in flavours(scripts) {
        tally.add(stage.self_test(flavour)?);
    }
    host::build_tools(dirs)?;
    if choice.is_whole() {
        tally.add(stage.compile()?);
    }
    let mut ready = Vec::new();
    for (script, spec) in scripts {
        if stage.prepare(script, spec, tally)? {
            ready.push((script.as_path(), spec));
        }
    }
    ready.sort_by_key(|(script, spec)| stage.durations.of(&spec.run_name(script), spec.timeout));
    if !choice.fail_fast {
        // The longest first, so that it does not run alone at the end.
        ready.reverse();
    }
    let end = at_once(&ready, choice.fail_fast, tally, |(script, spec)| {
        stage.script_run(script, spec)
    });
    stage.durations.write()?;
    end
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

/// Returns the number of concurrent scripts: more than processors, since they often wait, but not so many that a guest
/// with its two processors is starved for as long as the peers' timeouts.
fn jobs() -> usize {
    (run::processors() + 1).min(4)
}

/// Runs [`jobs`] scripts concurrently. After an error no further ones are started; after a failure,
/// with `fail_fast`, those that run are stopped, too, and do not count.
fn at_once<T: Sync>(
    scripts: &[T],
    fail_fast: bool,
    tally: &mut Tally,
    script_run: impl Fn(&T) -> Result<Tally> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (send, results) = channel();
    let mut end = Ok(());
    thread::scope(|scope| {
        for _ in 0..jobs() {
            let (send, next, script_run) = (send.clone(), &next, &script_run);
            scope.spawn(move || {
                // ORDERING: Only the number counts.
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if send.send(script_run(script)).is_err() {
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
                        // ORDERING: As above.
                        next.store(scripts.len(), Ordering::Relaxed);
                        vm::stop_all();
                    }
                }
                Err(e) => {
                    next.store(scripts.len(), Ordering::Relaxed);
                    end = Err(e);
                }
            }
        }
    });
    end
}

fn announce(choice: &Choice, scripts: &[(PathBuf, GuestSpec)]) {
    if choice.host {
        println!("host tests with cargo (about 2 min to build, once)");
    }
    if choice.guests {
        let most: u64 = scripts.iter().map(|(_, spec)| spec.timeout.as_secs()).sum();
        println!(
            "{} guest scripts in virtual machines, {} at a time, no privileges needed (at most {} min; a \
             kernel that the cache lacks takes 15 to 25 min more, once)",
            scripts.len(),
            jobs().min(scripts.len()),
            most.div_ceil(60 * jobs() as u64)
        );
    }
}

/// Returns the selected test scripts, sorted by name.
fn scripts(dirs: &Dirs, choice: &Choice) -> Result<Vec<(PathBuf, GuestSpec)>> {
    let dir = dirs.repo.join(choice.folder);
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "sh"));
    paths.sort();
    let mut chosen = Vec::new();
    for path in paths {
        let Some(spec) = GuestSpec::read(&path)? else {
            continue;
        };
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
    Ok(chosen)
}

/// A kernel with our module for it, or the reason why there is no module.
struct Set {
    kernel: Kernel,
    module: Result<PathBuf, String>,
    /// Environment variables with the modules of peers.
    peers: HashMap<Topology, Vec<(String, String)>>,
    /// Environment variables with what scripts needed beside that.
    extras: HashMap<Extra, Vec<(String, String)>>,
}

/// Runs scripts; builds kernels and modules when the first script needs them.
struct Stage<'a> {
    dirs: &'a Dirs,
    tools: &'a Toolchain,
    options: &'a KernelOptions<'a>,
    soak: bool,
    durations: Durations,
    sets: HashMap<Flavour, Set>,
}

impl Stage<'_> {
    /// Plants faults in a guest with this kernel, which must be noticed.
    fn self_test(&mut self, flavour: Flavour) -> Result<Tally> {
        let (dirs, tools) = (self.dirs, self.tools);
        let set = self.set(flavour, false)?;
        let mut tally = Tally::default();
        if let Some(test) = self_test::run(dirs, tools, &set.kernel)? {
            tally.passed = usize::from(test.failed.is_empty());
            tally.failed = test.failed;
            let name = file_name(&test.script);
            report(dirs, &name, &test.spec, &[test.outcome], &tally);
        }
        Ok(tally)
    }

    /// Compiles the programs that must not compile, in the same way as the module.
    fn compile(&mut self) -> Result<Tally> {
        let dirs = self.dirs;
        let set = self.set(Flavour::UmDebug, true)?;
        match &set.module {
            Ok(_) => compile::test(dirs, &set.kernel),
            // Reported by the scripts.
            Err(_) => Ok(Tally::default()),
        }
    }

    /// Builds what a script needs; returns false if that fails, which is a failure of the script.
    fn prepare(&mut self, script: &Path, spec: &GuestSpec, tally: &mut Tally) -> Result<bool> {
        let (dirs, tools) = (self.dirs, self.tools);
        for flavour in spec.kernels() {
            let set = self.set(flavour, true)?;
            if let Err(why) = &set.module {
                tally.failed.push(format!("{}: {why}", file_name(script)));
                return Ok(false);
            }
            // Modules of peers are the C module's, which is not there for every kernel.
            if set.kernel.has_c_module() && !set.peers.contains_key(&spec.topology) {
                let peers = module::peers(dirs, tools, &set.kernel, spec.topology)?;
                set.peers.insert(spec.topology, peers);
            }
            for extra in &spec.extras {
                if !set.extras.contains_key(extra) {
                    let env = module::extra(dirs, tools, &set.kernel, *extra)?;
                    set.extras.insert(*extra, env);
                }
            }
        }
        Ok(true)
    }

    /// Runs a script after [`Self::prepare`].
    fn script_run(&self, script: &Path, spec: &GuestSpec) -> Result<Tally> {
        let dirs = self.dirs;
        let mut env = self.env();
        let mut booted = Vec::new();
        for flavour in spec.kernels() {
            let set = self.sets.get(&flavour).context("no such kernel")?;
            env.extend(set.peers.get(&spec.topology).into_iter().flatten().cloned());
            for extra in &spec.extras {
                env.extend(set.extras.get(extra).into_iter().flatten().cloned());
            }
            booted.push(Booted {
                kernel: &set.kernel,
                module: set.module.as_ref().ok().cloned(),
            });
        }
        let script_run = ScriptRun {
            env,
            ..ScriptRun::new(script.to_path_buf(), spec.clone(), booted)?
        };
        let name = file_name(script);
        let outcomes = script_run.run(dirs)?;
        let tally = judge(&name, &outcomes);
        if let Some(took) = outcomes.iter().map(|o| o.took).max() {
            self.durations.record(&script_run.name(), took);
        }
        report(dirs, &name, spec, &outcomes, &tally);
        Ok(tally)
    }

    /// Returns additional environment variables for scripts.
    fn env(&self) -> Vec<(String, String)> {
        match self.soak {
            true => vec![("SOAK".to_owned(), "1".to_owned())],
            false => Vec::new(),
        }
    }

    fn set(&mut self, flavour: Flavour, with_module: bool) -> Result<&mut Set> {
        let (dirs, tools) = (self.dirs, self.tools);
        if !self.sets.contains_key(&flavour) {
            let kernel = kernel::ensure(dirs, tools, flavour, self.options)?;
            self.sets.insert(
                flavour,
                Set {
                    kernel,
                    module: Err(String::new()),
                    peers: HashMap::new(),
                    extras: HashMap::new(),
                },
            );
        }
        let set = self.sets.get_mut(&flavour).context("no such kernel")?;
        if with_module && set.module.as_ref().is_err_and(String::is_empty) {
            set.module = module::build(dirs, tools, &set.kernel, Verbosity::Errors)
                .map_err(|e| format!("{e:#}"));
        }
        Ok(set)
    }
}

fn file_name(script: &Path) -> String {
    let name = script.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the results of the guests of one script.
fn judge(name: &str, outcomes: &[Outcome]) -> Tally {
    let mut tally = Tally::default();
    for outcome in outcomes {
        let report = &outcome.report;
        tally.passed += report.passed;
        tally.skipped += report.skipped;
        tally.tables.add(report.tables.clone());
        for (heading, count) in &outcome.races_elsewhere {
            *tally.races_elsewhere.entry(heading.clone()).or_default() += count;
        }
        tally
            .failed
            .extend(report.failed.iter().map(|line| format!("{name}: {line}")));
        let mut complaints = outcome.complaints();
        complaints.extend(outcome.gap());
        if !complaints.is_empty() {
            tally
                .failed
                .push(format!("{name}: {}", complaints.join("\n    ")));
        }
    }
    tally
}

/// Prints one line about a script, and details if it failed.
fn report(dirs: &Dirs, name: &str, spec: &GuestSpec, outcomes: &[Outcome], tally: &Tally) {
    let took = outcomes
        .iter()
        .map(|o| o.took)
        .max()
        .unwrap_or(Duration::ZERO)
        .as_secs_f32();
    let verdict = if tally.failed.is_empty() {
        "ok"
    } else {
        "FAILED"
    };
    let guest = match spec.topology {
        Topology::One => spec.flavour.name().to_owned(),
        Topology::Pair(a, b) => {
            let pair = format!("{a:?} and {b:?}").to_lowercase();
            match spec.kernels()[..] {
                [a, b] => format!("{pair} on {} and {}", a.name(), b.name()),
                _ => pair,
            }
        }
    };
    let mut lines = vec![format!(
        "{verdict:<6} {name} ({guest}): {} passed, {} failed, {took:.1} s",
        tally.passed,
        tally.failed.len()
    )];
    if !tally.failed.is_empty() {
        lines.extend(tally.failed.iter().map(|f| format!("    {f}")));
        let logs = outcomes.iter().map(|o| dirs.short(&o.log));
        lines.extend(logs.map(|log| format!("    log: {}", log.display())));
    }
    // In one call, since other scripts run concurrently.
    println!("{}", lines.join("\n"));
}
