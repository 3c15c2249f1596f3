// SPDX-License-Identifier: GPL-2.0

//! Vendor's options of this module in a first contact: four bytes that version 2.1 leaves to vendors, and that the C
//! module neither sets nor reads.
//!
//! The message does not identify the vendor. Therefore one kind is a number unlikely to be used by others, and the
//! other is valid only if the GID matches. `Documentation/links.md` and `Documentation/iwarp.md` specify them.

/// The vendor's options. The first byte is the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// None, or those of another vendor.
    Unknown,
    /// The sender accepts CDC messages of a connection on any link of the group, whatever link it uses itself.
    AnyLink {
        /// It accepts [immediate data](crate::wire::immediate) in their place.
        takes_immediate: bool,
        /// The RMBEs of a connection can be [replaced](crate::conn::RmbeRefs).
        replaces_rmbes: bool,
    },
    /// As [`Vendor::AnyLink`], and the link is over iWARP. Valid only together with a GID of an iWARP end.
    Iwarp {
        /// The TCP port at which the sender listens for the connection; 0 for none.
        port: u16,
        /// As in [`Vendor::AnyLink`].
        replaces_rmbes: bool,
    },
}

impl Vendor {
    const ANY_LINK: u32 = u32::from_be_bytes(*b"\x01RSM");
    const IMMEDIATE: u32 = u32::from_be_bytes(*b"\x02RSM");
    const REPLACES: u32 = u32::from_be_bytes(*b"\x03RSM");
    const IWARP: u8 = 0x81;

    /// Parses the options.
    pub const fn of(options: u32) -> Self {
        match options.to_be_bytes() {
            [Self::IWARP, flags, high, low] => Self::Iwarp {
                port: u16::from_be_bytes([high, low]),
                replaces_rmbes: flags & 1 != 0,
            },
            _ if options == Self::ANY_LINK => Self::AnyLink {
                takes_immediate: false,
                replaces_rmbes: false,
            },
            _ if options == Self::IMMEDIATE => Self::AnyLink {
                takes_immediate: true,
                replaces_rmbes: false,
            },
            _ if options == Self::REPLACES => Self::AnyLink {
                takes_immediate: true,
                replaces_rmbes: true,
            },
            _ => Self::Unknown,
        }
    }

    /// Returns the options as sent. Who replaces RMBEs takes immediate data, too.
    pub const fn options(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::AnyLink {
                replaces_rmbes: true,
                ..
            } => Self::REPLACES,
            Self::AnyLink {
                takes_immediate: true,
                ..
            } => Self::IMMEDIATE,
            Self::AnyLink { .. } => Self::ANY_LINK,
            Self::Iwarp {
                port,
                replaces_rmbes,
            } => {
                let [high, low] = port.to_be_bytes();
                u32::from_be_bytes([Self::IWARP, replaces_rmbes as u8, high, low])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn any_link(takes_immediate: bool, replaces_rmbes: bool) -> Vendor {
        Vendor::AnyLink {
            takes_immediate,
            replaces_rmbes,
        }
    }

    const fn iwarp(port: u16, replaces_rmbes: bool) -> Vendor {
        Vendor::Iwarp {
            port,
            replaces_rmbes,
        }
    }

    #[test]
    fn options_are_read_as_they_were_sent() {
        for (vendor, options) in [
            (Vendor::Unknown, 0),
            (any_link(false, false), 0x0152_534d),
            (any_link(true, false), 0x0252_534d),
            (any_link(true, true), 0x0352_534d),
            (iwarp(0, false), 0x8100_0000),
            (iwarp(0xff00, true), 0x8101_ff00),
        ] {
            assert_eq!(vendor.options(), options);
            assert_eq!(Vendor::of(options), vendor);
        }
    }

    #[test]
    fn options_of_others_are_not_known() {
        for options in [
            1,
            0x0100_0000,
            0x0152_534e,
            0x0452_534d,
            0x8000_0001,
            u32::MAX,
        ] {
            assert_eq!(Vendor::of(options), Vendor::Unknown);
        }
        // The other bits of the second byte are reserved for later use.
        assert_eq!(Vendor::of(0x81fe_0007), iwarp(7, false));
    }
}
