// SPDX-License-Identifier: GPL-2.0

//! CLC (connection layer control) DECLINE: either side gives up SMC, and says why.
//!
//! RFC 7609 appendix A.2.5; version 2 adds four more words of diagnosis, which nobody uses.

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
    MessageType,
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
    /// Why.
    pub diagnosis: Diagnosis,
    /// The receiver wants to reuse a link group that the sender does not have: give it up.
    pub out_of_sync: bool,
    /// Which form the message has, and what only that form says.
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
        /// Four more words; zero from Linux.
        more: [u32; 4],
    },
}

impl Decline {
    /// Makes the DECLINE that Linux sends for `reason`.
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
    /// [`Malformed`]. The trailer is not looked at, as the C module does not.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, mut reader) = open(bytes, MessageType::Decline)?;
        let len = match header.version {
            Version::V1 => V1_LEN,
            Version::V2 => V2_LEN,
        };
        if header.message_len() != len {
            return Err(Malformed::LengthMismatch);
        }
        let raw: &Raw = reader.take()?;
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
        let mut writer = begin(buf, MessageType::Decline, version, types, SMCR, len)?;
        writer.put(&Raw {
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

/// Why a peer declined, as it says. Any value may come; it only informs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Diagnosis(pub u32);

impl Diagnosis {
    /// The reason it stands for, if it is one that is known here.
    pub const fn reason(self) -> Option<Reason> {
        Reason::from_code(self.0)
    }
}

impl From<Reason> for Diagnosis {
    fn from(reason: Reason) -> Self {
        Self(reason.code())
    }
}

/// What lies between header and trailer in version 1.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    peer_id: PeerId,
    diagnosis: U32,
    os: u8,
    reserved: [u8; 3],
}

const V1_LEN: usize = HEADER_LEN + size_of::<Raw>() + TRAILER_LEN;
const V2_LEN: usize = V1_LEN + 16;
const _: () = assert!(V1_LEN == 28 && V2_LEN == 44);
