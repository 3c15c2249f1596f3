// SPDX-License-Identifier: GPL-2.0

//! Shrinkers: caches that are freed when memory is short.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    ffi::c_ulong,
    sync::Arc, //
};

use crate::{
    bindings,
    prelude::*, //
};

/// An owner of memory that can be freed on request.
///
/// Both methods run inside the allocation that found memory short, in process context, with any lock held under which
/// memory is allocated with `GFP_KERNEL`. So they must not wait for such a lock, but may try to take it; nor may they
/// wait for the network.
pub trait Shrinker: Send + Sync + 'static {
    /// Returns the number of objects that could be freed. Called often.
    fn count(&self) -> usize;

    /// Frees about `objects`, or schedules that; returns how many have been freed already.
    fn scan(&self, objects: usize) -> usize;
}

/// Keeps a [`Shrinker`] registered. Dropping it waits for calls in progress, and may sleep.
///
/// # Invariants
///
/// `shrinker` is from `shrinker_alloc` and owned; its `private_data` points to the object held by `_owner`.
pub struct Registration<T: Shrinker> {
    shrinker: NonNull<bindings::shrinker>,
    _owner: Arc<T>,
    _callbacks: PhantomData<fn(&T)>,
}

// SAFETY: A shrinker may be registered and freed by any thread.
unsafe impl<T: Shrinker> Send for Registration<T> {}
// SAFETY: A shared reference gives access to nothing.
unsafe impl<T: Shrinker> Sync for Registration<T> {}

impl<T: Shrinker> Registration<T> {
    /// Registers `owner`, whose methods are called from then on.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(name: &'static CStr, owner: Arc<T>) -> Result<Self> {
        // SAFETY: The format takes one string argument, which is passed.
        let ptr = unsafe { bindings::shrinker_alloc(0, c"%s".as_char_ptr(), name.as_char_ptr()) };
        let shrinker = NonNull::new(ptr).ok_or(ENOMEM)?;
        // SAFETY: Just allocated, and nothing else knows it before it is registered.
        let fields = unsafe { &mut *shrinker.as_ptr() };
        fields.count_objects = Some(Self::count_callback);
        fields.scan_objects = Some(Self::scan_callback);
        fields.private_data = Arc::as_ptr(&owner).cast_mut().cast();
        // SAFETY: Allocated and filled above.
        unsafe { bindings::shrinker_register(shrinker.as_ptr()) };
        // INVARIANT: Allocated above, with a pointer to the object held by `owner`.
        Ok(Self {
            shrinker,
            _owner: owner,
            _callbacks: PhantomData,
        })
    }

    /// # Safety
    ///
    /// `shrinker` must belong to a live registration, or to one that waits in its `drop`.
    unsafe fn owner<'a>(shrinker: *mut bindings::shrinker) -> &'a T {
        // SAFETY: By the type invariant the pointer is to a `T` which the registration keeps.
        unsafe { &*(*shrinker).private_data.cast::<T>() }
    }

    /// # Safety
    ///
    /// To be called only by the kernel, between registration and the end of `shrinker_free`.
    unsafe extern "C" fn count_callback(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: By the caller's promise.
        match unsafe { Self::owner(shrinker) }.count() {
            0 => EMPTY,
            // The largest values are special.
            objects => objects.min(MOST),
        }
    }

    /// # Safety
    ///
    /// As for `count_callback`; `control` must be valid for the call.
    unsafe extern "C" fn scan_callback(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: By the caller's promise.
        let objects = unsafe { (*control).nr_to_scan };
        // SAFETY: By the caller's promise.
        unsafe { Self::owner(shrinker) }.scan(objects).min(MOST)
    }
}

impl<T: Shrinker> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the shrinker is ours; it was registered in `new`. No callback runs afterwards,
        // so that the owner may be dropped.
        unsafe { bindings::shrinker_free(self.shrinker.as_ptr()) };
    }
}

/// There is nothing to free.
// CAST: C has `~0UL - 1`, which bindgen turns into a narrower -2: the cast sign-extends it.
const EMPTY: c_ulong = bindings::SHRINK_EMPTY as c_ulong;

/// The largest number of objects.
const MOST: c_ulong = EMPTY - 1;

const _: () = assert!(EMPTY == c_ulong::MAX - 1);
