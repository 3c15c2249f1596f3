// SPDX-License-Identifier: GPL-2.0
//! Results as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::ValueEnum;

use super::figures::{Figures, Key};
use super::System;

/// Returns the table: medians, spread of the rounds, and ratios to other systems.
pub(super) fn table(all: &Figures, systems: &[System]) -> String {
    let mut text = format!("\n{:<28}", "");
    for system in systems {
        let _ = write!(text, "{:>16}", system.key());
    }
    let _ = writeln!(text, "{:>10}{:>10}", "to C", "to verbs");
    for key in all.keys() {
        let _ = write!(text, "{:<28}", key.words());
        for &system in systems {
            let _ = write!(text, "{:>16}", cell(all, system, key));
        }
        let _ = writeln!(
            text,
            "{:>10}{:>10}",
            times(ratio(all, key, System::CModule)),
            times(ratio(all, key, System::Verbs))
        );
    }
    text.push_str(
        "to C, to verbs: ours against these; above 1 we are better, below we are worse\n",
    );
    text
}

fn cell(all: &Figures, system: System, key: Key) -> String {
    match (all.median(system, key), all.spread(system, key)) {
        (Some(median), Some(spread)) => format!("{} ±{:.0}%", number(median), spread * 50.0),
        (Some(zero), None) => number(zero),
        _ => "-".to_owned(),
    }
}

/// Returns by which factor we are better than another system.
fn ratio(all: &Figures, key: Key, other: System) -> Option<f64> {
    let ours = all.median(System::Ours, key)?;
    let other = all.median(other, key)?;
    let ratio = if key.is_cost() {
        other / ours
    } else {
        ours / other
    };
    // Undefined if either is zero.
    ratio.is_finite().then_some(ratio)
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Formats a value with three significant digits.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        0.0 => "0".to_owned(),
        v => format!("{v:.3}"),
    }
}

/// Returns the medians as JSON: an object for each system.
pub(super) fn json(all: &Figures) -> String {
    let systems: Vec<String> = System::value_variants()
        .iter()
        .map(|&system| (system, fields(all, system)))
        .filter(|(_, fields)| !fields.is_empty())
        .map(|(system, fields)| format!("  \"{}\": {{\n{}\n  }}", system.key(), fields.join(",\n")))
        .collect();
    format!("{{\n{}\n}}\n", systems.join(",\n"))
}

fn fields(all: &Figures, system: System) -> Vec<String> {
    let mut single = Vec::new();
    let mut many = BTreeMap::new();
    for key in all.keys() {
        let Some(median) = all.median(system, key) else {
            continue;
        };
        match key {
            Key::ManyGbps(count) => {
                many.insert(count, format!("\"{count}\": {median:.4}"));
            }
            _ => single.push(format!("    \"{}\": {median:.4}", key.name())),
        }
    }
    if !many.is_empty() {
        let values: Vec<String> = many.into_values().collect();
        let name = Key::ManyGbps(1).name();
        single.push(format!("    \"{name}\": {{ {} }}", values.join(", ")));
    }
    single
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Figures {
        let mut all = Figures::default();
        all.add(
            System::Ours,
            "bulk_gbps 0.5\npingpong_64b_us 100\nmany_gbps.16 0.4\nmany_gbps.1 0.3",
        )
        .unwrap();
        all.add(System::CModule, "bulk_gbps 0.25\npingpong_64b_us 200")
            .unwrap();
        all
    }

    #[test]
    fn better_is_above_one() {
        let all = some();
        assert_eq!(ratio(&all, Key::BulkGbps, System::CModule), Some(2.0));
        assert_eq!(ratio(&all, Key::PingpongUs, System::CModule), Some(2.0));
        assert_eq!(ratio(&all, Key::BulkGbps, System::Verbs), None);
    }

    #[test]
    fn zero_is_shown_but_not_compared() {
        let mut all = Figures::default();
        all.add(System::Ours, "llc_per_conn 0").unwrap();
        all.add(System::CModule, "llc_per_conn 8").unwrap();
        assert_eq!(ratio(&all, Key::LlcPerConn, System::CModule), None);
        assert_eq!(cell(&all, System::Ours, Key::LlcPerConn), "0");
    }

    #[test]
    fn the_report_has_an_object_for_each_system() {
        assert_eq!(
            json(&some()),
            "{\n  \"ours\": {\n    \"bulk_gbps\": 0.5000,\n    \"pingpong_64b_us\": 100.0000,\n    \
             \"many_gbps\": { \"1\": 0.3000, \"16\": 0.4000 }\n  },\n  \"c_module\": {\n    \
             \"bulk_gbps\": 0.2500,\n    \"pingpong_64b_us\": 200.0000\n  }\n}\n"
        );
    }
}
