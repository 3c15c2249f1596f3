// SPDX-License-Identifier: GPL-2.0
//! A type of the module has a name of its own, which says what it is without the name of its file.

use std::collections::BTreeMap;

use anyhow::Result;
use regex::Regex;

use super::Finding;

/// Where the names are looked at.
const FOLDER: &str = "net/smc/";
/// Names that several types may have, each with the reason.
const ALLOWED: &[(&str, &str)] = &[];
/// A module of this name has layouts of messages, each named as the type next to it that is parsed from it: `raw::X` is
/// the bytes of `X`.
const LAYOUTS: &str = "/raw.rs";
/// Unit tests have types of their own.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// The types of the module, by name.
pub(super) struct Types {
    definition: Regex,
    found: BTreeMap<String, Vec<(String, usize)>>,
}

impl Types {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            definition: Regex::new(
                r"(?m)^(?:pub(?:\([\w: ]+\))? )?(?:struct|enum|union|trait|type) ([A-Z]\w*)",
            )?,
            found: BTreeMap::new(),
        })
    }

    pub(super) fn add(&mut self, path: &str, text: &str) {
        if !path.starts_with(FOLDER) || path.ends_with(LAYOUTS) {
            return;
        }
        let text = text.split(TESTS).next().unwrap_or_default();
        for found in self.definition.captures_iter(text) {
            let at = found.get(0).map_or(0, |all| all.start());
            let line = text.get(..at).map_or(0, |before| before.lines().count()) + 1;
            let place = (path.to_owned(), line);
            self.found
                .entry(found[1].to_owned())
                .or_default()
                .push(place);
        }
    }

    pub(super) fn check(&self, findings: &mut Vec<Finding>) {
        let is_allowed = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
        for (name, places) in self.found.iter().filter(|(name, _)| !is_allowed(name)) {
            let Some(((first, _), others)) = places.split_first() else {
                continue;
            };
            for (path, line) in others {
                let what = format!("`{name}` is also the name of a type in {first}");
                findings.push(Finding::at(path, *line, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let mut types = Types::new().unwrap();
        files.iter().for_each(|(path, text)| types.add(path, text));
        let mut findings = Vec::new();
        types.check(&mut findings);
        let places = findings.iter().map(|f| format!("{}:{}", f.path, f.line));
        places.collect()
    }

    #[test]
    fn two_types_of_one_name_are_found() {
        let files = [
            ("net/smc/a.rs", "pub(crate) struct State<T>(T);\n"),
            (
                "net/smc/proto/b.rs",
                "\nenum Other {}\n\npub(in crate::b) enum State {}\n",
            ),
        ];
        assert_eq!(findings(&files), ["net/smc/proto/b.rs:4"]);
        assert_eq!(findings(&files[1..]), [""; 0]);
    }

    #[test]
    fn layouts_tests_and_associated_types_are_not() {
        let files = [
            (
                "net/smc/proto/wire/a.rs",
                "struct Accept;\nimpl T for Accept {\n    type Error = E;\n}\n",
            ),
            ("net/smc/proto/wire/a/raw.rs", "struct Accept;\n"),
            (
                "net/smc/b.rs",
                "type Error = E;\n#[cfg(test)]\nmod tests {\nstruct Accept;\n",
            ),
            ("tools/b.rs", "struct Accept;\n"),
        ];
        assert_eq!(findings(&files), [""; 0]);
    }
}
