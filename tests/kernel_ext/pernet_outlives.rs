// SPDX-License-Identifier: GPL-2.0
//! The object that a namespace has of a type goes with the type's registration: no plain reference to it is given out.

use kernel::prelude::*;
use kernel_ext::{
    net::{
        NetNs,
        NewNetNs,
        PerNet,
        PerNetKey,
        PerNetRegistration, //
    },
    own_record, //
};

pub struct Object(u64);

own_record! { Object: PerNetKey<Object> }

impl PerNet for Object {
    fn new(_net: &mut NewNetNs) -> Result<KBox<Self>> {
        Ok(KBox::new(Self(1), GFP_KERNEL)?)
    }
}

pub fn use_after_registration() -> Result<u64> {
    let registration = PerNetRegistration::<Object>::new()?;
    let object: &'static Object = NetNs::initial().get::<Object>().ok_or(ENODEV)?; //~ E0308
    drop(registration);
    Ok(object.0)
}
