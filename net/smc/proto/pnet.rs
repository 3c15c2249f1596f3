// SPDX-License-Identifier: GPL-2.0

//! PNETID: the name of the physical network that a device is attached to.
//!
//! Two devices with the same PNETID reach each other without routing. A PNETID is up to sixteen
//! alphanumeric characters in upper case; firmware gives it padded with blanks, the
//! administrator gives it through netlink as a string (protocol of `SMC_PNETID`, C file
//! `smc_pnet.c`).

/// A PNETID, as text padded with NUL.
///
/// # Invariants
///
/// The text ends at the first NUL or blank, or after sixteen bytes; it is not empty.
#[derive(Clone, Copy, Debug)]
pub struct PnetId([u8; Self::LEN]);

impl PnetId {
    /// Length in bytes of the field that holds a PNETID.
    pub const LEN: usize = 16;

    /// Reads what an administrator typed: white space around the name is ignored, lower case
    /// becomes upper case. `None` unless 1 to 16 ASCII letters and digits remain.
    ///
    /// The C module also takes Latin-1 letters; smc-tools, which check first, do not.
    pub fn parse(typed: &[u8]) -> Option<Self> {
        let name = trim(typed);
        if name.is_empty() || name.len() > Self::LEN {
            return None;
        }
        if !name.iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        Some(Self::padded(name.iter().map(u8::to_ascii_uppercase)))
    }

    /// Takes a name as typed for a query: neither trimmed nor converted, cut at the first blank
    /// or NUL and at sixteen bytes. `None` if nothing is left.
    pub fn query(typed: &[u8]) -> Option<Self> {
        let name = text(typed.get(..Self::LEN).unwrap_or(typed));
        (!name.is_empty()).then(|| Self::padded(name.iter().copied()))
    }

    /// Returns the name without padding.
    pub fn as_bytes(&self) -> &[u8] {
        text(&self.0)
    }

    /// Returns the field of sixteen bytes, padded with NUL.
    pub const fn field(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    fn padded(name: impl Iterator<Item = u8>) -> Self {
        let mut field = [0; Self::LEN];
        for (to, from) in field.iter_mut().zip(name) {
            *to = from;
        }
        Self(field)
    }
}

/// Two PNETIDs are equal when their texts are, whatever the padding.
impl PartialEq for PnetId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for PnetId {}

/// Cuts a padded field at the first blank or NUL.
fn text(field: &[u8]) -> &[u8] {
    field
        .split(|byte| matches!(byte, 0 | b' '))
        .next()
        .unwrap_or_default()
}

/// Removes white space at both ends. Not `trim_ascii`: C's `isspace` has the vertical tab, too.
fn trim(mut name: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = name {
        if !is_space(*first) {
            break;
        }
        name = rest;
    }
    while let [rest @ .., last] = name {
        if !is_space(*last) {
            break;
        }
        name = rest;
    }
    name
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_and_raised_to_upper_case() {
        for (typed, want) in [
            (&b"net1"[..], &b"NET1"[..]),
            (b" \t\x0bNeT1\n ", b"NET1"),
            (b"A", b"A"),
            (b"0123456789abcdef", b"0123456789ABCDEF"),
        ] {
            assert_eq!(PnetId::parse(typed).unwrap().as_bytes(), want);
        }
    }

    #[test]
    fn names_that_are_empty_long_or_not_alphanumeric_are_refused() {
        for typed in [
            &b""[..],
            b"   ",
            b"0123456789abcdefg",
            b"net 1",
            b"net-1",
            b"net\0",
            b"n\xe9t",
        ] {
            assert!(PnetId::parse(typed).is_none(), "{typed:?}");
        }
    }

    #[test]
    fn padding_does_not_matter_in_a_comparison() {
        let blanks = PnetId::query(b"NET1            ").unwrap();
        let nuls = PnetId::query(b"NET1\0\0\0\0\0\0\0\0\0\0\0\0").unwrap();
        assert_eq!(blanks, nuls);
        assert_eq!(blanks, PnetId::parse(b"net1").unwrap());
        assert_ne!(blanks, PnetId::parse(b"net12").unwrap());
        assert_ne!(blanks, PnetId::parse(b"net").unwrap());
    }

    #[test]
    fn a_full_field_needs_no_terminator() {
        let full = PnetId::query(b"0123456789ABCDEF").unwrap();
        assert_eq!(full.as_bytes().len(), 16);
        assert_eq!(full, PnetId::parse(b"0123456789abcdef").unwrap());
    }

    #[test]
    fn a_blank_field_is_no_pnetid() {
        assert!(PnetId::query(b"                ").is_none());
        assert!(PnetId::query(&[0; 16]).is_none());
    }

    #[test]
    fn a_query_is_taken_as_typed() {
        assert_ne!(PnetId::query(b"net1"), PnetId::parse(b"net1"));
        assert_eq!(PnetId::query(b"NET1 x"), PnetId::parse(b"NET1"));
        assert_eq!(PnetId::query(b" NET1"), None);
    }
}
