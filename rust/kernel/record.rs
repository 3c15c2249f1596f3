// SPDX-License-Identifier: GPL-2.0

//! Statics per type.
//!
//! The kernel keeps pointers to registered objects: some until a reference to the module is released, some past the end
//! of the registration. So they have to point to memory of the module.

/// A type that has a static `R` of its own. [`own_record!`](crate::own_record) implements this.
///
/// # Safety
///
/// `record` must return the same static at every call, and no other type may return it.
pub unsafe trait Recorded<R: 'static>: 'static {
    /// The static.
    fn record() -> &'static R;
}

/// Defines a static per type: `own_record! { Type: Record<Type> }`, for a record with a function `new`.
#[macro_export]
macro_rules! own_record {
    ($type:ty: $record:ty) => {
        // SAFETY: No other code can name the static.
        unsafe impl $crate::record::Recorded<$record> for $type {
            fn record() -> &'static $record {
                static RECORD: $record = <$record>::new();
                &RECORD
            }
        }
    };
}
