// SPDX-License-Identifier: GPL-2.0

//! Output as tables, whose columns are as wide as necessary, or as JSON.

use std::io;
use std::io::Write;

use nix::net::if_::if_indextoname;
use serde::Serialize;

use crate::out;

/// Prints a table.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    out::lines(lines(heads, rows))
}

/// Returns the lines of a table without trailing blanks. (comfy-table would halve this code, but
/// its tables of Unicode widths would be a twentieth of the command.)
pub(crate) fn lines(heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    let width = |i: usize| {
        let cells = std::iter::once(&heads)
            .chain(rows)
            .filter_map(|row| row.get(i));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_string()
    };
    std::iter::once(&heads).chain(rows).map(line).collect()
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Returns `-` for an empty text.
pub(crate) fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_string(),
        text => text.to_string(),
    }
}

/// Replaces the message of `NotFound`, which every request to the module may return.
pub(crate) fn not_loaded(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "the SMC module is not loaded"),
        _ => error,
    }
}

/// Returns the name of the network device with that index; `-` if it is not in this namespace.
pub(crate) fn netdev(ifindex: u64) -> String {
    let index = u32::try_from(ifindex).ok();
    let name = index.and_then(|index| if_indextoname(index).ok());
    // nix takes the null pointer of a failure for success, and the name is empty then.
    let name = name.filter(|name| !name.is_empty());
    name.map_or("-".to_string(), |name| name.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_device_that_is_not_there_has_a_dash() {
        assert_eq!(netdev(1), "lo");
        for absent in [0, 0x7fff_ffff, u64::MAX] {
            assert_eq!(netdev(absent), "-", "{absent}");
        }
    }
}
