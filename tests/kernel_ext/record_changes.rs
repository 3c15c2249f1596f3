// SPDX-License-Identifier: GPL-2.0
//! Where a registration keeps its record is for the type alone, and always the same: a promise that only
//! `own_record!`, or `unsafe`, makes.

use kernel::prelude::*;
use kernel_ext::{
    net::{
        NewNetNs,
        PerNet,
        Slot, //
    },
    record::Recorded, //
};

pub struct Object;

impl Recorded<Slot<Object>> for Object { //~ E0200
    fn record() -> &'static Slot<Object> {
        unreachable!()
    }
}

impl PerNet for Object {
    fn new(_net: &mut NewNetNs) -> Result<KBox<Self>> {
        Err(ENODEV)
    }
}
