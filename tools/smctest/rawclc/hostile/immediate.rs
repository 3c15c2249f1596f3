// SPDX-License-Identifier: GPL-2.0

//! Immediate data of RDMA WRITEs in place of CDC messages (`Documentation/links.md`), as the peer and the kernel send
//! them, and the lies that they can carry.

use anyhow::Result;

use crate::data::Random;
use crate::rawclc::packet::Reth;

use super::session::Element;
use super::session::Session;
use super::session::MTU;

/// The vendor's options of who takes immediate data, of who replaces RMBEs as well, as the kernel does, and where they
/// are in ACCEPT and CONFIRM.
pub(super) const OPTIONS: [u8; 4] = *b"\x02RSM";
pub(super) const OPTIONS_OF_RMBES: [u8; 4] = *b"\x03RSM";
pub(super) const OPTIONS_AT: usize = 144;

/// The four bytes: the low half of the receiver's alert token, and a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Immediate {
    pub(super) token: u16,
    pub(super) seq: u16,
}

impl Immediate {
    /// For message `seq` of the connection with this alert token.
    pub(super) fn new(token: u32, seq: u16) -> Self {
        // CAST: the low half.
        let token = token as u16;
        Self { token, seq }
    }

    pub(super) fn to_bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.token.to_be_bytes(), self.seq.to_be_bytes());
        [a, b, c, d]
    }

    pub(super) fn parse([a, b, c, d]: [u8; 4]) -> Self {
        Self {
            token: u16::from_be_bytes([a, b]),
            seq: u16::from_be_bytes([c, d]),
        }
    }
}

/// Writes random bytes somewhere in the element, and says that they belong to the stream.
fn write(
    session: &mut Session<'_>,
    immediate: Immediate,
    len: usize,
    random: &mut Random,
) -> Result<()> {
    session.distrust();
    // CAST: the low half.
    if immediate.token == session.theirs.token as u16 {
        session.claimed = session.claimed.saturating_add(len as u64);
    }
    let Element {
        addr, rkey, size, ..
    } = session.theirs;
    let reth = Reth {
        addr: addr + random.below(u64::from(size) - len as u64),
        rkey,
        // CAST: at most the MTU.
        len: len as u32,
    };
    // CAST: a random number.
    let data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    session.pair.write_immediate(reth, immediate, &data)
}

/// Returns the true immediate data of the next message.
fn next(session: &mut Session<'_>) -> Immediate {
    session.seq = session.seq.wrapping_add(1);
    Immediate::new(session.theirs.token, session.seq)
}

fn len(random: &mut Random) -> usize {
    random.pick(&[1, 2, 64, 1000, MTU])
}

/// Data that were written to another place, or beyond the window.
pub(super) fn unwritten(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let times = random.pick(&[1, 1, 1, 100]);
    for _ in 0..times {
        let immediate = next(session);
        write(session, immediate, len(random), random)?;
    }
    Ok(())
}

pub(super) fn nothing(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let immediate = next(session);
    write(session, immediate, 0, random)
}

pub(super) fn other_seq(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u16;
    let by = random.pick(&[0xffff, 0xfffe, 1, 2, 100, 0x7fff, 0x8000, any]);
    let mut immediate = next(session);
    immediate.seq = immediate.seq.wrapping_add(by);
    write(session, immediate, len(random), random)
}

pub(super) fn other_token(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u16;
    let mut immediate = next(session);
    let theirs = immediate.token;
    immediate.token = random.pick(&[0, 0xffff, theirs ^ 1, theirs.swap_bytes(), any]);
    write(session, immediate, len(random), random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_are_read_as_they_were_written() {
        let immediate = Immediate::new(0x1234_5678, 0x9abc);
        assert_eq!(immediate.to_bytes(), [0x56, 0x78, 0x9a, 0xbc]);
        assert_eq!(Immediate::parse(immediate.to_bytes()), immediate);
    }
}
