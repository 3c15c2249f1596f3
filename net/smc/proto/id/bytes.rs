// SPDX-License-Identifier: GPL-2.0

//! Names that are bytes: the same in memory and on the wire, so that lists of them are borrowed from
//! a message.

use core::fmt;
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Declares newtypes over arrays of bytes, all zero by default.
macro_rules! byte_id {
    ($($(#[$doc:meta])* $name:ident($len:literal);)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(transparent)]
            pub struct $name(pub [u8; $len]);

            impl Default for $name {
                fn default() -> Self {
                    Self([0; $len])
                }
            }
        )*
    };
}

byte_id! {
    /// Identifies a machine, or one of several instances on it: two bytes that change when the module is loaded, then
    /// the Ethernet address of one of its RDMA ports (RFC 7609 appendix A.2.1).
    PeerId(8);
    /// Global identifier of an RDMA port, as the port's GID table has it.
    Gid(16);
    /// Ethernet address.
    Mac(6);
    /// IPv4 address.
    Ipv4(4);
    /// Enterprise id: 32 characters that peers must share to use version 2.
    ///
    /// Holds any bytes, because a peer may send any; [`Eid::is_valid_ueid`] judges them.
    Eid(32);
}

impl PeerId {
    /// What a peer sends that has none, for example in a proposal that offers version 2 only.
    pub const NONE: Self = Self([0; 8]);

    /// Makes a peer id from the instance id and the address of a port.
    pub const fn new(instance: [u8; 2], mac: Mac) -> Self {
        let [a, b] = instance;
        let Mac([c, d, e, f, g, h]) = mac;
        Self([a, b, c, d, e, f, g, h])
    }

    /// The address of the port that the id was made from.
    pub const fn mac(self) -> Mac {
        let Self([_, _, mac @ ..]) = self;
        Mac(mac)
    }

    /// Says whether the id names a machine: whether its address part is not all zero.
    pub const fn is_valid(self) -> bool {
        !self.mac().is_zero()
    }
}

impl Gid {
    /// No GID.
    pub const NONE: Self = Self([0; 16]);

    /// The GID of a RoCE v2 port with this address, in the form `::ffff:a.b.c.d` that Linux sends.
    pub const fn from_ipv4(address: Ipv4) -> Self {
        let Ipv4([a, b, c, d]) = address;
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// The IPv4 address of a RoCE v2 GID, in either of the forms in use (`::ffff:a.b.c.d`, or
    /// twelve zero bytes before the address); `None` for any other GID and for 0.0.0.0.
    pub const fn ipv4(self) -> Option<Ipv4> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]
            | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => None,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
            | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => Some(Ipv4([a, b, c, d])),
            _ => None,
        }
    }

    /// The name of an iWARP port with this address, where a GID is asked for. Of an IPv4 address it is
    /// `::fffe:a.b.c.d`, which is no address of anything; of an IPv6 address it is that, as version 2 knows
    /// no RoCE GIDs but those of IPv4 addresses. So nobody takes it for a RoCE GID. An IPv6 address that is
    /// neither global nor unique local names nothing.
    pub const fn of_iwarp(address: IpAddr) -> Option<Self> {
        let gid = match address {
            IpAddr::V4(address) => {
                let [a, b, c, d] = address.octets();
                Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, a, b, c, d])
            }
            IpAddr::V6(address) => Self(address.octets()),
        };
        match gid.iwarp() {
            Some(_) => Some(gid),
            None => None,
        }
    }

    /// The address of the iWARP port that this names, if it names one.
    pub const fn iwarp(self) -> Option<IpAddr> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, a, b, c, d] => {
                Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            // 2000::/3 and fc00::/7.
            [0x20..=0x3f | 0xfc | 0xfd, ..] => {
                Some(IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(self.0))))
            }
            _ => None,
        }
    }

    /// The GID in text: eight groups of four hexadecimal digits, nothing left out, as administrators
    /// see it.
    pub fn text(self) -> [u8; 39] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| {
            DIGITS
                .get(usize::from(nibble & 0xf))
                .copied()
                .unwrap_or(b'0')
        };
        let mut text = [b':'; 39];
        for (group, pair) in text.chunks_mut(5).zip(self.0.chunks_exact(2)) {
            let nibbles = pair.iter().flat_map(|byte| [byte >> 4, *byte]);
            for (to, nibble) in group.iter_mut().zip(nibbles) {
                *to = digit(nibble);
            }
        }
        text
    }

    /// Says whether this is [`Gid::NONE`].
    pub const fn is_none(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }
}

impl Mac {
    /// No address.
    pub const NONE: Self = Self([0; 6]);

    /// Says whether the address is all zero.
    pub const fn is_zero(self) -> bool {
        matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl Ipv4 {
    /// The address and a mask of `len` bits; a `len` above 32 masks nothing away.
    pub const fn masked(self, len: u8) -> Self {
        // CAST: u8 to u32 in a const fn.
        let host_bits = 32u32.saturating_sub(len as u32);
        let mask = match u32::MAX.checked_shl(host_bits) {
            Some(mask) => mask,
            None => 0,
        };
        Self((u32::from_be_bytes(self.0) & mask).to_be_bytes())
    }
}

impl Eid {
    /// The field of a message in which no EID was agreed on.
    pub const NONE: Self = Self([0; 32]);

    /// Makes the user EID `name`: blank padded; `None` unless it is 1 to 32 characters and passes
    /// [`Eid::is_valid_ueid`].
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut bytes = [b' '; 32];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let eid = Self(bytes);
        eid.is_valid_ueid().then_some(eid)
    }

    /// Says whether this is a well-formed user EID: `A` to `Z`, `0` to `9`, `.` and `-`, blanks
    /// only at the end, the first character a letter or a digit.
    pub fn is_valid_ueid(&self) -> bool {
        let is_alnum = |c: &u8| c.is_ascii_uppercase() || c.is_ascii_digit();
        let len = self
            .0
            .iter()
            .rposition(|&c| c != b' ')
            .map_or(0, |last| last.saturating_add(1));
        let Some(name) = self.0.get(..len) else {
            return false;
        };
        name.first().is_some_and(is_alnum)
            && name.iter().all(|c| is_alnum(c) || matches!(c, b'.' | b'-'))
    }

    /// Says whether this is [`Eid::NONE`].
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = self.0;
        write!(f, "{a:02x}{b:02x}-{:?}", self.mac())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.ipv4() {
            return write!(f, "::ffff:{address:?}");
        }
        for (at, pair) in self.0.chunks(2).enumerate() {
            if at != 0 {
                f.write_str(":")?;
            }
            for byte in pair {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Ipv4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a}.{b}.{c}.{d}")
    }
}

impl fmt::Debug for Eid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.trim_ascii_end().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_iwarp_port_is_no_roce_gid() {
        for address in ["10.9.0.1", "2001:db8::1", "fd00:9::1"] {
            let address = address.parse().unwrap();
            let gid = Gid::of_iwarp(address).unwrap();
            assert_eq!((gid.iwarp(), gid.ipv4()), (Some(address), None));
        }
        for address in ["fe80::1", "::1", "::ffff:10.9.0.1", "::", "ff02::1"] {
            assert_eq!(Gid::of_iwarp(address.parse().unwrap()), None, "{address}");
        }
        assert_eq!(Gid::from_ipv4(Ipv4([10, 9, 0, 1])).iwarp(), None);
        assert_eq!(Gid::NONE.iwarp(), None);
    }

    #[test]
    fn a_gid_in_text_leaves_nothing_out() {
        let gid = Gid::from_ipv4(Ipv4([10, 9, 0, 255]));
        let text = b"0000:0000:0000:0000:0000:ffff:0a09:00ff";
        assert_eq!(&gid.text(), text);
        let gid = Gid(*b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\xab\xcd");
        assert_eq!(&gid.text(), b"2001:0db8:0000:0000:0000:0000:0000:abcd");
    }

    #[test]
    fn both_forms_of_a_v4_gid_convert() {
        let address = Ipv4([192, 168, 1, 2]);
        let mut short = Gid::from_ipv4(address);
        assert_eq!(short.ipv4(), Some(address));
        short.0[10] = 0;
        short.0[11] = 0;
        assert_eq!(short.ipv4(), Some(address));
        short.0[11] = 0xff;
        assert_eq!(short.ipv4(), None);
        assert_eq!(Gid::NONE.ipv4(), None);
    }

    #[test]
    fn ids_print_as_people_write_them() {
        let mac = Mac([2, 0, 0, 0, 0, 0x0f]);
        let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
        assert_eq!(
            std::format!("{:?}", PeerId::new([0x12, 0x34], mac)),
            "1234-02:00:00:00:00:0f"
        );
        assert_eq!(
            std::format!("{gid:?}"),
            "fe80:0000:0000:0000:0000:00ff:fe00:0001"
        );
        assert_eq!(
            std::format!("{:?}", Gid::from_ipv4(Ipv4([10, 0, 0, 1]))),
            "::ffff:10.0.0.1"
        );
    }

    #[test]
    fn user_eids_follow_the_rules_of_the_configuration() {
        assert!(Eid::from_name(b"SMCV2-TEST").is_some());
        assert!(Eid::from_name(b"0.X").is_some());
        for bad in [
            &b""[..],
            b" A",
            b".A",
            b"-A",
            b"a",
            b"A B",
            b"A\0",
            &[b'A'; 33],
        ] {
            assert_eq!(Eid::from_name(bad), None, "{}", bad.escape_ascii());
        }
        assert!(Eid::from_name(&[b'A'; 32]).is_some());
        assert!(!Eid::NONE.is_valid_ueid());
    }

    #[test]
    fn a_mask_keeps_the_subnet() {
        let address = Ipv4([192, 168, 1, 77]);
        assert_eq!(address.masked(24), Ipv4([192, 168, 1, 0]));
        assert_eq!(address.masked(32), address);
        assert_eq!(address.masked(0), Ipv4([0; 4]));
        assert_eq!(address.masked(200), address);
    }
}
