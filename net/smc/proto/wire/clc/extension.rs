// SPDX-License-Identifier: GPL-2.0

//! Version 2 additions to CLC (connection layer control) messages: limits, releases, and the first contact extension.
//!
//! Version 2.1 is release 1 of version 2; it adds the limits. The layouts are those of IBM's «SMC
//! Version 2» documents.

use core::fmt;

use zerocopy::byteorder::big_endian::{
    U16,
    U32, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::vendor::Vendor;
use crate::error::Malformed;
use crate::id::Features;
use crate::wire::{
    NoSpace,
    Reader,
    Writer, //
};

/// What each side sends about itself when a link group of version 2 is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstContactExt {
    /// The two RDMA ports are in one subnet, without a gateway.
    pub direct: bool,
    /// The sender's operating system.
    pub os: OsType,
    /// The sender's release of version 2.
    pub release: Release,
    /// The sender's name, informational.
    pub hostname: Hostname,
    /// Limits of the link group; use [`FirstContactExt::limits`], which checks the release.
    pub raw_limits: Limits,
    /// Feature bits, from release 1 on.
    pub features: Features,
    /// Vendor's options; use [`FirstContactExt::vendor`], which checks the release.
    pub vendor_options: u32,
}

impl FirstContactExt {
    /// Returns the parsed vendor's options; those of release 0, which has none, are ignored.
    pub fn vendor(&self) -> Vendor {
        if self.release >= Release::R1 {
            Vendor::of(self.vendor_options)
        } else {
            Vendor::Unknown
        }
    }

    /// Returns the limits of the link group; `None` before release 1, which has none.
    pub fn limits(&self) -> Option<Limits> {
        (self.release >= Release::R1).then_some(self.raw_limits)
    }

    /// Parses the extension. In SMC-D messages of release 0 it is shorter.
    pub(super) fn read(reader: &mut Reader<'_>, form: Form) -> Result<Self, Malformed> {
        let base: &RawBase = reader.take()?;
        let release = Release::from_nibble(base.os_release);
        let rest = match form {
            Form::ByRelease if release == Release::R0 => &RawRest::NONE,
            Form::ByRelease | Form::Full => reader.take()?,
        };
        Ok(Self {
            direct: base.direct & DIRECT != 0,
            os: OsType::from_nibble(base.os_release >> 4),
            release,
            hostname: base.hostname,
            raw_limits: rest.limits,
            features: Features(rest.features.get()),
            vendor_options: rest.vendor_options.get(),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>, form: Form) -> Result<(), NoSpace> {
        writer.put(&RawBase {
            direct: if self.direct { DIRECT } else { 0 },
            os_release: self.os.number() << 4 | self.release.number(),
            reserved: [0; 2],
            hostname: self.hostname,
        })?;
        if self.len(form) == BASE_LEN {
            return Ok(());
        }
        writer.put(&RawRest {
            limits: self.raw_limits,
            features: U16::new(self.features.0),
            vendor_options: U32::new(self.vendor_options),
            reserved: [0; 8],
        })
    }

    pub(super) fn len(&self, form: Form) -> usize {
        match form {
            Form::ByRelease if self.release == Release::R0 => BASE_LEN,
            Form::ByRelease | Form::Full => FULL_LEN,
        }
    }
}

/// Length of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Always 52 bytes: SMC-R.
    Full,
    /// 36 bytes in release 0, else 52: SMC-D.
    ByRelease,
}

/// Limits of one link group.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Limits {
    /// Maximum connections; the protocol requires at least 16.
    pub max_conns: u8,
    /// Maximum links.
    pub max_links: u8,
}

/// Declares newtypes over four bits.
macro_rules! nibbles {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $number:literal;)+ })+) => {
        $(
            $(#[$doc])*
            ///
            /// # Invariants
            ///
            /// Four bits.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(u8);

            impl $name {
                $(
                    $(#[$value_doc])*
                    pub const $value: Self = Self($number);
                )+

                /// Creates a value; `None` if `number` needs more than four bits.
                pub const fn new(number: u8) -> Option<Self> {
                    match number <= 0x0f {
                        // INVARIANT: just checked.
                        true => Some(Self(number)),
                        false => None,
                    }
                }

                /// Returns the number, at most 15.
                pub const fn number(self) -> u8 {
                    self.0
                }

                pub(super) const fn from_nibble(bits: u8) -> Self {
                    // INVARIANT: the mask leaves four bits.
                    Self(bits & 0x0f)
                }
            }
        )+
    };
}

nibbles! {
    /// Release of version 2.
    Release {
        /// Version 2.0.
        R0 = 0;
        /// Version 2.1.
        R1 = 1;
    }

    /// Operating system of a peer.
    OsType {
        /// Not specified.
        NONE = 0;
        /// z/OS.
        ZOS = 1;
        /// Linux.
        LINUX = 2;
        /// AIX.
        AIX = 3;
    }
}

/// Name of a host: 32 bytes, padded with blanks.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Hostname(pub [u8; 32]);

impl Hostname {
    /// Creates a hostname from at most 32 bytes of `name`, up to the first NUL.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [b' '; 32];
        let name = name.iter().take_while(|byte| **byte != 0);
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        Self(bytes)
    }
}

impl fmt::Debug for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.trim_ascii_end().escape_ascii())
    }
}

const DIRECT: u8 = 0x80;

/// The part common to all releases.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBase {
    direct: u8,
    os_release: u8,
    reserved: [u8; 2],
    hostname: Hostname,
}

/// The part added in release 1, reserved and zero before.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRest {
    limits: Limits,
    features: U16,
    vendor_options: U32,
    reserved: [u8; 8],
}

impl RawRest {
    const NONE: Self = Self {
        limits: Limits {
            max_conns: 0,
            max_links: 0,
        },
        features: U16::ZERO,
        vendor_options: U32::ZERO,
        reserved: [0; 8],
    };
}

const BASE_LEN: usize = size_of::<RawBase>();
const FULL_LEN: usize = BASE_LEN + size_of::<RawRest>();
const _: () = assert!(BASE_LEN == 36 && FULL_LEN == 52);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostname_ends_at_its_first_nul_and_is_padded_with_blanks() {
        let mut name = [0; 65];
        name[..4].copy_from_slice(b"host");
        name[6] = b'x';
        let mut padded = [b' '; 32];
        padded[..4].copy_from_slice(b"host");
        assert_eq!(Hostname::new(&name).0, padded);
        assert_eq!(Hostname::new(&[b'a'; 40]).0, [b'a'; 32]);
    }
}
