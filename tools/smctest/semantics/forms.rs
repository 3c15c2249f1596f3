// SPDX-License-Identifier: GPL-2.0

//! `smctest forms`: every socket call in every form that programs use, with every argument given
//! and omitted.
//!
//! The expected result is what TCP returns in the same run. Where an SMC socket returns something
//! else, the form contains that result and the reason. Reports of the kernel's memory checker count
//! as failures, too.

mod commands;
mod control;
mod fast_open;
mod files;
mod messages;
mod names;
mod pending;
mod shutdowns;
mod uring;
mod users;
mod waiting;

use std::time::Duration;

use anyhow::bail;
use anyhow::Result;

use crate::context::Context;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::semantics::check_expected;
use crate::semantics::rig::Rig;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Families to compare with TCP
    #[arg(long, value_delimiter = ',', default_values = ["smc", "ipproto", "ulp"])]
    kinds: Vec<Family>,

    /// Only forms whose name contains this
    #[arg(long, default_value = "")]
    only: String,
}

/// The result of an SMC socket where it differs from that of TCP.
struct Exception {
    families: &'static [Family],
    answer: &'static str,
    why: &'static str,
}

/// One call in one form, with its result as text.
struct Form {
    name: &'static str,
    run: fn(&Rig<'_>) -> Result<String>,
    exception: Option<Exception>,
}

/// All families of SMC.
const SMC: &[Family] = &[Family::Smc, Family::Ipproto, Family::Ulp, Family::Tcp];

impl Form {
    const fn new(name: &'static str, run: fn(&Rig<'_>) -> Result<String>) -> Self {
        Self {
            name,
            run,
            exception: None,
        }
    }

    /// Allows another result for sockets of these families.
    const fn except(
        mut self,
        families: &'static [Family],
        answer: &'static str,
        why: &'static str,
    ) -> Self {
        self.exception = Some(Exception {
            families,
            answer,
            why,
        });
        self
    }

    fn answer(&self, rig: &Rig<'_>) -> Result<String, String> {
        (self.run)(rig).map_err(|error| format!("could not be run: {error:#}"))
    }
}

const TABLES: &[(&str, &[Form])] = &[
    ("names", names::FORMS),
    ("messages", messages::FORMS),
    ("fast open", fast_open::FORMS),
    ("files", files::FORMS),
    ("control", control::FORMS),
    ("waiting", waiting::FORMS),
    ("shutdown", shutdowns::FORMS),
    ("users", users::FORMS),
    ("io_uring", uring::FORMS),
    ("io_uring", pending::FORMS),
    ("io_uring", commands::FORMS),
];

/// Prefix of a result that explains why a form cannot be tested on this kernel.
const NOT_RUN: &str = "not run: ";

/// Runs all forms on all families; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let of = |family| Context {
        family,
        server_family: None,
        ..context.clone()
    };
    let bare = of(Family::Bare);
    let kinds: Vec<_> = arguments.kinds.iter().map(|family| of(*family)).collect();
    let reference = Rig::new(&bare, Duration::ZERO)?;
    let mut rigs = Vec::new();
    for context in &kinds {
        let rig = Rig::new(context, Duration::ZERO)?;
        let path = rig.path()?;
        println!("# {}: connections go by {path}", context.family.name());
        check_expected(context, &path)?;
        rigs.push(rig);
    }
    let forms: Vec<_> = TABLES
        .iter()
        .flat_map(|(table, forms)| forms.iter().map(move |form| (table, form)))
        .map(|(table, form)| (format!("{table}: {}", form.name), form))
        .filter(|(name, _)| name.contains(&arguments.only))
        .collect();

    let mut ktap = Ktap::start(forms.len() * rigs.len());
    for (name, form) in forms {
        let expected = form.answer(&reference);
        for rig in &rigs {
            let name = format!("{name}, {}", rig.context.family.name());
            judge(&mut ktap, rig, &name, form, &expected);
        }
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} forms failed"),
    }
}

fn judge(
    ktap: &mut Ktap,
    rig: &Rig<'_>,
    name: &str,
    form: &Form,
    expected: &Result<String, String>,
) {
    let expected = match expected {
        Ok(answer) => answer,
        Err(why) => return ktap.result(name, Err(format!("TCP: {why}"))),
    };
    if let Some(why) = expected.strip_prefix(NOT_RUN) {
        return ktap.skip(name, why);
    }
    let got = match form.answer(rig) {
        Ok(got) => got,
        Err(why) => return ktap.result(name, Err(why)),
    };
    let exception = form.exception.as_ref();
    let allowed = exception.filter(|e| e.families.contains(&rig.context.family));
    let result = match allowed {
        _ if got == *expected => Ok(()),
        Some(exception) if got == exception.answer => {
            println!("# TCP answers {expected}, here {got}: {}", exception.why);
            Ok(())
        }
        Some(exception) => Err(format!(
            "got {got}, TCP answers {expected}, and {} would do",
            exception.answer
        )),
        None => Err(format!("got {got}, TCP answers {expected}")),
    };
    ktap.result(name, result);
}
