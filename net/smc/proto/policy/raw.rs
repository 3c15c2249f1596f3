// SPDX-License-Identifier: GPL-2.0

//! Rules as bytes, between the module and user space: `struct smc_rule` of `include/uapi/linux/smc_rs.h`.

use core::{
    mem::size_of,
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};

use zerocopy::{
    FromBytes as _,
    IntoBytes as _, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

use super::{
    EndPattern,
    PortRange,
    Prefix,
    Rule, //
    RuleAction,
};
use crate::lgr::Role;

/// `AF_INET` of Linux.
const AF_INET: u16 = 2;
/// `AF_INET6` of Linux.
const AF_INET6: u16 = 10;

/// `struct smc_rule_end`. Numbers are in host byte order, addresses in that of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawEnd {
    /// `AF_INET`, `AF_INET6`, or 0 for any address.
    pub family: u16,
    /// Number of bits of `addr`.
    pub prefix_len: u8,
    /// 0.
    pub reserved: u8,
    /// The first port.
    pub port_first: u16,
    /// The last port.
    pub port_last: u16,
    /// The address; an IPv4 address is the first four bytes. All other bits are 0.
    pub addr: [u8; 16],
}

/// `struct smc_rule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawRule {
    /// `SMC_RULE_ALLOW` or `SMC_RULE_DENY`.
    pub action: u8,
    /// One of `SMC_ROLE_*`, or 0 for both.
    pub role: u8,
    /// 0.
    pub reserved: u16,
    /// This host's end.
    pub local: RawEnd,
    /// The peer's end.
    pub peer: RawEnd,
}

const _: () = assert!(size_of::<RawRule>() == 52);

impl RawRule {
    /// `SMC_RULE_ALLOW`.
    pub const ALLOW: u8 = 1;
    /// `SMC_RULE_DENY`.
    pub const DENY: u8 = 2;
    /// `SMC_ROLE_CLIENT`.
    pub const CLIENT: u8 = 1;
    /// `SMC_ROLE_SERVER`.
    pub const SERVER: u8 = 2;

    /// Returns the bytes for user space.
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Bytes that are no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// Parses an array of rules.
pub fn parse(bytes: &[u8]) -> Result<impl Iterator<Item = Result<Rule, Invalid>> + '_, Invalid> {
    let rules = bytes.chunks_exact(size_of::<RawRule>());
    match rules.remainder() {
        [] => Ok(rules.map(|bytes| {
            let raw = RawRule::read_from_bytes(bytes).map_err(|_| Invalid)?;
            Rule::try_from(&raw)
        })),
        _ => Err(Invalid),
    }
}

impl TryFrom<&RawRule> for Rule {
    type Error = Invalid;

    fn try_from(raw: &RawRule) -> Result<Self, Invalid> {
        if raw.reserved != 0 {
            return Err(Invalid);
        }
        Ok(Self {
            action: match raw.action {
                RawRule::ALLOW => RuleAction::Allow,
                RawRule::DENY => RuleAction::Deny,
                _ => return Err(Invalid),
            },
            role: match raw.role {
                0 => None,
                RawRule::CLIENT => Some(Role::Client),
                RawRule::SERVER => Some(Role::Server),
                _ => return Err(Invalid),
            },
            local: EndPattern::try_from(&raw.local)?,
            peer: EndPattern::try_from(&raw.peer)?,
        })
    }
}

impl TryFrom<&RawEnd> for EndPattern {
    type Error = Invalid;

    fn try_from(raw: &RawEnd) -> Result<Self, Invalid> {
        let [a, b, c, d, rest @ ..] = raw.addr;
        let ip = match raw.family {
            0 if raw.prefix_len == 0 && raw.addr == [0; 16] => None,
            AF_INET if rest == [0; 12] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(raw.addr))),
            _ => return Err(Invalid),
        };
        let prefix = match ip {
            Some(ip) => Some(Prefix::new(ip, raw.prefix_len).ok_or(Invalid)?),
            None => None,
        };
        let ports = PortRange::new(raw.port_first, raw.port_last).ok_or(Invalid)?;
        match raw.reserved {
            0 => Ok(Self { prefix, ports }),
            _ => Err(Invalid),
        }
    }
}

impl From<&Rule> for RawRule {
    fn from(rule: &Rule) -> Self {
        Self {
            action: match rule.action {
                RuleAction::Allow => Self::ALLOW,
                RuleAction::Deny => Self::DENY,
            },
            role: match rule.role {
                None => 0,
                Some(Role::Client) => Self::CLIENT,
                Some(Role::Server) => Self::SERVER,
            },
            reserved: 0,
            local: RawEnd::from(&rule.local),
            peer: RawEnd::from(&rule.peer),
        }
    }
}

impl From<&EndPattern> for RawEnd {
    fn from(end: &EndPattern) -> Self {
        let (family, addr) = match end.prefix.map(|prefix| prefix.ip()) {
            None => (0, [0; 16]),
            Some(IpAddr::V4(ip)) => {
                let [a, b, c, d] = ip.octets();
                (AF_INET, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            Some(IpAddr::V6(ip)) => (AF_INET6, ip.octets()),
        };
        let (port_first, port_last) = end.ports.bounds();
        Self {
            family,
            prefix_len: end.prefix.map_or(0, |prefix| prefix.len_bits()),
            reserved: 0,
            port_first,
            port_last,
            addr,
        }
    }
}
