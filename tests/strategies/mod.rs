// SPDX-License-Identifier: GPL-2.0

//! Generators of what messages of every kind contain.

use proptest::array::{
    uniform16,
    uniform6, //
};
use proptest::prelude::*;

use smc_proto::id::{
    Gid,
    Mac,
    Mtu,
    Psn,
    QpNum, //
};
use smc_proto::wire::clc;

prop_compose! {
    pub(crate) fn qp_num()(value: u32) -> QpNum { QpNum::from_low_bits(value) }
}

prop_compose! {
    pub(crate) fn psn()(value: u32) -> Psn { Psn::from_low_bits(value) }
}

prop_compose! {
    pub(crate) fn mtu()(code in 1u8..=5) -> Mtu { Mtu::from_code(code).unwrap() }
}

prop_compose! {
    pub(crate) fn limits()(max_conns: u8, max_links: u8) -> clc::Limits {
        clc::Limits { max_conns, max_links }
    }
}

pub(crate) fn gid() -> impl Strategy<Value = Gid> {
    uniform16(any::<u8>()).prop_map(Gid)
}

pub(crate) fn mac() -> impl Strategy<Value = Mac> {
    uniform6(any::<u8>()).prop_map(Mac)
}
