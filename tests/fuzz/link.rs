// SPDX-License-Identifier: GPL-2.0

//! Any bytes as what a receive completion delivers: an LLC (link layer control) or CDC (connection
//! data control) message.
//!
//! Promises: no panic; what is accepted can be written for any peer, and reads back as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::wire::{
    cdc,
    llc,
    Received, //
};

fuzz_target!(|bytes: &[u8]| {
    match Received::parse(bytes) {
        Ok(Received::Cdc(message)) => {
            assert_eq!(cdc::CdcMessage::parse(&message.to_bytes()), Ok(message));
        }
        Ok(Received::Llc(message)) => {
            let mut buf = [0; llc::MAX_LEN];
            use llc::PeerOrder::*;
            for order in [Big, Little, Linux] {
                let written = message.emit(order, &mut buf).expect("the longest fits");
                assert_eq!(Received::parse(written), Ok(Received::Llc(message)));
            }
        }
        Ok(Received::Unknown(kind)) => assert_eq!(kind, bytes[0]),
        Err(_) => {}
    }
});
