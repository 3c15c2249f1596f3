// SPDX-License-Identifier: GPL-2.0

//! The memory of all sockets, SMC's or TCP's, in pages, from procfs.

use std::fs;

use serde::Serialize;

/// Memory of the buffers of all sockets of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Memory in use, pages.
    pub pages: u64,
    /// `net.smc.smcr_mem` or `net.ipv4.tcp_mem`, pages; only visible in the initial network namespace.
    pub limits: Option<[u64; 3]>,
}

impl Memory {
    /// Reads it; `None` if the module does not provide it.
    pub fn read() -> Option<Self> {
        let protocols = fs::read_to_string("/proc/net/protocols").ok()?;
        let limits = fs::read_to_string("/proc/sys/net/smc/smcr_mem").ok();
        Some(Self {
            pages: pages_in(&protocols, "SMC")?,
            limits: limits.as_deref().and_then(limits_in),
        })
    }

    /// As [`Memory::read`], of TCP.
    pub fn of_tcp() -> Option<Self> {
        let protocols = fs::read_to_string("/proc/net/protocols").ok()?;
        let limits = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok();
        Some(Self {
            pages: pages_in(&protocols, "TCP")?,
            limits: limits.as_deref().and_then(limits_in),
        })
    }
}

/// Returns the fourth column of the row of that protocol; `None` for the -1 of the C module, which does not
/// count memory.
fn pages_in(protocols: &str, name: &str) -> Option<u64> {
    let mut rows = protocols.lines().map(str::split_whitespace);
    let mut row = rows.find(|row| row.clone().next() == Some(name))?;
    row.nth(3)?.parse().ok()
}

fn limits_in(text: &str) -> Option<[u64; 3]> {
    let numbers = text.split_whitespace().map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_in_the_fourth_column() {
        let text = "protocol  size sockets  memory press maxhdr\n\
                    SMC6      1400      0      17   NI       0\n\
                    SMC       1400      2      16   NI       0   no   kernel\n";
        assert_eq!(pages_in(text, "SMC"), Some(16));
        assert_eq!(pages_in("SMC 1400 2 -1 NI", "SMC"), None);
        assert_eq!(pages_in("TCP 1400 2 16 no", "SMC"), None);
        assert_eq!(pages_in("TCP 1400 2 16 no", "TCP"), Some(16));
    }

    #[test]
    fn there_are_three_limits() {
        assert_eq!(limits_in("1\t2\t3\n"), Some([1, 2, 3]));
        assert_eq!(limits_in("1 2"), None);
        assert_eq!(limits_in("1 2 x"), None);
    }
}
