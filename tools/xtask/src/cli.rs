// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::bench::{self, BenchArgs};
use crate::dirs::Dirs;
use crate::guests::{Booted, GuestSpec, ScriptRun, Topology};
use crate::kernel::{self, Flavour, Kernel, KernelOptions};
use crate::module::{self, Verbosity};
use crate::packages::{self, PackageSet};
use crate::suite::{self, Choice};
use crate::toolchain::Toolchain;
use crate::{coverage, fuzz, groups, host, lint, mutants, turns};

/// Builds kernels and the module, boots guests, runs the tests.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
    /// Kernel series; its newest patch level is used.
    #[arg(long, global = true, default_value = "7.3")]
    series: String,
    /// Parallel compilers (default: one more than processors).
    #[arg(long, short, global = true)]
    jobs: Option<usize>,
}

#[derive(Subcommand)]
enum Task {
    /// Install every package and tool that the other commands need.
    Setup,
    /// Build a kernel for guests, or find it in the cache.
    Kernel {
        flavour: Flavour,
        /// Look for a newer patch level of the series.
        #[arg(long)]
        update: bool,
        /// Take a build that was finished by hand, after checking its configuration.
        #[arg(long)]
        adopt: bool,
    },
    /// Build smc.ko for one of the guests' kernels, into out/<flavour>.
    Module { flavour: Flavour },
    /// Run one script in a guest, with its output here.
    Vm(VmArgs),
    /// Run the tests: host, then guests; ends with `N passed, N failed`.
    Test(TestArgs),
    /// A shell in a guest: two namespaces joined by soft RDMA, the module loaded.
    Shell {
        #[arg(default_value = "um")]
        flavour: Flavour,
    },
    /// Show what the module does, in a guest.
    Demo {
        /// The kernel, instead of the one that is soonest ready on this machine.
        flavour: Option<Flavour>,
    },
    /// Measure against the C module, TCP and plain RDMA, in guests.
    Bench(BenchArgs),
    /// Run the guest scripts again and again for a while.
    Soak {
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        names: Vec<String>,
    },
    /// Look for data races: run the guest scripts that name x86_64-kcsan, on that kernel.
    Kcsan {
        /// Only the scripts whose names contain one of these.
        names: Vec<String>,
    },
    /// Run the guest scripts that name arm64, on that kernel.
    Arm64 {
        /// Only the scripts whose names contain one of these.
        names: Vec<String>,
    },
    /// Show which source lines of the module guest scripts reach: that of the lying peer, if none is named.
    Coverage {
        /// Names of scripts, without folder and ending.
        #[arg(default_value = "hostile")]
        names: Vec<String>,
    },
    /// Run well-known programs and CPython's socket tests over SMC, in guests.
    Apps {
        /// Only the scripts whose names contain one of these.
        names: Vec<String>,
    },
    /// Feed random input to the protocol core.
    Fuzz {
        /// How long each target runs.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only these targets.
        names: Vec<String>,
    },
    /// Plant known faults in the module, one at a time, and show which test notices each.
    Mutants {
        /// Only the faults whose names contain one of these.
        names: Vec<String>,
        /// Also those that an earlier run has judged.
        #[arg(long)]
        again: bool,
    },
    /// Check the rules that no compiler checks.
    Lint,
}

#[derive(clap::Args)]
struct VmArgs {
    /// A program; `# guest:` and its fellows in its first lines say where it runs.
    script: PathBuf,
    /// For the program.
    args: Vec<String>,
    /// The kernel, if the script does not say or another is wanted.
    #[arg(long)]
    flavour: Option<Flavour>,
    #[arg(long)]
    cpus: Option<u32>,
    #[arg(long)]
    mem: Option<String>,
    /// In seconds.
    #[arg(long)]
    timeout: Option<u64>,
    /// Do not build smc.ko first, nor the user tools.
    #[arg(long)]
    bare: bool,
}

#[derive(clap::Args)]
struct TestArgs {
    /// Only guest scripts whose names contain one of these.
    names: Vec<String>,
    #[arg(long, conflicts_with = "guests")]
    host: bool,
    #[arg(long)]
    guests: bool,
    /// Only guest scripts for these kernels.
    #[arg(long)]
    flavour: Vec<Flavour>,
    /// End with the first failure; the shortest guest scripts come first.
    #[arg(long)]
    fail_fast: bool,
    /// All guest scripts, not only those whose turn it is today, as always if some are named.
    #[arg(long)]
    all: bool,
    /// Those whose turn it was on that day.
    #[arg(long, conflicts_with = "all")]
    day: Option<u64>,
}

/// Runs the command; returns `false` if a check or test failed.
pub(crate) fn main() -> Result<bool> {
    let cli = Cli::parse();
    ctrlc::set_handler(|| {
        groups::stop_all();
        eprintln!("stopped by a signal");
        std::process::exit(130);
    })?;
    let mut options = KernelOptions {
        series: &cli.series,
        ..KernelOptions::default()
    };
    if let Some(jobs) = cli.jobs {
        options.jobs = jobs.max(1);
    }
    let dirs = Dirs::find()?;
    match cli.task {
        Task::Lint => lint::run(&dirs),
        Task::Setup => setup(&dirs).map(|()| true),
        Task::Kernel {
            flavour,
            update,
            adopt,
        } => build_kernel(
            &dirs,
            flavour,
            &KernelOptions {
                update,
                adopt,
                ..options
            },
        ),
        Task::Module { flavour } => build_module(&dirs, flavour, &options),
        Task::Vm(args) => run_script(&dirs, args, &options),
        Task::Test(args) => test(&dirs, args, &options),
        Task::Shell { flavour } => shell(&dirs, flavour, &options),
        Task::Demo { flavour } => demo(&dirs, flavour, &options),
        Task::Bench(args) => measure(&dirs, &args, &options),
        Task::Soak { minutes, names } => soak(&dirs, minutes, names, &options),
        Task::Kcsan { names } => on_kernel(&dirs, Flavour::X86Kcsan, names, &options),
        Task::Arm64 { names } => {
            packages::ensure(PackageSet::Arm64)?;
            on_kernel(&dirs, Flavour::Arm64, names, &options)
        }
        Task::Coverage { names } => coverage(&dirs, &names, &options),
        Task::Apps { names } => apps(&dirs, names, &options),
        Task::Fuzz { seconds, names } => fuzz::run(&dirs, seconds, &names),
        Task::Mutants { names, again } => {
            packages::ensure(PackageSet::Guests)?;
            mutants::run(&dirs, &names, again)
        }
    }
}

fn setup(dirs: &Dirs) -> Result<()> {
    packages::ensure(PackageSet::Guests)?;
    let tools = Toolchain::find(dirs)?;
    print!("{}", tools.versions);
    Ok(())
}

/// Returns the tools and a kernel, which are built if necessary.
fn ready(
    dirs: &Dirs,
    needs: PackageSet,
    flavour: Flavour,
    options: &KernelOptions<'_>,
) -> Result<(Toolchain, Kernel)> {
    packages::ensure(needs)?;
    let tools = Toolchain::of(dirs, flavour)?;
    let kernel = kernel::ensure(dirs, &tools, flavour, options)?;
    Ok((tools, kernel))
}

fn build_kernel(dirs: &Dirs, flavour: Flavour, options: &KernelOptions<'_>) -> Result<bool> {
    let (_, kernel) = ready(dirs, PackageSet::Build, flavour, options)?;
    println!("{}", kernel.dir.display());
    Ok(true)
}

fn build_module(dirs: &Dirs, flavour: Flavour, options: &KernelOptions<'_>) -> Result<bool> {
    let (tools, kernel) = ready(dirs, PackageSet::Build, flavour, options)?;
    println!(
        "{}",
        module::build(dirs, &tools, &kernel, Verbosity::All)?.display()
    );
    Ok(true)
}

fn test(dirs: &Dirs, args: TestArgs, options: &KernelOptions<'_>) -> Result<bool> {
    let is_all = args.all || !args.names.is_empty() || !args.flavour.is_empty();
    let choice = Choice {
        folder: suite::TESTS,
        host: !args.guests && args.names.is_empty(),
        guests: !args.host,
        names: args.names,
        flavours: args.flavour,
        soak: false,
        fail_fast: args.fail_fast,
        day: (!is_all).then(|| args.day.unwrap_or_else(turns::today)),
    };
    if choice.guests {
        packages::ensure(PackageSet::Guests)?;
    }
    suite::run(dirs, &choice, options)
}

fn run_script(dirs: &Dirs, args: VmArgs, options: &KernelOptions<'_>) -> Result<bool> {
    let script = args
        .script
        .canonicalize()
        .with_context(|| format!("no {}", args.script.display()))?;
    let default = GuestSpec {
        flavour: Flavour::UmDebug,
        peer_flavour: Flavour::UmDebug,
        other_kernels: Vec::new(),
        topology: Topology::One,
        timeout: Duration::from_secs(600),
        cpus: 2,
        mem: "2G".to_owned(),
        trouble: Vec::new(),
        shortage: false,
        extras: Vec::new(),
        is_b_killed: false,
        counts_instructions: false,
        every: 1,
        is_alone: false,
    };
    let mut spec = GuestSpec::read(&script)?.unwrap_or(default);
    if let Some(flavour) = args.flavour {
        (spec.flavour, spec.peer_flavour) = (flavour, flavour);
    }
    spec.cpus = args.cpus.unwrap_or(spec.cpus);
    spec.mem = args.mem.unwrap_or(spec.mem);
    spec.timeout = args.timeout.map_or(spec.timeout, Duration::from_secs);

    packages::ensure(PackageSet::Guests)?;
    run_guests(dirs, script, args.args, spec, args.bare, options)
}

/// Runs a script in its guests, for which all is built that is missing; `bare` means neither the module nor the user
/// tools. Returns `false` if something failed.
fn run_guests(
    dirs: &Dirs,
    script: PathBuf,
    args: Vec<String>,
    spec: GuestSpec,
    bare: bool,
    options: &KernelOptions<'_>,
) -> Result<bool> {
    let mut kernels = Vec::new();
    for flavour in spec.kernels() {
        let tools = Toolchain::of(dirs, flavour)?;
        let kernel = kernel::ensure(dirs, &tools, flavour, options)?;
        kernels.push((tools, kernel));
    }
    let (mut env, mut booted) = (Vec::new(), Vec::new());
    for (tools, kernel) in &kernels {
        let takes_module = kernel.flavour.takes_module();
        let module = match bare || !takes_module {
            true => None,
            false => Some(module::build(dirs, tools, kernel, Verbosity::Errors)?),
        };
        // The modules of peers are changed ones of this series.
        if takes_module && kernel.has_c_module() {
            env.extend(module::peers(dirs, tools, kernel, spec.topology)?);
        }
        for extra in &spec.extras {
            env.extend(module::extra(dirs, tools, kernel, *extra)?);
        }
        booted.push(Booted { kernel, module });
    }
    if !bare {
        host::build_tools(dirs)?;
        for (_, kernel) in &kernels {
            host::build_tools_for(dirs, kernel)?;
        }
    }
    let script_run = ScriptRun {
        args,
        env,
        echo: true,
        ..ScriptRun::new(script, spec, booted)?
    };
    let mut clean = true;
    for outcome in script_run.run(dirs)? {
        for complaint in outcome.complaints() {
            clean = false;
            eprintln!("{complaint}");
        }
        clean &= outcome.report.failed.is_empty();
        eprintln!(
            "{:.1} s, log: {}",
            outcome.took.time.as_secs_f32(),
            dirs.short(&outcome.log).display()
        );
    }
    Ok(clean)
}

/// Runs the demo.
fn demo(dirs: &Dirs, flavour: Option<Flavour>, options: &KernelOptions<'_>) -> Result<bool> {
    let start = Instant::now();
    let flavour =
        flavour.unwrap_or_else(
            || match kernel::was_built(dirs, Flavour::Um, options.series) {
                true => Flavour::Um,
                false => Flavour::Debian73,
            },
        );
    println!(
        "The demo runs in a virtual machine on this machine's own files, read only, with the kernel {}.",
        flavour.name()
    );
    let set = match flavour.is_stock() {
        true => {
            println!(
                "That is Debian's own: it is downloaded, not built. This takes about two minutes; on a new machine packages \
                 and the build of the module take four more, once."
            );
            PackageSet::Demo
        }
        false => {
            println!(
                "It takes about two minutes; if this kernel has to be built first, 15 to 25 minutes more, once."
            );
            PackageSet::Guests
        }
    };
    let script = dirs.repo.join("tools/demo/demo.sh");
    let mut spec = GuestSpec::read(&script)?.context("demo.sh has no header")?;
    (spec.flavour, spec.peer_flavour) = (flavour, flavour);
    packages::ensure(set)?;
    let clean = run_guests(dirs, script, Vec::new(), spec, false, options)?;
    let took = start.elapsed().as_secs();
    println!(
        "The demo {} after {}:{:02} min in all.",
        if clean { "is over" } else { "failed" },
        took / 60,
        took % 60
    );
    Ok(clean)
}

/// Builds everything, then measures.
fn measure(dirs: &Dirs, args: &BenchArgs, options: &KernelOptions<'_>) -> Result<bool> {
    let (packages, flavour) = if args.same_host {
        (PackageSet::Apps, Flavour::X86SameHost)
    } else if args.referee {
        (PackageSet::Apps, Flavour::X86)
    } else if args.option_cost {
        (PackageSet::Guests, Flavour::Debian73)
    } else {
        (PackageSet::Guests, Flavour::Um)
    };
    let (tools, kernel) = ready(dirs, packages, flavour, options)?;
    let ko = module::build(dirs, &tools, &kernel, Verbosity::Errors)?;
    host::build_tools(dirs)?;
    let rxe = args
        .no_checksums
        .then(|| module::rxe_without_checksums(dirs, &tools, &kernel))
        .transpose()?;
    if args.referee {
        bench::referee::run(dirs, &kernel, ko, rxe, args)
    } else if args.option_cost {
        bench::option_cost::run(dirs, &kernel, ko, args)
    } else {
        bench::run(dirs, &kernel, ko, args)
    }
}

fn shell(dirs: &Dirs, flavour: Flavour, options: &KernelOptions<'_>) -> Result<bool> {
    let (tools, kernel) = ready(dirs, PackageSet::Guests, flavour, options)?;
    let module = Some(module::build(dirs, &tools, &kernel, Verbosity::Errors)?);
    host::build_tools(dirs)?;
    let script = dirs.repo.join("tools/xtask/guest/shell.sh");
    let mut spec = GuestSpec::read(&script)?.context("shell.sh has no header")?;
    (spec.flavour, spec.peer_flavour) = (flavour, flavour);
    let kernel = Booted {
        kernel: &kernel,
        module,
    };
    ScriptRun::new(script, spec, vec![kernel])?.interact(dirs)?;
    Ok(true)
}

fn soak(
    dirs: &Dirs,
    minutes: u64,
    names: Vec<String>,
    options: &KernelOptions<'_>,
) -> Result<bool> {
    packages::ensure(PackageSet::Guests)?;
    let choice = Choice {
        folder: suite::TESTS,
        host: false,
        guests: true,
        names,
        flavours: Vec::new(),
        soak: true,
        fail_fast: false,
        day: None,
    };
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let mut rounds = 0_u32;
    while Instant::now() < end {
        rounds += 1;
        println!("round {rounds}");
        if !suite::run(dirs, &choice, options)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs the scripts for a kernel that is not in `make test`.
fn on_kernel(
    dirs: &Dirs,
    flavour: Flavour,
    names: Vec<String>,
    options: &KernelOptions<'_>,
) -> Result<bool> {
    let args = TestArgs {
        names,
        host: false,
        guests: true,
        flavour: vec![flavour],
        fail_fast: false,
        all: true,
        day: None,
    };
    test(dirs, args, options)
}

/// Runs scripts in a guest that counts what it executes.
fn coverage(dirs: &Dirs, names: &[String], options: &KernelOptions<'_>) -> Result<bool> {
    let (tools, kernel) = ready(dirs, PackageSet::Guests, Flavour::X86Coverage, options)?;
    let ko = module::build(dirs, &tools, &kernel, Verbosity::Errors)?;
    host::build_tools(dirs)?;
    let folder = dirs.repo.join(suite::TESTS);
    let scripts: Vec<_> = names
        .iter()
        .map(|name| folder.join(format!("{name}.sh")))
        .collect();
    coverage::run(dirs, &kernel, &ko, &scripts)
}

/// Runs the tests with unmodified programs.
fn apps(dirs: &Dirs, names: Vec<String>, options: &KernelOptions<'_>) -> Result<bool> {
    packages::ensure(PackageSet::Apps)?;
    let choice = Choice {
        folder: suite::APPS,
        host: false,
        guests: true,
        names,
        flavours: Vec::new(),
        soak: false,
        fail_fast: false,
        day: None,
    };
    suite::run(dirs, &choice, options)
}
