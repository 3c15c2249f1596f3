// SPDX-License-Identifier: GPL-2.0

//! Levels of other protocols, levels that there are not, and options that no level has.

use super::Entry;
use super::Values;

const fn at(level: i32, name: &'static str, number: i32) -> Entry {
    Entry::new(level, name, number, Values::Ints(&[1]))
}

pub(super) const OPTIONS: &[Entry] = &[
    at(libc::SOL_SOCKET, "SOL_SOCKET, 9999", 9999),
    at(libc::SOL_SOCKET, "SOL_SOCKET, -1", -1),
    at(libc::IPPROTO_TCP, "IPPROTO_TCP, 0", 0),
    at(libc::IPPROTO_TCP, "IPPROTO_TCP, 15", 15),
    at(libc::IPPROTO_TCP, "IPPROTO_TCP, 9999", 9999),
    at(libc::IPPROTO_TCP, "IPPROTO_TCP, -1", -1),
    at(libc::IPPROTO_IP, "IPPROTO_IP, 9999", 9999),
    at(libc::IPPROTO_IP, "IPPROTO_IP, -1", -1),
    at(libc::IPPROTO_IPV6, "IPPROTO_IPV6, 9999", 9999),
    at(libc::IPPROTO_IPV6, "IPPROTO_IPV6, -1", -1),
    at(libc::IPPROTO_UDP, "IPPROTO_UDP, 1", 1),
    at(libc::IPPROTO_ICMPV6, "IPPROTO_ICMPV6, 1", 1),
    at(libc::IPPROTO_RAW, "IPPROTO_RAW, 1", 1),
    at(libc::SOL_PACKET, "SOL_PACKET, 1", 1),
    at(libc::SOL_NETLINK, "SOL_NETLINK, 1", 1),
    at(libc::SOL_TLS, "SOL_TLS, 1", 1),
    at(284, "SOL_MPTCP, 1", 1),
    at(-1, "-1, 1", 1),
    at(9999, "9999, 1", 1),
    at(
        smc_uapi::SOL_SMC,
        "SOL_SMC, SMC_LIMIT_HS",
        smc_uapi::SMC_LIMIT_HS,
    ),
    at(smc_uapi::SOL_SMC, "SOL_SMC, 99", 99),
];
