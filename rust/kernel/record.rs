// SPDX-License-Identifier: GPL-2.0

//! Statics that belong to a type.
//!
//! The kernel keeps pointers to what is registered with it: some of them until a reference to the module is given
//! back, some past the end of the registration. What they point to has to be memory of the module then.

/// A type that has a static `R` of its own. [`own_record!`](crate::own_record) implements this.
///
/// # Safety
///
/// `record` must give the same static whenever it is called, which it gives for no other type.
pub unsafe trait Recorded<R: 'static>: 'static {
    /// The static.
    fn record() -> &'static R;
}

/// Gives types statics of their own: `own_record! { Type: Record<Type> }`, for a record with a function `new`.
#[macro_export]
macro_rules! own_record {
    ($type:ty: $record:ty) => {
        // SAFETY: Nobody else can name the static.
        unsafe impl $crate::record::Recorded<$record> for $type {
            fn record() -> &'static $record {
                static RECORD: $record = <$record>::new();
                &RECORD
            }
        }
    };
}
