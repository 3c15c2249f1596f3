// SPDX-License-Identifier: GPL-2.0

//! Whether what differs is what the table of differences says, no more and no less.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::differences;
use super::differences::Difference;
use super::survey::Finding;
use super::FAMILIES;
use crate::family::Family;

/// What a kind of socket says in each place to the calls for one option, where TCP says something else.
type Said<'a> = BTreeMap<&'static str, BTreeSet<&'a str>>;

/// Returns what is wrong with an option, as lines of text.
pub(super) fn judge(option: &str, findings: &[&Finding]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for family in FAMILIES {
        let said = said(family, findings);
        for (place, answers) in &said {
            for answer in answers {
                if !differences::of(option, family).any(|d| d.covers(place, answer)) {
                    wrong.push(unlisted(family, place, answer, findings));
                }
            }
        }
        for difference in differences::of(option, family) {
            wrong.extend(missing(difference, option, family, &said));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// Collects the answers of one kind.
fn said<'a>(family: Family, findings: &[&'a Finding]) -> Said<'a> {
    let mut said = Said::new();
    for finding in findings.iter().filter(|finding| finding.family == family) {
        said.entry(finding.place)
            .or_default()
            .insert(finding.here.as_str());
    }
    said
}

fn unlisted(family: Family, place: &str, answer: &str, findings: &[&Finding]) -> String {
    let is_it = |f: &&&Finding| f.family == family && f.place == place && f.here == answer;
    let calls = findings.iter().filter(is_it).map(|finding| {
        let Finding { call, tcp, ip, .. } = finding;
        let version = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
        format!("{call} over {version}: TCP says {tcp}")
    });
    let calls: Vec<_> = calls.collect();
    format!(
        "{}, {place}: {answer} ({})",
        family.name(),
        calls.join("; ")
    )
}

/// What a listed difference says that is not so.
fn missing(listed: &Difference, option: &str, family: Family, said: &Said<'_>) -> Vec<String> {
    let name = family.name();
    let has_none = |place: &&str| !said.contains_key(*place);
    let places = listed.places().filter(has_none);
    let is_silent = |answer: &&&str| {
        !listed
            .places()
            .any(|place| said.get(place).is_some_and(|said| said.contains(**answer)))
    };
    let answers = listed.answers.iter().filter(is_silent);
    places
        .map(|place| format!("{option}, {name}, {place}: listed, and no difference"))
        .chain(answers.map(|text| format!("{option}, {name}: {text} is listed, and nowhere said")))
        .collect()
}
