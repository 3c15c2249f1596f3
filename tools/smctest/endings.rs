// SPDX-License-Identifier: GPL-2.0

//! `smctest endings`: what the calls of a socket return after every way in which a connection ends
//! or fails to be established.
//!
//! Each scenario ("way") runs over TCP first. SMC sockets of every family must return the same,
//! over RDMA and after a fallback: there is no list of expected results. [`EXCEPTIONS`] lists the
//! differences that are allowed.

mod cases;
mod marks;
mod probes;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;

use crate::context::Context;
use crate::context::Expected;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::semantics::Rig;
use cases::Case;
use cases::Subject;
use cases::Takes;
use cases::CASES;
use probes::Probe;
use probes::PROBES;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only ways whose name contains this
    #[arg(long, default_value = "")]
    only: String,

    /// Instead: random sequences of urgent data, so many of them
    #[arg(long)]
    urgent: Option<u64>,

    /// The first of their seeds
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A way, a look (both match by a part of the name), and why SMC may return something else there.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "unreachable",
    "connect again",
    "TCP goes on to report what stays in its error queue",
)];

/// How many ways run in parallel: they mostly wait.
const AT_ONCE: usize = 12;

/// Transport of the connection under test.
struct Path {
    name: String,
    /// The other end uses plain TCP, so that the connection falls back.
    falls_back: bool,
    family: Family,
}

/// Returns the families to compare with TCP: that of the command line, or all.
fn paths(context: &Context) -> Vec<Path> {
    let falls_back = context.expect == Expected::Tcp;
    let families = match context.family {
        Family::Tcp => vec![Family::Smc, Family::Ipproto, Family::Ulp],
        one => vec![one],
    };
    let way = match context.expect {
        Expected::Tcp => "TCP",
        Expected::Smcd => "shared memory",
        Expected::Smc | Expected::Any => "RDMA",
    };
    families
        .into_iter()
        .map(|family| Path {
            name: format!("{} over {way}", family.name()),
            falls_back,
            family,
        })
        .collect()
}

/// Returns the context for a connection whose socket under test is `subject`.
fn setting(context: &Context, path: Option<&Path>, subject: Subject) -> Context {
    let (client, server) = match (path, subject) {
        (None, _) => (Family::Tcp, Family::Tcp),
        (Some(path), Subject::Client) if path.falls_back => (path.family, Family::Tcp),
        (Some(path), Subject::Server) if path.falls_back => (Family::Tcp, path.family),
        (Some(path), _) => (path.family, path.family),
    };
    Context {
        family: client,
        server_family: Some(server),
        ..context.clone()
    }
}

/// The results of one look: those of TCP, and those of the paths that differ.
struct Answers {
    case: &'static str,
    probe: &'static str,
    tcp: String,
    others: Vec<(String, String)>,
}

/// Runs all ways; prints a table and KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let paths = paths(context);
    check_paths(context, &paths)?;
    if let Some(count) = arguments.urgent {
        return marks::run(context, &paths, arguments.seed, count);
    }
    let cases: Vec<_> = CASES
        .iter()
        .filter(|case| case.name.contains(&arguments.only))
        .filter(|case| context.expect == Expected::Smc || case.takes != Takes::Device)
        .collect();
    let (alone, together): (Vec<_>, Vec<_>) =
        cases.iter().partition(|case| case.takes != Takes::Nothing);
    let mut results = go_all(context, &paths, &together, AT_ONCE);
    results.append(&mut go_all(context, &paths, &alone, 1));

    println!("# the mask in level and edge mode, and what the calls said then; where SMC differs, its own");
    let mut failed = BTreeMap::<(&str, &str), Vec<String>>::new();
    for (case, result) in &results {
        match result {
            Err(error) => {
                for path in &paths {
                    failed
                        .entry((*case, &path.name))
                        .or_default()
                        .push(format!("could not be run: {error:#}"));
                }
            }
            Ok(answers) => answers.iter().for_each(|answer| {
                println!("# {}; {}: {}", answer.case, answer.probe, answer.tcp);
                for (path, said) in &answer.others {
                    let why = exception(answer);
                    let note = why.map_or(String::new(), |why| format!(" (as it may: {why})"));
                    println!("#     {path}: {said}{note}");
                    if why.is_none() {
                        let line = format!("{}: {said}, TCP: {}", answer.probe, answer.tcp);
                        let entry = failed.entry((*case, path)).or_default();
                        entry.push(line);
                    }
                }
            }),
        }
    }
    let mut ktap = Ktap::start(cases.len() * paths.len());
    for path in &paths {
        for case in &cases {
            let result = match failed.get(&(case.name, path.name.as_str())) {
                Some(lines) => Err(lines.join("\n")),
                None => Ok(()),
            };
            ktap.result(format!("{}: {}", path.name, case.name), result);
        }
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

fn exception(answer: &Answers) -> Option<&'static str> {
    EXCEPTIONS
        .iter()
        .find(|(case, probe, _)| answer.case.contains(case) && answer.probe.contains(probe))
        .map(|(_, _, why)| *why)
}

/// Checks that each path uses the transport that its name says.
fn check_paths(context: &Context, paths: &[Path]) -> Result<()> {
    for path in paths {
        for subject in [Subject::Client, Subject::Server] {
            let setting = setting(context, Some(path), subject);
            if setting.family == Family::Tcp {
                continue;
            }
            let rig = Rig::new(&setting, Duration::ZERO)?;
            let found = rig.path()?;
            let is_other = context.expect == Expected::Smcd && found != smc_tools::path::Path::SmcD;
            if found.is_smc() == path.falls_back || is_other {
                bail!("connections of {} go another way", path.name);
            }
        }
    }
    Ok(())
}

type Results = BTreeMap<&'static str, Result<Vec<Answers>>>;

/// Runs all ways, `at_once` in parallel.
fn go_all(context: &Context, paths: &[Path], cases: &[&'static Case], at_once: usize) -> Results {
    let (next, results) = (Mutex::new(cases.iter()), Mutex::new(Results::new()));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| loop {
                let case = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(case) = case else {
                    break;
                };
                let result = go(context, paths, case);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.insert(case.name, result);
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one way over TCP and over each path, once for each look.
fn go(context: &Context, paths: &[Path], case: &'static Case) -> Result<Vec<Answers>> {
    let look_at = |path: Option<&Path>, probe: &Probe, expected: Option<&str>| {
        let setting = setting(context, path, case.subject);
        let rig = Rig::new(&setting, Duration::ZERO)?;
        probes::take(&rig, case, probe, expected)
    };
    let mut all = Vec::new();
    // The wire is away for seconds.
    let most = if case.takes == Takes::Wire {
        1
    } else {
        PROBES.len()
    };
    let probes = PROBES
        .iter()
        .filter(|probe| probe.is_brief || case.takes == Takes::Nothing)
        .take(most);
    for probe in probes {
        let tcp = look_at(None, probe, None).context("over TCP")?;
        let mut others = Vec::new();
        for path in paths {
            let said = look_at(Some(path), probe, Some(&tcp)).context(path.name.clone())?;
            if said != tcp {
                others.push((path.name.clone(), said));
            }
        }
        all.push(Answers {
            case: case.name,
            probe: probe.name,
            tcp,
            others,
        });
    }
    Ok(all)
}
