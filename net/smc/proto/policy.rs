// SPDX-License-Identifier: GPL-2.0

//! Rules of an administrator about which connections may use SMC. The first rule that matches a connection decides,
//! and a connection that none matches may.
//!
//! A decision is made as soon as what is known of a connection is enough for it: connect(2) knows the peer's address,
//! but often not its own; a listener may know neither. [`Decision::Open`] asks to decide again when more is known.

mod raw;

use core::net::IpAddr;

use crate::lgr::Role;

pub use raw::{parse, Invalid, RawEnd, RawRule};

/// Maximum number of rules.
pub const MAX_RULES: usize = 1024;

/// The leading bits of addresses of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    ip: IpAddr,
    len: u8,
}

impl Prefix {
    /// The first `len` bits of `ip`. An IPv4 address mapped into IPv6 is meant as IPv4, as in connections. `None` if
    /// the address has fewer bits, or others that are set.
    pub fn new(ip: IpAddr, len: u8) -> Option<Self> {
        let mapped = len.checked_sub(128_u8.saturating_sub(width(ip.to_canonical())));
        let this = match mapped {
            Some(len) if ip.is_ipv6() => Self {
                ip: ip.to_canonical(),
                len,
            },
            _ => Self { ip, len },
        };
        let rest = bits(this.ip).checked_shl(this.len.into()).unwrap_or(0);
        (this.len <= width(this.ip) && rest == 0).then_some(this)
    }

    /// The address whose other bits are zero.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The number of bits.
    pub fn len_bits(&self) -> u8 {
        self.len
    }

    /// Whether the prefix is a whole address.
    pub fn is_host(&self) -> bool {
        self.len == width(self.ip)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let others = 128_u32.saturating_sub(self.len.into());
        let differing = (bits(self.ip) ^ bits(ip)).checked_shr(others).unwrap_or(0);
        ip.is_ipv4() == self.ip.is_ipv4() && differing == 0
    }
}

/// The number of bits of an address.
fn width(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// An address as a number whose highest bit is the address's first one.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// A range of ports, which is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// All ports.
    pub const ALL: Self = Self {
        first: 0,
        last: u16::MAX,
    };

    /// The ports from `first` to `last`, or `None` if there are none.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The first and the last one.
    pub fn bounds(&self) -> (u16, u16) {
        (self.first, self.last)
    }

    fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// What a rule says about one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPattern {
    /// Its address; `None` for any.
    pub prefix: Option<Prefix>,
    /// Its port.
    pub ports: PortRange,
}

impl EndPattern {
    /// Any address and port.
    pub const ANY: Self = Self {
        prefix: None,
        ports: PortRange::ALL,
    };

    fn matches(&self, end: &End) -> Match {
        let by_ip = self.prefix.map_or(Match::Yes, |prefix| {
            Match::of(end.ip.map(|ip| prefix.contains(ip)))
        });
        let by_port = match self.ports {
            PortRange::ALL => Match::Yes,
            ports => Match::of(end.port.map(|port| ports.contains(port))),
        };
        by_ip.and(by_port)
    }
}

/// What a rule does with connections that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// They may use SMC.
    Allow,
    /// They go over TCP.
    Deny,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it does.
    pub action: RuleAction,
    /// This host's role in connections that it matches; `None` for any.
    pub role: Option<Role>,
    /// This host's end.
    pub local: EndPattern,
    /// The peer's end.
    pub peer: EndPattern,
}

impl Rule {
    fn matches(&self, role: Role, ends: &Ends) -> Match {
        match self.role {
            Some(other) if other != role => Match::No,
            _ => self
                .local
                .matches(&ends.local)
                .and(self.peer.matches(&ends.peer)),
        }
    }
}

/// What is known of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    ip: Option<IpAddr>,
    port: Option<u16>,
}

impl End {
    /// An end about which nothing is known.
    pub const UNKNOWN: Self = Self {
        ip: None,
        port: None,
    };

    /// An address and a port as sockets have them: what is zero is not known.
    pub fn new(ip: IpAddr, port: u16) -> Self {
        Self {
            ip: Some(ip).filter(|ip| !ip.to_canonical().is_unspecified()),
            port: Some(port).filter(|port| *port != 0),
        }
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// This host's end.
    pub local: End,
    /// The peer's end.
    pub peer: End,
}

/// Whether something matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    /// It depends on what is not known.
    Open,
}

impl Match {
    fn of(known: Option<bool>) -> Self {
        match known {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Open,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

/// What the rules say of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The rule at this index decides.
    By(usize, RuleAction),
    /// No rule matches: it may use SMC.
    NoRule,
    /// It depends on what is not known yet.
    Open,
}

impl Decision {
    /// Whether the connection has to go over TCP.
    pub fn is_denied(self) -> bool {
        matches!(self, Self::By(_, RuleAction::Deny))
    }
}

/// Decides about a connection in which this host has the role `role`.
pub fn decide(rules: &[Rule], role: Role, ends: &Ends) -> Decision {
    for (index, rule) in rules.iter().enumerate() {
        match rule.matches(role, ends) {
            Match::Yes => return Decision::By(index, rule.action),
            Match::No => {}
            Match::Open => return Decision::Open,
        }
    }
    Decision::NoRule
}
