// SPDX-License-Identifier: GPL-2.0

//! Names that are numbers, in host order; where one has fewer values than bits, the constructor
//! keeps to them.

use core::num::NonZeroU8;

use crate::buffer::SizeClass;

/// Declares a newtype over an integer of which every value is legal.
macro_rules! open_integer {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(pub $int);
        )*
    };
}

open_integer! {
    /// Key that the peer's RDMA device asks for in an RDMA write to a memory region.
    Rkey(u32);
    /// Address, in the terms of the owner's RDMA device, at which an RMB starts. Opaque to the peer.
    RemoteAddr(u64);
    /// Alert token: names a connection in each connection data control (CDC) message sent to the
    /// peer that chose it.
    AlertToken(u32);
    /// The low half of an [`AlertToken`]: see [`AlertToken::short`].
    ShortToken(u16);
    /// Names a link in its owner's diagnostics; not used by the protocol.
    LinkUid(u32);
    /// Feature bits of version 2.1. Not used for SMC-R.
    Features(u16);
}

impl AlertToken {
    /// Returns the part that immediate data have room for. Different for all connections of a link group.
    pub const fn short(self) -> ShortToken {
        // CAST: the low half.
        ShortToken(self.0 as u16)
    }
}

/// Number of a link in its link group, given by the server.
///
/// Zero is no link: the C module has it where its table has none, so a peer that names it means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNum(pub u8);

impl LinkNum {
    /// No link.
    pub const NONE: Self = Self(0);

    /// Says whether this can be the number of a link.
    pub const fn is_link(self) -> bool {
        self.0 != 0
    }
}

/// Declares a newtype over the 24-bit integers.
macro_rules! u24 {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Invariants
            ///
            /// At most 24 bits.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(u32);

            impl $name {
                /// The largest.
                pub const MAX: Self = Self(0x00ff_ffff);

                /// Makes one; `None` if `value` needs more than 24 bits.
                pub const fn new(value: u32) -> Option<Self> {
                    if value > Self::MAX.0 {
                        return None;
                    }
                    // INVARIANT: just checked.
                    Some(Self(value))
                }

                /// Makes one from the low 24 bits, for example of a random number.
                pub const fn from_low_bits(value: u32) -> Self {
                    // INVARIANT: the mask leaves 24 bits.
                    Self(value & Self::MAX.0)
                }

                /// Makes one from its three bytes on the wire.
                pub const fn from_be_bytes(bytes: [u8; 3]) -> Self {
                    let [a, b, c] = bytes;
                    // INVARIANT: the high byte is zero.
                    Self(u32::from_be_bytes([0, a, b, c]))
                }

                /// Its three bytes on the wire.
                pub const fn to_be_bytes(self) -> [u8; 3] {
                    let [_, rest @ ..] = self.0.to_be_bytes();
                    rest
                }

                /// The number, at most 24 bits.
                pub const fn get(self) -> u32 {
                    self.0
                }
            }
        )*
    };
}

u24! {
    /// Queue pair number.
    QpNum;
    /// Packet sequence number, the first one that a queue pair sends.
    Psn;
}

/// Index of an element in an RMB, counted from 1.
///
/// # Invariants
///
/// Not zero: the element's offset is `index - 1` element sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RmbeIndex(NonZeroU8);

impl RmbeIndex {
    /// The first element, the only one that the C module uses.
    pub const FIRST: Self = Self(NonZeroU8::MIN);

    /// Makes an index; `None` for zero.
    pub const fn new(index: u8) -> Option<Self> {
        match NonZeroU8::new(index) {
            Some(index) => Some(Self(index)),
            None => None,
        }
    }

    /// The index, 1 to 255.
    pub const fn get(self) -> u8 {
        self.0.get()
    }

    /// Offset of the element in an RMB of elements of `size`, in bytes. Less than 2^37.
    pub const fn offset(self, size: SizeClass) -> u64 {
        // OVERFLOW: 254 * 2^29 fits in a u64.
        (self.get().saturating_sub(1) as u64).saturating_mul(size.bytes() as u64)
    }
}

/// Maximum transmission unit of a path, as the code that RoCE and `enum ib_mtu` use.
///
/// # Invariants
///
/// 1 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u8);

impl Mtu {
    /// 256 bytes.
    pub const B256: Self = Self(1);
    /// 512 bytes.
    pub const B512: Self = Self(2);
    /// 1024 bytes.
    pub const B1024: Self = Self(3);
    /// 2048 bytes.
    pub const B2048: Self = Self(4);
    /// 4096 bytes.
    pub const B4096: Self = Self(5);

    /// Makes an MTU from its code, 1 to 5; `None` for another one.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < Self::B256.0 || code > Self::B4096.0 {
            return None;
        }
        // INVARIANT: just checked.
        Some(Self(code))
    }

    /// The code on the wire, 1 to 5.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The MTU in bytes, 256 to 4096.
    pub const fn bytes(self) -> u32 {
        // OVERFLOW: 128 << 5 is 4096 by the invariant.
        128 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_has_five_codes() {
        assert_eq!(Mtu::from_code(0), None);
        assert_eq!(Mtu::from_code(6), None);
        assert_eq!(Mtu::B256.bytes(), 256);
        assert_eq!(Mtu::B4096.bytes(), 4096);
    }

    #[test]
    fn the_last_element_of_the_largest_size_has_an_offset() {
        assert_eq!(RmbeIndex::new(0), None);
        assert_eq!(RmbeIndex::FIRST.offset(SizeClass::LARGEST), 0);
        let last = RmbeIndex::new(255).unwrap();
        assert_eq!(last.offset(SizeClass::LARGEST), 254 << 29);
    }

    #[test]
    fn a_24_bit_number_is_no_more() {
        assert_eq!(QpNum::new(0x0100_0000), None);
        assert_eq!(Psn::from_low_bits(0xff12_3456).get(), 0x0012_3456);
        assert_eq!(Psn::from_be_bytes([1, 2, 3]).to_be_bytes(), [1, 2, 3]);
    }
}
