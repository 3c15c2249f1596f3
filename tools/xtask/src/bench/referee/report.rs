// SPDX-License-Identifier: GPL-2.0
//! What the referee found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::profile::Profile;
use super::program::{Program, Quantity, QUANTITIES};
use crate::bench::report::{number, rounded, times};
use crate::bench::System;

/// How many functions of a profile are shown.
const TOP: usize = 40;

/// One program on one system.
pub(super) struct Run {
    pub(super) profile: Profile,
    /// How long was counted, in nanoseconds of the guest.
    pub(super) ns: f64,
    /// What the program did meanwhile, in bytes or requests, if it says that.
    pub(super) said: f64,
}

impl Run {
    /// Returns how much of what is counted per unit there was.
    pub(super) fn units(&self, program: Program) -> f64 {
        program.units(&self.profile, self.said)
    }

    fn figure(&self, program: Program) -> f64 {
        program.figure(self.units(program), self.ns)
    }

    /// Returns a count per unit.
    fn per_unit(&self, program: Program, count: u64) -> f64 {
        count as f64 / self.units(program)
    }
}

/// All runs.
pub(super) type Runs = BTreeMap<(Program, System), Run>;

/// Returns the figures, then the counts of each program.
pub(super) fn table(runs: &Runs, programs: &[Program], systems: &[System]) -> String {
    let mut text = head("", systems);
    for &program in programs {
        let value = |system| Some(runs.get(&(program, system))?.figure(program));
        line(&mut text, program.words(), systems, value);
    }
    for &program in programs {
        text.push_str(&head(&format!("per {}", program.unit()), systems));
        for quantity in QUANTITIES {
            let value = |system| {
                let run = runs.get(&(program, system))?;
                Some(run.per_unit(program, (quantity.count)(&run.profile)))
            };
            if systems.iter().any(|&s| value(s).is_some_and(|v| v > 0.0)) {
                line(&mut text, quantity.words, systems, value);
            }
        }
    }
    text
}

fn head(title: &str, systems: &[System]) -> String {
    let mut text = format!("\n{title:<36}");
    for system in systems {
        let _ = write!(text, "{:>12}", system.key());
    }
    for (words, _) in ratios(systems) {
        let _ = write!(text, "{words:>12}");
    }
    text.push('\n');
    text
}

/// The systems that ours is compared with, and how the column is called.
fn ratios(systems: &[System]) -> impl Iterator<Item = (&'static str, System)> + '_ {
    const ALL: [(&str, System); 4] = [
        ("ours/C", System::CModule),
        ("ours/TCP", System::Tcp),
        ("ours/unix", System::Unix),
        ("ours/bound", System::Bound),
    ];
    ALL.into_iter()
        .filter(|(_, system)| systems.contains(system))
}

fn line(text: &mut String, words: &str, systems: &[System], value: impl Fn(System) -> Option<f64>) {
    let _ = write!(text, "{words:<36}");
    for &system in systems {
        let cell = value(system).map_or("-".to_owned(), number);
        let _ = write!(text, "{cell:>12}");
    }
    let ratio = |other| {
        let quotient = value(System::Ours)? / value(other)?;
        quotient.is_finite().then_some(quotient)
    };
    for (_, other) in ratios(systems) {
        let _ = write!(text, "{:>12}", times(ratio(other)));
    }
    text.push('\n');
}

/// Returns what the report says of the referee: an object for each system.
pub(super) fn json(runs: &Runs, systems: &[System]) -> Map<String, Value> {
    let of = |system: &System| Value::Object(fields(runs, *system));
    systems
        .iter()
        .map(|system| (system.key().to_owned(), of(system)))
        .collect()
}

fn fields(runs: &Runs, system: System) -> Map<String, Value> {
    let mut fields = Map::new();
    for (&(program, _), run) in runs.iter().filter(|((_, of), _)| *of == system) {
        let figure = rounded(run.figure(program));
        fields.insert(program.figure_key().to_owned(), figure);
        let count = |q: &Quantity| rounded(run.per_unit(program, (q.count)(&run.profile)));
        let counts = QUANTITIES.iter().map(|q| (q.key.to_owned(), count(q)));
        fields.insert(program.key().to_owned(), Value::Object(counts.collect()));
    }
    fields
}

/// Returns the functions with the most instructions, with mangled names.
pub(super) fn functions(run: &Run, program: Program) -> String {
    let all = run.profile.instructions(|_| true);
    let mut text = format!(
        "Per {}: instructions, their share, calls; module, function\n",
        program.unit()
    );
    for function in run.profile.0.iter().take(TOP) {
        let _ = writeln!(
            text,
            "{:>12.1} {:>5.1} % {:>9.3}  {:<10} {}",
            run.per_unit(program, function.instructions),
            function.instructions as f64 / all as f64 * 100.0,
            run.per_unit(program, function.calls),
            function.module,
            function.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two work requests for each of six messages.
    fn runs() -> Runs {
        let counts =
            "ffffffff81000020 5 6 ffffffff81000030\nffffffffa0000000 5 12 ffffffffa0000010\n";
        let symbols =
            "ffffffff81000020 T __sys_sendto\nffffffffa0000000 t do_complete\t[rdma_rxe]\n";
        let symbols = super::super::profile::Symbols::parse(symbols).unwrap();
        let run = |ns| Run {
            profile: Profile::parse(&symbols, counts).unwrap(),
            ns,
            said: 0.0,
        };
        let program = Program::Stream64b;
        Runs::from([
            ((program, System::Ours), run(2e9)),
            ((program, System::CModule), run(1e9)),
        ])
    }

    #[test]
    fn figures_and_counts_stand_beside_each_other() {
        let text = table(
            &runs(),
            &[Program::Stream64b],
            &[System::Ours, System::CModule],
        );
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|l| l.starts_with(start)).unwrap();
            line[start.len()..]
                .split_whitespace()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(words("64 B messages one way/s"), ["3.00", "6.00", "0.50"]);
        assert_eq!(words("work requests to send"), ["2.00", "2.00", "1.00"]);
        assert!(!text.contains("packets, there"), "{text}");
    }

    #[test]
    fn the_section_has_an_object_for_each_system() {
        let all = json(&runs(), &[System::Ours, System::CModule]);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["ours", "c_module"]);
        assert_eq!(all["ours"]["stream_64b_per_s"], 3.0);
        assert_eq!(all["ours"]["stream_64b"]["work_requests"], 2.0);
    }

    #[test]
    fn a_profile_begins_with_the_most_instructions() {
        let runs = runs();
        let run = &runs[&(Program::Stream64b, System::Ours)];
        let text = functions(run, Program::Stream64b);
        let first: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            first,
            ["10.0", "66.7", "%", "2.000", "rdma_rxe", "do_complete"]
        );
    }
}
