// SPDX-License-Identifier: GPL-2.0

//! LLC messages of an honest peer (RFC 7609 appendix A.3, version 2).

use crate::rawclc::packet::word;

/// Types, without the version.
pub(super) const CONFIRM_LINK: u8 = 1;
pub(super) const ADD_LINK: u8 = 2;
pub(super) const DELETE_LINK: u8 = 4;
pub(super) const CONFIRM_RKEY: u8 = 6;
pub(super) const TEST_LINK: u8 = 7;

/// Version 2, in the upper half of the type byte.
pub(super) const V2: u8 = 0x20;

/// Flags: a response; a rejection, or all links.
pub(super) const RESPONSE: u8 = 0x80;
pub(super) const REJECTED: u8 = 0x40;
pub(super) const ALL_LINKS: u8 = 0x40;
/// No eye catcher in the element, and in no other way either.
pub(super) const NO_EYE_CATCHER: u8 = 0x03;

/// Length of most messages.
pub(super) const LEN: u8 = 44;

/// Offset of the link number in CONFIRM_LINK.
pub(super) const CONFIRM_LINK_NUMBER: usize = 29;

/// Offset of the queue pair number there.
const QUEUE_PAIR: usize = 26;

/// Offsets of the key and the address on the link itself in CONFIRM_RKEY.
const RKEY: usize = 5;
const ADDRESS: usize = 9;

/// Offset of the number in our TEST_LINK, within its user data.
const TEST_NUMBER: usize = 4;

/// Reason of DELETE_LINK: the program wants it.
const PROGRAM: u32 = 0x0003_0000;

/// Returns a message of 44 bytes without a body.
pub(super) fn message(kind: u8, flags: u8) -> Vec<u8> {
    let mut message = vec![0; usize::from(LEN)];
    message[..4].copy_from_slice(&[V2 | kind, 0, LEN, flags]);
    message
}

pub(super) fn is_request(message: &[u8], kind: u8) -> bool {
    is_kind(message, kind) && message[3] & RESPONSE == 0
}

pub(super) fn is_answer(message: &[u8], kind: u8) -> bool {
    is_kind(message, kind) && message[3] & RESPONSE != 0
}

fn is_kind(message: &[u8], kind: u8) -> bool {
    message.len() >= usize::from(LEN) && message[0] == V2 | kind
}

/// Returns the answer to a request, which is positive, but rejects links; `None` for an answer. `pair` is our queue
/// pair.
pub(super) fn answer(request: &[u8], pair: u32) -> Option<Vec<u8>> {
    let mut answer = request.get(..usize::from(LEN))?.to_vec();
    if answer[3] & RESPONSE != 0 || answer[0] >> 4 != V2 >> 4 {
        return None;
    }
    answer[3] |= RESPONSE;
    match answer[0] & 0x0f {
        CONFIRM_LINK => {
            answer[QUEUE_PAIR..QUEUE_PAIR + 3].copy_from_slice(&pair.to_be_bytes()[1..]);
        }
        ADD_LINK => {
            answer[1..3].copy_from_slice(&[0, LEN]);
            answer[3] |= REJECTED;
        }
        _ => {}
    }
    Some(answer)
}

/// Returns the key and the address of the RMB that a CONFIRM_RKEY announces on the link by which it comes.
pub(super) fn first_rtoken(request: &[u8]) -> Option<(u32, u64)> {
    let halves = (word(request, ADDRESS)?, word(request, ADDRESS + 4)?);
    let address = u64::from(halves.0) << 32 | u64::from(halves.1);
    Some((word(request, RKEY)?, address))
}

/// Returns the request of a server to confirm its first link.
pub(super) fn confirm_link(pair: u32, link: u8) -> Vec<u8> {
    let mut request = message(CONFIRM_LINK, NO_EYE_CATCHER);
    request[QUEUE_PAIR..QUEUE_PAIR + 3].copy_from_slice(&pair.to_be_bytes()[1..]);
    request[CONFIRM_LINK_NUMBER] = link;
    request[33] = link;
    request[34..36].copy_from_slice(&[1, 255]);
    request
}

/// Returns a TEST_LINK with a number, which the answer repeats.
pub(super) fn test_link(number: u64) -> Vec<u8> {
    let mut request = message(TEST_LINK, 0);
    request[TEST_NUMBER..TEST_NUMBER + 8].copy_from_slice(&number.to_be_bytes());
    request
}

pub(super) fn test_number(answer: &[u8]) -> u64 {
    let words = word(answer, TEST_NUMBER).zip(word(answer, TEST_NUMBER + 4));
    words.map_or(0, |(high, low)| u64::from(high) << 32 | u64::from(low))
}

/// Returns a DELETE_LINK of all links, after which the group is no more.
pub(super) fn delete_all() -> Vec<u8> {
    let mut request = message(DELETE_LINK, ALL_LINKS);
    request[5..9].copy_from_slice(&PROGRAM.to_be_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_and_answers_are_not() {
        let offer = include_bytes!("../../../../tests/vectors/L6.bin");
        let rejected = answer(offer, 5).unwrap();
        assert_eq!(rejected[..4], [0x22, 0, 44, RESPONSE | REJECTED]);
        assert!(answer(&rejected, 5).is_none());

        let test = answer(&test_link(7), 5).unwrap();
        assert!(is_answer(&test, TEST_LINK) && !is_request(&test, TEST_LINK));
        assert_eq!(test_number(&test), 7);

        let confirmed = answer(&confirm_link(1, 9), 0x0a_0b0c).unwrap();
        assert_eq!(confirmed[26..30], [0x0a, 0x0b, 0x0c, 9]);
    }
}
