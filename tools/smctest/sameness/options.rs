// SPDX-License-Identifier: GPL-2.0

//! The options and ioctls that sockets have, as data: those of the manual pages, and those of the kernel's headers that
//! no page has yet.

mod ioctls;
mod ip;
mod ipv6;
mod others;
mod socket;
mod tcp;

use std::net::IpAddr;

/// What a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// An option of a level.
    Option { level: i32, name: i32 },
    /// A request of ioctl(2).
    Ioctl(u64),
}

/// The values to which an option is set, one after the other. The last one stays.
#[derive(Clone, Copy)]
pub(super) enum Values {
    Ints(&'static [i32]),
    Bytes(&'static [&'static [u8]]),
    /// Those that contain addresses of this program.
    Made(fn() -> Vec<Vec<u8>>),
}

/// How a value that was read is written down, so that equal behaviour gives equal text.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Exact,
    /// Only whether it is 0: a time, or a number by chance.
    IsSet,
    /// Only whether there is one: a processor, or -1.
    Index,
    /// Only its length, until it is set: what the connection has transferred shows in it.
    OnceSet,
    /// Only its length.
    Length,
    /// Its length, and so many bytes.
    First(usize),
    /// Its length, and these numbers of type `u32`.
    Numbers(&'static [usize]),
}

/// An option.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) target: Target,
    pub(super) values: Values,
    pub(super) form: Form,
    /// What it does would show in other options: it has a socket of its own.
    is_alone: bool,
}

/// Values of an option that is on or off; it stays on.
pub(super) const FLAG: &[i32] = &[2, -1, 0, 1];

impl Entry {
    pub(super) const fn new(level: i32, name: &'static str, number: i32, values: Values) -> Self {
        Self {
            name,
            target: Target::Option {
                level,
                name: number,
            },
            values,
            form: Form::Exact,
            is_alone: false,
        }
    }

    /// Whether it has a socket of its own: options of IPv6 do nothing to a socket of IPv4.
    pub(super) fn is_alone_at(&self, ip: IpAddr) -> bool {
        let level = match self.target {
            Target::Option { level, .. } => level,
            Target::Ioctl(_) => libc::SOL_SOCKET,
        };
        self.is_alone && (level != libc::IPPROTO_IPV6 || ip.is_ipv6())
    }

    const fn alone(self) -> Self {
        Self {
            is_alone: true,
            ..self
        }
    }

    const fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }
}

/// Defines the functions with which the table of one level is written.
macro_rules! of_level {
    ($level:expr) => {
        use super::Entry;
        #[allow(unused_imports, reason = "not all levels have each kind")]
        use super::Form;
        use super::Values;

        /// An option of type `int`, and the values that it is set to.
        const fn ints(name: &'static str, number: i32, values: &'static [i32]) -> Entry {
            Entry::new($level, name, number, Values::Ints(values))
        }

        /// An option that is on or off.
        const fn flag(name: &'static str, number: i32) -> Entry {
            ints(name, number, super::FLAG)
        }

        /// An option that is only read; an attempt to set it is made all the same.
        const fn read(name: &'static str, number: i32) -> Entry {
            ints(name, number, &[1])
        }

        /// An option of another type.
        const fn bytes(name: &'static str, number: i32, values: &'static [&'static [u8]]) -> Entry {
            Entry::new($level, name, number, Values::Bytes(values))
        }
    };
}
use of_level;

/// The options of one manual page.
pub(super) struct Page {
    pub(super) name: &'static str,
    pub(super) entries: &'static [Entry],
}

pub(super) const PAGES: &[Page] = &[
    Page {
        name: "socket(7)",
        entries: socket::OPTIONS,
    },
    Page {
        name: "tcp(7)",
        entries: tcp::OPTIONS,
    },
    Page {
        name: "ip(7)",
        entries: ip::OPTIONS,
    },
    Page {
        name: "ipv6(7)",
        entries: ipv6::OPTIONS,
    },
    Page {
        name: "ioctl(2)",
        entries: ioctls::REQUESTS,
    },
    Page {
        name: "other levels, and unknown options",
        entries: others::OPTIONS,
    },
];

/// All options of all pages.
pub(super) fn all() -> impl Iterator<Item = &'static Entry> {
    PAGES.iter().flat_map(|page| page.entries)
}
