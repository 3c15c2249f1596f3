// SPDX-License-Identifier: GPL-2.0

//! The options in a TCP header.

use crate::bindings;

/// Bytes of the SMC option with the padding before it.
pub(super) const SPACE: usize = bindings::TCPOLEN_EXP_SMC_BASE_ALIGNED as usize;

/// The option with that padding.
pub(super) const OPTION: [u8; SPACE] = {
    let [a, b, c, d] = bindings::TCPOPT_SMC_MAGIC.to_be_bytes();
    let nop = bindings::TCPOPT_NOP as u8;
    let kind = bindings::TCPOPT_EXP as u8;
    [
        nop,
        nop,
        kind,
        bindings::TCPOLEN_EXP_SMC_BASE as u8,
        a,
        b,
        c,
        d,
    ]
};

/// The first byte of the magic number, in place of which a saved SYN keeps the decision.
pub(super) const MAGIC_START: u8 = OPTION[4];

/// Bytes of a header without options, and the most with them.
const MIN: usize = 20;
const MAX: usize = 60;

/// An option: where it begins in the header, its kind, and its bytes.
struct TcpOption<'a> {
    at: usize,
    kind: u32,
    bytes: &'a [u8],
}

/// Calls `visit` for each option of a header until it returns something. A malformed one is the last.
fn find<'a, T>(header: &'a [u8], mut visit: impl FnMut(&TcpOption<'a>) -> Option<T>) -> Option<T> {
    let mut at = MIN;
    while let Some(&kind) = header.get(at) {
        let kind = u32::from(kind);
        let len = match kind {
            bindings::TCPOPT_EOL => return None,
            bindings::TCPOPT_NOP => 1,
            _ => usize::from(*header.get(at.checked_add(1)?)?),
        };
        let end = at.checked_add(len)?;
        if len == 0 {
            return None;
        }
        let bytes = header.get(at..end)?;
        if let Some(found) = visit(&TcpOption { at, kind, bytes }) {
            return Some(found);
        }
        at = end;
    }
    None
}

/// Returns where the magic number of an SMC option begins. Its first byte may be another one: see [`MAGIC_START`].
pub(super) fn smc_magic(header: &[u8]) -> Option<usize> {
    /// Bytes of an option before its magic number: kind and length.
    const BEFORE: usize = 2;
    find(header, |option| {
        let magic = option.bytes.get(BEFORE..)?;
        let is_smc = option.kind == bindings::TCPOPT_EXP && magic.get(1..4) == Some(&OPTION[5..]);
        is_smc.then_some(option.at.wrapping_add(BEFORE))
    })
}

/// Whether an SMC option is among the options of a header.
pub(super) fn has_smc(header: &[u8]) -> bool {
    smc_magic(header).is_some_and(|at| header.get(at) == Some(&MAGIC_START))
}

/// Whether the SMC option can be added to a header: there is room, and nothing signs the header (TCP_MD5SIG, TCP_AO).
pub(super) fn has_room(header: &[u8]) -> bool {
    let is_signed = find(header, |option| {
        let kinds = [bindings::TCPOPT_MD5SIG, bindings::TCPOPT_AO];
        kinds.contains(&option.kind).then_some(())
    });
    is_signed.is_none() && header.len().saturating_add(SPACE) <= MAX
}
