// SPDX-License-Identifier: GPL-2.0
//! Delayed work may run after a leaked owner's stack frame is gone, so its job must not borrow.

use core::mem;

use kernel::{
    prelude::*,
    time::Jiffies, //
};
use kernel_ext::delayed_work::{
    DelayedWork,
    Job, //
};

struct Borrows<'a>(&'a u64);

impl Job for Borrows<'_> { //~ E0478 E0803
    fn run(&self) -> Option<Jiffies> {
        (*self.0 != 0).then_some(1)
    }
}

pub fn leak() -> Result {
    let local = 1;
    let work = KBox::pin_init(DelayedWork::new(Borrows(&local)), GFP_KERNEL)?; //~ E0597
    work.run_within(1);
    mem::forget(work);
    Ok(())
}
