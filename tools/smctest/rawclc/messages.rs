// SPDX-License-Identifier: GPL-2.0

//! Valid CLC messages, which the scripts modify.

use std::net::Ipv4Addr;

use crate::data::Random;

const PROPOSAL: &[u8] = include_bytes!("../../../tests/vectors/P4.bin");
const VERSION_ONE: &[u8] = include_bytes!("../../../tests/vectors/P2.bin");
const BOTH_VERSIONS: &[u8] = include_bytes!("../../../tests/vectors/P3.bin");
const ACCEPT: &[u8] = include_bytes!("../../../tests/vectors/A2.bin");
const ACCEPT_V1: &[u8] = include_bytes!("../../../tests/vectors/A1.bin");
const REUSE: &[u8] = include_bytes!("../../../tests/vectors/A3.bin");
const CONFIRM: &[u8] = include_bytes!("../../../tests/vectors/C2.bin");
const CONFIRM_V1: &[u8] = include_bytes!("../../../tests/vectors/C1.bin");
const DECLINE: &[u8] = include_bytes!("../../../tests/vectors/D2.bin");
const DECLINE_V1: &[u8] = include_bytes!("../../../tests/vectors/D1.bin");

/// EID and addresses in the recorded messages, which are replaced, and the EID that replaces
/// theirs.
const THEIR_EID: &[u8; 32] = b"SMCV2-TEST                      ";
const EID: &[u8; 32] = b"SMCV2-DEFAULT-UEID              ";
const THEIR_CLIENT: [u8; 4] = [192, 168, 1, 1];
const THEIR_SERVER: [u8; 4] = [192, 168, 1, 2];
const THEIR_SUBNET: [u8; 4] = [192, 168, 1, 0];

/// What a message begins with.
pub(super) const EYE_CATCHER: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];

/// Message type, in the byte after the eye catcher.
pub(super) const TYPE_PROPOSAL: u8 = 1;
pub(super) const TYPE_ACCEPT: u8 = 2;
pub(super) const TYPE_CONFIRM: u8 = 3;
pub(super) const TYPE_DECLINE: u8 = 4;

/// Offset of the sender's system ID in all messages.
pub(super) const PEER_ID: usize = 8;

/// Length of the eye catcher at the end of a message, bytes.
pub(super) const TRAILER_LEN: usize = 4;

/// The messages of one peer.
pub(super) struct Messages {
    /// Offers version 2 only.
    pub(super) proposal: Vec<u8>,
    /// Offers version 1 only.
    pub(super) version_one: Vec<u8>,
    /// Offers versions 1 and 2.
    pub(super) both_versions: Vec<u8>,
    /// First contact.
    pub(super) accept: Vec<u8>,
    pub(super) accept_v1: Vec<u8>,
    /// Reuses a link group.
    pub(super) reuse: Vec<u8>,
    pub(super) confirm: Vec<u8>,
    pub(super) confirm_v1: Vec<u8>,
    pub(super) decline: Vec<u8>,
    /// With the out-of-sync bit: the link group does not exist any more.
    pub(super) decline_v1: Vec<u8>,
}

impl Messages {
    /// Returns the messages of peer `number` at `address`. Handshakes with one peer are serialized,
    /// those with different peers are not.
    pub(super) fn of(address: Ipv4Addr, number: u16) -> Self {
        let [a, b, c, _] = address.octets();
        let adapt = |message: &[u8]| {
            let mut message = message.to_vec();
            replace(&mut message, THEIR_EID, EID);
            replace(&mut message, &THEIR_CLIENT, &address.octets());
            replace(&mut message, &THEIR_SERVER, &address.octets());
            replace(&mut message, &THEIR_SUBNET, &[a, b, c, 0]);
            message[PEER_ID..PEER_ID + 2].copy_from_slice(&number.to_be_bytes());
            message[PEER_ID + 2..PEER_ID + 8].copy_from_slice(&[2, 0, 0, 0, 0, 50]);
            message
        };
        Self {
            proposal: adapt(PROPOSAL),
            version_one: adapt(VERSION_ONE),
            both_versions: adapt(BOTH_VERSIONS),
            accept: adapt(ACCEPT),
            accept_v1: adapt(ACCEPT_V1),
            reuse: adapt(REUSE),
            confirm: adapt(CONFIRM),
            confirm_v1: adapt(CONFIRM_V1),
            decline: adapt(DECLINE),
            decline_v1: adapt(DECLINE_V1),
        }
    }
}

/// Replaces every occurrence; both are of the same length.
fn replace(message: &mut [u8], from: &[u8], to: &[u8]) {
    for at in 0..message.len() {
        if let Some(part) = message.get_mut(at..at + from.len()) {
            if part == from {
                part.copy_from_slice(to);
            }
        }
    }
}

/// Replaces the length in the header.
pub(super) fn with_length(message: &[u8], len: u16) -> Vec<u8> {
    with_bytes(message, 5, &len.to_be_bytes())
}

/// Replaces the byte at `at`.
pub(super) fn with_byte(message: &[u8], at: usize, byte: u8) -> Vec<u8> {
    with_bytes(message, at, &[byte])
}

/// Replaces the bytes from `at`.
pub(super) fn with_bytes(message: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    message[at..at + bytes.len()].copy_from_slice(bytes);
    message
}

/// Removes the bytes from `from` up to `to`, and adjusts the length in the header.
pub(super) fn without(message: &[u8], from: usize, to: usize) -> Vec<u8> {
    let message = [&message[..from], &message[to..]].concat();
    let len = u16::try_from(message.len()).expect("a message is short");
    with_length(&message, len)
}

/// Inserts `bytes` before the trailer, and adjusts the length in the header.
pub(super) fn with_more(message: &[u8], bytes: &[u8]) -> Vec<u8> {
    let at = message.len() - TRAILER_LEN;
    let message = [&message[..at], bytes, &message[at..]].concat();
    let len = u16::try_from(message.len()).expect("a message is short");
    with_length(&message, len)
}

/// Makes a few random changes, rarely in the first 7 bytes, so that most messages pass the first
/// checks.
pub(super) fn mutated(message: &[u8], random: &mut Random) -> Vec<u8> {
    let mut message = message.to_vec();
    for _ in 0..1 + random.next() % 4 {
        let from = if random.next() % 8 == 0 { 0 } else { 7 };
        let len = message.len() - from;
        // CAST: below the length of a message; a byte.
        let at = from + (random.next() % len as u64) as usize;
        message[at] = match random.next() % 4 {
            0 => 0,
            1 => 0xff,
            2 => message[at] ^ (1 << (random.next() % 8)),
            _ => random.next() as u8,
        };
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_replaced() {
        let address = Ipv4Addr::new(10, 9, 0, 50);
        let messages = Messages::of(address, 7);
        for message in [&messages.proposal, &messages.accept, &messages.confirm] {
            assert!(message.windows(32).any(|part| part == EID));
            assert!(message.windows(4).any(|part| part == address.octets()));
            assert!(!message.windows(2).any(|part| part == [192, 168]));
            assert_eq!(message[PEER_ID..PEER_ID + 3], [0, 7, 2]);
        }
    }

    #[test]
    fn a_message_that_was_cut_or_extended_says_so() {
        let message = Messages::of(Ipv4Addr::LOCALHOST, 0).reuse;
        let shorter = without(&message, 64, 104);
        assert_eq!(shorter.len(), 68);
        assert_eq!(shorter[5..7], [0, 68]);
        let longer = with_more(&message, &[1; 20]);
        assert_eq!(longer[5..7], [0, 128]);
        assert_eq!(longer[124..], message[104..]);
    }
}
