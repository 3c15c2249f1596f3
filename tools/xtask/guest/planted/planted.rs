// SPDX-License-Identifier: GPL-2.0

//! Faults, one for each of the kernel's checkers, to show that these find them in Rust code.

use core::mem;

use kernel::{
    new_mutex,
    prelude::*,
    time::{
        delay,
        Delta, //
    }, //
};

module! {
    type: Planted,
    name: "planted",
    authors: ["The smc authors"],
    description: "Faults that the test runner has to notice",
    license: "GPL",
    params: {
        use_after_free: bool {
            default: false,
            description: "Read freed memory (KASAN)",
        },
        leak: bool {
            default: false,
            description: "Lose allocated memory (kmemleak)",
        },
        lock_order: bool {
            default: false,
            description: "Take two locks in both orders (lockdep)",
        },
        hang: bool {
            default: false,
            description: "Sleep uninterruptibly for four seconds (hung task)",
        },
        warn: bool {
            default: false,
            description: "Print a warning",
        },
    },
}

/// Size of an allocation.
const BYTES: usize = 200;

/// Number of lost allocations: stale pointers to some may stay on a stack.
const LOST: usize = 8;

struct Planted;

impl kernel::Module for Planted {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // First, as the other reports turn lockdep off.
        if module_parameters::lock_order.value() {
            lock_in_both_orders()?;
        }
        if module_parameters::leak.value() {
            leak()?;
        }
        if module_parameters::hang.value() {
            delay::fsleep(Delta::from_millis(4000));
        }
        if module_parameters::use_after_free.value() {
            use_after_free()?;
        }
        kernel::warn_on!(module_parameters::warn.value());
        Ok(Self)
    }
}

fn use_after_free() -> Result {
    let bytes = KBox::into_raw(KBox::new([0u8; BYTES], GFP_KERNEL)?);
    // SAFETY: The pointer is from `into_raw`.
    drop(unsafe { KBox::from_raw(bytes) });
    // SAFETY: None; the memory is free, which is the fault.
    let byte = unsafe { bytes.cast::<u8>().read_volatile() };
    pr_info!("read {byte} from freed memory\n");
    Ok(())
}

fn leak() -> Result {
    for _ in 0..LOST {
        mem::forget(KBox::new([0u8; BYTES], GFP_KERNEL)?);
    }
    Ok(())
}

fn lock_in_both_orders() -> Result {
    let first = KBox::pin_init(new_mutex!(0u32), GFP_KERNEL)?;
    let second = KBox::pin_init(new_mutex!(0u32), GFP_KERNEL)?;
    {
        let _first = first.lock();
        let _second = second.lock();
    }
    let _second = second.lock();
    let _first = first.lock();
    Ok(())
}
