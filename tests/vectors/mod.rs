// SPDX-License-Identifier: GPL-2.0

//! The golden messages, by name.

use smc_proto::wire::{
    llc,
    Received, //
};

macro_rules! vectors {
    ($($name:literal)*) => {
        [$(($name, include_bytes!(concat!($name, ".bin")).as_slice())),*]
    };
}

pub(crate) const CLC: [(&str, &[u8]); 11] =
    vectors!("P1" "P2" "P3" "P4" "A1" "A2" "A3" "C1" "C2" "D1" "D2");
pub(crate) const LLC: [(&str, &[u8]); 12] =
    vectors!("L1" "L2" "L3" "L4" "L5" "L6" "L7" "L8" "L9" "L10" "L11" "L12");
pub(crate) const CDC: [(&str, &[u8]); 4] = vectors!("X1" "X2" "X3" "X4");

/// The bytes of one of them.
#[track_caller]
pub(crate) fn vector(name: &str) -> &'static [u8] {
    let mut all = CLC.into_iter().chain(LLC).chain(CDC);
    all.find(|v| v.0 == name).expect("a vector has that name").1
}

/// What an LLC vector says.
#[track_caller]
pub(crate) fn llc_message(bytes: &[u8]) -> llc::LlcMessage<'_> {
    match Received::parse(bytes) {
        Ok(Received::Llc(message)) => message,
        other => panic!("{other:?}"),
    }
}
