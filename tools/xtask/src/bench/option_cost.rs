// SPDX-License-Identifier: GPL-2.0
//! `make bench ARGS=--option-cost`: what the SMC option costs TCP connections that are not ours, where netfilter adds
//! it. One guest, in which each instruction takes a nanosecond, runs the same programs in each state of the module,
//! again and again. Prints medians, and writes them to the key `option_cost` of `out/bench.json`. See
//! `Documentation/performance.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{ensure, Context, Result};
use clap::ValueEnum;
use serde_json::{Map, Value};

use super::figures::{median, spread};
use super::report::{number, rounded, OPTION_COST};
use super::BenchArgs;
use crate::dirs::Dirs;
use crate::guests::ScriptRun;
use crate::kernel::Kernel;

/// The script that runs the programs in all states.
const SCRIPT: &str = "tools/bench/option_cost.sh";

/// What may be there beside the connections that are measured, as the script knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
enum State {
    /// Nothing.
    NoModule,
    /// A netfilter hook of nftables without a rule, instead of the module.
    EmptyChain,
    /// The module.
    Loaded,
    /// An SMC listener in each namespace, thus our netfilter hook.
    Listener,
    /// The same, and connections of SMC.
    Connected,
}

impl State {
    fn key(self) -> &'static str {
        match self {
            Self::NoModule => "no_module",
            Self::EmptyChain => "empty_chain",
            Self::Loaded => "loaded",
            Self::Listener => "listener",
            Self::Connected => "connected",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NoModule => "no module",
            Self::EmptyChain => "no module, empty chain of nftables",
            Self::Loaded => "module without sockets",
            Self::Listener => "hook: an SMC listener",
            Self::Connected => "hook: SMC connections, too",
        }
    }
}

/// A program of TCP's, as the script knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Program {
    /// Connections one after another, over a veth pair.
    Connections,
    /// The same over the loopback device.
    ConnectionsLo,
    /// 64 bytes there and 64 back.
    Requests,
    RequestsLo,
    /// One stream.
    Bulk,
    BulkLo,
}

impl Program {
    /// Returns the key of its figure in the report.
    fn figure_key(self) -> &'static str {
        match self {
            Self::Connections => "conns_per_s",
            Self::ConnectionsLo => "lo_conns_per_s",
            Self::Requests => "requests_64b_per_s",
            Self::RequestsLo => "lo_requests_64b_per_s",
            Self::Bulk => "bulk_gbps",
            Self::BulkLo => "lo_bulk_gbps",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Connections => "connections/s, veth",
            Self::ConnectionsLo => "connections/s, lo",
            Self::Requests => "64 B there and back, a second, veth",
            Self::RequestsLo => "64 B there and back, a second, lo",
            Self::Bulk => "one stream, Gb/s, veth",
            Self::BulkLo => "one stream, Gb/s, lo",
        }
    }

    /// Returns the figure: so many units, or bytes, took so long, in nanoseconds of the guest.
    fn figure(self, units: f64, ns: f64) -> f64 {
        match self {
            Self::Bulk | Self::BulkLo => units * 8.0 / ns,
            _ => units * 1e9 / ns,
        }
    }

    /// Returns for how many instructions that figure stands: per unit, or MiB.
    fn instructions(self, figure: f64) -> f64 {
        match self {
            Self::Bulk | Self::BulkLo => f64::from(1 << 20) * 8.0 / figure,
            _ => 1e9 / figure,
        }
    }
}

/// The figures of all rounds.
#[derive(Default)]
struct Rounds(BTreeMap<(Program, State), Vec<f64>>);

impl Rounds {
    /// Parses what the script wrote.
    fn parse(text: &str) -> Result<Self> {
        let mut all = Self::default();
        for line in text.lines() {
            let wrong = || format!("not a figure: `{line}`");
            let words: Vec<&str> = line.split(' ').collect();
            let [program, state, units, ns] = words[..] else {
                anyhow::bail!(wrong());
            };
            let program = Program::from_str(program, false).map_err(anyhow::Error::msg)?;
            let state = State::from_str(state, false).map_err(anyhow::Error::msg)?;
            let (units, ns): (f64, f64) = (
                units.parse().with_context(wrong)?,
                ns.parse().with_context(wrong)?,
            );
            ensure!(units > 0.0 && ns > 0.0, wrong());
            let figures = all.0.entry((program, state)).or_default();
            figures.push(program.figure(units, ns));
        }
        Ok(all)
    }

    /// Returns what there is to say of a program in a state.
    fn line(&self, program: Program, state: State) -> Option<Line> {
        let values = self.0.get(&(program, state))?;
        let (figure, base) = (
            median(values)?,
            median(self.0.get(&(program, State::NoModule))?)?,
        );
        Some(Line {
            figure,
            half_spread: spread(values)? / 2.0,
            ratio: figure / base,
            added: program.instructions(figure) - program.instructions(base),
        })
    }
}

/// A line of the table.
struct Line {
    figure: f64,
    /// Between the rounds, relative to the figure.
    half_spread: f64,
    /// To the figure without a module.
    ratio: f64,
    /// Instructions per unit, beyond those without a module.
    added: f64,
}

/// Measures, prints the table, writes the report. `ko` is our module.
pub(crate) fn run(dirs: &Dirs, kernel: &Kernel, ko: PathBuf, args: &BenchArgs) -> Result<bool> {
    ensure!(args.rounds > 0, "--rounds 0 measures nothing");
    ensure!(args.window > 0.0, "--window 0 counts nothing");
    let mut script_run = ScriptRun {
        args: vec![args.rounds.to_string(), args.window.to_string()],
        echo: true,
        ..super::script_run(dirs, SCRIPT, kernel, ko)?
    };
    super::run_guest(dirs, &mut script_run, OPTION_COST, "ours")?;
    let path = script_run.share_dir(dirs).join("figures");
    let text = fs::read_to_string(path).context("the guest left no figures")?;
    let rounds = Rounds::parse(&text)?;
    print!("{}", table(&rounds));
    super::write_report(dirs, |before| {
        super::report::json_of_member(before, OPTION_COST, json(&rounds))
    })?;
    Ok(true)
}

fn table(rounds: &Rounds) -> String {
    let mut text = String::new();
    for &program in Program::value_variants() {
        let _ = writeln!(
            text,
            "\n{:<36}{:>12}{:>10}{:>10}{:>16}",
            program.words(),
            "",
            "spread",
            "ratio",
            "instructions"
        );
        for &state in State::value_variants() {
            let Some(line) = rounds.line(program, state) else {
                continue;
            };
            let _ = writeln!(
                text,
                "    {:<32}{:>12}{:>10}{:>10.4}{:>16}",
                state.words(),
                number(line.figure),
                format!("±{:.2}%", line.half_spread * 100.0),
                line.ratio,
                format!("{:+.0}", line.added),
            );
        }
    }
    text.push_str(
        "\nratio: to the figure without a module; instructions: per connection, request or MiB, beyond those without\n",
    );
    text
}

/// Returns an object for each state.
fn json(rounds: &Rounds) -> Map<String, Value> {
    let of = |state: State| {
        let mut fields = Map::new();
        for &program in Program::value_variants() {
            let Some(line) = rounds.line(program, state) else {
                continue;
            };
            let key = program.figure_key();
            fields.insert(key.to_owned(), rounded(line.figure));
            fields.insert(format!("{key}_ratio"), rounded(line.ratio));
            fields.insert(format!("{key}_spread"), rounded(line.half_spread));
        }
        Value::Object(fields)
    };
    State::value_variants()
        .iter()
        .map(|&state| (state.key().to_owned(), of(state)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100,000 instructions for a connection, and 1000 more with the hook.
    fn rounds() -> Rounds {
        Rounds::parse(
            "connections no_module 9900 1000000000\nconnections listener 10000 1010000000\n\
             connections listener 10000 1010000000\nconnections no_module 10100 1000000000\n\
             bulk no_module 1250000000 1000000000\n",
        )
        .unwrap()
    }

    #[test]
    fn states_are_compared_with_the_first() {
        let line = |state| rounds().line(Program::Connections, state);
        let base = line(State::NoModule).unwrap();
        assert_eq!((base.figure, base.ratio, base.added), (1e4, 1.0, 0.0));
        assert!((base.half_spread - 0.01).abs() < 1e-9);
        let hook = line(State::Listener).unwrap();
        assert!((hook.ratio - 1.0 / 1.01).abs() < 1e-9);
        assert!((hook.added - 1000.0).abs() < 1e-6);
        assert_eq!(hook.half_spread, 0.0);
        assert!(line(State::Loaded).is_none());
    }

    #[test]
    fn the_table_and_the_report_have_what_was_measured() {
        let text = table(&rounds());
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|l| l.trim_start().starts_with(start));
            let rest = &line.unwrap().trim_start()[start.len()..];
            rest.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(
            words("hook: an SMC listener"),
            ["9901", "±0.00%", "0.9901", "+1000"]
        );
        let all = json(&rounds());
        assert_eq!(all["no_module"]["bulk_gbps"], 10.0);
        assert_eq!(all["listener"]["conns_per_s_ratio"], 0.9901);
        assert!(all["listener"].get("bulk_gbps").is_none());
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for text in [
            "connections no_module 1",
            "connections no_module 0 1",
            "connections no_module 1 0",
            "connections nothing 1 1",
            "connection no_module 1 1",
            "connections no_module NaN 1",
        ] {
            assert!(Rounds::parse(text).is_err(), "{text}");
        }
    }
}
