// SPDX-License-Identifier: GPL-2.0
//! What the kernel may read after the end of a registration is memory of the module: the registration has none.

use core::mem::size_of;

use kernel::prelude::*;
use kernel_ext::{
    genl::{
        Family,
        Op,
        Record,
        Registration, //
    },
    own_record,
    sock_diag::{
        SockDiag,
        SockDiagRegistration,
        SockList, //
    }, //
};

struct Test;

own_record! { Test: Record<Test> }

impl Family for Test {
    const NAME: &'static CStr = c"test";
    const VERSION: u32 = 1;
    const STRICT_FROM: u32 = 0;
    const DONT_VALIDATE: bool = false;
    const OPS: &'static [Op] = &[];
}

impl SockDiag for Test {
    const FAMILY: u16 = 43;

    fn dump(_list: &mut SockList<'_>) -> Result {
        Ok(())
    }
}

const _: () = assert!(size_of::<Registration<Test>>() == 0);
const _: () = assert!(size_of::<SockDiagRegistration<Test>>() == 0);
