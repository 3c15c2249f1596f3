// SPDX-License-Identifier: GPL-2.0

//! Faults, one for each of the kernel's checkers, to show that these find them in Rust code.

use core::{
    borrow::Borrow,
    cell::UnsafeCell,
    mem, //
};

use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::Arc,
    time::{
        delay,
        Delta, //
    },
    workqueue::{
        self,
        Work,
        WorkItem, //
    }, //
};

module! {
    type: Planted,
    name: "planted",
    authors: ["The smc authors"],
    description: "Faults that the test runner has to notice",
    license: "GPL",
    params: {
        use_after_free: u8 {
            default: 0,
            description: "Read freed memory (KASAN)",
        },
        leak: u8 {
            default: 0,
            description: "Lose allocated memory (kmemleak)",
        },
        lock_order: u8 {
            default: 0,
            description: "Take two locks in both orders (lockdep)",
        },
        hang: u8 {
            default: 0,
            description: "Sleep uninterruptibly for four seconds (hung task)",
        },
        warn: u8 {
            default: 0,
            description: "Print a warning",
        },
        race: u8 {
            default: 0,
            description: "Change a number on two processors at once (KCSAN)",
        },
    },
}

/// Size of an allocation.
const BYTES: usize = 200;

/// Number of lost allocations: stale pointers to some may stay on a stack.
const LOST: usize = 8;

/// Whether a parameter is not 0. Linux 7.2 has no boolean ones, and lends a value that 7.3 copies.
fn is_set(value: impl Borrow<u8>) -> bool {
    *value.borrow() != 0
}

struct Planted;

impl kernel::Module for Planted {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // First, as the other reports turn lockdep off.
        if is_set(module_parameters::lock_order.value()) {
            lock_in_both_orders()?;
        }
        if is_set(module_parameters::leak.value()) {
            leak()?;
        }
        if is_set(module_parameters::hang.value()) {
            delay::fsleep(Delta::from_millis(4000));
        }
        if is_set(module_parameters::use_after_free.value()) {
            use_after_free()?;
        }
        if is_set(module_parameters::race.value()) {
            race()?;
        }
        kernel::warn_on!(is_set(module_parameters::warn.value()));
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

/// A number that may be changed on two processors at once.
struct Raced(UnsafeCell<usize>);

// SAFETY: None; nothing orders the accesses, which is the fault.
unsafe impl Sync for Raced {}

static RACED: Raced = Raced(UnsafeCell::new(0));

#[inline(never)]
fn race_in_rust() {
    // SAFETY: None; another thread does the same.
    unsafe { *RACED.0.get() += 1 };
}

fn race_often() {
    for _ in 0..1_000_000 {
        race_in_rust();
    }
}

#[pin_data]
struct Racer {
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Racer { self.work }
}

impl WorkItem for Racer {
    type Pointer = Arc<Self>;

    fn run(_: Arc<Self>) {
        race_often();
    }
}

fn race() -> Result {
    let racer = Arc::pin_init(
        pin_init!(Racer {
            work <- new_work!("Racer::work"),
        }),
        GFP_KERNEL,
    )?;
    // On whatever processor has nothing to do.
    let _ = workqueue::system_unbound().enqueue(racer);
    race_often();
    Ok(())
}
