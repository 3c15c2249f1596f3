// SPDX-License-Identifier: GPL-2.0

//! Spinlocks that are also taken in softirq context.
//!
//! `kernel::sync` has spinlocks that leave bottom halves enabled, and others that disable interrupts.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use kernel::{
    bindings::lock_class_key,
    ffi::c_char,
    sync::lock::{
        spinlock::SpinLockBackend,
        Backend,
        Guard,
        Lock, //
    }, //
};

use crate::bindings;

/// Creates a [`SpinLockBh`] initialiser with the given name and a newly-created lock class.
#[macro_export]
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal) => {
        $crate::spinlock_bh::SpinLockBh::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub use new_spinlock_bh;

/// Whether this runs in softirq context: not whether bottom halves are disabled only.
/// Context: any.
pub fn is_softirq() -> bool {
    // SAFETY: Always safe to call.
    unsafe { bindings::in_serving_softirq() }
}

/// A `spinlock_t` that disables bottom halves while it is held, so that it can be taken in process and in softirq
/// context. It must not be taken in hard interrupts or while interrupts are disabled.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// The guard of a [`SpinLockBh`].
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

/// The backend of [`SpinLockBh`].
pub struct SpinLockBhBackend;

// SAFETY: The `spinlock_t` ensures mutual exclusion. `relock` is the default implementation, which calls `lock`.
unsafe impl Backend for SpinLockBhBackend {
    type State = <SpinLockBackend as Backend>::State;
    type GuardState = ();

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut lock_class_key) {
        // SAFETY: The caller's promise is the same.
        unsafe { SpinLockBackend::init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: The lock was initialised, by the caller's promise. It is a `spinlock_t` in both sets of bindings.
        unsafe { bindings::spin_lock_bh(ptr.cast()) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &()) {
        // SAFETY: As in `lock`, and the caller holds the lock.
        unsafe { bindings::spin_unlock_bh(ptr.cast()) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: As in `lock`.
        (unsafe { bindings::spin_trylock_bh(ptr.cast()) } != 0).then_some(())
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // Each guard asserts it. Without lockdep that is a call of C for nothing.
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The caller's promise is the same.
            unsafe { SpinLockBackend::assert_is_held(ptr) }
        }
    }
}
