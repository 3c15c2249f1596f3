// SPDX-License-Identifier: GPL-2.0
//! What guest scripts need (kernels, modules, and what else their headers name), built once each; and their runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use anyhow::{anyhow, Context, Result};

use crate::compile;
use crate::dirs::Dirs;
use crate::durations::{Durations, Took};
use crate::guests::{Booted, Extra, GuestSpec, ScriptRun, Topology};
use crate::kernel::{Flavour, Kernel};
use crate::module::{self, Verbosity};
use crate::run;
use crate::self_test::SelfTest;
use crate::suite::Tally;
use crate::toolchain::Toolchain;
use crate::vm::Outcome;

/// The run of a script, with all that it needs.
pub(crate) type Job<'a> = Box<dyn FnOnce() -> Result<Tally> + Send + 'a>;

/// A kernel with what was built for it.
struct Set {
    kernel: Arc<Kernel>,
    /// Our module, or the reason why there is none; `None` before it is built.
    module: Option<Result<PathBuf, String>>,
}

/// What scripts need on a kernel beside our module.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Need {
    /// The modules of the peers in such pairs.
    Peers(Topology),
    Extra(Extra),
}

/// A [`Need`], built once, by whoever asks for it first; others wait.
struct Supply {
    kernel: Arc<Kernel>,
    need: Need,
    /// Environment variables that name it, or why it could not be built.
    env: OnceLock<Result<Vec<(String, String)>, String>>,
}

impl Supply {
    fn get(&self, dirs: &Dirs, tools: &Toolchain) -> Result<&[(String, String)]> {
        let built = self.env.get_or_init(|| {
            let built = match self.need {
                Need::Peers(topology) => module::peers(dirs, tools, &self.kernel, topology),
                Need::Extra(extra) => module::extra(dirs, tools, &self.kernel, extra),
            };
            built.map_err(|e| format!("{e:#}"))
        });
        built
            .as_ref()
            .map(Vec::as_slice)
            .map_err(|why| anyhow!("{why}"))
    }
}

/// Builds what scripts need, and makes their runs.
pub(crate) struct Stage<'a> {
    pub(crate) dirs: &'a Dirs,
    pub(crate) durations: &'a Durations,
    tools: &'a Toolchain,
    soak: bool,
    sets: HashMap<Flavour, Set>,
    supplies: HashMap<(Flavour, Need), Arc<Supply>>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        dirs: &'a Dirs,
        tools: &'a Toolchain,
        soak: bool,
        durations: &'a Durations,
    ) -> Self {
        Self {
            dirs,
            durations,
            tools,
            soak,
            sets: HashMap::new(),
            supplies: HashMap::new(),
        }
    }

    /// Adds a kernel that was built.
    pub(crate) fn add_kernel(&mut self, kernel: Kernel) {
        let set = Set {
            kernel: Arc::new(kernel),
            module: None,
        };
        self.sets.insert(set.kernel.flavour, set);
    }

    /// Returns the kernels.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.sets.values().map(|set| &*set.kernel)
    }

    /// Builds our module for the kernels that load it, as many at a time as there are processors: most of the time each
    /// is one run of the compiler, which has one.
    pub(crate) fn build_modules(&mut self) {
        let (dirs, tools) = (self.dirs, self.tools);
        let sets = self.sets.values_mut();
        let unbuilt = sets.filter(|set| set.module.is_none() && set.kernel.flavour.takes_module());
        let waiting = Mutex::new(unbuilt.collect::<Vec<_>>());
        let next = || waiting.lock().ok()?.pop();
        thread::scope(|scope| {
            for _ in 0..run::processors() {
                scope.spawn(|| {
                    while let Some(set) = next() {
                        set.module = Some(built(dirs, tools, &set.kernel));
                    }
                });
            }
        });
    }

    /// Plants faults in a guest with this kernel, which must be noticed. `None` for a kernel without such a test.
    pub(crate) fn self_test(&mut self, flavour: Flavour) -> Result<Option<Job<'a>>> {
        let (dirs, tools, kernel) = (self.dirs, self.tools, self.set(flavour)?.kernel.clone());
        let Some(test) = SelfTest::new(dirs, flavour)? else {
            return Ok(None);
        };
        Ok(Some(Box::new(move || {
            let (outcome, failed) = test.run(dirs, tools, &kernel)?;
            let tally = Tally {
                passed: usize::from(failed.is_empty()),
                failed,
                ..Tally::default()
            };
            report(
                dirs,
                &file_name(&test.script),
                &test.spec,
                &[outcome],
                &tally,
            );
            Ok(tally)
        })))
    }

    /// Compiles the programs that must not compile, in the same way as the module. `None` if that does not build, which
    /// the scripts report.
    pub(crate) fn compile(&mut self) -> Result<Option<Job<'a>>> {
        let dirs = self.dirs;
        let (set, module) = self.built(Flavour::UmDebug)?;
        let kernel = set.kernel.clone();
        let job: Job<'a> = Box::new(move || compile::test(dirs, &kernel));
        Ok(module.is_ok().then_some(job))
    }

    /// Returns the run of a script, which builds what the script needs beside our module unless a job of
    /// [`Stage::supplies`] does; none, and a failure, if our module does not build.
    pub(crate) fn script(
        &mut self,
        script: &'a Path,
        spec: &'a GuestSpec,
        tally: &mut Tally,
    ) -> Result<Option<Job<'a>>> {
        let (dirs, tools, durations) = (self.dirs, self.tools, self.durations);
        let mut env = self.env();
        let mut supplies = Vec::new();
        let mut kernels = Vec::new();
        for flavour in spec.kernels() {
            if !flavour.takes_module() {
                kernels.push((self.set(flavour)?.kernel.clone(), None));
                continue;
            }
            let (set, module) = self.built(flavour)?;
            let kernel = set.kernel.clone();
            let module = match module {
                Ok(module) => module,
                Err(why) => {
                    tally.failed.push(format!("{}: {why}", file_name(script)));
                    return Ok(None);
                }
            };
            // Modules of peers are the C module's, which is not there for every kernel.
            if kernel.has_c_module() && spec.topology.has_c_module() {
                supplies.push(self.supply(&kernel, Need::Peers(spec.topology)));
            }
            let extras = spec.extras.iter();
            supplies.extend(extras.map(|extra| self.supply(&kernel, Need::Extra(*extra))));
            kernels.push((kernel, Some(module)));
        }
        Ok(Some(Box::new(move || {
            let name = file_name(script);
            for supply in supplies {
                match supply.get(dirs, tools) {
                    Ok(built) => env.extend_from_slice(built),
                    Err(why) => return Ok(Tally::failure(format!("{name}: {why:#}"))),
                }
            }
            let booted = kernels.iter().map(|(kernel, module)| Booted {
                kernel,
                module: module.clone(),
            });
            let script_run = ScriptRun {
                env,
                ..ScriptRun::new(script.to_path_buf(), spec.clone(), booted.collect())?
            };
            let outcomes = script_run.run(dirs)?;
            let tally = judge(&name, &outcomes);
            if tally.failed.is_empty() {
                durations.record(&script_run.name(), all_took(&outcomes));
            }
            report(dirs, &name, spec, &outcomes, &tally);
            Ok(tally)
        })))
    }

    /// Returns jobs that build what the scripts so far need beside our module, each of which keeps a processor busy.
    /// The scripts report what does not build.
    pub(crate) fn supplies(&self) -> Vec<Job<'a>> {
        let (dirs, tools) = (self.dirs, self.tools);
        let jobs = self.supplies.values().cloned().map(|supply| {
            let job: Job<'a> = Box::new(move || {
                let _reported = supply.get(dirs, tools);
                Ok(Tally::default())
            });
            job
        });
        jobs.collect()
    }

    fn supply(&mut self, kernel: &Arc<Kernel>, need: Need) -> Arc<Supply> {
        let supply = self.supplies.entry((kernel.flavour, need));
        let new = || {
            Arc::new(Supply {
                kernel: kernel.clone(),
                need,
                env: OnceLock::new(),
            })
        };
        supply.or_insert_with(new).clone()
    }

    /// Returns additional environment variables for scripts.
    fn env(&self) -> Vec<(String, String)> {
        match self.soak {
            true => vec![("SOAK".to_owned(), "1".to_owned())],
            false => Vec::new(),
        }
    }

    fn set(&mut self, flavour: Flavour) -> Result<&mut Set> {
        self.sets.get_mut(&flavour).context("no such kernel")
    }

    /// Returns a kernel, and the module that was built for it or why it could not be.
    fn built(&mut self, flavour: Flavour) -> Result<(&mut Set, Result<PathBuf, String>)> {
        let (dirs, tools) = (self.dirs, self.tools);
        let set = self.set(flavour)?;
        let module = set
            .module
            .get_or_insert_with(|| built(dirs, tools, &set.kernel));
        let module = module.clone();
        Ok((set, module))
    }
}

/// Our module for a kernel, or the reason why there is none.
fn built(dirs: &Dirs, tools: &Toolchain, kernel: &Kernel) -> Result<PathBuf, String> {
    module::build(dirs, tools, kernel, Verbosity::Errors).map_err(|e| format!("{e:#}"))
}

/// Returns what the guests of a script took together, which run at the same time.
fn all_took(outcomes: &[Outcome]) -> Took {
    Took {
        time: outcomes
            .iter()
            .map(|o| o.took.time)
            .max()
            .unwrap_or_default(),
        cpu: outcomes.iter().map(|o| o.took.cpu).sum(),
    }
}

pub(crate) fn file_name(script: &Path) -> String {
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
    let took = all_took(outcomes);
    let (time, cpu) = (took.time.as_secs_f32(), took.cpu.as_secs_f32());
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
        "{verdict:<6} {name} ({guest}): {} passed, {} failed, {time:.1} s ({cpu:.1} s of CPU)",
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
