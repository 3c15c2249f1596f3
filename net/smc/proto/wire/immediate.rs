// SPDX-License-Identifier: GPL-2.0

//! Immediate data of an RDMA write, which take the place of a CDC message between two of this module
//! (`Documentation/links.md`).
//!
//! The write puts data behind those that were announced before, and says nothing else: how many bytes they are is in
//! the receiver's completion.

use crate::id::{
    AlertToken,
    ShortToken, //
};

/// What the four bytes say, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// The receiver's connection.
    pub token: ShortToken,
    /// The sequence number that the CDC message would have.
    pub seq: u16,
}

impl Immediate {
    /// For message `seq` of the connection that the receiver named `token`.
    pub const fn new(token: AlertToken, seq: u16) -> Self {
        let token = token.short();
        Self { token, seq }
    }

    /// Returns the immediate data as a number in host byte order.
    pub const fn to_bits(self) -> u32 {
        (self.token.0 as u32) << 16 | self.seq as u32
    }

    /// Parses immediate data, a number in host byte order.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            // CAST: the two halves.
            token: ShortToken((bits >> 16) as u16),
            seq: bits as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_sent_before_the_sequence_number() {
        let immediate = Immediate::new(AlertToken(0x1234_5678), 0x9abc);
        assert_eq!(immediate.to_bits().to_be_bytes(), [0x56, 0x78, 0x9a, 0xbc]);
        assert_eq!(Immediate::from_bits(immediate.to_bits()), immediate);
    }
}
