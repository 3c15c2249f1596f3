// SPDX-License-Identifier: GPL-2.0

//! Connection data control (CDC) messages: one connection's cursors and flags.
//!
//! RFC 7609 section 4.3 and appendix A.4. A message describes one direction completely, so the loss of an older one
//! does no harm.

use zerocopy::byteorder::big_endian::{
    U16,
    U32, //
};
use zerocopy::transmute;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::buffer::SizeClass;
use crate::conn::{
    Cdc,
    ProducerFlags,
    RmbeNum,
    RmbeOffer,
    RmbeRefs,
    StateFlags, //
};
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::id::{
    AlertToken,
    Rkey,
    RmbeIndex, //
};

use super::{
    Reader,
    SEND_LEN, //
};

/// First byte of every CDC message.
pub const TYPE: u8 = 0xfe;

/// A CDC message: its connection and contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CdcMessage {
    /// The alert token of the receiver's connection.
    pub token: AlertToken,
    /// Cursors and flags. The cursors are not yet checked against the rings, whose sizes only the connection knows.
    pub cdc: Cdc,
}

impl CdcMessage {
    /// Parses the received bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if there are fewer than 44 bytes, or if they are marked as another message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: &RawCdc = Reader::new(bytes).take()?;
        if raw.kind != TYPE {
            return Err(Malformed::MessageType);
        }
        if usize::from(raw.len) != SEND_LEN {
            return Err(Malformed::LengthMismatch);
        }
        Ok(Self {
            token: AlertToken(raw.token.get()),
            cdc: Cdc {
                seq: raw.seq.get(),
                prod: raw.prod.cursor(),
                cons: raw.cons.cursor(),
                flags: ProducerFlags::from_bits(raw.prod_flags),
                state: StateFlags::from_bits(raw.state_flags),
                rmbes: raw.rmbes.refs(),
            },
        })
    }

    /// Returns the message's bytes.
    pub fn to_bytes(&self) -> [u8; SEND_LEN] {
        transmute!(RawCdc {
            kind: TYPE,
            len: LEN,
            seq: U16::new(self.cdc.seq),
            token: U32::new(self.token.0),
            prod: RawCursor::new(self.cdc.prod),
            cons: RawCursor::new(self.cdc.cons),
            prod_flags: self.cdc.flags.bits(),
            state_flags: self.cdc.state.bits(),
            rmbes: RawRmbes::new(&self.cdc.rmbes),
        })
    }
}

/// The length byte, [`SEND_LEN`].
const LEN: u8 = 44;

/// RFC 7609 appendix A.4.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCdc {
    kind: u8,
    len: u8,
    seq: U16,
    token: U32,
    prod: RawCursor,
    cons: RawCursor,
    prod_flags: u8,
    state_flags: u8,
    rmbes: RawRmbes,
}

const _: () = assert!(size_of::<RawCdc>() == SEND_LEN);

/// What the message says of RMBEs, in bytes that RFC 7609 reserves: `Documentation/rmbe.md`. The C module neither sends
/// nor reads them.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRmbes {
    prod: u8,
    cons: u8,
    since: U32,
    size: u8,
    index: u8,
    rkey: U32,
    reserved: [u8; 6],
}

const _: () = assert!(size_of::<RawRmbes>() == 18);

impl RawRmbes {
    fn new(refs: &RmbeRefs) -> Self {
        let offer = refs.offer;
        Self {
            prod: refs.prod.0,
            cons: refs.cons.0,
            since: U32::new(refs.since),
            size: offer.map_or(0, |offer| offer.size.code()),
            index: offer.map_or(0, |offer| offer.index.get()),
            rkey: U32::new(offer.map_or(0, |offer| offer.rkey.0)),
            reserved: [0; 6],
        }
    }

    fn refs(&self) -> RmbeRefs {
        RmbeRefs {
            prod: RmbeNum(self.prod),
            cons: RmbeNum(self.cons),
            since: self.since.get(),
            offer: self.offer(),
        }
    }

    /// `None` without an index, too, and for a size that there is not.
    fn offer(&self) -> Option<RmbeOffer> {
        Some(RmbeOffer {
            size: SizeClass::from_code(self.size)?,
            index: RmbeIndex::new(self.index)?,
            rkey: Rkey(self.rkey.get()),
        })
    }
}

/// A cursor, preceded by its two reserved bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCursor {
    reserved: [u8; 2],
    wrap: U16,
    offset: U32,
}

const _: () = assert!(size_of::<RawCursor>() == 8);

impl RawCursor {
    fn new(cursor: Cursor) -> Self {
        Self {
            reserved: [0; 2],
            wrap: U16::new(cursor.wrap),
            offset: U32::new(cursor.offset),
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor {
            wrap: self.wrap.get(),
            offset: self.offset.get(),
        }
    }
}
