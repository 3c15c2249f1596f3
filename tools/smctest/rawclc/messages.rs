// SPDX-License-Identifier: GPL-2.0

//! Proper messages of the handshake, to be spoilt.

use std::net::Ipv4Addr;

use crate::data::Random;

const PROPOSAL: &[u8] = include_bytes!("../../../tests/vectors/P4.bin");
const ACCEPT: &[u8] = include_bytes!("../../../tests/vectors/A2.bin");
const CONFIRM: &[u8] = include_bytes!("../../../tests/vectors/C2.bin");
const DECLINE: &[u8] = include_bytes!("../../../tests/vectors/D2.bin");

/// What the golden messages have in the places of names and addresses.
const THEIR_EID: &[u8; 32] = b"SMCV2-TEST                      ";
const EID: &[u8; 32] = b"SMCV2-DEFAULT-UEID              ";
const THEIR_CLIENT: [u8; 4] = [192, 168, 1, 1];
const THEIR_SERVER: [u8; 4] = [192, 168, 1, 2];
const THEIR_SUBNET: [u8; 4] = [192, 168, 1, 0];

/// The messages of a peer at `address`.
pub(super) struct Messages {
    pub(super) proposal: Vec<u8>,
    pub(super) accept: Vec<u8>,
    pub(super) confirm: Vec<u8>,
    pub(super) decline: Vec<u8>,
}

impl Messages {
    pub(super) fn of(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        let adapt = |message: &[u8]| {
            let mut message = message.to_vec();
            replace(&mut message, THEIR_EID, EID);
            replace(&mut message, &THEIR_CLIENT, &address.octets());
            replace(&mut message, &THEIR_SERVER, &address.octets());
            replace(&mut message, &THEIR_SUBNET, &[a, b, c, 0]);
            message
        };
        Self {
            proposal: adapt(PROPOSAL),
            accept: adapt(ACCEPT),
            confirm: adapt(CONFIRM),
            decline: adapt(DECLINE),
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

/// The message with another length in its header.
pub(super) fn with_length(message: &[u8], len: u16) -> Vec<u8> {
    let mut message = message.to_vec();
    message[5..7].copy_from_slice(&len.to_be_bytes());
    message
}

/// The message with the byte at `at` replaced.
pub(super) fn with_byte(message: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut message = message.to_vec();
    message[at] = byte;
    message
}

/// The message with a few random changes; its header stays mostly intact, so that they get far.
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
        let messages = Messages::of(address);
        for message in [&messages.proposal, &messages.accept, &messages.confirm] {
            assert!(message.windows(32).any(|part| part == EID));
            assert!(message.windows(4).any(|part| part == address.octets()));
            assert!(!message.windows(2).any(|part| part == [192, 168]));
        }
    }
}
