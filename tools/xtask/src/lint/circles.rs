// SPDX-License-Identifier: GPL-2.0
//! Imports between the files of a crate go one way. Rust allows circles of modules; whoever reads one file of a
//! circle has to read them all.
//!
//! A file and those in the folder of its name are one thing, so what they import of each other does not count.
//! Neither does a re-export, nor what tests import.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;

/// Crates by the folder of their `lib.rs`, inner ones first.
const CRATES: &[&str] = &["net/smc/proto/", "net/smc/", "rust/kernel/"];

/// The files of all crates.
#[derive(Default)]
pub(super) struct Crates(BTreeMap<&'static str, Tree>);

/// The files of one crate by their module.
#[derive(Default)]
struct Tree(BTreeMap<Vec<String>, File>);

#[derive(Default)]
struct File {
    /// Full paths of what is imported or named.
    names: Vec<Vec<String>>,
    /// What is re-exported: under which name, and its full path. `*` for all.
    exports: Vec<(String, Vec<String>)>,
    /// Names that are defined here.
    defined: HashSet<String>,
}

impl Crates {
    pub(super) fn add(&mut self, path: &str, text: &str, findings: &mut Vec<Finding>) {
        let Some(root) = CRATES.iter().find(|root| path.starts_with(**root)) else {
            return;
        };
        let below = path[root.len()..].trim_end_matches(".rs");
        let module = match below {
            "lib" => Vec::new(),
            below => below.split('/').map(str::to_owned).collect(),
        };
        match text.parse::<TokenStream>() {
            Ok(tokens) => {
                let mut file = File::default();
                file.read(&module, tokens);
                self.0.entry(root).or_default().0.insert(module, file);
            }
            Err(error) => findings.push(Finding::at(path, 1, error.to_string())),
        }
    }

    pub(super) fn check(&self, findings: &mut Vec<Finding>) {
        for (root, tree) in &self.0 {
            let path = |module: &[String]| match module {
                [] => format!("{root}lib.rs"),
                module => format!("{root}{}.rs", module.join("/")),
            };
            let edges = tree.edges();
            for circle in circles(&edges) {
                let names: Vec<_> = circle.iter().map(|module| path(module)).collect();
                let what = format!("imports go in a circle: {}", names.join(" -> "));
                findings.push(Finding::at(&names[0], 1, what));
            }
        }
    }
}

/// One circle for each set of files that import each other; begins and ends with the same file.
fn circles<'a>(edges: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>) -> Vec<Vec<&'a [String]>> {
    let mut found: Vec<Vec<_>> = Vec::new();
    for start in edges.keys() {
        if found.iter().any(|circle| circle.contains(start)) {
            continue;
        }
        found.extend(way_back(edges, start));
    }
    found
}

/// The shortest way from a file to itself.
fn way_back<'a>(
    edges: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
    start: &'a [String],
) -> Option<Vec<&'a [String]>> {
    let mut came_from = HashMap::new();
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in edges.get(at).into_iter().flatten() {
            if *next == start {
                let mut way = vec![start, at];
                while way[way.len() - 1] != start {
                    way.push(came_from[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(*next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

impl Tree {
    /// Which file imports which, but for a file and those below it.
    fn edges(&self) -> BTreeMap<&[String], BTreeSet<&[String]>> {
        let mut finder = Finder {
            tree: self,
            found: HashMap::new(),
        };
        let mut edges = BTreeMap::new();
        for (from, file) in &self.0 {
            let tos = file.names.iter().map(|name| finder.find(name, 0));
            let tos = tos.filter(|to| !to.starts_with(from) && !from.starts_with(to));
            edges.insert(from.as_slice(), tos.collect());
        }
        edges
    }
}

/// Finds the files of names, each once: there are few beside the places that name them.
struct Finder<'a> {
    tree: &'a Tree,
    found: HashMap<(Vec<String>, usize), &'a [String]>,
}

impl<'a> Finder<'a> {
    /// The file that defines what a path names; `depth` re-exports led to it.
    fn find(&mut self, path: &[String], depth: usize) -> &'a [String] {
        let key = (path.to_vec(), depth);
        if let Some(file) = self.found.get(&key) {
            return file;
        }
        let file = self.look_up(path, depth);
        self.found.insert(key, file);
        file
    }

    fn look_up(&mut self, path: &[String], depth: usize) -> &'a [String] {
        let modules = (0..=path.len()).rev().map(|len| &path[..len]);
        let module = modules
            .into_iter()
            .find(|m| self.tree.0.contains_key(*m))
            .unwrap_or_default();
        let (module, file) = self
            .tree
            .0
            .get_key_value(module)
            .expect("each crate has a lib.rs");
        let rest = &path[module.len()..];
        let Some(name) = rest.first().filter(|_| depth < 8) else {
            return module;
        };
        for (exported, from) in &file.exports {
            if exported == name {
                return self.find(&[from, &rest[1..]].concat(), depth + 1);
            }
        }
        for (_, from) in file.exports.iter().filter(|(exported, _)| exported == "*") {
            let from = self.find(&from[..from.len() - 1], depth + 1);
            if self.tree.0[from].defined.contains(name) {
                return from;
            }
        }
        module
    }
}

impl File {
    /// Reads what stands in a module, which is this file's or one inside it.
    fn read(&mut self, module: &[String], tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = self.item(module, &tokens, at);
        }
    }

    /// Reads one token, or what begins with it; returns where the next begins.
    fn item(&mut self, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
        match (&tokens[at], tokens.get(at + 1)) {
            (TokenTree::Group(attribute), _) if is_test(attribute.stream()) => {
                let end = |token: &TokenTree| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    token => is_punct(Some(token), ';'),
                };
                let len = tokens[at + 1..].iter().position(end);
                return at + 2 + len.unwrap_or(tokens.len());
            }
            (TokenTree::Group(group), _) => self.read(module, group.stream()),
            (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "mod" => {
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    let inner = [module, &[name.to_string()]].concat();
                    self.read(&inner, body.stream());
                    return at + 3;
                }
            }
            (TokenTree::Ident(word), _) if word == "use" => {
                return self.import(module, tokens, at);
            }
            (TokenTree::Ident(word), next) => {
                if let (true, Some(TokenTree::Ident(name))) = (defines(&word.to_string()), next) {
                    self.defined.insert(name.to_string());
                }
                let starts = ["crate", "super", "self"].contains(&word.to_string().as_str());
                if starts && is_punct(next, ':') {
                    let mut paths = Vec::new();
                    let end = walk(tokens, at, &[], &mut paths);
                    let full = paths.iter().filter_map(|(path, _)| full(module, path));
                    self.names.extend(full);
                    return end.max(at + 1);
                }
            }
            _ => {}
        }
        at + 1
    }

    /// Reads an import, which may be a re-export.
    fn import(&mut self, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
        let mut paths = Vec::new();
        let end = walk(tokens, at + 1, &[], &mut paths);
        let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
        let is_pub = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Ident(word)) if word == "pub");
        let is_export = is_pub(before(1))
            || matches!(before(1), Some(TokenTree::Group(_))) && is_pub(before(2));
        for (path, name) in paths {
            // A name without `crate` or `super` is a child's, or another crate's.
            let full = full(module, &path).unwrap_or_else(|| [module, &path].concat());
            match is_export {
                true => self.exports.push((name, full)),
                false => self.names.push(full),
            }
        }
        end.max(at + 1)
    }
}

/// Reads a path or a tree of them; gives each with the name under which it is known then.
fn walk(
    tokens: &[TokenTree],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(name)) => path.push(name.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                for part in inner.split(|token| is_punct(Some(token), ',')) {
                    walk(part, 0, &path, paths);
                }
                return at + 1;
            }
            Some(token) if is_punct(Some(token), '*') => path.push("*".to_owned()),
            _ => break,
        }
        at += 1;
        if !(is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')) {
            break;
        }
        at += 2;
    }
    let alias = match (tokens.get(at), tokens.get(at + 1)) {
        (Some(TokenTree::Ident(word)), Some(TokenTree::Ident(name))) if word == "as" => {
            at += 2;
            Some(name.to_string())
        }
        _ => None,
    };
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    if let Some(name) = alias.or_else(|| path.last().cloned()) {
        paths.push((path, name));
    }
    at
}

/// The path from the crate on; `None` for one that begins with a name.
fn full(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some(
            [
                module.get(..module.len().checked_sub(supers)?)?,
                &path[supers..],
            ]
            .concat(),
        ),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether an attribute is `cfg(test)`.
fn is_test(attribute: TokenStream) -> bool {
    attribute.to_string().replace(' ', "") == "cfg(test)"
}

/// Whether a name follows that is defined here.
fn defines(word: &str) -> bool {
    [
        "const", "enum", "fn", "static", "struct", "trait", "type", "union",
    ]
    .contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(files: &[(&str, &str)]) -> Vec<String> {
        let (mut crates, mut findings) = (Crates::default(), Vec::new());
        for (path, text) in files {
            crates.add(path, text, &mut findings);
        }
        crates.check(&mut findings);
        findings.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_circle_is_found_through_re_exports() {
        let root = ("rust/kernel/lib.rs", "mod net;");
        let face = ("rust/kernel/net.rs", "mod a; mod b;\npub use {a::A, b::*};");
        let b = (
            "rust/kernel/net/b.rs",
            "use crate::{bindings, net::A};\npub struct B(A);",
        );
        let uses_b = ("rust/kernel/net/a.rs", "use super::B;\npub struct A(B);");
        let found = whats(&[root, face, uses_b, b]);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("net/a.rs -> rust/kernel/net/b.rs -> rust/kernel/net/a.rs"));
        for alone in [
            "use core::fmt;\npub struct A;",
            "// crate::net::B\n#[cfg(test)]\nmod tests { use super::super::B; }\npub struct A;",
            "use super::C;\npub struct A;",
        ] {
            assert!(
                whats(&[root, face, ("rust/kernel/net/a.rs", alone), b]).is_empty(),
                "{alone}"
            );
        }
        let named = ("rust/kernel/net/a.rs", "fn f() -> A { g(super::b::h()) }");
        assert_eq!(whats(&[root, face, named, b]).len(), 1);
    }

    #[test]
    fn a_file_and_its_folder_are_one() {
        let root = ("net/smc/lib.rs", "mod conn;");
        let conn = (
            "net/smc/conn.rs",
            "mod tx;\nuse tx::Tx;\npub struct Conn(Tx);",
        );
        let tx = ("net/smc/conn/tx.rs", "use super::Conn;\npub struct Tx;");
        assert!(whats(&[root, conn, tx]).is_empty());
    }
}
