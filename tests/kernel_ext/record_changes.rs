// SPDX-License-Identifier: GPL-2.0
//! Where a registration keeps its record is for the type alone, and always the same: a promise that only
//! `own_record!`, or `unsafe`, makes.

use kernel::prelude::*;
use kernel_ext::{
    net::{
        NewNetNs,
        PerNet,
        PerNetKey, //
    },
    record::Recorded, //
};

pub struct Object;

impl Recorded<PerNetKey<Object>> for Object { //~ E0200
    fn record() -> &'static PerNetKey<Object> {
        unreachable!()
    }
}

impl PerNet for Object {
    fn new(_net: &mut NewNetNs) -> Result<KBox<Self>> {
        Err(ENODEV)
    }
}
