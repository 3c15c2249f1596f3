// SPDX-License-Identifier: GPL-2.0

//! The kernel's own type information (BTF), by whose numbers the kernel knows its functions.
//!
//! Kernel documentation: `Documentation/bpf/btf.rst`.

use std::fs;
use std::io;

const FILE: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// `BTF_KIND_FUNC`.
const FUNC: u32 = 12;

/// The number of a function of the running kernel.
pub(super) fn function(name: &str) -> io::Result<u32> {
    let types = fs::read(FILE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(
            "this kernel has no type information for BPF programs (CONFIG_DEBUG_INFO_BTF)",
        ),
        kind => io::Error::new(kind, format!("{FILE}: {error}")),
    })?;
    let found =
        find(&types, name).ok_or_else(|| io::Error::other(format!("{FILE} is malformed")))?;
    found.ok_or_else(|| io::Error::other(format!("this kernel has no function {name} to hook")))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// `None` if the bytes are not what they should be, `Some(None)` if there is no such function.
fn find(btf: &[u8], name: &str) -> Option<Option<u32>> {
    if btf.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let part = |offset: usize, len: usize| -> Option<&[u8]> {
        let start = word(btf, 4)?.checked_add(word(btf, offset)?)? as usize;
        btf.get(start..start.checked_add(word(btf, len)? as usize)?)
    };
    let types = part(8, 12)?;
    let strings = part(16, 20)?;
    let mut at = 0;
    // Type 0 is void, which has no record.
    for id in 1.. {
        if at == types.len() {
            return Some(None);
        }
        let info = word(types, at + 4)?;
        let kind = info >> 24 & 0x1f;
        if kind == FUNC {
            let label = strings.get(word(types, at)? as usize..)?;
            if label
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0))
            {
                return Some(Some(id));
            }
        }
        at += 12 + behind(kind, (info & 0xffff) as usize)?;
    }
    None
}

/// Bytes behind the three words that each record begins with.
fn behind(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, names, qualifiers, functions, floats, tags on types.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, tags on declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections, enumerations of 64 bits.
        4 | 5 | 15 | 19 => members * 12,
        // Enumerations, prototypes.
        6 | 13 => members * 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An integer, a structure of two members, and two functions.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0first_function\0first\0";
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 0x20];
        types.extend([0, 4 << 24 | 2, 8, 1, 1, 0, 1, 1, 32]);
        types.extend([5, 12 << 24, 0]);
        types.extend([20, 12 << 24, 0]);
        let len = types.len() as u32 * 4;
        let mut btf: Vec<u8> = u32::from(MAGIC).to_ne_bytes().to_vec();
        let header = [24, 0, len, len, strings.len() as u32];
        btf.extend(
            header
                .iter()
                .chain(&types)
                .flat_map(|word| word.to_ne_bytes()),
        );
        btf.extend(strings);
        btf
    }

    #[test]
    fn functions_are_found_by_their_whole_name() {
        assert_eq!(find(&sample(), "first"), Some(Some(4)));
        assert_eq!(find(&sample(), "first_function"), Some(Some(3)));
        assert_eq!(find(&sample(), "int"), Some(None));
    }

    #[test]
    fn what_is_cut_short_is_malformed() {
        let btf = sample();
        for len in 0..btf.len() - 1 {
            assert_eq!(find(&btf[..len], "none"), None, "{len}");
        }
    }
}
