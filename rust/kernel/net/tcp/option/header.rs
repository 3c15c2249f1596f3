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

/// Bytes of a header without options, and the most with them.
const MIN: usize = 20;
const MAX: usize = 60;

/// Calls `visit` with the kind and the bytes of each option of a header, until it returns true. A malformed one is the
/// last, as for TCP (`tcp_parse_options`).
fn any(header: &[u8], mut visit: impl FnMut(u32, &[u8]) -> bool) -> bool {
    /// Bytes of an option at least: kind and length.
    const LEAST: usize = 2;
    let mut rest = header.get(MIN..).unwrap_or(&[]);
    while let Some(&kind) = rest.first() {
        let kind = u32::from(kind);
        let len = match (kind, rest.get(1)) {
            (bindings::TCPOPT_EOL, _) => return false,
            (bindings::TCPOPT_NOP, _) => 1,
            (_, Some(&len)) if usize::from(len) >= LEAST => usize::from(len),
            _ => return false,
        };
        let Some((option, next)) = rest.split_at_checked(len) else {
            return false;
        };
        if visit(kind, option) {
            return true;
        }
        rest = next;
    }
    false
}

/// Whether an SMC option is among the options of a header, by the rules of TCP with `CONFIG_SMC` (`smc_parse_options`).
pub(super) fn has_smc(header: &[u8]) -> bool {
    /// What is looked for: kind, length, magic number; the length may be a larger even one.
    const NUMBER: &[u8] = OPTION.split_at(4).1;
    any(header, |kind, option| {
        kind == bindings::TCPOPT_EXP && option.len() % 2 == 0 && option.get(2..6) == Some(NUMBER)
    })
}

/// Whether the SMC option can be added to a header: there is room, and nothing signs the header (TCP_MD5SIG, TCP_AO).
pub(super) fn has_room(header: &[u8]) -> bool {
    let is_signed = any(header, |kind, _| {
        [bindings::TCPOPT_MD5SIG, bindings::TCPOPT_AO].contains(&kind)
    });
    !is_signed && header.len().saturating_add(SPACE) <= MAX
}

/// Where the flags are in a header, and which they are.
const FLAGS: usize = 13;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;

/// Returns the flags of a header; none if it is too short.
pub(super) fn flags(header: &[u8]) -> u8 {
    header.get(FLAGS).copied().unwrap_or(0)
}

/// Sets the flags of a header.
pub(super) fn set_flags(header: &mut [u8], flags: u8) {
    if let Some(now) = header.get_mut(FLAGS) {
        *now = flags;
    }
}
