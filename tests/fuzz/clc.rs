// SPDX-License-Identifier: GPL-2.0

//! Any bytes as a CLC (connection layer control) message.
//!
//! Promises: no panic; the header alone says no less than the whole; what is accepted can be written,
//! and reads back as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::wire::clc;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The same with its frame put right, to come deeper.
    if let Some(framed) = framed(bytes) {
        check(&framed);
    }
});

fn check(bytes: &[u8]) {
    let header = bytes.first_chunk().map(clc::Header::peek);
    let Ok(message) = clc::ClcMessage::parse(bytes) else {
        return;
    };
    let header = header
        .expect("a message has a header")
        .expect("a message has a good one");
    assert!(header.read_len() <= bytes.len());

    let mut buf = [0; 8192];
    let written = message.emit(&mut buf).expect("8192 bytes hold any message");
    assert_eq!(clc::ClcMessage::parse(written), Ok(message));
    let (mut again, written) = ([0; 8192], written.to_vec());
    assert_eq!(message.emit(&mut again), Ok(written.as_slice()));
}

/// The bytes with eye catchers at both ends and their own length.
fn framed(bytes: &[u8]) -> Option<Vec<u8>> {
    const EYE_CATCHER: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];
    if bytes.len() < 12 {
        return None;
    }
    let mut bytes = bytes.to_vec();
    let len = u16::try_from(bytes.len()).ok()?;
    *bytes.first_chunk_mut()? = EYE_CATCHER;
    *bytes.last_chunk_mut()? = EYE_CATCHER;
    *bytes[5..].first_chunk_mut()? = len.to_be_bytes();
    Some(bytes)
}
