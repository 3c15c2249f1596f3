// SPDX-License-Identifier: GPL-2.0

//! CDC messages (RFC 7609 appendix A.4), whose fields are set and read without any check.

use crate::rawclc::packet::word;

/// Type of a CDC message, and its length.
pub(super) const TYPE: u8 = 0xfe;
pub(super) const LEN: u8 = 44;

/// Producer flags.
pub(super) const WRITE_BLOCKED: u8 = 0x80;
pub(super) const URGENT_PENDING: u8 = 0x40;
pub(super) const URGENT_PRESENT: u8 = 0x20;
pub(super) const UPDATE_REQUESTED: u8 = 0x10;
pub(super) const VALIDATION: u8 = 0x08;

/// State flags.
pub(super) const DONE: u8 = 0x80;
pub(super) const CLOSED: u8 = 0x40;
pub(super) const ABORTED: u8 = 0x20;

/// A position in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) wrap: u16,
    pub(super) offset: u32,
}

impl Cursor {
    /// Returns the cursor of a stream position.
    pub(super) fn at(position: u64, size: u32) -> Self {
        let size = u64::from(size);
        Self {
            // CAST: the count wraps; an offset in the ring.
            wrap: (position / size) as u16,
            offset: (position % size) as u32,
        }
    }

    /// Returns how far it is ahead of a stream position, negative if it is behind.
    pub(super) fn ahead_of(self, position: u64, size: u32) -> i64 {
        let from = Self::at(position, size);
        // CAST: a difference of 16 bits, with its sign.
        let wraps = i64::from(self.wrap.wrapping_sub(from.wrap) as i16);
        wraps * i64::from(size) + i64::from(self.offset) - i64::from(from.offset)
    }

    fn to_bytes(self) -> [u8; 6] {
        let mut bytes = [0; 6];
        bytes[..2].copy_from_slice(&self.wrap.to_be_bytes());
        bytes[2..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            wrap: u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?),
            offset: word(bytes, at + 2)?,
        })
    }
}

/// The fields of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cdc {
    pub(super) seq: u16,
    pub(super) token: u32,
    pub(super) prod: Cursor,
    pub(super) cons: Cursor,
    pub(super) flags: u8,
    pub(super) state: u8,
    pub(super) rmbes: Rmbes,
}

/// What a message says of RMBEs (`Documentation/rmbe.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rmbes {
    /// Numbers of the RMBEs that the producer cursor and the consumer cursor are for.
    pub(super) prod: u8,
    pub(super) cons: u8,
    /// Lower half of the position from which on data are in the former.
    pub(super) since: u32,
    /// Code of the size, index and key of one that is offered.
    pub(super) size: u8,
    pub(super) index: u8,
    pub(super) rkey: u32,
}

impl Rmbes {
    fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..2].copy_from_slice(&[self.prod, self.cons]);
        bytes[2..6].copy_from_slice(&self.since.to_be_bytes());
        bytes[6..8].copy_from_slice(&[self.size, self.index]);
        bytes[8..].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        let byte = |at| bytes.get(at).copied();
        Some(Self {
            prod: byte(at)?,
            cons: byte(at + 1)?,
            since: word(bytes, at + 2)?,
            size: byte(at + 6)?,
            index: byte(at + 7)?,
            rkey: word(bytes, at + 8)?,
        })
    }
}

impl Cdc {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(LEN)];
        bytes[..2].copy_from_slice(&[TYPE, LEN]);
        bytes[2..4].copy_from_slice(&self.seq.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.token.to_be_bytes());
        bytes[10..16].copy_from_slice(&self.prod.to_bytes());
        bytes[18..24].copy_from_slice(&self.cons.to_bytes());
        bytes[24..26].copy_from_slice(&[self.flags, self.state]);
        bytes[26..38].copy_from_slice(&self.rmbes.to_bytes());
        bytes
    }

    /// Returns `None` unless it is a CDC message of the right length.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(&[TYPE, LEN]) || bytes.len() != usize::from(LEN) {
            return None;
        }
        Some(Self {
            seq: u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?),
            token: word(bytes, 4)?,
            prod: Cursor::parse(bytes, 10)?,
            cons: Cursor::parse(bytes, 18)?,
            flags: *bytes.get(24)?,
            state: *bytes.get(25)?,
            rmbes: Rmbes::parse(bytes, 26)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_that_of_the_vectors() {
        let vector = include_bytes!("../../../../tests/vectors/X2.bin");
        let cdc = Cdc::parse(vector).unwrap();
        assert_eq!((cdc.seq, cdc.token, cdc.flags), (0x42, 7, WRITE_BLOCKED));
        assert_eq!(
            cdc.prod,
            Cursor {
                wrap: 1,
                offset: 16
            }
        );
        assert_eq!(cdc.to_bytes(), vector);
    }

    #[test]
    fn a_cursor_is_compared_across_the_end_of_the_ring() {
        let size = 100;
        for (position, ahead) in [(0, 30), (95, 100), (95, -20), (6_553_590, 15)] {
            let there = u64::try_from(position + ahead).unwrap();
            let from = u64::try_from(position).unwrap();
            assert_eq!(Cursor::at(there, size).ahead_of(from, size), ahead);
        }
    }
}
