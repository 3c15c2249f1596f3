// SPDX-License-Identifier: GPL-2.0

//! `smctest semantics`: every socket call in every state, compared with the expected result.
//!
//! The expectations are tables of [`Row`]. A row has one right result for a TCP socket, and, where
//! they differ, one for our socket over SMC and one after a fallback. What the C module returns, or
//! where it is known to be wrong, stands beside that for a run with the C module.

mod answer;
mod closing;
mod connected;
mod connecting;
mod converted;
mod copying;
mod events;
pub(crate) mod forms;
mod fresh;
mod interrupted;
mod listening;
mod options;
mod rig;
mod security;
mod shared;
mod undone;
mod unread;
mod urgent;

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Result;
use clap::ValueEnum;
use smc_tools::path::Path;

use crate::context::Context;
use crate::family::Family;
use crate::ktap::Ktap;

pub(crate) use rig::await_queued;
pub(crate) use rig::await_true;
pub(crate) use rig::blocked;
pub(crate) use rig::events;
pub(crate) use rig::fill;
pub(crate) use rig::tcp_state;
pub(crate) use rig::Pair;
pub(crate) use rig::Rig;
pub(crate) use rig::FIONREAD;
pub(crate) use rig::SIOCATMARK;

/// The implementation under test, where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Module {
    /// The module of this tree
    Ours,
    /// The C module
    C,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The module under test
    #[arg(long, default_value = "ours")]
    module: Module,

    /// Only rows whose name contains this
    #[arg(long, default_value = "")]
    only: String,

    /// Seconds for which threads use sockets that are converted and closed
    #[arg(long, default_value_t = 2)]
    race: u64,
}

/// How the C module performs on a row.
#[derive(Clone, Copy)]
enum C {
    /// As expected.
    Conforms,
    /// Has this result over SMC.
    Differs(&'static str),
    /// Returns a wrong result.
    Wrong(&'static str),
    /// Returns a wrong result at times.
    Unsteady(&'static str),
    /// Crashes the kernel: the row is not run.
    Crashes(&'static str),
}

/// A call or short sequence of calls, with the expected results as text.
struct Row {
    name: &'static str,
    run: fn(&Rig<'_>) -> Result<String>,
    /// The result of our socket over SMC.
    smc: &'static str,
    /// The result of our socket after a fallback.
    fallback: &'static str,
    /// The result of TCP; `None` if the row does not apply to it.
    tcp: Option<&'static str>,
    c: C,
}

/// What a socket is, and what its connections use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Fallback,
    Smc,
}

impl Row {
    /// A row with the same result everywhere.
    const fn same(
        name: &'static str,
        answer: &'static str,
        run: fn(&Rig<'_>) -> Result<String>,
    ) -> Self {
        Self {
            name,
            run,
            smc: answer,
            fallback: answer,
            tcp: Some(answer),
            c: C::Conforms,
        }
    }

    /// A row on which our sockets differ from TCP, also after a fallback; `None` if the row does not
    /// apply to TCP.
    const fn differs(
        name: &'static str,
        ours: &'static str,
        tcp: Option<&'static str>,
        run: fn(&Rig<'_>) -> Result<String>,
    ) -> Self {
        Self {
            tcp,
            ..Self::same(name, ours, run)
        }
    }

    /// A row on which our sockets differ from TCP unless they fell back to it.
    const fn differs_over_smc(
        name: &'static str,
        smc: &'static str,
        tcp: &'static str,
        run: fn(&Rig<'_>) -> Result<String>,
    ) -> Self {
        Self {
            smc,
            ..Self::same(name, tcp, run)
        }
    }

    /// A row on which the C module differs from TCP, and ours does not.
    const fn c_differs(mut self, answer: &'static str) -> Self {
        self.c = C::Differs(answer);
        self
    }

    /// A row where the C module is wrong.
    const fn c_is_wrong(mut self, why: &'static str) -> Self {
        self.c = C::Wrong(why);
        self
    }

    /// A row where the C module is wrong at times.
    const fn c_may_be_wrong(mut self, why: &'static str) -> Self {
        self.c = C::Unsteady(why);
        self
    }

    /// A row that is not run with the C module.
    const fn c_crashes(mut self, why: &'static str) -> Self {
        self.c = C::Crashes(why);
        self
    }

    /// Runs the row and compares the result.
    fn check(&self, rig: &Rig<'_>, kind: Kind, module: Module) -> Result<(), String> {
        let expected = match (kind, self.c) {
            (Kind::Tcp, _) => self.tcp.unwrap_or_default(),
            (Kind::Smc, C::Differs(answer)) if module == Module::C => answer,
            (Kind::Smc, _) => self.smc,
            (Kind::Fallback, _) => self.fallback,
        };
        let got = (self.run)(rig).map_err(|error| format!("could not be run: {error:#}"))?;
        match got == expected {
            true => Ok(()),
            false => Err(format!("got {got}, expected {expected}")),
        }
    }
}

const TABLES: &[(&str, &[Row])] = &[
    ("fresh", fresh::ROWS),
    ("connecting", connecting::ROWS),
    ("listening", listening::ROWS),
    ("connected", connected::ROWS),
    ("copying", copying::ROWS),
    ("urgent", urgent::ROWS),
    ("closing", closing::ROWS),
    ("unread", unread::ROWS),
    ("undone", undone::ROWS),
    ("events", events::ROWS),
    ("options", options::ROWS),
    ("security", security::ROWS),
    ("shared", shared::ROWS),
    ("interrupted", interrupted::ROWS),
];

/// Runs all rows; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let rig = Rig::new(context, Duration::from_secs(arguments.race))?;
    let path = rig.path()?;
    println!("# connections here go by {path}");
    let kind = match context.family {
        Family::Tcp => Kind::Tcp,
        _ if path.is_smc() => Kind::Smc,
        _ => Kind::Fallback,
    };
    if kind != Kind::Tcp {
        check_expected(context, &path)?;
    }

    let converted: &[_] = match context.family {
        Family::Ulp => &[("converted", converted::ROWS)],
        _ => &[],
    };
    let rows: Vec<_> = TABLES
        .iter()
        .chain(converted)
        .flat_map(|(table, rows)| rows.iter().map(move |row| (table, row)))
        .filter(|(_, row)| kind != Kind::Tcp || row.tcp.is_some())
        .map(|(table, row)| (format!("{table}: {}", row.name), row))
        .filter(|(name, _)| name.contains(&arguments.only))
        .collect();

    let mut ktap = Ktap::start(rows.len());
    for (name, row) in rows {
        judge(&mut ktap, &rig, &name, row, kind, arguments.module);
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} rows failed"),
    }
}

fn check_expected(context: &Context, path: &Path) -> Result<()> {
    use crate::context::Expected;

    match context.expect {
        Expected::Smc if !path.is_smc() => bail!("expected SMC"),
        Expected::Smcd if *path != Path::SmcD => bail!("expected SMC-D"),
        Expected::Tcp if path.is_smc() => bail!("expected TCP"),
        _ => Ok(()),
    }
}

/// Rows that take longer print their duration: blocked calls are no useful test.
const SLOW: Duration = Duration::from_secs(2);

fn judge(ktap: &mut Ktap, rig: &Rig<'_>, name: &str, row: &Row, kind: Kind, module: Module) {
    let is_c = module == Module::C && kind != Kind::Tcp;
    let start = Instant::now();

    match row.c {
        C::Crashes(why) if is_c => ktap.skip(name, &format!("the C module crashes: {why}")),
        C::Wrong(why) if is_c => match row.check(rig, kind, module) {
            Ok(()) => ktap.result(
                name,
                Err(format!("right now, so the table is wrong: {why}")),
            ),
            Err(_) => ktap.expected_failure(name, why),
        },
        C::Unsteady(why) if is_c => match row.check(rig, kind, module) {
            Ok(()) => ktap.result(name, Ok(())),
            Err(_) => ktap.expected_failure(name, why),
        },
        _ => ktap.result(name, row.check(rig, kind, module)),
    }
    if start.elapsed() > SLOW {
        println!("# that took {:.1} s", start.elapsed().as_secs_f32());
    }
}
