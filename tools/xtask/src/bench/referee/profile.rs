// SPDX-License-Identifier: GPL-2.0
//! What a guest executed, by function of its kernel.

use std::collections::HashMap;

use anyhow::Result;

use super::counts::{hex, Block};

/// What programs executed, whose functions are not known.
pub(super) const USER: &str = "user";
/// The module name of what is built into the kernel.
pub(super) const BUILT_IN: &str = "kernel";

/// A function of the kernel or a module.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Symbol {
    address: u64,
    name: String,
    module: String,
}

/// The functions of a kernel, by address.
#[derive(Default)]
pub(super) struct Symbols(Vec<Symbol>);

impl Symbols {
    /// Parses `/proc/kallsyms`. A function whose name its module has used already, at a lower address, is
    /// `NAME@2` and so on.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut all = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, kind, name, ref module @ ..] = words[..] else {
                continue;
            };
            // `__pfx_` is the padding before a function.
            if !matches!(kind, "t" | "T" | "w" | "W") || name.starts_with("__pfx_") {
                continue;
            }
            let module = module
                .first()
                .map_or(BUILT_IN, |m| m.trim_matches(['[', ']']));
            all.push(Symbol {
                address: hex(address)?,
                name: name.to_owned(),
                module: module.to_owned(),
            });
        }
        all.sort_by_key(|symbol| symbol.address);
        all.dedup_by_key(|symbol| symbol.address);
        let mut uses: HashMap<(String, String), u32> = HashMap::new();
        for symbol in &mut all {
            let count = uses
                .entry((symbol.module.clone(), symbol.name.clone()))
                .or_default();
            *count += 1;
            if *count > 1 {
                symbol.name = format!("{}@{count}", symbol.name);
            }
        }
        Ok(Self(all))
    }

    fn at(&self, address: u64) -> Option<&Symbol> {
        let after = self.0.partition_point(|symbol| symbol.address <= address);
        self.0.get(after.checked_sub(1)?)
    }
}

/// What was executed of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) module: String,
    pub(super) calls: u64,
    pub(super) instructions: u64,
}

/// What was executed, most instructions first.
#[derive(Default)]
pub(super) struct Profile(pub(super) Vec<Function>);

impl Profile {
    /// Parses what the plugin wrote. A function was called when its first block ran.
    pub(super) fn parse(symbols: &Symbols, text: &str) -> Result<Self> {
        let mut all: HashMap<u64, Function> = HashMap::new();
        for line in text.lines() {
            let Block {
                first: address,
                instructions,
                count,
                ..
            } = Block::parse(line)?;
            let symbol = symbols.at(address);
            let start = symbol.map_or(0, |s| s.address);
            let function = all.entry(start).or_insert_with(|| Function {
                name: symbol.map_or(USER, |s| &s.name).to_owned(),
                module: symbol.map_or(USER, |s| &s.module).to_owned(),
                ..Function::default()
            });
            function.instructions += count * instructions;
            if address == start {
                function.calls += count;
            }
        }
        let mut all: Vec<Function> = all.into_values().collect();
        all.sort_by(|a, b| (b.instructions, &a.name).cmp(&(a.instructions, &b.name)));
        Ok(Self(all))
    }

    /// Returns how often functions were called that `which` chooses.
    pub(super) fn calls(&self, which: impl Fn(&Function) -> bool) -> u64 {
        self.0.iter().filter(|f| which(f)).map(|f| f.calls).sum()
    }

    /// Returns the instructions of the functions that `which` chooses.
    pub(super) fn instructions(&self, which: impl Fn(&Function) -> bool) -> u64 {
        let chosen = self.0.iter().filter(|f| which(f));
        chosen.map(|f| f.instructions).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "ffffffff81000020 T send\nffffffff81000010 t __pfx_send\n\
                           ffffffff81000040 d table\nffffffffa0000000 t done\t[rdma_rxe]\n\
                           ffffffffa0000100 t done\t[rdma_rxe]\n";

    fn sample(counts: &str) -> Profile {
        Profile::parse(&Symbols::parse(SYMBOLS).unwrap(), counts).unwrap()
    }

    #[test]
    fn blocks_belong_to_the_function_before_them() {
        let profile = sample(
            "ffffffff81000020 4 10 ffffffff81000024\nffffffff81000028 2 3 ffffffff8100002a\n\
             ffffffffa0000100 7 1 ffffffffa0000110\n",
        );
        let send = Function {
            name: "send".to_owned(),
            module: BUILT_IN.to_owned(),
            calls: 10,
            instructions: 46,
        };
        assert_eq!(profile.0[0], send);
        assert_eq!(profile.calls(|f| f.name == "done"), 0);
        assert_eq!(profile.calls(|f| f.name == "done@2"), 1);
        assert_eq!(profile.instructions(|f| f.module == "rdma_rxe"), 7);
    }

    #[test]
    fn programs_are_one_function() {
        let profile = sample("0 4 10 0\n0 5 1 0\n");
        assert_eq!(profile.instructions(|f| f.name == USER), 45);
    }

    #[test]
    fn what_is_no_count_is_refused() {
        let symbols = Symbols::parse(SYMBOLS).unwrap();
        for text in ["0 4 1", "x 4 10 0", "0 4 x 0", "0 4 1 1 1"] {
            assert!(Profile::parse(&symbols, text).is_err(), "{text}");
        }
        assert!(Symbols::parse("x t send").is_err());
    }
}
