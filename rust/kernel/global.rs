// SPDX-License-Identifier: GPL-2.0

//! A single object shared by the whole module, published while the module is loaded.
//!
//! `kernel::sync::SetOnce` cannot be cleared. A `kernel::revocable::Revocable` drops its value when revoked, even if
//! references to it remain.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use core::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use kernel::sync::{
    Arc,
    ArcBorrow, //
};

use crate::{
    prelude::*,
    rcu, //
};

/// A slot for one `Arc<T>`, empty until [`Global::publish`].
///
/// # Invariants
///
/// `slot` is null or a pointer from `Arc::into_raw` whose reference the slot owns. A pointer that was taken out is
/// released only after an RCU grace period.
pub struct Global<T: Send + Sync + 'static> {
    slot: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> Global<T> {
    /// Creates an empty slot.
    #[expect(clippy::new_without_default, reason = "const")]
    pub const fn new() -> Self {
        Self {
            slot: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns the published object.
    /// Context: any.
    pub fn get(&'static self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let ptr = self.slot.load(Ordering::Acquire);
        if ptr.is_null() {
            return None;
        }
        // SAFETY: By the type invariant a non-null pointer seen inside an RCU read section comes
        // from `Arc::into_raw` and keeps its reference until the section ends.
        let arc = unsafe { ArcBorrow::from_raw(ptr.cast_const()) };
        Some(arc.into())
    }

    /// Runs `f` with the published object, if there is one. `f` must not sleep. No reference is kept, so that dropping
    /// [`Published`] leaves its holder the last one.
    /// Context: any.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        let ptr = self.slot.load(Ordering::Acquire);
        // SAFETY: By the type invariant a non-null pointer seen inside an RCU read section comes
        // from `Arc::into_raw` and keeps its reference until the section ends.
        unsafe { ptr.as_ref() }.map(f)
    }

    /// Publishes `value` until the returned guard is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another object is published.
    pub fn publish(&'static self, value: Arc<T>) -> Result<Published<T>> {
        let ptr = Arc::into_raw(value).cast_mut();
        // INVARIANT: `ptr` is from `Arc::into_raw`, and its reference moves to the slot.
        let swapped =
            self.slot
                .compare_exchange(ptr::null_mut(), ptr, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            // SAFETY: The exchange failed, so the reference of `into_raw` is still ours.
            drop(unsafe { Arc::from_raw(ptr.cast_const()) });
            return Err(EBUSY);
        }
        Ok(Published(self))
    }
}

/// Keeps the object of a [`Global`] published; dropping it unpublishes the object and may sleep.
pub struct Published<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // INVARIANT: Null is always allowed.
        let ptr = self.0.slot.swap(ptr::null_mut(), Ordering::AcqRel);
        rcu::synchronize_rcu();
        // SAFETY: The slot owned this reference, and no reader can see the pointer any more.
        drop(unsafe { Arc::from_raw(ptr.cast_const()) });
    }
}
