// SPDX-License-Identifier: GPL-2.0
//! What the plugin of QEMU that counts (`tools/bench/counter.c`) writes.

use anyhow::{bail, Context, Result};

/// A block of code that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The address of its first instruction; 0 for those of programs.
    pub(crate) first: u64,
    /// The address of its last instruction.
    pub(crate) last: u64,
    pub(crate) instructions: u64,
    /// How often it ran.
    pub(crate) count: u64,
}

impl Block {
    /// Parses a line: first address, instructions, count, last address.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [first, instructions, count, last] = words[..] else {
            bail!("not a count: `{line}`");
        };
        Ok(Self {
            first: hex(first)?,
            last: hex(last)?,
            instructions: instructions.parse()?,
            count: count.parse()?,
        })
    }
}

/// Parses an address.
pub(crate) fn hex(text: &str) -> Result<u64> {
    u64::from_str_radix(text, 16).with_context(|| format!("not an address: `{text}`"))
}
