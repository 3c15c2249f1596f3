// SPDX-License-Identifier: GPL-2.0

//! CLC (connection layer control) DECLINE: either side gives up SMC, with a reason.
//!
//! RFC 7609 appendix A.2.5; version 2 adds four more words of diagnosis, which are unused.

use core::mem::offset_of;

use zerocopy::byteorder::big_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;
use crate::id::PeerId;
use crate::reason::Reason;
use crate::wire::{
    NoSpace,
    Version, //
};

use super::{
    begin,
    open,
    ClcType,
    OsType,
    FIRST_CONTACT,
    HEADER_LEN,
    SMCR,
    TRAILER_LEN, //
};

/// A DECLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decline {
    /// The sender; [`PeerId::NONE`] if it has no identity.
    pub peer_id: PeerId,
    /// The reason.
    pub diagnosis: Diagnosis,
    /// The receiver wants to reuse a link group that the sender does not have, and should end it.
    pub out_of_sync: bool,
    /// The form of the message, and its specific fields.
    pub form: DeclineForm,
}

/// The two forms of a DECLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclineForm {
    /// Version 1, 28 bytes.
    V1 {
        /// The sender's operating system; 0 from Linux.
        os: OsType,
    },
    /// Version 2 or later, 44 bytes.
    V2 {
        /// The sender's operating system.
        os: OsType,
        /// Additional diagnosis; zero from Linux.
        more: [u32; 4],
    },
}

impl Decline {
    /// Creates the DECLINE that Linux sends for `reason`.
    pub const fn new(version: Version, peer_id: PeerId, reason: Reason) -> Self {
        Self {
            peer_id,
            diagnosis: Diagnosis(reason.code()),
            out_of_sync: reason.is_out_of_sync(),
            form: match version {
                Version::V1 => DeclineForm::V1 { os: OsType::NONE },
                Version::V2 => DeclineForm::V2 {
                    os: OsType::LINUX,
                    more: [0; 4],
                },
            },
        }
    }

    /// Parses a whole message.
    ///
    /// # Errors
    ///
    /// [`Malformed`]. The trailer is not checked, as in the C module.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, mut reader) = open(bytes, ClcType::Decline)?;
        let len = match header.version {
            Version::V1 => V1_LEN,
            Version::V2 => V2_LEN,
        };
        if header.message_len() != len {
            return Err(Malformed::LengthMismatch);
        }
        let raw: &RawDecline = reader.take()?;
        let os = OsType::from_nibble(raw.os >> 4);
        let form = match header.version {
            Version::V1 => DeclineForm::V1 { os },
            Version::V2 => DeclineForm::V2 {
                os,
                more: reader.take::<[U32; 4]>()?.map(U32::get),
            },
        };
        Ok(Self {
            peer_id: raw.peer_id,
            diagnosis: Diagnosis(raw.diagnosis.get()),
            out_of_sync: header.types & FIRST_CONTACT != 0,
            form,
        })
    }

    /// Writes the message into `buf` and returns its bytes, 28 or 44.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub fn emit<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
        let (version, len, os) = match self.form {
            DeclineForm::V1 { os } => (Version::V1, V1_LEN, os),
            DeclineForm::V2 { os, .. } => (Version::V2, V2_LEN, os),
        };
        let types = if self.out_of_sync { FIRST_CONTACT } else { 0 };
        let mut writer = begin(buf, ClcType::Decline, version, types, SMCR, len)?;
        writer.put(&RawDecline {
            peer_id: self.peer_id,
            diagnosis: U32::new(self.diagnosis.0),
            os: os.number() << 4,
            reserved: [0; 3],
        })?;
        if let DeclineForm::V2 { more, .. } = self.form {
            writer.put(&more.map(U32::new))?;
        }
        writer.put(&SMCR)?;
        writer.finish()
    }
}

/// Classification of the first bytes of a stream, where a DECLINE may precede the application's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A whole DECLINE of this many bytes.
    Decline(usize),
    /// All of them, if any, may be the beginning of a DECLINE.
    Open,
    /// Not the beginning of a DECLINE.
    Data,
}

impl Head {
    /// Bytes that are enough for a decision.
    pub const LEN: usize = V2_LEN;

    /// Classifies the first bytes of a stream. Stricter than [`Decline::parse`]: each byte with a fixed value must have
    /// it, as bytes mistaken for a DECLINE are lost to the application.
    pub fn of(bytes: &[u8]) -> Self {
        let len = match bytes.get(HEADER_LEN - 1).map(|types| types >> 4) {
            None => None,
            Some(1) => Some(V1_LEN),
            Some(_) => Some(V2_LEN),
        };
        let is_like = |(at, byte): (usize, &u8)| is_possible(at, *byte, len);
        let most = len.unwrap_or(HEADER_LEN);
        if !bytes.iter().take(most).enumerate().all(is_like) {
            return Self::Data;
        }
        // The length in the header must match the form, which a later byte determines.
        let said: Option<usize> = match bytes {
            [_, _, _, _, _, high, low, ..] => Some(u16::from_be_bytes([*high, *low]).into()),
            _ => None,
        };
        match (len, said) {
            (Some(len), Some(said)) if said != len => Self::Data,
            (Some(len), _) if bytes.len() >= len => Self::Decline(len),
            _ => Self::Open,
        }
    }
}

/// Returns true if `byte` is possible at offset `at` of a DECLINE of `len` bytes, if the length is known.
fn is_possible(at: usize, byte: u8, len: Option<usize>) -> bool {
    const OS: usize = HEADER_LEN + offset_of!(RawDecline, os);
    const RESERVED: usize = HEADER_LEN + offset_of!(RawDecline, reserved);
    const BEHIND: usize = V1_LEN - TRAILER_LEN;
    let trailer = len.and_then(|len| at.checked_sub(len.saturating_sub(TRAILER_LEN)));
    if let Some(expected) = trailer.and_then(|at| SMCR.get(at)) {
        return byte == *expected;
    }
    match at {
        0..4 => SMCR.get(at) == Some(&byte),
        4 => byte == ClcType::Decline.number(),
        5 => byte == 0,
        6 => [V1_LEN, V2_LEN].contains(&byte.into()),
        7 => Version::from_nibble(byte >> 4).is_some() && byte & 0x0f & !FIRST_CONTACT == 0,
        OS => byte & 0x0f == 0,
        RESERVED..BEHIND => byte == 0,
        _ => true,
    }
}

/// The reason in a peer's DECLINE. Any value may be received; informational only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Diagnosis(pub u32);

impl Diagnosis {
    /// Returns the corresponding reason, if it is known here.
    pub const fn reason(self) -> Option<Reason> {
        Reason::from_code(self.0)
    }
}

impl From<Reason> for Diagnosis {
    fn from(reason: Reason) -> Self {
        Self(reason.code())
    }
}

/// The bytes between header and trailer in version 1.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDecline {
    peer_id: PeerId,
    diagnosis: U32,
    os: u8,
    reserved: [u8; 3],
}

const V1_LEN: usize = HEADER_LEN + size_of::<RawDecline>() + TRAILER_LEN;
const V2_LEN: usize = V1_LEN + 16;
const _: () = assert!(V1_LEN == 28 && V2_LEN == 44);

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: [Version; 2] = [Version::V1, Version::V2];

    fn decline(version: Version) -> Vec<u8> {
        let decline = Decline::new(version, PeerId([7; 8]), Reason::TimeoutConfirmLink);
        let mut buf = [0; V2_LEN];
        decline.emit(&mut buf).unwrap().to_vec()
    }

    #[test]
    fn a_decline_is_known_when_it_is_whole_and_open_until_then() {
        for version in FORMS {
            let mut bytes = decline(version);
            for len in 0..bytes.len() {
                assert_eq!(Head::of(&bytes[..len]), Head::Open, "{len}");
            }
            let whole = Head::Decline(bytes.len());
            assert_eq!(Head::of(&bytes), whole);
            bytes.push(b'x');
            assert_eq!(Head::of(&bytes), whole);
        }
    }

    #[test]
    fn whatever_differs_in_a_byte_with_one_meaning_is_data() {
        for version in FORMS {
            let whole = decline(version);
            let free = |at: usize| (8..20).contains(&at) || (24..whole.len() - 4).contains(&at);
            for at in (0..whole.len()).filter(|at| !free(*at)) {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x01;
                assert_eq!(Head::of(&bytes), Head::Data, "byte {at}");
                if at != 6 {
                    assert_eq!(Head::of(&bytes[..=at]), Head::Data, "byte {at}");
                }
            }
        }
        assert_eq!(Head::of(b"GET / HTTP/1.1"), Head::Data);
    }

    #[test]
    fn the_length_and_the_version_have_to_agree() {
        let mut bytes = decline(Version::V1);
        bytes[6] = 44;
        assert_eq!(Head::of(&bytes), Head::Data);
        assert_eq!(Head::of(&bytes[..7]), Head::Open);
        let mut bytes = decline(Version::V2);
        bytes[6] = 28;
        assert_eq!(Head::of(&bytes[..8]), Head::Data);
    }
}
