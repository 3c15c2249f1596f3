// SPDX-License-Identifier: GPL-2.0
//! Results as text and as JSON.

use std::fmt::Write;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Map, Value};

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

pub(super) fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Formats a value with three significant digits.
pub(super) fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        0.0 => "0".to_owned(),
        v => format!("{v:.3}"),
    }
}

/// The member of the report that the referee's figures are in.
pub(super) const REFEREE: &str = "referee";
/// The same, of soft RoCE without checksums.
pub(super) const NO_CHECKSUMS: &str = "referee_no_checksums";
/// The member with the referee's figures within one kernel.
pub(super) const SAME_HOST: &str = "same_host";
/// The member with what the SMC option costs others.
pub(super) const OPTION_COST: &str = "option_cost";

/// Returns the report as JSON: an object for each system. What else `before`, the last report, has stays.
pub(super) fn json(before: &str, all: &Figures) -> Result<String> {
    let mut before = parse(before);
    let others =
        [REFEREE, NO_CHECKSUMS, SAME_HOST, OPTION_COST].map(|key| before.remove_entry(key));
    let mut report = systems(all);
    report.extend(others.into_iter().flatten());
    text(report)
}

/// Returns the report with what was `found` as member `key`, in place of what `before` has there.
pub(super) fn json_of_member(before: &str, key: &str, found: Map<String, Value>) -> Result<String> {
    let mut report = parse(before);
    report.insert(key.to_owned(), Value::Object(found));
    text(report)
}

fn parse(report: &str) -> Map<String, Value> {
    serde_json::from_str(report).unwrap_or_default()
}

fn text(report: Map<String, Value>) -> Result<String> {
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

/// Returns a value with the four digits behind the point that are measured.
pub(super) fn rounded(value: f64) -> Value {
    Value::from((value * 1e4).round() / 1e4)
}

/// Returns the medians of each system that was measured.
fn systems(all: &Figures) -> Map<String, Value> {
    System::value_variants()
        .iter()
        .map(|&system| (system, fields(all, system)))
        .filter(|(_, fields)| !fields.is_empty())
        .map(|(system, fields)| (system.key().to_owned(), Value::Object(fields)))
        .collect()
}

fn fields(all: &Figures, system: System) -> Map<String, Value> {
    let (mut single, mut many) = (Map::new(), Map::new());
    for key in all.keys() {
        let Some(median) = all.median(system, key) else {
            continue;
        };
        let median = rounded(median);
        match key {
            Key::ManyGbps(count) => many.insert(count.to_string(), median),
            _ => single.insert(key.name().to_owned(), median),
        };
    }
    if !many.is_empty() {
        single.insert(Key::ManyGbps(1).name().to_owned(), Value::Object(many));
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
        let whole = json("", &some()).unwrap();
        let read: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(
            read,
            serde_json::json!({
                "ours": {
                    "bulk_gbps": 0.5,
                    "pingpong_64b_us": 100.0,
                    "many_gbps": { "1": 0.3, "16": 0.4 },
                },
                "c_module": { "bulk_gbps": 0.25, "pingpong_64b_us": 200.0 },
            })
        );
    }

    #[test]
    fn figures_of_the_other_kind_stay() {
        let read = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let figures = json("", &some()).unwrap();
        let both = json_of_member(&figures, NO_CHECKSUMS, Map::new()).unwrap();
        let both = json_of_member(&both, OPTION_COST, Map::new()).unwrap();
        let both = json_of_member(&both, REFEREE, read(r#"{ "tcp": {} }"#)).unwrap();
        assert_eq!(read(&both)["referee"], serde_json::json!({ "tcp": {} }));
        assert_eq!(read(&both)["ours"], read(&figures)["ours"]);
        let later = json(&both, &Figures::default()).unwrap();
        let kept: Vec<String> = read(&later).keys().cloned().collect();
        assert_eq!(kept, ["referee", "referee_no_checksums", "option_cost"]);
    }
}
